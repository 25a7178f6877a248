"""One upstream kept connected: its states and reasons, and what happens to calls in each of them."""

import asyncio
import json
import re
from typing import Any

import anyio
import pytest

from mcpbridge.base.errors import (
    BridgeError,
    Overloaded,
    SessionExpired,
    UpstreamAnswered,
    UpstreamGarbled,
    UpstreamGone,
    UpstreamHttpError,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from mcpbridge.upstream.connection import backoff as lifecycle
from mcpbridge.upstream.session import keepalive as tending
from mcpbridge.upstream.session import relisting
from mcpbridge.upstream.session import session as session_module
from mcpbridge.upstream.settings import BreakerSettings, ServerSettings
from mcpbridge.upstream.supervisor import Upstream
from support.upstreams.scripted_upstream import (
    LEGACY_SERVER,
    MODERN_SERVER,
    SILENCE,
    Refusal,
    ScriptedTransport,
    Watcher,
    call_of,
    supervised,
)
from support.virtual_time import pass_time

LATE: Any = 3600.0
"""Seconds; an attempt that no test waits for."""


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts follow each other without a wait worth noticing."""
    monkeypatch.setattr(lifecycle, "FIRST_DELAY", 0.001)
    monkeypatch.setattr(lifecycle, "LONGEST_DELAY", 0.01)


@pytest.fixture
def much_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next attempt is far away."""
    monkeypatch.setattr(lifecycle, "FIRST_DELAY", LATE)
    monkeypatch.setattr(lifecycle, "LONGEST_DELAY", LATE)
    monkeypatch.setattr("mcpbridge.upstream.connection.connection.random.random", lambda: 0.999)


def text(result: Any) -> str:
    return result.value()["content"][0]["text"]


# -- states


async def test_an_upstream_starts_is_ready_and_stops() -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    async with supervised(transport) as (upstream, watcher):
        assert not upstream.has_settled
        await watcher.reaches("ready")
        assert upstream.has_settled
        assert [len(definitions) for definitions in watcher.offers[0].values()] == [1]
        assert upstream.restarts == 0
    assert watcher.states == ["starting", "ready", "stopped"]
    assert not transport.line.is_open


@pytest.mark.usefixtures("at_once")
async def test_what_cannot_be_reached_is_tried_again_with_its_reason() -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    transport.refuses = [UpstreamUnavailable("up", "connection refused"), OSError("odd")]
    async with supervised(transport) as (upstream, watcher):
        await watcher.reaches("ready")
        assert upstream.restarts == 2
    assert watcher.states == ["starting", "retrying", "starting", "retrying", "starting", "ready", "stopped"]
    assert watcher.reasons[1] == "connection refused"
    assert watcher.reasons[3] == "OSError in the bridge; see the log", "a fault of ours is not blamed on the server"


@pytest.mark.usefixtures("at_once")
async def test_a_server_that_is_lost_is_connected_anew_and_says_why() -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    async with supervised(transport) as (upstream, watcher):
        await watcher.reaches("ready")
        transport.words = "FATAL: disk full"
        transport.line.ends("exit code 3")
        await watcher.reaches("ready", times=2)
        assert upstream.lists["tools"], "what it offered stays listed"
    assert watcher.reasons[watcher.states.index("retrying")] == "exit code 3: FATAL: disk full"
    assert len(watcher.offers) == 2


@pytest.mark.usefixtures("much_later")
async def test_the_state_is_told_in_one_line() -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    async with supervised(transport) as (upstream, watcher):
        assert upstream.connection.state_text in ("stopped", "starting")
        await watcher.reaches("ready")
        assert upstream.connection.state_text == "ready"
        transport.line.ends("exit code 3")
        await watcher.reaches("retrying")
        assert re.fullmatch(
            r"retrying in 35\d\d s or at a call after 10 s: exit code 3", upstream.connection.state_text
        )
        assert upstream.lists["tools"]
    assert upstream.connection.state_text == "stopped"


@pytest.mark.usefixtures("at_once")
async def test_too_many_failures_in_a_short_time_are_a_failed_server() -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    transport.refuses = [UpstreamUnavailable("up", f"refused {number}") for number in range(5)]
    async with supervised(transport) as (upstream, watcher):
        await watcher.reaches("failed")
        assert watcher.states.count("retrying") == lifecycle.FAILURES_IN_WINDOW - 1
        assert re.fullmatch(
            r"failed, next try in (300|2\d\d) s or at a call after (10|9) s: refused 4", upstream.connection.state_text
        )
        upstream.connection.poke()
        await watcher.reaches("ready")


async def test_a_server_that_cannot_be_used_as_configured_is_never_dialled() -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    async with supervised(transport, unavailable="missing variable ${TOKEN}") as (upstream, watcher):
        assert upstream.has_settled
        assert upstream.connection.state_text == "unavailable: missing variable ${TOKEN}"
        with pytest.raises(UpstreamUnavailable, match=r"missing variable \$\{TOKEN\}"):
            await upstream.request(call_of())
    assert transport.attempts == 0
    assert watcher.states == []


async def test_a_server_that_answers_nothing_is_given_up_after_its_time() -> None:
    silent = ScriptedTransport({"server/discover": SILENCE, "initialize": SILENCE})
    async with supervised(silent, init_timeout=0.05) as (_, watcher):
        await watcher.reaches("retrying")
    assert watcher.reasons[1] in ("no answer within 0.05 s", "not ready within 0.05 s")


async def test_a_server_that_lists_without_end_is_given_up_after_its_time() -> None:
    numbers = iter(range(10**9))

    def endless(_: Any) -> Any:
        return {"tools": [], "nextCursor": str(next(numbers))}

    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/list": endless})
    transport.script["tools/list"] = lambda params: SILENCE if next(numbers) > 50 else endless(params)
    async with supervised(transport, init_timeout=0.1) as (_, watcher):
        await watcher.reaches("retrying")
    assert "0.1 s" in watcher.reasons[1]


async def test_a_server_that_does_not_bear_the_probe_is_reached_in_the_old_way_at_once() -> None:
    """It costs no wait and counts as no failure."""
    transport = ScriptedTransport(LEGACY_SERVER)

    def dies(_: Any) -> str:
        transport.line.ends("exit code 1")
        return SILENCE

    transport.script["server/discover"] = dies
    async with supervised(transport) as (upstream, watcher):
        await watcher.reaches("ready")
        assert upstream.restarts == 0
        assert not transport.line.asked("server/discover")
    assert watcher.states == ["starting", "starting", "ready", "stopped"]


@pytest.mark.usefixtures("at_once")
async def test_a_server_that_was_replaced_by_a_modern_one_is_found_out() -> None:
    """What was learned of the era holds as long as the server can be opened with it."""
    transport = ScriptedTransport(LEGACY_SERVER)

    def dies(_: Any) -> str:
        transport.line.ends("exit code 1")
        return SILENCE

    transport.script["server/discover"] = dies
    async with supervised(transport) as (upstream, watcher):
        await watcher.reaches("ready")
        transport.script = dict(MODERN_SERVER)
        transport.line.ends("upgraded")
        await watcher.reaches("ready", times=2)
        assert upstream.modern


# -- calls


async def test_a_call_is_passed_on_and_its_answer_comes_back() -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    async with supervised(transport) as (upstream, watcher):
        await watcher.reaches("ready")
        assert text(await upstream.request(call_of())) == "done"
        assert not upstream.running


async def test_a_call_to_a_server_that_is_starting_waits_for_it() -> None:
    transport = ScriptedTransport(LEGACY_SERVER, initialize=SILENCE)
    async with supervised(transport, era="legacy") as (upstream, _), anyio.create_task_group() as tasks:

        async def call() -> None:
            assert text(await upstream.request(call_of())) == "done"

        tasks.start_soon(call)
        asked = await transport.hears("initialize")
        transport.line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": LEGACY_SERVER["initialize"]})


async def test_a_call_waits_for_a_start_no_longer_than_its_place_in_the_queue() -> None:
    transport = ScriptedTransport(LEGACY_SERVER, initialize=SILENCE)
    async with supervised(transport, era="legacy", queue_timeout=0.05) as (upstream, _):
        with pytest.raises(UpstreamUnavailable, match="starting"):
            await upstream.request(call_of())


@pytest.mark.usefixtures("much_later")
async def test_a_call_to_a_server_that_is_away_is_refused_at_once_with_the_reason() -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    transport.refuses = [UpstreamUnavailable("up", "connection refused")]
    async with supervised(transport) as (upstream, watcher):
        await watcher.reaches("retrying")
        with pytest.raises(
            UpstreamUnavailable, match=r"retrying in \d+ s or at a call .*: connection refused"
        ) as caught:
            await upstream.request(call_of())
        assert 1 <= caught.value.facts["mcpbridge/retryAfter"] <= 10, "then a call starts it"
        assert "A call in" in caught.value.advice
    assert transport.attempts == 1


@pytest.mark.usefixtures("much_later")
async def test_a_call_causes_an_attempt_out_of_turn_when_the_last_was_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "ON_DEMAND_AFTER", 0)
    transport = ScriptedTransport(LEGACY_SERVER)
    transport.refuses = [UpstreamUnavailable("up", "connection refused")]
    async with supervised(transport) as (upstream, watcher):
        await watcher.reaches("retrying")
        assert text(await upstream.request(call_of())) == "done"
    assert transport.attempts == 2


