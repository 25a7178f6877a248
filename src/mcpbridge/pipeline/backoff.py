"""How long to wait before the next try, and whether there may be one at all; pure, time and chance are passed in.

Full jitter after AWS, the budget after Envoy and Finagle: many clients that fail at once must not come back at once,
and a server that is down must not get several times the calls that it could not bear.
"""

from collections import deque

from mcpbridge.conduct import RetrySettings

__all__ = ["RetryBudget", "pause"]

WINDOW, PARTS = 60.0, 6
"""Seconds that the budget looks back, and in how many parts they are counted."""
SHARE, AT_LEAST = 0.2, 3
"""Retries in the window: this share of the calls, and so many more."""


def pause(settings: RetrySettings, failures: int, chance: float) -> float:
    """Seconds before the next try, after so many `failures` (1 or more). `chance` is uniform in [0, 1)."""
    return chance * min(settings.max_backoff, settings.backoff * 2.0 ** min(failures - 1, 60))


class RetryBudget:
    """Bounds the retries at one server by a share of its calls."""

    def __init__(self) -> None:
        self._parts: deque[list[float]] = deque()
        """Beginning, calls and retries of each part of the window; the newest last."""

    def called(self, now: float) -> None:
        """A call begins."""
        self._part(now)[1] += 1

    def may_retry(self, now: float) -> bool:
        """Whether one more retry is within the budget; it is counted then."""
        part = self._part(now)
        calls, retries = (sum(part[at] for part in self._parts) for at in (1, 2))
        if retries >= AT_LEAST + SHARE * calls:
            return False
        part[2] += 1
        return True

    def _part(self, now: float) -> list[float]:
        """The part of the window that it is now; those that are over are forgotten."""
        while self._parts and self._parts[0][0] <= now - WINDOW:
            self._parts.popleft()
        if not self._parts or now - self._parts[-1][0] >= WINDOW / PARTS:
            self._parts.append([now, 0, 0])
        return self._parts[-1]
