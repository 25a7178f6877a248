"""What surrounds a call: read from what the client says, given by the program, and kept apart by who calls."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpbridge.config.schema import Settings
from mcpbridge.core.context import NOWHERE, BridgeContext, CallContext, Cancellation, Session, context_of
from mcpbridge.library.bridge import Bridge
from mcpbridge.pipeline.hooks.call import HookCall, HookFunction, before
from mcpbridge.pipeline.stages.observe import FINISHED
from mcpbridge.protocol.body import Body
from mcpbridge.storage.call_log.format import CallRecord
from support.in_process_bridge import BridgeToScripts, Ear, bridged
from support.upstreams.scripted_upstream import LEGACY_SERVER, MODERN_SERVER, SILENCE, ScriptedTransport

Message = dict[str, Any]


def context(meta: Any, session: Session | None = None, around: BridgeContext = NOWHERE) -> CallContext:
    body = None if meta is None else Body(json.dumps(meta).encode())
    return context_of(body, session or Session(), "server/tool", around)


# -- what a client says of itself


def test_a_call_that_says_nothing_has_a_run_of_its_own_and_an_empty_context() -> None:
    first, second = context(None), context({})
    assert first.run
    assert first.run != second.run
    assert (first.user, first.tenant, dict(first.metadata), dict(first.dependencies)) == ("", "", {}, {})


def test_what_the_client_says_is_taken() -> None:
    said = {"tenant": "acme", "user": "ann", "metadata": {"ticket": 7}}
    told = context({"mcpbridge/run": "r1", "mcpbridge/context": said})
    assert (told.run, told.tenant, told.user, dict(told.metadata)) == ("r1", "acme", "ann", {"ticket": 7})


def test_who_was_authenticated_cannot_say_to_be_somebody_else() -> None:
    around = BridgeContext(tenants={"ann": "acme"})
    told = context({"mcpbridge/context": {"tenant": "other", "user": "bob"}}, Session("ann"), around)
    assert (told.user, told.tenant) == ("ann", "acme")


def test_a_token_without_a_tenant_leaves_it_to_the_client() -> None:
    told = context({"mcpbridge/context": {"tenant": "mine"}}, Session("bob"), BridgeContext(tenants={"ann": "acme"}))
    assert told.tenant == "mine"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(max_examples=50)
@given(st.dictionaries(st.sampled_from(["mcpbridge/run", "mcpbridge/context", "x"]), json_values))
def test_what_has_the_wrong_shape_counts_as_not_said(meta: Message) -> None:
    """A client's mistake in a key that only the bridge reads is no reason to refuse its call."""
    told = context(meta)
    assert told.run
    assert isinstance(told.tenant, str)
    assert isinstance(told.user, str)
    json.dumps(dict(told.metadata))


def test_a_name_without_measure_counts_as_none() -> None:
    told = context({"mcpbridge/run": "x" * 201, "mcpbridge/context": {"tenant": "y" * 201}})
    assert len(told.run) == 16
    assert told.tenant == ""


def test_what_is_no_object_is_no_context() -> None:
    assert context_of(Body(b"[1]"), Session(), "", NOWHERE).tenant == ""


# -- cancelling


