"""How many crashes of the daemon a client bears before it goes on without one. Standard library only."""

MOST_CRASHES, WITHIN = 3, 10.0
"""So many daemons may crash in so many seconds."""
MOST_MISSED = 40
"""So often in a row a daemon may be met that is about to end: it has not greeted."""
_FIRST_PAUSE_AFTER_CRASH, _LONGEST_PAUSE_AFTER_CRASH = 0.005, 0.25
"""Seconds before another is tried; the pause doubles until it is the longest."""


class Crashes:
    """Counts the crashes of the daemons of one client, and says when to give up."""

    def __init__(self) -> None:
        self._when: list[float] = []
        self._missed = 0

    def pause(self) -> float:
        """Seconds to wait for one to be gone that has not even greeted."""
        return min(_FIRST_PAUSE_AFTER_CRASH * 2**self._missed, _LONGEST_PAUSE_AFTER_CRASH)

    def add(self, now: float, *, was_greeted: bool) -> bool:
        """One has ended without a farewell, at this time of a steady clock. Says whether to give up."""
        if not was_greeted:
            self._missed += 1
            return self._missed >= MOST_MISSED
        self._missed = 0
        self._when = [*(when for when in self._when if when > now - WITHIN), now]
        return len(self._when) >= MOST_CRASHES
