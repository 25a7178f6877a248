"""A rate as a bucket of tokens: what happens takes one, and they come back evenly.

A bucket holds `times` tokens at most, so that after a pause `times` things may happen at once and later ones one every
`seconds / times`. In any span of time w no more than `times + w * times / seconds` pass: twice the rate within the
first `seconds` after a pause, the rate itself in the long run. A bucket is one number, the time at which it is full
again (the generic cell rate algorithm, ITU-T I.371).
"""

from mcpbridge.base.units import Rate

_GRAIN = 1e-6
"""Seconds; a token that is due within these is there: sums of times are not exact."""


class Bucket:
    """The tokens of one rate. All times are seconds on one clock that does not go backwards."""

    __slots__ = ("_gap", "_reach", "full_at")

    def __init__(self, rate: Rate) -> None:
        """It is full."""
        self._gap = rate.seconds / rate.times
        self._reach = rate.seconds - self._gap
        self.full_at = float("-inf")
        """When all tokens are there, if none is taken meanwhile."""

    def wait(self, now: float) -> float:
        """Seconds until there is a token; 0 when there is one."""
        wait = self.full_at - self._reach - now
        return wait if wait > _GRAIN else 0.0

    def take(self, now: float) -> None:
        """Take a token. Only when there is one."""
        self.full_at = max(now, self.full_at) + self._gap
