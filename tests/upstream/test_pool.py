"""All upstreams side by side: each settles, fails and stops without the others."""

import anyio
import pytest

from mcpbridge.errors import UpstreamUnavailable
from scripted_upstream import LEGACY_SERVER, SILENCE, ScriptedTransport, call_of, pool_of

SILENT = {"server/discover": SILENCE, "initialize": SILENCE}


async def test_upstreams_are_in_the_order_of_their_names_and_disabled_ones_left_out() -> None:
    transports = {name: ScriptedTransport(LEGACY_SERVER) for name in ("b", "a", "off")}
    pool = pool_of(transports, off={"disabled": True})
    assert list(pool.upstreams) == ["a", "b"]
    async with pool.running():
        assert await pool.settled(5)
    assert transports["off"].attempts == 0
    assert {upstream.status.state for upstream in pool.upstreams.values()} == {"stopped"}


async def test_waiting_ends_when_every_upstream_is_ready_or_has_failed_once() -> None:
    bad, good = ScriptedTransport(LEGACY_SERVER), ScriptedTransport(LEGACY_SERVER)
    bad.refuses = [UpstreamUnavailable("bad", "connection refused")] * 9
    pool = pool_of({"bad": bad, "good": good, "odd": ScriptedTransport(SILENT)}, odd={"unavailable": "no ${TOKEN}"})
    with anyio.fail_after(5):
        async with pool.running():
            assert await pool.settled(5)
            assert pool.upstreams["good"].status.state == "ready"
            assert pool.upstreams["bad"].status.state in ("retrying", "starting")


async def test_waiting_ends_when_time_is_up_and_the_others_work() -> None:
    pool = pool_of({"bad": ScriptedTransport(SILENT), "good": ScriptedTransport(LEGACY_SERVER)})
    async with pool.running():
        assert not await pool.settled(0.02)
        assert not pool.upstreams["bad"].has_settled
        assert (await pool.upstreams["good"].request(call_of())).value()["content"]


async def test_an_empty_pool_has_settled() -> None:
    pool = pool_of({})
    async with pool.running():
        assert await pool.settled(0)


async def test_an_error_of_the_body_stops_all_upstreams() -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    pool = pool_of({"a": transport})

    async def fail_inside() -> None:
        async with pool.running():
            await pool.settled(5)
            raise ValueError("of the body")

    with pytest.raises(ExceptionGroup) as caught:
        await fail_inside()
    assert caught.group_contains(ValueError)
    assert not transport.line.is_open
