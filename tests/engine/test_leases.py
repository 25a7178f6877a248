"""What runs because the settings say so: shared by all that want the same, ended with the last of them."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio
import pytest

from mcpbridge.base.log import Logger
from mcpbridge.engine.leases import Leases, until_closed
from support.harness import eventually

pytestmark = pytest.mark.anyio


class Part:
    """Notes when it begins and ends."""

    def __init__(self, name: str, log: list[str], *, fails: str = "") -> None:
        self.name, self._log, self._fails = name, log, fails

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        if self._fails == "beginning":
            raise OSError("it cannot begin")
        self._log.append(f"{self.name} begins")
        yield
        self._log.append(f"{self.name} ends")
        if self._fails == "end":
            raise OSError("it cannot end")

    async def close(self) -> None:
        self._log.append(f"{self.name} is closed")


async def gone(leases: Leases, left: int = 0) -> None:
    async def count() -> int:
        return len(leases)

    await eventually(count, lambda now: now == left)


async def test_what_is_made_of_the_same_goes_on_until_nobody_holds_it() -> None:
    log: list[str] = []
    leases = Leases()
    with anyio.fail_after(30):
        async with leases.running():
            first, second = leases.lease(), leases.lease()
            one = first.hold("part", {"a": 1}, lambda: Part("one", log), run=Part.running)
            await first.begin()
            assert second.hold("part", {"a": 1}, lambda: Part("another", log), run=Part.running) is one
            other = second.hold("part", {"a": 2}, lambda: Part("two", log), run=until_closed)
            assert second.hold("kind", {"a": 2}, lambda: Part("three", log), run=Part.running) is not other
            await second.begin()
            first.end()
            await gone(leases, 3)
            assert log == ["one begins", "three begins"]
            second.end()
            await gone(leases)
            assert sorted(log[2:]) == ["one ends", "three ends", "two is closed"]
            third = leases.lease()
            assert third.hold("part", {"a": 1}, lambda: Part("anew", log), run=Part.running) is not one
            await third.begin()
    assert log[-1] == "anew ends", "all end with the bridge"


async def test_a_part_that_cannot_begin_fails_who_wants_it_and_leaves_nothing() -> None:
    log: list[str] = []
    leases = Leases()
    with anyio.fail_after(30):
        async with leases.running():
            lease = leases.lease()
            lease.hold("good", 1, lambda: Part("good", log), run=Part.running)
            lease.hold("bad", 1, lambda: Part("bad", log, fails="beginning"), run=Part.running)
            lease.hold("late", 1, lambda: Part("late", log), run=Part.running)
            with pytest.raises(OSError, match="cannot begin"):
                await lease.begin()
            lease.end()
            await gone(leases)
    assert log == ["good begins", "good ends"]


async def test_a_part_that_ends_badly_ends_alone() -> None:
    log: list[str] = []
    errors: list[str] = []
    Logger.sink = lambda level, event, fields: errors.append(event)
    leases = Leases()
    with anyio.fail_after(30):
        async with leases.running():
            held = leases.lease(), leases.lease()
            held[0].hold("bad", 1, lambda: Part("bad", log, fails="end"), run=Part.running)
            held[1].hold("good", 1, lambda: Part("good", log), run=Part.running)
            for lease in held:
                await lease.begin()
            held[0].end()
            await gone(leases, 1)
            assert errors == ["a component failed to stop"]
        assert log[-1] == "good ends"


class Endless(Part):
    """One that does not end by itself."""

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        yield
        await anyio.sleep_forever()


class Unbegun(Part):
    """One that never begins."""

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        await anyio.sleep_forever()
        yield


def _runs(part: Part) -> AbstractAsyncContextManager[None]:
    return part.running()


async def test_a_part_that_does_not_end_in_its_time_is_cancelled() -> None:
    errors: list[str] = []
    Logger.sink = lambda level, event, fields: errors.append(event)
    leases = Leases()
    with anyio.fail_after(30):
        async with leases.running():
            first, last = leases.lease(), leases.lease()
            first.hold("endless", 1, lambda: Endless("one", []), run=_runs, ends_in=0.01)
            last.hold("endless", 2, lambda: Endless("two", []), run=_runs, ends_in=0.01)
            await first.begin()
            await last.begin()
            first.end()
            await gone(leases, 1)
            unbegun = leases.lease()
            unbegun.hold("unbegun", 1, lambda: Unbegun("three", []), run=_runs, ends_in=0.01)
            with anyio.move_on_after(0.01):
                await unbegun.begin()
    assert len(leases) == 0
    assert errors == ["a component did not stop in time"] * 3


async def test_what_goes_wrong_meanwhile_is_raised_as_it_is() -> None:
    leases = Leases()
    with pytest.raises(ZeroDivisionError):
        async with leases.running():
            raise ZeroDivisionError
    late = leases.lease()
    late.hold("part", 1, lambda: Part("late", []), run=Part.running)
    await late.begin()
    late.end()
    assert len(leases) == 0


async def test_leases_say_what_they_hold() -> None:
    """Whoever looks for a leak sees which parts run."""
    log: list[str] = []
    leases = Leases()
    assert repr(leases) == "<Leases not begun: 0 of 0 parts run, 0 end>"
    with anyio.fail_after(30):
        async with leases.running():
            lease = leases.lease()
            lease.hold("part", 1, lambda: Part("one", log), run=Part.running)
            lease.hold("part", 2, lambda: Part("two", log), run=Part.running)
            lease.hold("other", 1, lambda: Part("three", log), run=until_closed)
            assert leases.statistics() == {"parts": 3, "running": 0, "ending": 0, "kinds": {"part": 2, "other": 1}}
            await lease.begin()
            assert repr(leases) == "<Leases running: 3 of 3 parts run, 0 end>"
            lease.end()
            assert leases.statistics()["ending"] == 3
            await gone(leases)
    assert repr(leases) == "<Leases ended: 0 of 0 parts run, 0 end>"


async def test_leases_that_are_dropped_while_parts_run_say_so() -> None:
    """A bridge whose loop was closed around it leaves connections and processes open."""
    leases = Leases()
    async with leases.running():
        with pytest.warns(ResourceWarning, match="Leases running: 0 of 0 parts run, 0 end> was dropped"):
            leases.__del__()
