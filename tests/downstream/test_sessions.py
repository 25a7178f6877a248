"""What lasts over the requests of modern clients: for each principal, client and conversation, not for ever."""

import hashlib
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.config.schema import Settings
from mcpbridge.core.context import CallContext, Session
from mcpbridge.downstream.client import LONGEST_NAME, Client
from mcpbridge.downstream.http.server import ListenAddress, bind_port, serve_http
from mcpbridge.downstream.sessions import Sessions
from mcpbridge.library.bridge import Bridge
from mcpbridge.pipeline.hooks.call import HookCall, before
from support.harness import python_server
from support.http_front import JSON, MODERN
from support.in_process_bridge import Ear, bridged
from support.rpc import envelope
from support.upstreams.scripted_upstream import LEGACY_SERVER, ScriptedTransport


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_same_client_finds_its_session_again() -> None:
    sessions = Sessions()
    first = sessions.of("ann", "editor")
    assert sessions.of("ann", "editor") is first
    assert (first.principal, first.client) == ("ann", "editor")
    others = [sessions.of("bob", "editor"), sessions.of("ann", "other"), sessions.of("ann", "editor", "second")]
    assert len({id(session) for session in [first, *others]}) == 4
    assert len({session.id for session in [first, *others]}) == 4
    assert len(sessions) == 4


def test_an_unused_session_ends() -> None:
    clock = Clock()
    sessions = Sessions(idle=10, clock=clock)
    first = sessions.of("ann")
    clock.now = 9
    assert sessions.of("ann") is first
    clock.now = 18
    assert sessions.of("ann") is first
    clock.now = 28
    assert sessions.of("ann") is not first
    assert len(sessions) == 1


def test_idle_sessions_make_room_first_then_the_principals_own_oldest() -> None:
    clock = Clock()
    sessions = Sessions(places=3, idle=100, clock=clock)
    bobs = sessions.of("bob")
    for number in range(50):
        clock.now += 1
        sessions.of("ann", "editor", f"conversation {number}")
    assert len(sessions) == 3
    assert sessions.of("bob") is bobs
    newest = sessions.of("ann", "editor", "conversation 49")
    clock.now += 99.5
    sessions.of("bob", "another")
    assert len(sessions) == 3
    assert sessions.of("ann", "editor", "conversation 49") is newest


def test_when_all_are_in_use_a_newcomer_takes_the_place_of_the_oldest() -> None:
    clock = Clock()
    sessions = Sessions(places=2, clock=clock)
    oldest = sessions.of("ann")
    clock.now = 1
    second = sessions.of("bob")
    clock.now = 2
    sessions.of("cid")
    assert len(sessions) == 2
    assert sessions.of("bob") is second
    clock.now = 3
    assert sessions.of("ann") is not oldest


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 6)), max_size=60),
    st.integers(1, 5),
)
def test_places_are_given_as_promised_whatever_comes(uses: list[tuple[int, int, int]], places: int) -> None:
    """The same object while in use; of a full house the idle one goes, else one's own oldest, else the oldest."""
    clock = Clock()
    sessions = Sessions(places=places, idle=10, clock=clock)
    expected: dict[tuple[str, str], tuple[Session, float]] = {}  # those used longest ago first
    for who, client, pause in uses:
        clock.now += pause
        key = f"user {who}", f"client {client}"
        session = sessions.of(*key)
        known = expected.pop(key, None)
        if known is not None and clock.now - known[1] < 10:
            assert session is known[0]
        else:
            assert known is None or session is not known[0]
            if len(expected) == places:
                oldest = next(iter(expected))
                own = next((other for other in expected if other[0] == key[0]), oldest)
                del expected[oldest if clock.now - expected[oldest][1] >= 10 else own]
        expected[key] = session, clock.now
        assert len(sessions) == len(expected) <= places


@pytest.mark.parametrize("idles", [False, True])
def test_room_is_made_in_the_same_number_of_steps_however_many_there_are(idles: bool) -> None:
    """It happens on the event loop, for each new user."""

    def steps(places: int) -> int:
        clock = Clock()
        sessions = Sessions(places=places, idle=10, clock=clock)
        for number in range(places):
            sessions.of(f"user {number}")
        clock.now = 11 if idles else 1
        count = 0

        def counted(*_: object) -> Any:
            nonlocal count
            count += 1
            return counted

        before = sys.gettrace()
        sys.settrace(counted)
        try:
            sessions.of("somebody new")
        finally:
            sys.settrace(before)
        return count

    assert steps(2000) == steps(20)


