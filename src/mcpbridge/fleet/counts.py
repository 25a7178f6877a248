"""What a bridge counts of its fleet: requests that went over the link, sessions that moved, what the link takes."""

from bisect import bisect_left
from itertools import accumulate
from typing import Literal

Outcome = Literal["answered", "moved", "left", "not_sent", "unknown"]
"""What became of a request that another bridge was asked: its answer came whole, that bridge does not have the session
any more, its client left before, that bridge could not be reached, or it was lost before its answer was whole."""

ROUND_TRIPS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Seconds; upper bounds of the buckets of round trips. A last one has no bound."""


class FleetCounts:
    """The counts since the start."""

    def __init__(self) -> None:
        self.forwarded: dict[Outcome, int] = dict.fromkeys(("answered", "moved", "left", "not_sent", "unknown"), 0)
        """Requests that another bridge was asked."""
        self.taken_over = 0
        """Sessions of other bridges that are this one's now."""
        self.handed_on = 0
        """Sessions of this bridge that were left to the others."""
        self._round_trips = [0] * (len(ROUND_TRIPS) + 1)
        self.round_trip_seconds = 0.0
        """The sum of all round trips."""

    def add_round_trip(self, seconds: float) -> None:
        """A question to another bridge, which answers it at once, took so long."""
        self._round_trips[bisect_left(ROUND_TRIPS, seconds)] += 1
        self.round_trip_seconds += seconds

    def round_trips(self) -> list[int]:
        """How many took at most the bound of each bucket; the last is all of them."""
        return list(accumulate(self._round_trips))
