"""Whose calls go on without them, and what becomes of questions about those (issue 4, Time)."""

import asyncio
from typing import Any

import pytest

from mcpbridge.core.elicitation import ELICIT
from mcpbridge.downstream.requests.timeouts import says_timeout
from mcpbridge.storage.memory_store import MemoryStore
from support.in_process_bridge import Ear, bridged
from support.upstreams.scripted_upstream import LEGACY_SERVER, SILENCE, ScriptedTransport
from support.virtual_time import standing_time

QUESTION = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}
DONE = LEGACY_SERVER["tools/call"]
CALL = {"name": "echo", "arguments": {"text": "x"}}
LATE = "mcpbridge/late"


async def initialize(ear: Ear) -> None:
    """The handshake of a client that can be asked something."""
    info = {"protocolVersion": "2025-11-25", "clientInfo": {"name": "ear", "version": "1"}}
    await ear.ask("initialize", {**info, "capabilities": {"elicitation": {}}})
    ear.tell("notifications/initialized")


async def abandoned(ear: Ear, transport: ScriptedTransport) -> "asyncio.Task[Any]":
    """A call that is under way at the server, and whose client has just stopped waiting."""
    call = asyncio.ensure_future(ear.ask("tools/call", CALL, b"2"))
    await transport.hears("tools/call")
    give_up(ear)
    return call


def give_up(ear: Ear) -> None:
    ear.tell("notifications/cancelled", {"requestId": 2, "reason": "timed out after 1s"})


def finish(transport: ScriptedTransport) -> None:
    """The server answers the call."""
    id_ = transport.asked("tools/call")[-1]["id"]
    transport.line.gives({"jsonrpc": "2.0", "id": id_, "result": DONE})


@pytest.mark.parametrize(
    ("reason", "is_timeout"),
    [
        ("timed out after 5.0s", True),
        ("McpError: MCP error -32001: Request timed out", True),
        ("Request timeout", True),
        ("it timed-out", True),
        ("context deadline exceeded", True),
        ("DEADLINE_EXCEEDED", True),
        ("", False),
        ("caller cancelled", False),
        ("context canceled", False),
        ("no time to go out", False),
    ],
)
def test_a_timeout_is_known_by_its_words(reason: str, is_timeout: bool) -> None:
    assert says_timeout(reason) == is_timeout


async def test_what_is_asked_about_an_abandoned_call_is_refused_and_nobody_sees_it() -> None:
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": SILENCE})
    async with bridged({"up": transport}, store={"kind": "memory"}) as bridge:
        ear = Ear(bridge.server)
        await initialize(ear)
        call = await abandoned(ear, transport)
        transport.line.gives({"jsonrpc": "2.0", "id": "q", "method": ELICIT, "params": QUESTION})
        assert "does not wait" in (await transport.answer("q"))["error"]["message"]
        finish(transport)
        assert await call == {}
        assert not [m for m in [*ear.told, *ear.meanwhile] if m["method"] == ELICIT]
        assert (await ear.ask("tools/call", CALL, b"3"))["result"]["_meta"][LATE]
        assert len(transport.asked("tools/call")) == 1


async def test_a_call_that_waits_for_an_answer_of_its_client_is_cancelled_and_the_question_with_it() -> None:
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": SILENCE})
    async with bridged({"up": transport}, store={"kind": "memory"}) as bridge:
        ear = Ear(bridge.server)
        await initialize(ear)
        call = asyncio.ensure_future(ear.ask("tools/call", CALL, b"2"))
        await transport.hears("tools/call")
        transport.line.gives({"jsonrpc": "2.0", "id": "q", "method": ELICIT, "params": QUESTION})
        await ear.hears(ELICIT)
        give_up(ear)
        assert await call == {}
        await transport.hears("notifications/cancelled")
        await ear.hears("notifications/cancelled")


