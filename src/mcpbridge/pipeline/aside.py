"""Where work on results happens: here, in a thread, or in a process, by how much it is about.

Python's parsers hold on to the interpreter: a list of ten million numbers in a thread would stop all other calls for a
second. So huge results go to a process, which also gives their memory back when it is done.
"""

from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter

from mcpbridge.logs import get_logger
from mcpbridge.sandbox.one_shot import ProcessBroke, in_process

__all__ = ["HUGE", "LARGE", "Aside"]

log = get_logger("mcpbridge.results")

LARGE = 16 * 1024
"""Bytes of a result from which on work on it is done in a thread: it would hold up all other calls."""
HUGE = 4 * 1024**2
"""Bytes from which on it is done in a process, where the work can be handed to one."""

_THREADS, _PROCESSES = 4, 2

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Aside:
    """The places of one bridge for such work; further work waits, so that a burst of it cannot take all memory."""

    def __init__(self) -> None:
        self._threads, self._processes = CapacityLimiter(_THREADS), CapacityLimiter(_PROCESSES)

    async def __call__(self, size: int, work: Callable[[], _T]) -> _T:
        """Do the work here, or in a thread if it is about much."""
        if size <= LARGE:
            return work()
        return await anyio.to_thread.run_sync(work, limiter=self._threads)

    async def far(self, size: int, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """The same, and in a process if it is about very much; see `in_process`."""
        if size > HUGE:
            try:
                async with self._processes:
                    return await in_process(function, *args, **kwargs)
            except ProcessBroke as error:
                log.warning("a large result is read in the bridge itself", reason=str(error)[:200])
        return await self(size, partial(function, *args, **kwargs))