async def test_a_cancelled_call_says_so_to_everybody_who_waits() -> None:
    cancellation = Cancellation()
    waiting = asyncio.create_task(cancellation.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    cancellation.cancel()
    with anyio.fail_after(30):
        await waiting
        await cancellation.wait()
    assert cancellation.is_cancelled


@asynccontextmanager
async def hooked(
    transports: dict[str, ScriptedTransport], hook: HookFunction, **more: Any
) -> AsyncIterator[BridgeToScripts]:
    """A running bridge with a hook before each call."""
    settings = Settings.model_validate({"servers": {name: {"command": "scripted"} for name in transports}})
    bridge = BridgeToScripts(settings, transports)
    Bridge.__init__(bridge, settings, hooks=[before(hook)], **more)
    with anyio.fail_after(60):
        async with bridge:
            assert await bridge.settled(30)
            yield bridge


async def test_a_client_that_cancels_its_call_is_no_longer_waited_for() -> None:
    seen: list[CallContext] = []

    def look(call: HookCall) -> None:
        seen.append(call.context)
        call.context.events.publish("seen", call.tool)

    silent = ScriptedTransport({**LEGACY_SERVER, "tools/call": SILENCE})
    async with hooked({"old": silent}, look) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        with bridge.events.subscribe() as events, anyio.fail_after(30):
            asking = asyncio.create_task(ear.ask("tools/call", {"name": "old__echo"}, b"7"))
            published = await anext(events)
            assert (published.name, published.data, published.tool) == ("seen", "old/echo", "old/echo")
            assert (published.run, published.session) == (seen[0].run, ear.client.session.id)
            assert not seen[0].cancelled
            ear.tell("notifications/cancelled", {"requestId": 7})
            await seen[0].cancellation.wait()
            assert await asking == {}
            finished = await anext(events)
        assert seen[0].cancelled
        assert isinstance(finished.data, CallRecord)
        assert (finished.name, finished.data.outcome) == (FINISHED, "cancelled")


async def test_a_parked_call_whose_client_leaves_is_no_longer_waited_for() -> None:
    """It runs in a task of its own between the requests of a modern client."""
    seen: list[CallContext] = []
    silent = ScriptedTransport({**LEGACY_SERVER, "tools/call": SILENCE})
    async with hooked({"old": silent}, lambda call: seen.append(call.context)) as bridge:
        ear = Ear(bridge.server)
        able = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
        with anyio.fail_after(30):
            asking = asyncio.create_task(ear.ask_modern("tools/call", {"name": "old__echo"}, **able))
            await silent.hears("tools/call")
            line = next(line for line in silent.lines if line.asked("tools/call"))
            question = {"message": "sure?", "requestedSchema": {"type": "object", "properties": {}}}
            line.gives({"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": question})
            assert (await asking)["result"]["resultType"] == "input_required"
            assert not seen[0].cancelled
            ear.leave()
            await seen[0].cancellation.wait()
        assert seen[0].cancelled


# -- with a bridge


async def test_a_call_carries_what_the_program_gave_and_what_it_said() -> None:
    seen: list[CallContext] = []

    def count(call: HookCall) -> None:
        seen.append(call.context)
        call.context.state["calls"] = call.context.state.get("calls", 0) + 1

    database = object()
    async with hooked({"old": ScriptedTransport(LEGACY_SERVER)}, count, dependencies={"database": database}) as bridge:
        params = {"name": "old__echo", "arguments": {}}
        await bridge.request("tools/call", params, user="ann", tenant="acme", metadata={"ticket": 1}, run="night")
        await bridge.request("tools/call", params, user="ann")
        await bridge.request("tools/call", params, user="bob")
    first, second, other = seen
    assert (first.user, first.tenant, dict(first.metadata), first.run) == ("ann", "acme", {"ticket": 1}, "night")
    assert first.session is second.session
    assert first.state == {"calls": 2}
    assert other.state == {"calls": 1}
    assert second.run not in ("night", other.run)
    assert other.dependencies["database"] is database


async def test_keys_that_are_for_the_bridge_do_not_cross_it_and_others_do() -> None:
    """What a client tells the bridge of its tenant is no business of a server's."""
    old, new = ScriptedTransport(LEGACY_SERVER), ScriptedTransport(MODERN_SERVER)
    async with bridged({"old": old, "new": new}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        own = {"mcpbridge/run": "r", "mcpbridge/context": {"tenant": "t"}, "mcpbridge/later": 1, "mcpbridge/turn": "1"}
        meta = {**own, "traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01", "vendor/key": 1}
        for name in ("old__echo", "new__echo"):
            await ear.ask("tools/call", {"name": name, "_meta": meta})
            await ear.ask_modern("tools/call", {"name": name}, **meta)
        for transport in (old, new):
            calls = transport.asked("tools/call")
            assert len(calls) == 2
            for sent in calls:
                crossed = sent["params"]["_meta"]
                assert not [key for key in crossed if key.startswith("mcpbridge/")]
                assert crossed["vendor/key"] == 1
                assert crossed["traceparent"] == meta["traceparent"]
