"""Who was put out at this bridge, from when on: written down as soon as the store takes it, and no later than that.

Until then it holds at this bridge alone, which tries again and again for as long as it runs.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from mcpbridge.base.background_tasks import OwnedTasks, repeat
from mcpbridge.base.errors import StoreFailed
from mcpbridge.base.log import get_logger

log = get_logger("mcpbridge.auth")

_T = TypeVar("_T")

_AGAIN_AFTER = 1.0
"""Seconds between two attempts to write down what the store did not take."""


class PutOut(Generic[_T]):
    """The people who were put out here and are not written down."""

    def __init__(self, write: Callable[[str, float], Awaitable[_T]], now: Callable[[], float]) -> None:
        """`write` writes down that a principal was put out, and when; it may do so twice. `now`: seconds since 1970."""
        self._write, self._now = write, now
        self._tasks = OwnedTasks()
        self._writing: asyncio.Task[None] | None = None
        self._owed: dict[str, float] = {}
        self.on_written: Callable[[str], object] = lambda principal: None
        """Called with whoever was put out, when that is written down later than it was done."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {len(self._owed)} not written down>"

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """What the store did not take is written later, until the end."""
        async with self._tasks.running():
            yield
        if self._owed:
            log.error("people were put out at this bridge alone: revoke them again", principals=sorted(self._owed))

    def since(self, principal: str) -> float | None:
        """When this principal was put out, in seconds since 1970; None: not here, or it is written down."""
        return self._owed.get(principal)

    async def add(self, principal: str) -> _T | None:
        """Put somebody out. Returns what `write` does, or None: it will be written later.

        Cancelling is safe while this runs: it is written all the same.

        Raises:
            StoreFailed: it cannot be written down, and this does not run, so that nobody would do it later.
        """
        at = self._owed[principal] = self._now()
        try:
            written = await self._write(principal, at)
        except BaseException as error:
            if not self._write_later():
                self._is_written(principal, at)
                raise
            if not isinstance(error, StoreFailed):
                raise
            log.warning("other bridges do not learn yet that somebody was put out", reason=str(error))
            return None
        self._is_written(principal, at)
        return written

    def _is_written(self, principal: str, at: float) -> None:
        if self._owed.get(principal) == at:  # else they were put out once more meanwhile
            del self._owed[principal]

    def _write_later(self) -> bool:
        if self._writing is None or self._writing.done():
            self._writing = self._tasks.spawn(repeat(_AGAIN_AFTER, self._write_owed))
        return self._writing is not None

    async def _write_owed(self) -> bool:
        failure: Exception | None = None
        for principal, at in list(self._owed.items()):
            if self._owed.get(principal) != at:
                continue  # whoever put them out once more has written it down
            try:
                await self._write(principal, at)
            except StoreFailed:
                return False
            except Exception as error:  # noqa: BLE001 - raised below; those behind it have nothing to do with it
                failure = error
                continue
            self._is_written(principal, at)
            self.on_written(principal)
        if failure is not None:
            raise failure
        return not self._owed
