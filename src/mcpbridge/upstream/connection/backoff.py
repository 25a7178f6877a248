"""When to dial an upstream again and when to wait: the restart backoff. Pure: the time is passed in.

Numbers after systemd (starts in a window), Kubernetes (reset after a stable time) and AWS (full jitter).
"""

from collections import deque

from msgspec import Struct

FIRST_DELAY = 0.5
"""Seconds; the bound of the first wait, which doubles with every failure."""
LONGEST_DELAY = 60.0
"""Seconds; the bound never grows beyond this."""
STABLE_AFTER = 60.0
"""Seconds of being ready after which earlier failures are forgotten."""
FAILURES_IN_WINDOW = 5
WINDOW = 60.0
"""Seconds; so many failures within the window and the upstream is `failed`."""
FAILED_RETRY = 300.0
"""Seconds between attempts while `failed`; a call may ask for one earlier."""
ON_DEMAND_AFTER = 10.0
"""Seconds since the last attempt before a call may cause another one out of turn."""
SOON = 2.0
"""Seconds: a call waits for an attempt that begins so soon, else it is refused at once."""


class Wait(Struct, frozen=True):
    """What to do after a failure: wait so many seconds; `given_up` when it failed too often in a short time."""

    seconds: float
    given_up: bool


class RestartBackoff:
    """Decides the waits between the attempts to keep one upstream connected."""

    def __init__(self) -> None:
        self._failures: deque[float] = deque(maxlen=FAILURES_IN_WINDOW)
        self._in_a_row = 0
        self._ready_since: float | None = None
        self.last_attempt = float("-inf")
        self._not_before = float("-inf")
        """When the server wants the next attempt at the earliest."""

    def dialling(self, now: float) -> None:
        """An attempt begins."""
        self.last_attempt = now

    def ready(self, now: float) -> None:
        """The attempt succeeded."""
        self._ready_since = now

    def lost(self, now: float, chance: float, *, retry_after: float = 0.0) -> Wait:
        """An attempt failed, or a ready upstream was lost. `chance` is uniform in [0, 1).

        `retry_after`: seconds that the server wants to be left alone; it gets them, up to `FAILED_RETRY`.
        """
        retry_after = min(retry_after, FAILED_RETRY)
        self._not_before = now + retry_after
        if self._ready_since is not None and now - self._ready_since >= STABLE_AFTER:
            self._failures.clear()
            self._in_a_row = 0
        self._ready_since = None
        self._failures.append(now)
        bound = min(LONGEST_DELAY, FIRST_DELAY * 2**self._in_a_row)
        self._in_a_row = min(self._in_a_row + 1, 16)
        if len(self._failures) == FAILURES_IN_WINDOW and now - self._failures[0] <= WINDOW:
            return Wait(FAILED_RETRY, given_up=True)
        return Wait(max(bound * chance, retry_after), given_up=False)

    def may_dial_on_demand(self, now: float) -> bool:
        """Whether a call may cause an attempt now instead of at the end of the wait."""
        return self.on_demand_in(now) <= 0

    def on_demand_in(self, now: float) -> float:
        """Seconds until a call may cause an attempt out of turn."""
        return max(self.last_attempt + ON_DEMAND_AFTER, self._not_before) - now