@pytest.mark.usefixtures("much_later")
async def test_an_attempt_out_of_turn_that_fails_refuses_the_call_with_the_new_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lifecycle, "ON_DEMAND_AFTER", 0)
    transport = ScriptedTransport(LEGACY_SERVER)
    transport.refuses = [UpstreamUnavailable("up", "first"), UpstreamUnavailable("up", "second")]
    async with supervised(transport) as (upstream, watcher):
        await watcher.reaches("retrying")
        with pytest.raises(UpstreamUnavailable, match="second"):
            await upstream.request(call_of())


@pytest.mark.usefixtures("much_later")
async def test_calls_of_a_server_that_is_lost_end_at_once_with_what_happened() -> None:
    """Issue 2: in-flight calls of a dead upstream end at once, naming the server and what happened."""
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": SILENCE})
    async with supervised(transport) as (upstream, watcher):
        await watcher.reaches("ready")
        calls = [asyncio.ensure_future(upstream.request(call_of())) for _ in range(3)]
        await transport.hears("tools/call", times=3)
        transport.words = "FATAL: disk full"
        transport.line.ends("exit code 3")
        for call in calls:
            with pytest.raises(UpstreamGone, match=r"Server 'up': .*exit code 3: FATAL: disk full"):
                await call
        assert not upstream.running