@pytest.mark.parametrize("name", ["ann", ""])
def test_requests_on_one_channel_share_its_session(name: str) -> None:
    channel = Client(principal=name)
    first = Client(principal=name, modern=True, info={"name": "editor"}, channel=channel)
    second = Client(principal=name, modern=True, info={"name": "editor"}, channel=channel)
    assert first.session is second.session
    assert channel.session is first.session
    assert first.session.client == "editor"
    assert Client(principal=name, modern=True).session is not first.session


async def test_legacy_and_modern_requests_of_one_channel_share_its_session() -> None:
    async with bridged({"old": ScriptedTransport(LEGACY_SERVER)}) as bridge:
        ear, other = Ear(bridge.server), Ear(bridge.server)
        await ear.initialize()
        await ear.ask_modern("tools/call", {"name": "old__echo"})
        await other.ask_modern("tools/call", {"name": "old__echo"})
        assert ear.client.session is not other.client.session
        assert len(bridge.server.sessions) == 0


# -- over HTTP, where every request stands alone

_TOKENS = {"ann": "a" * 32, "bob": "b" * 32}


async def test_of_a_long_name_only_the_beginning_is_kept() -> None:
    """Clients choose it, and every request of a modern client may bring another."""
    sessions = Sessions()
    for number in range(3):
        info = {"name": "n" * LONGEST_NAME + str(number) * 1_000_000}
        client = Client(modern=True, info=info, sessions=sessions)
        assert client.name == client.session.client == "n" * LONGEST_NAME
    assert len(sessions) == 1
    assert Client(info={"name": "editor"}).name == "editor"
    assert Client(info={"name": 5}).name == ""


@asynccontextmanager
async def served(seen: list[CallContext], *, tokens: list[dict[str, str]]) -> AsyncIterator[httpx2.AsyncClient]:
    """A real front on a free port, before a bridge whose hook counts calls in the session's state."""

    def count(call: HookCall) -> None:
        seen.append(call.context)
        call.context.state["calls"] = call.context.state.get("calls", 0) + 1

    settings = Settings.model_validate({"servers": {"plain": python_server("plain")}, "http": {"tokens": tokens}})
    urls: list[str] = []
    is_ready = anyio.Event()

    def ready(url: str) -> None:
        urls.append(url)
        is_ready.set()

    async def serve(bridge: Bridge, at: ListenAddress) -> None:
        await serve_http(bridge, settings.http, at, on_ready=ready)

    with anyio.fail_after(90), bind_port(settings.http, host="127.0.0.1", port=0, no_auth=True) as at:
        async with Bridge(settings, hooks=[before(count)]) as bridge, anyio.create_task_group() as tasks:
            assert await bridge.settled(60)
            tasks.start_soon(serve, bridge, at)
            await is_ready.wait()
            async with httpx2.AsyncClient(base_url=urls[0], trust_env=False, timeout=60) as http:
                yield http
            tasks.cancel_scope.cancel()


async def call(http: httpx2.AsyncClient, name: str = "", **meta: Any) -> None:
    params = {"name": "plain__echo", "arguments": {"text": "x"}, "_meta": envelope(**meta)}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {**JSON, "mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "plain__echo"}
    if name:
        headers["authorization"] = f"Bearer {_TOKENS[name]}"
    response = await http.post("", content=json.dumps(message).encode(), headers=headers)
    assert response.status_code == 200, response.text


async def test_state_lasts_over_modern_requests_of_one_principal_and_is_no_other_ones() -> None:
    """Promise of the bridge: what is kept for one principal, no other gets at, whatever it calls itself."""
    tokens = [
        {"name": name, "sha256": hashlib.sha256(token.encode()).hexdigest(), "tenant": "acme" if name == "ann" else ""}
        for name, token in _TOKENS.items()
    ]
    seen: list[CallContext] = []
    async with served(seen, tokens=tokens) as http:
        own = {"mcpbridge/context": {"tenant": "claimed", "user": "somebody"}}
        await call(http, "ann", **own)
        await call(http, "bob", **own)
        await call(http, "ann", **own)
        await call(http, "ann", **{"mcpbridge/conversation": "second"})
    assert [told.state["calls"] for told in seen] == [2, 1, 2, 1]
    assert [told.user for told in seen] == ["ann", "bob", "ann", "ann"]
    assert [told.tenant for told in seen] == ["acme", "claimed", "acme", "acme"]


async def test_without_tokens_clients_are_told_apart_by_name_and_conversation() -> None:
    seen: list[CallContext] = []
    async with served(seen, tokens=[]) as http:
        await call(http)
        await call(http)
        await call(http, **{"io.modelcontextprotocol/clientInfo": {"name": "another", "version": "1"}})
        await call(http, **{"mcpbridge/conversation": 7})
    assert [told.state["calls"] for told in seen] == [3, 3, 1, 3]
    assert {told.session.client for told in seen} == {"raw", "another"}
