"""Calls that servers run as tasks, and what else of a session is minted or timed, in a cassette."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from mcpbridge import Bridge
from mcpbridge.engine.cassettes.cassette import Cassette
from support.harness import python_server

GONE = {"command": "no-such-program-anywhere"}
QUESTION = {"message": "Who is there?", "requestedSchema": {"type": "object", "properties": {}}}


def answer(params: dict[str, Any]) -> dict[str, Any]:
    return {"action": "accept", "content": {"name": "Ann"}}


async def played(up: dict[str, Any], cassette: Cassette | Path) -> list[Any]:
    steps = [{"say": "begun"}, {"say": "half"}, {"result": {"content": [{"type": "text", "text": "done"}]}}]
    asking = [{"ask": {"who": {"method": "elicitation/create", "params": QUESTION}}}]
    calls = [{"steps": steps, "poll": 5}, {"steps": steps, "poll": 5}, {"steps": asking, "poll": 5}]
    with anyio.fail_after(60):
        async with Bridge.open({"servers": {"up": up}}, cassette=cassette, environ={}, on_elicitation=answer) as bridge:
            assert await bridge.settled(30)
            return [(await bridge.call_tool("up/job", arguments)).raw for arguments in calls]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_tasks_are_followed_to_the_same_end(tmp_path: Path, era: str) -> None:
    up = python_server("tasks_upstream", era)
    recorded = [await played(up, tmp_path / name) for name in ("a.jsonl", "b.jsonl")]
    assert "done" in str(recorded[0][0])
    assert "Ann" in str(recorded[0][2])
    assert (tmp_path / "a.jsonl").read_text() == (tmp_path / "b.jsonl").read_text()
    tape = Cassette(tmp_path / "a.jsonl")
    replayed = await played(GONE, tape)
    assert replayed[:2] == recorded[0][:2] == recorded[1][:2]
    assert "Ann" in str(replayed[2]), "which tells the id of its task, that is another each time"
    assert tape.unmatched == []