@pytest.mark.parametrize("times", [1, 2])
async def test_an_error_is_not_its_own_cause(times: int) -> None:
    """Whoever follows the causes would never come to an end; also where the call was sent again."""
    refusals = [Refusal(-32022, data={"supported": []}), Refusal(-32000, "no")][-times:]
    transport = ScriptedTransport(MODERN_SERVER, **{"tools/call": lambda _: refusals.pop(0)})
    async with supervised(transport) as (upstream, watcher):
        await watcher.reaches("ready")
        with pytest.raises(UpstreamAnswered) as raised:
            await upstream.request(call_of())
        assert not refusals
        assert raised.value.__cause__ is None


async def test_calls_under_way_end_when_the_bridge_stops() -> None:
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": SILENCE})
    async with supervised(transport) as (upstream, watcher):
        await watcher.reaches("ready")
        call = asyncio.ensure_future(upstream.request(call_of()))
        await transport.hears("tools/call")
    with anyio.fail_after(30), pytest.raises(UpstreamGone, match="it is being stopped"):
        await call
    with pytest.raises(UpstreamUnavailable, match="stopped"):
        await upstream.request(call_of())


async def test_a_call_without_an_answer_ends_after_its_time() -> None:
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": SILENCE})
    async with supervised(transport, call_timeout=0.05) as (upstream, watcher):
        await watcher.reaches("ready")
        with pytest.raises(UpstreamTimeout):
            await upstream.request(call_of())
        assert len(transport.asked("notifications/cancelled")) == 1


async def test_calls_beyond_the_slots_wait_and_beyond_the_places_are_refused() -> None:
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": SILENCE})
    async with supervised(transport, max_concurrent=1, max_queued=1) as (upstream, watcher):
        await watcher.reaches("ready")
        first = asyncio.ensure_future(upstream.request(call_of()))
        asked = await transport.hears("tools/call")
        second = asyncio.ensure_future(upstream.request(call_of()))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await upstream.request(call_of())
        assert len(transport.asked("tools/call")) == 1
        transport.line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": {"n": 1}})
        assert (await first).value() == {"n": 1}
        asked = await transport.hears("tools/call", times=2)
        transport.line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": {"n": 2}})
        assert (await second).value() == {"n": 2}


