"""When a daemon that nobody needs ends: the time stands still here, and passes when the test says so."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from mcpbridge.app.daemon.idle_exit import Idling
from support.virtual_time import standing_time


@dataclass
class Daemon:
    """What the count of idle time asks, and whether it said that it is over."""

    seconds: float = 60
    clients: bool = False
    busy: bool = False
    ended: int = 0
    looks: int = 0
    idling: Idling = field(init=False)

    def __post_init__(self) -> None:
        self.idling = Idling(lambda: self.seconds, has_clients=lambda: self.clients, goes_on=self.goes_on, end=self.end)

    def goes_on(self) -> bool:
        self.looks += 1
        return self.busy

    def end(self) -> None:
        self.ended += 1

    async def after(self, seconds: float, go_on: Any) -> int:
        """How often it has ended once so many seconds more have passed."""
        go_on(seconds)
        for _ in range(3):  # timers that are due run in the next turns
            await asyncio.sleep(0)
        return self.ended


async def test_it_ends_once_when_nobody_was_here_for_long_enough() -> None:
    with standing_time() as go_on:
        daemon = Daemon(60)
        daemon.idling.look()
        assert daemon.idling.seconds == pytest.approx(0)
        assert await daemon.after(59.9, go_on) == 0
        assert daemon.idling.seconds == pytest.approx(59.9)
        assert await daemon.after(0.2, go_on) == 1
        assert await daemon.after(3600, go_on) == 1


async def test_a_time_that_was_none_counts_from_when_nobody_was_here_any_more() -> None:
    """No timer ran: the next look has to start one."""
    with standing_time() as go_on:
        daemon = Daemon(0)
        daemon.idling.look()
        assert await daemon.after(50, go_on) == 0
        daemon.seconds = 60
        daemon.idling.look()
        assert await daemon.after(9, go_on) == 0
        assert await daemon.after(2, go_on) == 1


async def test_a_client_stops_the_count_and_its_leaving_begins_it_anew() -> None:
    with standing_time() as go_on:
        daemon = Daemon(60)
        daemon.idling.look()
        assert await daemon.after(50, go_on) == 0
        daemon.clients = True
        daemon.idling.look()
        assert daemon.idling.seconds is None
        assert await daemon.after(3600, go_on) == 0
        daemon.clients = False
        daemon.idling.look()
        assert await daemon.after(50, go_on) == 0
        daemon.idling.look()  # another one left: the count began when the last but one did
        assert await daemon.after(11, go_on) == 1


@pytest.mark.parametrize("raised", [61.0, 90.0, 600.0])
async def test_a_time_that_is_raised_while_it_runs_is_waited_for_to_its_end(raised: float) -> None:
    """A reload changes the setting; what has passed counts, and no more than what is set now is waited for."""
    with standing_time() as go_on:
        daemon = Daemon(60)
        daemon.idling.look()
        assert await daemon.after(30, go_on) == 0
        daemon.seconds = raised
        assert daemon.idling.patience == raised
        assert await daemon.after(30.1, go_on) == 0, "the time that was set before is over"
        assert await daemon.after(raised - 60.2, go_on) == 0
        assert await daemon.after(0.2, go_on) == 1
        assert daemon.looks == 1


async def test_a_time_that_is_lowered_to_what_has_passed_ends_it_at_the_latest_when_the_former_is_over() -> None:
    with standing_time() as go_on:
        daemon = Daemon(60)
        daemon.idling.look()
        daemon.seconds = 10
        assert await daemon.after(60.1, go_on) == 1


async def test_a_time_that_is_switched_off_while_it_runs_ends_nothing() -> None:
    with standing_time() as go_on:
        daemon = Daemon(60)
        daemon.idling.look()
        daemon.seconds = 0
        assert daemon.idling.patience is None
        assert await daemon.after(3600, go_on) == 0
        assert daemon.looks == 0


@pytest.mark.parametrize(("seconds", "again"), [(60.0, 30.0), (300.0, 30.0), (10.0, 10.0)])
async def test_what_goes_on_is_waited_for_and_looked_at_again(seconds: float, again: float) -> None:
    """At most half a minute later, sooner where the time itself is shorter."""
    with standing_time() as go_on:
        daemon = Daemon(seconds, busy=True)
        daemon.idling.look()
        assert await daemon.after(seconds + 0.1, go_on) == 0
        assert await daemon.after(again - 0.2, go_on) == 0
        assert daemon.looks == 1
        assert await daemon.after(0.4, go_on) == 0
        assert daemon.looks == 2
        daemon.busy = False
        assert await daemon.after(again + 0.1, go_on) == 1
        assert daemon.looks == 3


@pytest.mark.parametrize("how", ["never_end", "stop"])
async def test_who_is_told_to_stay_stays_and_still_counts(how: str) -> None:
    with standing_time() as go_on:
        daemon = Daemon(60)
        daemon.idling.look()
        getattr(daemon.idling, how)()
        assert await daemon.after(3600, go_on) == 0
        assert daemon.idling.seconds == pytest.approx(3600)


async def test_zero_seconds_never_end_it() -> None:
    with standing_time() as go_on:
        daemon = Daemon(0)
        daemon.idling.look()
        assert daemon.idling.patience is None
        assert await daemon.after(10**6, go_on) == 0
