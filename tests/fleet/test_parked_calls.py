"""Calls that wait for their clients (revision 2026-07-28) are reached from every bridge of the fleet (issue 24)."""

import json
import signal
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.fleet_clients import modern, read
from support.redis_server import Server
from support.replicas import Fleet, Replica, fleet, needs_fleet, until

pytestmark = needs_fleet

ASKING = Path(__file__).parents[1] / "servers" / "asking.py"
FORM = {"type": "object", "properties": {"name": {"type": "string"}}}
QUESTION = {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": FORM}}
STEPS = [{"send": {"id": "q", **QUESTION}}, {"await": ["q"]}]
ROUNDS = [{"inputRequests": {"who": QUESTION}}]


def servers(directory: Path) -> str:
    """One that waits in the middle of its call, one that forgets it, and the journal of both."""
    journal = f"journal={directory / 'journal.txt'}"
    return "".join(
        f'[servers.{era}]\ncommand = "{sys.executable}"\nargs = ["{ASKING}", "{era}", "{journal}"]\n'
        for era in ("legacy", "modern")
    )


@pytest.fixture
def pair(tmp_path: Path) -> Generator[Fleet]:
    redis = Server(tmp_path / "redis").start()
    try:
        with fleet(tmp_path, redis, size=2, servers=servers(tmp_path)) as found:
            yield found
    finally:
        redis.kill()


def calls(directory: Path) -> int:
    """How many calls all the servers of all bridges have had."""
    lines = (directory / "journal.txt").read_text("utf-8").splitlines()
    return sum(json.loads(line)[1].get("method") == "tools/call" for line in lines)


def call(replica: Replica, name: str, more: dict[str, Any] | None = None, id_: int = 1) -> httpx2.Response:
    """A call of `play` or `rounds`; `more` are the params of one that comes back with answers."""
    arguments = {"steps": STEPS} if name.endswith("play") else {"rounds": ROUNDS}
    params = {"name": name, "arguments": arguments, **(more or {})}
    return modern(replica, "tools/call", params, {"elicitation": {"form": {}}}, id_=id_)


def asked(answer: httpx2.Response, key: str) -> dict[str, Any]:
    """What a client comes back with."""
    result = read(answer)["result"]
    assert result["resultType"] == "input_required", result
    (found,) = result["inputRequests"]
    assert key in ("", found)
    responses = {found: {"action": "accept", "content": {"name": "Ann"}}}
    return {"requestState": result["requestState"], "inputResponses": responses}


@pytest.mark.parametrize("name", ["legacy__play", "modern__rounds"])
def test_an_answer_reaches_the_call_that_waits_at_another_bridge(pair: Fleet, tmp_path: Path, name: str) -> None:
    """Both kinds of upstream are processes of the bridge that asked, and may remember the call."""
    first, second = pair.replicas
    back = asked(call(first, name), "")
    answer = read(call(second, name, back, 2))
    assert answer["id"] == 2
    assert "Ann" in json.dumps(answer["result"]), answer
    rounds = calls(tmp_path)
    assert rounds == (1 if name.endswith("play") else 2)
    for replica in (first, second, first):  # it opens once, at whichever bridge
        again = read(call(replica, name, back, 3))
        assert again["error"]["code"] == -32602, again
    assert calls(tmp_path) == rounds


def test_nobody_else_continues_a_call(pair: Fleet) -> None:
    """The bridge that has it looks at who calls and with which arguments; whoever hands it on is not believed."""
    first, second = pair.replicas
    back = asked(call(first, "legacy__play"), "")
    other = call(second, "legacy__play", {**back, "arguments": {"steps": []}})
    assert read(other)["error"]["code"] == -32602
    elsewhere = {**back, "requestState": f"{'0' * 10}.{back['requestState'].partition('.')[2]}"}
    assert read(call(second, "legacy__play", elsewhere))["error"]["code"] == -32602
    assert "result" in read(call(second, "legacy__play", back))


@pytest.mark.parametrize("name", ["legacy__play", "modern__rounds"])
def test_a_call_whose_bridge_died_is_not_made_again(pair: Fleet, tmp_path: Path, name: str) -> None:
    """−32602, never a silent second run; and until its lease has ended, an error that says that nothing was sent."""
    first, second = pair.replicas
    back = asked(call(first, name), "")
    first.kill()
    seen = list[dict[str, Any]]()

    def is_over() -> bool:
        seen.append(read(call(second, name, back, 2)))
        return seen[-1]["error"]["code"] == -32602

    until(is_over, "the call is known to be lost")
    assert all(one["error"]["message"].startswith("not sent") and one["id"] == 2 for one in seen[:-1]), seen
    assert calls(tmp_path) == 1


def test_a_call_whose_bridge_hangs_is_not_sent(pair: Fleet, tmp_path: Path) -> None:
    """While its lease lives nobody else has its calls."""
    first, second = pair.replicas
    back = asked(call(first, "legacy__play"), "")
    first.signal(signal.SIGSTOP)
    try:
        refused = call(second, "legacy__play", back)
        assert refused.status_code in (200, 503), refused.text
        error = read(refused)["error"]
        assert error["message"].startswith("not sent") or error["code"] == -32602
    finally:
        first.signal(signal.SIGCONT)
    assert calls(tmp_path) == 1
