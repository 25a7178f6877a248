"""A rate as a bucket of tokens: what happens takes one, and they come back evenly.

A bucket holds `times` tokens at most, so that after a pause `times` things may happen at once and later ones one every
`seconds / times`. In any span of time w no more than `times + w * times / seconds` pass: twice the rate within the
first `seconds` after a pause, the rate itself in the long run. A bucket is one number, the time at which it is full
again (the generic cell rate algorithm, ITU-T I.371).
"""

from collections.abc import Iterable

from mcpbridge.base.units import Rate

_GRAIN = 1e-6
"""Seconds; a token that is due within these is there: sums of times are not exact."""


class Bucket:
    """The tokens of one rate. All times are seconds on one clock that does not go backwards."""

    __slots__ = ("full_at", "gap", "reach")

    def __init__(self, rate: Rate) -> None:
        """It is full."""
        self.gap = rate.seconds / rate.times
        """Seconds between two tokens that come back."""
        self.reach = rate.seconds - self.gap
        """Seconds that `full_at` may be ahead while there is a token."""
        self.full_at = float("-inf")
        """When all tokens are there, if none is taken meanwhile."""

    def wait(self, now: float) -> float:
        """Seconds until there is a token; 0 when there is one."""
        wait = self.full_at - self.reach - now
        return wait if wait > _GRAIN else 0.0

    def take(self, now: float) -> None:
        """Take a token. Only when there is one."""
        self.full_at = max(now, self.full_at) + self.gap


# Each call asks all buckets that it takes from: one function for all of them.


def all_have_tokens(buckets: Iterable[Bucket], now: float) -> bool:
    """Whether `wait` of each is 0."""
    for bucket in buckets:  # noqa: SIM110 - a generator would be one more for every call
        if bucket.full_at - bucket.reach - now > _GRAIN:
            return False
    return True


def take_of_all(buckets: Iterable[Bucket], now: float) -> None:
    """Take a token of each. Only when all have one."""
    for bucket in buckets:
        bucket.full_at = max(now, bucket.full_at) + bucket.gap
