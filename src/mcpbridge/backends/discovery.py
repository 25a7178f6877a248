"""Finds out what a backend offers, in a task of its own: until it is known, and anew when there is reason to.

What cannot be found leaves the backend `failed`, with the tools that it had; it is tried again after a wait that grows.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from mcpbridge.backends.backend import Condition
from mcpbridge.errors import BridgeError, UpstreamError
from mcpbridge.logs import get_logger
from mcpbridge.owned_tasks import OwnedTasks

__all__ = ["Discovery"]

log = get_logger("mcpbridge.backends")

FIRST_DELAY = 0.5
"""Seconds; the first wait after a failure, which doubles with every further one."""
LONGEST_DELAY = 60.0
"""Seconds; the wait never grows beyond this."""
SPACING = 2.0
"""Seconds between attempts that calls give reason to."""
LONGEST = 30.0
"""Seconds for one attempt."""


class Discovery:
    """Looks for one backend."""

    def __init__(
        self,
        name: str,
        find: Callable[[], Awaitable[bool]],
        redact: Callable[[str], str],
        *,
        unavailable: str | None = None,
    ) -> None:
        """`find` finds out and says whether the tools are others than before; a `BridgeError` says why it cannot.

        `unavailable`: why it is not looked for at all, since it cannot be used as configured.
        """
        self._name, self._find, self._redact = name, find, redact
        self._tasks = OwnedTasks()
        self._asked = asyncio.Event()
        self._looking = asyncio.Lock()
        self._changed: Callable[[], None] = lambda: None
        self._at_first = Condition("failed", unavailable) if unavailable else Condition("starting")
        self.condition = self._at_first
        """How the backend is."""

    @asynccontextmanager
    async def running(self, changed: Callable[[], None]) -> AsyncGenerator[None]:
        """It looks meanwhile; see `Backend.running`."""
        self._changed = changed
        try:
            async with self._tasks.running():
                if self._at_first.state == "starting":
                    self._tasks.spawn(self._keep())
                yield
        finally:
            self.condition = self._at_first

    def again(self) -> None:
        """There is reason to look anew: a call could not be sent, or the server knows the method no more."""
        self._asked.set()

    async def look(self) -> Condition:
        """Look now, and return what it came to."""
        if self._at_first.state == "failed":
            return self._at_first
        async with self._looking:
            is_other = False
            try:
                async with asyncio.timeout(LONGEST):
                    is_other = await self._find()
                condition = Condition("ready")
            except TimeoutError:
                condition = Condition("failed", f"it did not answer within {LONGEST:g} s")
            except BridgeError as error:
                what = error.what if isinstance(error, UpstreamError) else str(error)
                is_lasting = not isinstance(error, UpstreamError)  # such as a package that is missing
                condition = Condition("failed", self._redact(" ".join(what.split())), is_lasting)
            except Exception as error:  # the task boundary of one backend; the others go on
                log.error("looking for a backend failed", tool=self._name, exc_info=error)
                condition = Condition("failed", f"a fault of the bridge: {type(error).__name__} (see its log)")
            before, self.condition = self.condition, condition
        if condition != before:
            if condition.state == "failed":
                log.warning("a backend cannot be used", tool=self._name, reason=condition.reason)
            else:
                log.info("a backend is ready", tool=self._name)
        if is_other or condition != before:
            self._changed()
        return condition

    async def _keep(self) -> None:
        failures = 0
        while True:
            self._asked.clear()
            condition = await self.look()
            failures = failures + 1 if condition.state == "failed" else 0
            delay = min(LONGEST_DELAY, FIRST_DELAY * 2 ** min(failures - 1, 16)) if failures else None
            spacing = min(SPACING, delay) if delay is not None else SPACING
            await asyncio.sleep(spacing * random.uniform(0.8, 1))
            try:
                async with asyncio.timeout(None if delay is None else delay - spacing):
                    await self._asked.wait()
            except TimeoutError:
                pass