async def test_a_call_whose_session_expired_is_made_once_more_in_a_new_one() -> None:
    """Spec, streamable HTTP: 404 means initialize again; nothing had been executed."""
    transport = ScriptedTransport(LEGACY_SERVER)

    def expired_once(_: Any) -> Any:
        return SessionExpired("up") if len(transport.lines) == 1 else {"content": [{"type": "text", "text": "again"}]}

    transport.script["tools/call"] = expired_once
    async with supervised(transport) as (upstream, watcher):
        await watcher.reaches("ready")
        calls = [asyncio.ensure_future(upstream.request(call_of())) for _ in range(3)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert text(outcomes[0]) == "again"
        assert upstream.restarts == 0, "a server that forgets sessions is not a failing one"
        assert transport.attempts == 2


async def test_a_call_whose_session_expires_again_is_not_made_a_third_time() -> None:
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": SessionExpired("up")})
    async with supervised(transport) as (upstream, watcher):
        await watcher.reaches("ready")
        with pytest.raises(SessionExpired):
            await upstream.request(call_of())
        assert len(transport.asked("tools/call")) == 2


async def test_a_call_that_waits_out_a_renewed_session_is_told_when_none_comes(at_once: None) -> None:
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": SessionExpired("up")})
    async with supervised(transport, queue_timeout=0.1) as (upstream, watcher):
        await watcher.reaches("ready")
        transport.refuses = [UpstreamUnavailable("up", "connection refused")] * 50
        with pytest.raises(UpstreamUnavailable, match="connection refused"):
            await upstream.request(call_of())


# -- the breaker

FAILURES = BreakerSettings().failures


async def test_a_server_that_fails_every_call_is_left_alone_for_a_while() -> None:
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": UpstreamHttpError("up", 500, "HTTP 500")})
    async with supervised(transport) as (upstream, watcher):
        await watcher.reaches("ready")
        for _ in range(FAILURES):
            with pytest.raises(UpstreamHttpError):
                await upstream.request(call_of())
        with pytest.raises(UpstreamUnavailable, match=r"failed many calls in a row and is left alone for \d+ s more"):
            await upstream.request(call_of())
        assert len(transport.asked("tools/call")) == FAILURES


@pytest.mark.parametrize(
    "answer",
    [Refusal(-32000, "no"), UpstreamHttpError("up", 401, "HTTP 401"), UpstreamGarbled("up", "garbled")],
    ids=["an error of its own", "no permission", "garbled"],
)
async def test_answers_that_are_no_failure_to_answer_do_not_open_the_breaker(answer: Any) -> None:
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": answer})
    async with supervised(transport) as (upstream, watcher):
        await watcher.reaches("ready")
        for _ in range(FAILURES * 2):
            with pytest.raises((UpstreamAnswered, UpstreamHttpError, UpstreamGarbled)):
                await upstream.request(call_of())


@pytest.mark.parametrize(
    "outcome",
    [
        UpstreamHttpError("up", 429, "HTTP 429"),
        UpstreamGarbled("up", "its answer cannot be read"),
        Refusal(-32000, "no"),
        "overloaded",
        "withdrawn",
    ],
    ids=["rate limited", "garbled", "an error", "refused by the channel", "withdrawn"],
)
async def test_a_call_that_finds_out_whether_a_server_is_back_leaves_the_way_free_for_the_next(outcome: Any) -> None:
    """Whatever comes of it: else the server would be left alone for ever."""
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": UpstreamHttpError("up", 500, "HTTP 500")})
    async with supervised(transport, breaker={"open": 5}) as (upstream, watcher):
        await watcher.reaches("ready")
        for _ in range(FAILURES):
            with pytest.raises(UpstreamHttpError):
                await upstream.request(call_of())
        pass_time(5)
        if outcome == "withdrawn":
            transport.script["tools/call"] = SILENCE
            call = asyncio.ensure_future(upstream.request(call_of()))
            await transport.hears("tools/call", times=FAILURES + 1)
            call.cancel()
            await asyncio.wait([call])
        elif outcome == "overloaded":
            transport.script["send tools/call"] = Overloaded("full")
            with pytest.raises(Overloaded):
                await upstream.request(call_of())
            del transport.script["send tools/call"]
        else:
            transport.script["tools/call"] = outcome
            with pytest.raises(BridgeError):
                await upstream.request(call_of())
        transport.script["tools/call"] = LEGACY_SERVER["tools/call"]
        assert text(await upstream.request(call_of())) == "done"


# -- signs of life


async def test_a_server_that_does_not_answer_pings_counts_as_hung(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "PING_SECONDS", 0.02)
    transport = ScriptedTransport(LEGACY_SERVER, ping=SILENCE)
    async with supervised(transport, ping_interval=0.01) as (_, watcher):
        await watcher.reaches("retrying")
    assert watcher.reasons[watcher.states.index("retrying")] == "it hangs: 3 pings in a row had no answer"
    assert len(transport.lines[0].asked("ping")) == 3


async def test_a_server_that_answers_pings_is_left_in_peace() -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    async with supervised(transport, ping_interval=0.01) as (_, watcher):
        await watcher.reaches("ready")
        await transport.hears("ping", times=2)
        assert "retrying" not in watcher.states


async def test_a_refusal_over_http_is_a_sign_of_life() -> None:
    transport = ScriptedTransport(LEGACY_SERVER, ping=UpstreamHttpError("up", 429, "HTTP 429"))
    async with supervised(transport, ping_interval=0.01) as (_, watcher):
        await watcher.reaches("ready")
        await transport.hears("ping", times=5)
        assert watcher.states == ["starting", "ready"]


async def test_a_ping_that_finds_the_session_expired_renews_it() -> None:
    transport = ScriptedTransport(LEGACY_SERVER, ping=SessionExpired("up"))
    async with supervised(transport, ping_interval=0.01) as (upstream, watcher):
        await watcher.reaches("ready")
        await transport.hears("ping")
        await watcher.reaches("ready", times=2)
        assert upstream.restarts == 0
    assert "retrying" not in watcher.states


async def test_a_server_that_works_on_a_call_is_not_pinged() -> None:
    """Servers of one thread cannot answer while they work; they are busy, not hung."""
    transport, idle = ScriptedTransport(LEGACY_SERVER, **{"tools/call": SILENCE}), ScriptedTransport(LEGACY_SERVER)
    async with supervised(transport, ping_interval=0.01) as (upstream, watcher):
        await watcher.reaches("ready")
        call = asyncio.ensure_future(upstream.request(call_of()))
        asked = await transport.hears("tools/call")
        async with supervised(idle, ping_interval=0.01):
            await idle.hears("ping")  # began later, so the busy one would have been asked by now
        assert not transport.asked("ping")
        transport.line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": {}})
        await call
        await transport.hears("ping")


# -- lists, subscriptions, logs


async def test_what_a_server_offers_is_told_once_as_long_as_nothing_changes() -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    async with supervised(transport) as (_, watcher):
        await watcher.reaches("ready")
        for _ in range(5):
            for _ in range(20):
                await asyncio.sleep(0)
            pass_time(2 * relisting.RELIST_DELAY)
        assert len(watcher.offers) == 1
        assert len(transport.asked("tools/list")) == 1


async def test_a_list_that_changed_is_asked_for_again_once_for_a_burst() -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    async with supervised(transport) as (upstream, watcher):
        await watcher.reaches("ready")
        transport.script["tools/list"] = {"tools": [{"name": "a"}, {"name": "b"}]}
        for _ in range(100):
            transport.line.says("notifications/tools/list_changed")
        transport.line.says("notifications/prompts/list_changed")  # not declared: not asked for
        await watcher.until(lambda: len(watcher.offers) == 2)
        assert len(upstream.lists["tools"]) == 2
        assert len(transport.asked("tools/list")) == 2
        assert not transport.asked("prompts/list")


@pytest.mark.parametrize("answer", [SILENCE, Refusal(-32603, "database is locked"), {"tools": 5}])
async def test_a_list_that_cannot_be_had_again_stays_and_is_asked_for_later(
    answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tending, "RETRY_DELAY", 0.01)
    transport = ScriptedTransport(LEGACY_SERVER)
    async with supervised(transport, call_timeout=0.02) as (upstream, watcher):
        await watcher.reaches("ready")
        transport.script["tools/list"] = answer
        transport.line.says("notifications/tools/list_changed")
        await transport.hears("tools/list", times=3)
        assert len(upstream.lists["tools"]) == 1
        transport.script["tools/list"] = {"tools": []}
        await watcher.until(lambda: upstream.lists["tools"] == ())
        assert watcher.states == ["starting", "ready"]


async def test_a_server_one_of_whose_lists_fails_is_ready_with_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tending, "RETRY_DELAY", 0.01)
    transport = ScriptedTransport(RESOURCES, **{"resources/list": Refusal(-32603, "not yet")})
    async with supervised(transport) as (upstream, watcher):
        await watcher.reaches("ready")
        assert upstream.lists == {"resources": (), "templates": ()}
        transport.script["resources/list"] = RESOURCES["resources/list"]
        await watcher.until(lambda: upstream.lists["resources"])


