"""Programs in a whole bridge: what servers ask within reaches the client in either era, and its answers the program."""

import json
from pathlib import Path

import pytest

from mcpbridge.sandbox.python.program import why_none
from support.answering_clients import ACCEPT, FORM, SAMPLE, ask, in_rounds, world
from support.rpc import Message

pytestmark = pytest.mark.skipif(bool(why_none()), reason="needs the extra `code`")

CODE: Message = {"code": {"enabled": True, "total_timeout": "20s"}}
SAMPLED: Message = {"role": "assistant", "content": {"type": "text", "text": "ho"}, "model": "m"}


def answer(question: Message) -> Message:
    return {"elicitation/create": ACCEPT, "sampling/createMessage": SAMPLED}[question["method"]]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize("client", ["legacy", "modern"])
async def test_what_servers_ask_within_reaches_the_client(tmp_path: Path, client: str) -> None:
    """All pairings of eras in one program: asked side by side, then once more."""
    code = f"""
import asyncio
old, new = await asyncio.gather(
    tools.old__play(steps=json_of({json.dumps(json.dumps(ask(FORM)))})),
    call_tool("new__rounds", {{"rounds": json_of({json.dumps(json.dumps(in_rounds(SAMPLE)))})}}),
)
again = await new__rounds(rounds=json_of({json.dumps(json.dumps(in_rounds(FORM)))}))
[list(old.values()), new["answers"]["k1"], again["answers"]["k1"]]
"""
    code = f"import json\ndef json_of(text):\n    return json.loads(text)\n{code}"
    async with world("http", tmp_path, {"old": ["legacy"], "new": ["modern"]}, **CODE) as around:
        person = await around.person(modern=client == "modern")
        reply = await person.calls("run_code", answer, code=code)
        assert not reply.failed, reply.text
        assert json.loads(reply.text) == [[ACCEPT], SAMPLED, ACCEPT]
        assert sorted(question["method"] for question in person.asked) == [
            "elicitation/create",
            "elicitation/create",
            "sampling/createMessage",
        ]


@pytest.mark.parametrize("client", ["legacy", "modern"])
async def test_limits_of_the_client_and_an_approval_do_not_hold_a_program_up(tmp_path: Path, client: str) -> None:
    """A call within uses the place of the program; whoever must agree to it is asked as for a direct call."""
    sections: Message = {
        **CODE,
        "calls": {"max_per_client": 1},
        "permissions": [{"permission": "require_approval", "tools": ["old/play"]}],
    }
    async with world("http", tmp_path, {"old": ["legacy"]}, **sections) as around:
        person = await around.person(modern=client == "modern")

        def agree(question: Message) -> Message:
            return {"action": "accept", "content": {"decision": "once"}}

        reply = await person.calls("run_code", agree, code="await old__play(steps=[])")
        assert len(person.asked) == 1, reply.text
        assert not reply.failed, reply.text
