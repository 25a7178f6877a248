"""The clocks of requests under way: when one is over, what extends it, and what stops it (issue 4, Time)."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from mcpbridge.protocol.deadlines import Deadlines, Timeouts
from support.virtual_time import standing_time


@dataclass
class Request:
    began: float = 0.0
    seconds: float = 0.0
    idle_ends: float = 0.0
    ends: float = 0.0
    held: int = 0
    held_since: float = 0.0


class Clocks:
    """Requests by name, those that expired, and a time that passes on demand."""

    def __init__(self, go_on: Any) -> None:
        self._go_on = go_on
        self.pending: dict[bytes, Request] = {}
        self.expired: dict[bytes, float] = {}
        self.deadlines = Deadlines(self.pending, self._expire)

    def _expire(self, request: Request, seconds: float) -> None:
        name = next(name for name, one in self.pending.items() if one is request)
        del self.pending[name]
        self.expired[name] = seconds

    def start(self, name: bytes, idle: float, total: float, used: float = 0.0) -> Request:
        request = self.pending[name] = Request()
        self.deadlines.start(request, Timeouts(idle, total, used))
        return request

    async def after(self, seconds: float) -> set[bytes]:
        """Which have expired once so many seconds more have passed."""
        self._go_on(seconds)
        for _ in range(3):
            await asyncio.sleep(0)
        return set(self.expired)


@pytest.fixture
async def clocks() -> Any:
    @contextmanager
    def made() -> Iterator[Clocks]:
        with standing_time() as go_on:
            found = Clocks(go_on)
            yield found
            found.deadlines.end()

    return made


@pytest.mark.parametrize(
    ("idle", "total", "used", "expected"),
    [(5, 60, 0, 5), (60, 5, 0, 5), (5, 5, 0, 5), (5, 60, 2, 5), (5, 60, 4.5, 5), (0.5, 60, 0, 0.5)],
)
async def test_silence_or_the_whole_time_ends_it_and_what_passed_before_counts(
    clocks: Any, idle: float, total: float, used: float, expected: float
) -> None:
    with clocks() as found:
        found.start(b"a", idle, total, used)
        assert await found.after(expected - used - 0.01) == set()
        assert await found.after(0.02) == {b"a"}
        assert found.expired[b"a"] == pytest.approx(expected)


async def test_each_request_ends_at_its_own_time_however_they_were_begun(clocks: Any) -> None:
    with clocks() as found:
        for name, idle in ((b"long", 30), (b"short", 5), (b"middle", 10)):
            found.start(name, idle, 60)
        assert await found.after(5.01) == {b"short"}
        assert await found.after(5) == {b"short", b"middle"}
        assert await found.after(19.9) == {b"short", b"middle"}
        found.start(b"late", 1, 60)
        assert await found.after(0.2) == {b"short", b"middle", b"long"}
        assert await found.after(0.9) == {b"short", b"middle", b"long", b"late"}


async def test_a_sign_of_life_begins_the_silence_anew_but_not_the_whole_time(clocks: Any) -> None:
    with clocks() as found:
        request = found.start(b"a", 5, 12)
        for _ in range(2):
            assert await found.after(4.9) == set()
            found.deadlines.moved(request)
        assert await found.after(2.1) == set()
        assert await found.after(0.2) == {b"a"}
        assert found.expired[b"a"] == pytest.approx(12)


async def test_the_clock_stops_while_it_is_held_and_the_silence_begins_anew_after(clocks: Any) -> None:
    with clocks() as found:
        request = found.start(b"a", 5, 20)
        await found.after(4)
        with found.deadlines.held([request]):
            assert await found.after(1000) == set()
        assert await found.after(4.9) == set(), "the idle time begins anew"
        assert await found.after(0.2) == {b"a"}


async def test_time_that_it_was_held_extends_the_whole_time_by_just_that(clocks: Any) -> None:
    with clocks() as found:
        request = found.start(b"a", 50, 20)
        await found.after(15)
        with found.deadlines.held([request]):
            await found.after(100)
        assert await found.after(4.9) == set()
        assert await found.after(0.2) == {b"a"}
        assert found.expired[b"a"] == pytest.approx(120)


async def test_two_reasons_to_stop_it_hold_from_the_first_to_the_last(clocks: Any) -> None:
    with clocks() as found:
        request = found.start(b"a", 5, 20)
        with found.deadlines.held([request]):
            await found.after(50)
            with found.deadlines.held([request]):
                await found.after(50)
            assert await found.after(50) == set(), "one reason is left"
        assert request.ends - request.began == pytest.approx(170)
        assert await found.after(4.9) == set()
        assert await found.after(0.2) == {b"a"}


async def test_a_request_that_is_held_keeps_no_other_from_its_end(clocks: Any) -> None:
    with clocks() as found:
        held = found.start(b"held", 5, 20)
        found.start(b"other", 10, 20)
        with found.deadlines.held([held]):
            assert await found.after(10.1) == {b"other"}
        assert await found.after(5.1) == {b"other", b"held"}


async def test_release_looks_no_later_than_at_the_earliest_end(clocks: Any) -> None:
    """A release sets the timer; a request that ends sooner than the released one must not wait for it."""
    with clocks() as found:
        held = found.start(b"held", 30, 60)
        found.start(b"other", 10, 20)
        with found.deadlines.held([held]):
            await found.after(1)
        assert await found.after(9.1) == {b"other"}


async def test_one_without_a_deadline_waits_for_ever_held_or_not(clocks: Any) -> None:
    with clocks() as found:
        found.pending[b"stream"] = stream = Request()
        found.start(b"a", 5, 20)
        with found.deadlines.held([stream]):
            await found.after(1)
        assert await found.after(10**6) == {b"a"}
        assert (stream.ends, stream.idle_ends, stream.held) == (0, 0, 0)


async def test_one_that_was_answered_is_not_looked_at_again_and_the_next_is_timed(clocks: Any) -> None:
    with clocks() as found:
        found.start(b"a", 5, 20)
        del found.pending[b"a"]
        assert await found.after(10) == set()
        found.start(b"b", 5, 20)
        assert await found.after(5.1) == {b"b"}


async def test_nothing_expires_after_the_end(clocks: Any) -> None:
    with clocks() as found:
        found.start(b"a", 5, 20)
        found.deadlines.end()
        assert await found.after(100) == set()