@pytest.mark.usefixtures("at_once")
async def test_a_server_that_can_list_nothing_is_not_ready() -> None:
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/list": Refusal(-32603, "database is locked")})
    async with supervised(transport) as (_, watcher):
        await watcher.reaches("retrying")
        assert "database is locked" in watcher.reasons[1]
        transport.script["tools/list"] = LEGACY_SERVER["tools/list"]
        await watcher.reaches("ready")


RESOURCES = {
    **LEGACY_SERVER,
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"resources": {"subscribe": True, "listChanged": True}, "logging": {}},
    },
    "resources/list": {"resources": [{"uri": "memo://1", "name": "1"}]},
    "resources/templates/list": {"resourceTemplates": []},
    "resources/subscribe": {},
    "resources/unsubscribe": {},
    "logging/setLevel": {},
}


async def test_resources_and_templates_change_together() -> None:
    transport = ScriptedTransport(RESOURCES)
    async with supervised(transport) as (_, watcher):
        await watcher.reaches("ready")
        transport.line.says("notifications/resources/list_changed")
        await transport.hears("resources/list", times=2)
        await transport.hears("resources/templates/list", times=2)


@pytest.mark.usefixtures("at_once")
async def test_the_server_hears_of_the_first_and_the_last_subscriber_and_again_after_a_restart() -> None:
    transport = ScriptedTransport(RESOURCES)
    async with supervised(transport) as (upstream, watcher):
        await watcher.reaches("ready")
        for _ in range(3):
            upstream.wanted.subscribe("memo://1")
        upstream.wanted.want_log_level("warning")
        await transport.hears("resources/subscribe")
        assert (await transport.hears("logging/setLevel"))["params"] == {"level": "warning"}
        transport.line.says("notifications/resources/updated", uri="memo://1")
        assert watcher.updated == [{"uri": "memo://1"}]

        transport.line.ends("exit code 1")
        await watcher.reaches("ready", times=2)
        again = await transport.hears("resources/subscribe", times=2)
        await transport.hears("logging/setLevel", times=2)
        assert again in transport.line.heard, "in the new session"

        upstream.wanted.unsubscribe("memo://1")
        upstream.wanted.unsubscribe("memo://1")
        upstream.wanted.subscribe("memo://2")
        await transport.hears("resources/subscribe", times=3)
        assert not transport.asked("resources/unsubscribe")
        upstream.wanted.unsubscribe("memo://1")
        assert (await transport.hears("resources/unsubscribe"))["params"] == {"uri": "memo://1"}
    assert len(transport.asked("resources/subscribe")) == 3
    assert len(transport.asked("logging/setLevel")) == 2


