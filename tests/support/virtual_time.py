"""The time of the running event loop, which passes when a test says so: who waits for it waits for no machine.

For asyncio's own loop. What looks at another clock is not concerned.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["pass_time", "standing_time", "turns"]


def pass_time(seconds: float) -> None:
    """From now on it is so much later. Guards of a test that are shorter run out as well."""
    loop = asyncio.get_running_loop()
    before = loop.time
    loop.time = lambda: before() + seconds  # type: ignore[method-assign]


async def turns(count: int = 50) -> None:
    """Let whatever is due run, and what comes of it: so many turns of the loop."""
    for _ in range(count):
        await asyncio.sleep(0)


@contextmanager
def standing_time() -> Iterator[Callable[[float], None]]:
    """It stands still inside, but for the seconds that are given to what this gives."""
    loop = asyncio.get_running_loop()
    before, now = loop.time, loop.time()

    def go_on(seconds: float) -> None:
        nonlocal now
        now += seconds

    loop.time = lambda: now  # type: ignore[method-assign]
    try:
        yield go_on
    finally:
        loop.time = lambda: max(now, before())  # type: ignore[method-assign]
