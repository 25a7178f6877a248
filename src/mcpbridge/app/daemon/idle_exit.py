"""When the daemon ends because nobody needs it.

Only one that a shim started does: whoever starts it for good wants it to stay. It ends some time after its last client
left, also if none ever came, and not while something runs that outlives a client: calls, tasks, approvals.
"""

import asyncio
from collections.abc import Callable

_LOOK_AGAIN = 30.0
"""Seconds until the next look whether something still runs; sooner if the time without clients is shorter."""
_INEXACT = 0.01
"""Seconds by which a timer may be early."""


class Idling:
    """Counts the time without clients, and calls `end` when it was enough."""

    def __init__(
        self,
        seconds: Callable[[], float],
        *,
        has_clients: Callable[[], bool],
        goes_on: Callable[[], bool],
        end: Callable[[], None],
    ) -> None:
        """`seconds`: how much is enough, asked anew each time; 0: never.

        `goes_on`: something that nobody waits for is not finished.
        """
        self._seconds_now = seconds
        self._ends = True
        self._has_clients, self._goes_on, self._end = has_clients, goes_on, end
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._since: float | None = None

    @property
    def _seconds(self) -> float:
        return self._seconds_now() if self._ends else 0

    @property
    def patience(self) -> float | None:
        """Seconds without clients after which it calls `end`; None: never."""
        return self._seconds or None

    @property
    def seconds(self) -> float | None:
        """How long nobody has been here; None: somebody is."""
        return None if self._since is None else self._loop.time() - self._since

    def look(self) -> None:
        """Clients may have come or gone, or the setting may have changed."""
        if self._has_clients():
            self._since = None
            self.stop()
            return
        if self._since is None:
            self._since = self._loop.time()
            self.stop()
        if self._timer is None and (seconds := self._seconds):
            self._wait(max(_INEXACT, seconds - (self.seconds or 0)))

    def never_end(self) -> None:
        """From now on it does not matter how long nobody is there."""
        self._ends = False
        self.stop()

    def stop(self) -> None:
        """Call nobody any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, seconds: float) -> None:
        self.stop()
        if seconds:
            self._timer = self._loop.call_later(seconds, self._over)

    def _over(self) -> None:
        self._timer = None
        left = self._seconds - (self.seconds or 0)
        if left > _INEXACT:  # the setting was changed
            self._wait(left)
        elif self._seconds and self._goes_on():
            self._wait(min(self._seconds, _LOOK_AGAIN))
        elif self._seconds:
            self._end()