async def test_a_refused_subscription_costs_no_other() -> None:
    def refuses_one(params: Any) -> Any:
        return Refusal(-32002, "Resource not found") if params["uri"] == "memo://1" else {}

    transport = ScriptedTransport(RESOURCES, **{"resources/subscribe": refuses_one})
    async with supervised(transport) as (upstream, watcher):
        await watcher.reaches("ready")
        upstream.wanted.subscribe("memo://1")
        upstream.wanted.subscribe("memo://2")
        await transport.hears("resources/subscribe", times=2)
        assert watcher.states == ["starting", "ready"]


@pytest.mark.parametrize("method", ["resources/subscribe", "resources/unsubscribe", "logging/setLevel"])
async def test_a_subscription_that_a_full_channel_refuses_is_made_later_and_costs_no_session(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tending, "RETRY_DELAY", 0.01)
    refusals = [Overloaded("full")] * 2
    transport = ScriptedTransport({**RESOURCES, f"send {method}": lambda: refusals.pop() if refusals else None})
    async with supervised(transport) as (upstream, watcher):
        await watcher.reaches("ready")
        upstream.wanted.subscribe("memo://1")
        upstream.wanted.want_log_level("info")
        await transport.hears("resources/subscribe")
        upstream.wanted.unsubscribe("memo://1")
        for each in RESOURCES:
            if each in ("resources/unsubscribe", "logging/setLevel"):
                await transport.hears(each)
        assert not refusals
        assert watcher.states == ["starting", "ready"]


async def test_a_server_that_nobody_wants_messages_of_any_more_is_asked_to_be_quiet() -> None:
    transport = ScriptedTransport(RESOURCES)
    async with supervised(transport) as (upstream, watcher):
        await watcher.reaches("ready")
        upstream.wanted.want_log_level("")  # nobody ever asked
        upstream.wanted.want_log_level("debug")
        await transport.hears("logging/setLevel")
        upstream.wanted.want_log_level("")
        assert (await transport.hears("logging/setLevel", times=2))["params"] == {"level": "emergency"}
        assert len(transport.asked("logging/setLevel")) == 2


