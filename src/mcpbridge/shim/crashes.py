"""When daemons end too often to try another. Pure: the time is passed in."""

__all__ = ["MOST_CRASHES", "MOST_MISSED", "WITHIN", "Crashes"]

MOST_CRASHES, WITHIN = 3, 10.0
"""So many daemons may crash in so many seconds."""
MOST_MISSED = 40
"""So often in a row a daemon may be met that is about to end: it has not greeted."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.25


class Crashes:
    """Of the daemons of one client."""

    def __init__(self) -> None:
        self._when: list[float] = []
        self._missed = 0

    def pause(self) -> float:
        """Seconds to wait for one to be gone that has not even greeted."""
        return min(_FIRST_PAUSE * 2**self._missed, _LONGEST_PAUSE)

    def add(self, now: float, *, was_greeted: bool) -> bool:
        """One has ended without a farewell, at this time of a steady clock. Says whether to give up."""
        if not was_greeted:
            self._missed += 1
            return self._missed >= MOST_MISSED
        self._missed = 0
        self._when = [*(when for when in self._when if when > now - WITHIN), now]
        return len(self._when) >= MOST_CRASHES
