"""When a client gets a bridge of its own: its daemon did not start, or too many crashed. Standard library only."""

MOST_CRASHES, WITHIN = 3, 10.0
"""So many daemons may crash in so many seconds."""
MOST_MISSED = 40
"""So often in a row a daemon may be met that is about to end: it has not greeted."""
_FIRST_PAUSE_AFTER_CRASH, _LONGEST_PAUSE_AFTER_CRASH = 0.005, 0.25
"""Seconds before another is tried; the pause doubles until it is the longest."""


class Crashes:
    """Counts the crashes of the daemons of one client, and decides when to give up."""

    def __init__(self) -> None:
        self._when: list[float] = []
        self._missed = 0

    def pause(self) -> float:
        """Seconds to wait for one to be gone that has not even greeted."""
        return min(_FIRST_PAUSE_AFTER_CRASH * 2**self._missed, _LONGEST_PAUSE_AFTER_CRASH)

    def why_alone(self, now: float, *, was_started_here: bool, was_greeted: bool, is_crash: bool) -> str:
        """A daemon has ended, at this time of a steady clock: why the client needs a bridge of its own now.

        1. It was started for this client and ended before its greeting: the next would do the same.
        2. It crashed (ended without a farewell), and so did too many before it.
        3. Else empty: another daemon may be tried.
        """
        if was_started_here and not was_greeted:
            return "it ended before it had started"
        return "one after the other ended" if is_crash and self.add(now, was_greeted=was_greeted) else ""

    def add(self, now: float, *, was_greeted: bool) -> bool:
        """One has ended without a farewell, at this time of a steady clock. Returns whether to give up."""
        if not was_greeted:
            self._missed += 1
            return self._missed >= MOST_MISSED
        self._missed = 0
        self._when = [*(when for when in self._when if when > now - WITHIN), now]
        return len(self._when) >= MOST_CRASHES