async def test_nothing_is_asked_of_a_server_that_declared_nothing() -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    async with supervised(transport) as (upstream, watcher):
        await watcher.reaches("ready")
        upstream.wanted.subscribe("memo://1")
        upstream.wanted.want_log_level("info")
        assert text(await upstream.request(call_of())) == "done"
        methods = {message["method"] for message in transport.line.heard}
    assert not methods & {"resources/subscribe", "logging/setLevel"}


@pytest.mark.parametrize("server", [LEGACY_SERVER, MODERN_SERVER], ids=["legacy", "modern"])
async def test_resources_that_nobody_watched_for_a_while_count_as_changed(server: Any, at_once: None) -> None:
    """A change in the gap was told to nobody, and would stay unheard of; a subscriber can look again for nothing."""
    able = {"resources": {"subscribe": True}}
    script: Any = {
        **server,
        "initialize": {**LEGACY_SERVER["initialize"], "capabilities": able},
        "server/discover": {**MODERN_SERVER["server/discover"], "capabilities": able},
        "resources/list": {"resources": []},
        "resources/templates/list": {"resourceTemplates": []},
        "resources/subscribe": {},
    }
    if server is LEGACY_SERVER:
        del script["server/discover"]
    transport = ScriptedTransport(script)
    subscribing = "resources/subscribe" if server is LEGACY_SERVER else "subscriptions/listen"
    async with supervised(transport) as (upstream, watcher):
        await watcher.reaches("ready")
        upstream.wanted.subscribe("memo://1")
        first = await transport.hears(subscribing)
        if server is MODERN_SERVER:
            acknowledge(transport, first)
        upstream.wanted.subscribe("memo://2")
        second = await transport.hears(subscribing, times=2)
        if server is MODERN_SERVER:
            acknowledge(transport, second)
            await transport.hears("notifications/cancelled")
        assert watcher.updated == [], "nothing was missed so far"
        transport.line.ends("crashed")
        await watcher.reaches("ready", times=2)
        third = await transport.hears(subscribing, times=3)
        if server is MODERN_SERVER:
            acknowledge(transport, third)
        await watcher.until(lambda: len(watcher.updated) == 2)
        assert watcher.updated == [{"uri": "memo://1"}, {"uri": "memo://2"}]


def acknowledge(transport: ScriptedTransport, listen: Any) -> None:
    stamp = {"io.modelcontextprotocol/subscriptionId": listen["id"]}
    transport.line.says("notifications/subscriptions/acknowledged", notifications={}, _meta=stamp)


async def test_a_server_that_bears_one_listen_stream_at_a_time_gets_one_and_none_when_nothing_is_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tending.random, "uniform", lambda *_: 0.001)
    open_ones: set[Any] = set()

    def listen(_: Any) -> Any:
        asked, ended = transport.asked("subscriptions/listen"), transport.asked("notifications/cancelled")
        still = {message["id"] for message in asked[:-1]} - {message["params"]["requestId"] for message in ended}
        if still & open_ones:
            return Refusal(-32603, "one at a time")
        open_ones.add(asked[-1]["id"])
        return SILENCE

    quiet = {**MODERN_SERVER["server/discover"], "capabilities": {"resources": {"subscribe": True}}}
    transport = ScriptedTransport({**MODERN_SERVER, "server/discover": quiet, "subscriptions/listen": listen})
    async with supervised(transport) as (upstream, watcher):
        await watcher.reaches("ready")
        assert not transport.asked("subscriptions/listen")
        upstream.wanted.subscribe("memo://1")
        first = await transport.hears("subscriptions/listen")
        acknowledge(transport, first)
        upstream.wanted.subscribe("memo://2")
        third = await transport.hears("subscriptions/listen", times=3)
        assert third["params"]["notifications"]["resourceSubscriptions"] == ["memo://1", "memo://2"]
        assert third["id"] in open_ones
        upstream.wanted.unsubscribe("memo://1")
        upstream.wanted.unsubscribe("memo://2")
        assert (await transport.hears("notifications/cancelled", times=2))["params"]["requestId"] == third["id"]
        assert len(transport.asked("subscriptions/listen")) == 3


async def test_a_modern_server_is_listened_to_and_anew_when_the_resources_change() -> None:
    transport = ScriptedTransport(MODERN_SERVER)
    async with supervised(transport) as (upstream, watcher):
        await watcher.reaches("ready")
        first = await transport.hears("subscriptions/listen")
        assert first["params"]["notifications"] == {"toolsListChanged": True}
        upstream.wanted.subscribe("memo://1")
        second = await transport.hears("subscriptions/listen", times=2)
        assert second["params"]["notifications"]["resourceSubscriptions"] == ["memo://1"]
        assert not transport.asked("notifications/cancelled"), "the first stays until the second is open"
        acknowledge(transport, second)
        assert (await transport.hears("notifications/cancelled"))["params"]["requestId"] == first["id"]
        transport.line.says("notifications/resources/updated", uri="memo://1")
        assert watcher.updated == [{"uri": "memo://1"}]
        transport.script["tools/list"] = {"tools": []}
        transport.line.says("notifications/tools/list_changed")
        await watcher.until(lambda: watcher.offers[-1]["tools"] == ())


