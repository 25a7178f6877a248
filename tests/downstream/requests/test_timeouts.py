"""Whose calls go on without them, and what becomes of questions about those (issue 4, Time)."""

import asyncio
from typing import Any

import pytest

from mcpbridge.base.errors import UpstreamTimeout
from mcpbridge.core.elicitation import ELICIT
from mcpbridge.core.model import Call
from mcpbridge.downstream.client import Client
from mcpbridge.downstream.requests.timeouts import CallTimeouts, says_timeout
from mcpbridge.pipeline.stages.abandoned_calls import AbandonedCall
from mcpbridge.storage.memory_store import MemoryStore
from support.in_process_bridge import Ear, bridged
from support.upstreams.scripted_upstream import LEGACY_SERVER, SILENCE, ScriptedTransport, Someone, call_of
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


# -- what is no call of a tool


OTHERS: dict[str, Any] = {
    "prompts/get": {"name": "p"},
    "resources/read": {"uri": "memo://one"},
    "completion/complete": {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": ""}},
}
OFFERING = {
    **LEGACY_SERVER,
    "initialize": {
        **LEGACY_SERVER["initialize"],
        "capabilities": {"tools": {}, "prompts": {}, "resources": {}, "completions": {}},
    },
    "prompts/list": {"prompts": [{"name": "p", "arguments": [{"name": "a"}]}]},
    "resources/list": {"resources": [{"uri": "memo://one", "name": "one"}]},
    "resources/templates/list": {"resourceTemplates": []},
}


@pytest.mark.parametrize(
    "reason", ["timed out after 5s", "McpError: MCP error -32001: Request timed out", "not wanted"]
)
@pytest.mark.parametrize("method", OTHERS)
async def test_another_request_that_timed_out_at_its_client_is_cancelled_at_its_server(
    method: str, reason: str
) -> None:
    """Nothing would be done with its result, so the server need not go on; that holds for calls of tools alone."""
    transport = ScriptedTransport(OFFERING, **{method: SILENCE})
    async with bridged({"up": transport}, store={"kind": "memory"}) as bridge:
        ear = Ear(bridge.server)
        await initialize(ear)
        asked = asyncio.ensure_future(ear.ask(method, OTHERS[method], b"2"))
        id_ = (await transport.hears(method))["id"]
        ear.tell("notifications/cancelled", {"requestId": 2, "reason": reason})
        assert await asked == {}
        assert (await transport.hears("notifications/cancelled"))["params"]["requestId"] == id_
        assert not [m for m in [*ear.told, *ear.meanwhile] if m["method"] == "notifications/message"]


async def test_a_call_that_timed_out_before_a_server_worked_on_it_is_cancelled() -> None:
    """It waits for the one slot of its server: it has done nothing yet, so nothing is kept of it."""
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": SILENCE})
    servers = {"up": {"max_concurrent": 1}}
    async with bridged({"up": transport}, servers=servers, store={"kind": "memory"}) as bridge:
        ear = Ear(bridge.server)
        await initialize(ear)
        first = asyncio.ensure_future(ear.ask("tools/call", CALL, b"1"))
        await transport.hears("tools/call")
        second = asyncio.ensure_future(ear.ask("tools/call", {**CALL, "arguments": {"text": "y"}}, b"2"))
        for _ in range(20):
            await asyncio.sleep(0)
        give_up(ear)
        assert await second == {}
        finish(transport)
        assert (await first)["result"]["content"] == DONE["content"]
        third = asyncio.ensure_future(ear.ask("tools/call", {**CALL, "arguments": {"text": "y"}}, b"3"))
        await transport.hears("tools/call", times=2)
        finish(transport)
        assert LATE not in (await third)["result"].get("_meta", {})
        assert len(transport.asked("tools/call")) == 2


async def test_a_call_that_was_given_up_is_its_clients_alone_and_its_server_can_ask_nobody() -> None:
    """A hook of it may make a call in the same task as another client, who does wait for that one."""
    failures = list[BaseException]()

    class Book:
        lifetime = 60.0

        def begin(self, call: Call) -> Any:
            return AbandonedCall(call, "key")

        def failed(self, call: Call, error: BaseException | None = None) -> None:
            if error is not None:
                failures.append(error)

    told: dict[str, list[bytes]] = {"mine": [], "other": []}
    mine, other = (Client(push=told[name].append) for name in told)
    for client in (mine, other):
        client.modern = False
    timeouts = CallTimeouts(Book(), is_running=lambda call: True)  # type: ignore[arg-type]
    task = asyncio.ensure_future(asyncio.Event().wait())
    call = call_of()
    call.client = Someone(form=True)
    call.client.relays = True
    timeouts.calls[task] = call
    error = UpstreamTimeout("up", 1)
    assert not timeouts.failed(task, mine, error), "it was not given up yet"
    assert timeouts.give_up(mine, task)
    assert not call.client.relays
    assert not call.client.give_way("up")
    assert not timeouts.failed(task, other, error)
    assert not timeouts.failed(asyncio.ensure_future(asyncio.sleep(0)), mine, error)
    assert timeouts.failed(task, mine, error)
    assert failures == [error]
    assert [len(one) for one in told.values()] == [1, 0]
    task.cancel()
    await asyncio.wait([task])
    assert not timeouts.given_up