async def test_no_progress_of_an_abandoned_call_is_told() -> None:
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": SILENCE})
    async with bridged({"up": transport}, store={"kind": "memory"}) as bridge:
        ear = Ear(bridge.server)
        await initialize(ear)
        asked = {**CALL, "_meta": {"progressToken": "t"}}
        with standing_time():  # else the bridge may tell that it waits for the server to start
            call = asyncio.ensure_future(ear.ask("tools/call", asked, b"2"))
            await transport.hears("tools/call")
        token = transport.asked("tools/call")[0]["params"]["_meta"]["progressToken"]
        transport.line.says("notifications/progress", progressToken=token, progress=1)
        await ear.hears("notifications/progress")
        give_up(ear)
        transport.line.says("notifications/progress", progressToken=token, progress=2)
        finish(transport)
        assert await call == {}
        assert [m["params"]["progress"] for m in ear.meanwhile if m["method"] == "notifications/progress"] == [1]


async def test_giving_up_twice_is_giving_up_once() -> None:
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": SILENCE})
    async with bridged({"up": transport}, store={"kind": "memory"}) as bridge:
        ear = Ear(bridge.server)
        await initialize(ear)
        call = await abandoned(ear, transport)
        give_up(ear)
        finish(transport)
        assert await call == {}
        notices = [m for m in [*ear.told, *ear.meanwhile] if m["method"] == "notifications/message"]
        assert len(notices) == 1
        assert not transport.asked("notifications/cancelled")


async def test_the_end_of_a_session_cancels_what_it_gave_up() -> None:
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": SILENCE})
    async with bridged({"up": transport}, store={"kind": "memory"}) as bridge:
        ear, other = Ear(bridge.server), Ear(bridge.server)
        await ear.initialize()
        await other.initialize()
        call = await abandoned(ear, transport)
        same = asyncio.ensure_future(other.ask("tools/call", CALL, b"2"))
        await transport.hears("tools/call", 2)
        ear.leave()
        await transport.hears("notifications/cancelled")
        with pytest.raises(asyncio.CancelledError):
            await call
        finish(transport)
        assert "_meta" not in (await same)["result"], "another session's call is its own"


async def test_a_modern_client_that_can_be_asked_gets_it_with_the_same_call() -> None:
    """Its calls run in tasks of their own, so that they can wait for it between its requests."""
    able = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": SILENCE})
    async with bridged({"up": transport}, store={"kind": "memory"}) as bridge:
        ear = Ear(bridge.server)
        call = asyncio.ensure_future(ear.ask_modern("tools/call", CALL, b"2", **able))
        await transport.hears("tools/call")
        give_up(ear)
        transport.line.gives({"jsonrpc": "2.0", "id": "q", "method": ELICIT, "params": QUESTION})
        assert "error" in await transport.answer("q")
        finish(transport)
        assert await call == {}
        result = (await ear.ask_modern("tools/call", CALL, b"3", **able))["result"]
        assert result["_meta"][LATE]
        assert result["content"] == DONE["content"]
        assert not ear.told


async def test_a_call_that_is_cancelled_while_its_result_is_stored_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storing = asyncio.Event()

    async def put(*_: Any, **__: Any) -> str:
        storing.set()
        await asyncio.Event().wait()
        raise AssertionError

    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": SILENCE})
    async with bridged({"up": transport}, store={"kind": "memory"}) as bridge:
        ear = Ear(bridge.server)
        await initialize(ear)
        call = await abandoned(ear, transport)
        monkeypatch.setattr(MemoryStore, "put", put)
        finish(transport)
        await storing.wait()
        ear.tell("notifications/cancelled", {"requestId": 2, "reason": "the user pressed escape"})
        assert await call == {}
        transport.script["tools/call"] = DONE
        assert "_meta" not in (await ear.ask("tools/call", CALL, b"3"))["result"]


# -- calls that others wait for as well

CACHED: Any = {"servers": {"up": {"tool": {"echo": {"read_only": True, "cache": 60}}}}, "store": {"kind": "memory"}}