async def test_a_listen_stream_that_ends_is_opened_again_and_what_was_missed_is_looked_up() -> None:
    transport = ScriptedTransport(MODERN_SERVER)
    async with supervised(transport) as (_, watcher):
        await watcher.reaches("ready")
        first = await transport.hears("subscriptions/listen")
        transport.line.gives({"jsonrpc": "2.0", "id": first["id"], "result": {"resultType": "complete"}})
        second = await transport.hears("subscriptions/listen", times=2)
        assert len(transport.asked("tools/list")) == 1
        stamp = {"io.modelcontextprotocol/subscriptionId": second["id"]}
        transport.line.says("notifications/subscriptions/acknowledged", notifications={}, _meta=stamp)
        await transport.hears("tools/list", times=2)
        assert watcher.states == ["starting", "ready"]


async def test_a_listen_stream_is_ended_by_its_server_with_a_cancellation() -> None:
    """MCP 2026-07-28, stdio."""
    transport = ScriptedTransport(MODERN_SERVER)
    async with supervised(transport) as (_, watcher):
        await watcher.reaches("ready")
        first = await transport.hears("subscriptions/listen")
        transport.line.says("notifications/cancelled", requestId=first["id"])
        await transport.hears("subscriptions/listen", times=2)
        assert not transport.asked("notifications/cancelled"), "what the server ended needs no word of ours"


async def test_a_modern_server_that_announces_nothing_is_not_listened_to() -> None:
    found: Any = {**MODERN_SERVER["server/discover"], "capabilities": {"tools": {}}}  # type: ignore[dict-item]
    transport = ScriptedTransport(MODERN_SERVER, **{"server/discover": found})
    async with supervised(transport) as (upstream, watcher):
        await watcher.reaches("ready")
        upstream.wanted.subscribe("memo://1")
        assert text(await upstream.request(call_of())) == "done"
        assert not transport.asked("subscriptions/listen")


async def test_a_log_message_goes_to_the_only_call_that_can_have_caused_it() -> None:
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": SILENCE})
    heard: list[tuple[str, str]] = []
    async with supervised(transport) as (upstream, watcher):
        await watcher.reaches("ready")
        transport.line.says("notifications/message", level="info", data="alone")
        first = asyncio.ensure_future(
            upstream.request(
                call_of(update=lambda _, params: heard.append(("first", json.loads(bytes(params))["data"])))
            )
        )
        await transport.hears("tools/call")
        transport.line.says("notifications/message", level="info", data="during one")
        second = asyncio.ensure_future(
            upstream.request(call_of(update=lambda *_: heard.append(("second", "")), wants_progress=True))
        )
        asked = await transport.hears("tools/call", times=2)
        transport.line.says("notifications/message", level="info", data="during two")
        transport.line.says("notifications/progress", progressToken=asked["id"], progress=1)
        transport.line.says("notifications/of/another/kind")
        for call in (first, second):
            call.cancel()
        await asyncio.wait([first, second])
    assert heard == [("first", "during one"), ("second", "")]
    assert [message["data"] for message in watcher.logs] == ["alone", "during two"]


async def test_a_ping_of_the_server_is_answered_and_what_was_not_declared_refused() -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    async with supervised(transport) as (_, watcher):
        await watcher.reaches("ready")
        transport.line.gives({"jsonrpc": "2.0", "id": "p", "method": "ping"})
        transport.line.gives({"jsonrpc": "2.0", "id": "s", "method": "sampling/createMessage", "params": {}})
        answers = {message["id"]: message for message in transport.line.heard if "method" not in message}
    assert answers["p"]["result"] == {}
    assert answers["s"]["error"]["code"] == -32601


async def test_an_upstream_without_its_task_refuses_calls() -> None:
    upstream = Upstream(
        "up", ServerSettings(command="x"), ScriptedTransport(LEGACY_SERVER), Watcher(), client_info={"name": "b"}
    )
    with pytest.raises(UpstreamUnavailable, match="stopped"):
        with anyio.fail_after(30):
            await upstream.request(call_of())
