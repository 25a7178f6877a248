"""Threads for the user's own code, which may take its time or never end.

They are daemon threads, one a piece of work: those of a pool are waited for at the end of the process. Nobody can end
a thread, so work that nobody waits for any more goes on until it looks whether it is still wanted; how much of that
there may be is bounded.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from threading import Thread
from typing import TypeVar, cast

from mcpbridge.errors import Overloaded
from mcpbridge.logs import get_logger

__all__ = ["Threads"]

log = get_logger("mcpbridge.backends")

END_SECONDS = 1.0
"""Seconds that threads get to end when their backend does."""

T = TypeVar("T")


class Threads:
    """The threads of one backend, at most `most` at a time, those counted for which nobody waits."""

    def __init__(self, name: str, most: int) -> None:
        self._name, self._most, self._running = name, most, 0
        self._over: asyncio.Event | None = None

    async def run(self, work: Callable[[], T]) -> T:
        """What `work` returns; raises what it raises. Cancelled, it goes on by itself, and what comes of it is lost.

        Raises:
            Overloaded: too much of earlier work, which nobody waits for any more, does not end.
        """
        if self._running >= self._most:
            raise Overloaded(f"'{self._name}' is busy with {self._running} calls, some of which nobody waits for")
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[tuple[T | None, BaseException | None]] = loop.create_future()

        def settle(value: T | None, error: BaseException | None) -> None:
            self._running -= 1
            if self._over is not None and not self._running:
                self._over.set()
            if not outcome.done():
                outcome.set_result((value, error))

        def run() -> None:
            value, failed = None, None
            try:
                value = work()
            except BaseException as error:  # noqa: BLE001 - it is the caller's to judge
                failed = error
            with suppress(RuntimeError):  # the loop has ended meanwhile, and with it whoever waited
                loop.call_soon_threadsafe(settle, value, failed)

        Thread(target=copy_context().run, args=(run,), name=f"tool {self._name}", daemon=True).start()
        self._running += 1  # `settle` runs later, on this very loop
        value, failed = await outcome
        if failed is not None:
            try:
                raise failed
            finally:
                del failed  # no cycle of the error, its traceback and this frame
        return cast("T", value)

    async def end(self) -> None:
        """Wait for those that run, for a while; what still runs then is left behind."""
        if self._running:
            self._over = asyncio.Event()
            with suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    await self._over.wait()
            self._over = None
        if self._running:
            log.warning("code of a tool does not end; it is left behind", tool=self._name, threads=self._running)