async def test_a_call_of_a_cached_tool_is_kept_like_any_other() -> None:
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": SILENCE})
    async with bridged({"up": transport}, **CACHED) as bridge:
        ear = Ear(bridge.server)
        await initialize(ear)
        call = await abandoned(ear, transport)
        transport.line.gives({"jsonrpc": "2.0", "id": "q", "method": ELICIT, "params": QUESTION})
        assert "does not wait" in (await transport.answer("q"))["error"]["message"]
        finish(transport)
        assert await call == {}
        assert not [m for m in [*ear.told, *ear.meanwhile] if m["method"] == ELICIT]
        assert (await ear.ask("tools/call", CALL, b"3"))["result"]["_meta"][LATE]
        assert not transport.asked("notifications/cancelled")
        assert len(transport.asked("tools/call")) == 1


async def test_so_is_one_that_waits_for_the_run_of_another_client_that_cancels() -> None:
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": SILENCE})
    async with bridged({"up": transport}, **CACHED) as bridge:
        first, ear = Ear(bridge.server), Ear(bridge.server)
        await first.initialize()
        await ear.initialize()
        leading = asyncio.ensure_future(first.ask("tools/call", CALL, b"9"))
        waiting = asyncio.ensure_future(ear.ask("tools/call", CALL, b"2"))
        await transport.hears("tools/call")
        first.tell("notifications/cancelled", {"requestId": 9, "reason": "the user pressed escape"})
        assert await leading == {}
        give_up(ear)
        finish(transport)
        assert await waiting == {}
        assert (await ear.ask("tools/call", CALL, b"3"))["result"]["_meta"][LATE]
        assert not transport.asked("notifications/cancelled")
        assert len(transport.asked("tools/call")) == 1


async def test_when_the_one_that_began_a_run_gave_up_a_question_lets_the_others_run_themselves() -> None:
    """It cannot be answered for the one; that is no reason for the others to fail."""
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": SILENCE})
    async with bridged({"up": transport}, **CACHED) as bridge:
        ear = Ear(bridge.server)
        await initialize(ear)
        call = asyncio.ensure_future(ear.ask("tools/call", CALL, b"2"))
        other = asyncio.ensure_future(ear.ask("tools/call", CALL, b"3"))
        await transport.hears("tools/call")
        give_up(ear)
        transport.line.gives({"jsonrpc": "2.0", "id": "q", "method": ELICIT, "params": QUESTION})
        assert "does not wait" in (await transport.answer("q"))["error"]["message"]
        second = await transport.hears("tools/call", times=2)
        transport.line.gives({"jsonrpc": "2.0", "id": second["id"], "result": DONE})
        assert (await other)["result"]["content"] == DONE["content"]
        call.cancel()


# -- calls that were asked something before


async def test_a_call_that_goes_on_with_an_answer_is_kept_like_any_other() -> None:
    """It runs since an earlier request; the one that is given up brought the answer."""
    able = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": SILENCE})
    async with bridged({"up": transport}, store={"kind": "memory"}) as bridge:
        ear = Ear(bridge.server)
        first = asyncio.ensure_future(ear.ask_modern("tools/call", CALL, b"1", **able))
        await transport.hears("tools/call")
        transport.line.gives({"jsonrpc": "2.0", "id": "q", "method": ELICIT, "params": QUESTION})
        asked = (await first)["result"]
        answers = {key: {"action": "accept", "content": {}} for key in asked["inputRequests"]}
        again = {**CALL, "requestState": asked["requestState"], "inputResponses": answers}
        call = asyncio.ensure_future(ear.ask_modern("tools/call", again, b"2", **able))
        await transport.answer("q")
        give_up(ear)
        transport.line.gives({"jsonrpc": "2.0", "id": "r", "method": ELICIT, "params": QUESTION})
        assert "does not wait" in (await transport.answer("r"))["error"]["message"]
        finish(transport)
        assert await call == {}
        assert (await ear.ask_modern("tools/call", CALL, b"3", **able))["result"]["_meta"][LATE]
        assert not transport.asked("notifications/cancelled")
        assert len(transport.asked("tools/call")) == 1
