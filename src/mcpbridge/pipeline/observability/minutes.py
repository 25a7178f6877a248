"""What was counted of calls in each minute, out of the metrics: their differences, so nothing is added to a call."""

from typing import Any

from mcpbridge.pipeline.observability.metrics import Metrics, Series
from mcpbridge.storage.call_log.format import MinuteRecord

_Sums = tuple[int | float, ...]
_Key = tuple[str, str, str]
"""Server, tool and client."""
_Counted = tuple[_Sums, tuple[int, ...]]


class Minutes:
    """The differences of the metrics from one time to the next."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._before: dict[tuple[str, str, str, str], _Counted] = {}

    def take(self, at: float) -> list[MinuteRecord]:
        """What was counted since the last time, of the minute that has the moment `at` (seconds since 1970)."""
        added: dict[_Key, _Counted] = {}
        for series in self._metrics:
            key = series.server, series.tool, series.method, series.client
            before = self._before.get(key)
            calls = sum(series.outcomes.values())
            if before is not None and before[0][0] == calls:
                continue
            now = self._before[key] = _counted(series, calls)
            if calls:
                of_three = series.server, series.tool, series.client
                known, new = added.get(of_three), _minus(now, before)
                added[of_three] = new if known is None else _plus(known, new)
        minute = int(at) - int(at) % 60
        values: list[list[Any]] = [[minute, *key, *sums, _trimmed(buckets)] for key, (sums, buckets) in added.items()]
        return [MinuteRecord(*one) for one in values]


def _counted(series: Series, calls: int) -> _Counted:
    """Of one series, in the order of `MinuteRecord`."""
    outcomes = series.outcomes
    sums = (
        calls,
        series.errors,
        outcomes.get("refused", 0),
        outcomes.get("cancelled", 0),
        series.durations.seconds,
        series.upstream.seconds,
        series.bytes_in,
        series.bytes_out,
        series.retries,
        series.cache_hits,
    )
    return sums, tuple(series.durations.buckets)


def _minus(now: _Counted, before: _Counted | None) -> _Counted:
    if before is None:
        return now
    (sums, buckets), (sums_before, buckets_before) = now, before
    return (
        tuple(one - other for one, other in zip(sums, sums_before, strict=True)),
        tuple(one - other for one, other in zip(buckets, buckets_before, strict=True)),
    )


def _plus(one: _Counted, other: _Counted) -> _Counted:
    return (
        tuple(a + b for a, b in zip(one[0], other[0], strict=True)),
        tuple(a + b for a, b in zip(one[1], other[1], strict=True)),
    )


def _trimmed(buckets: tuple[int, ...]) -> list[int]:
    """Without the empty ones at the end."""
    kept = list(buckets)
    while kept and not kept[-1]:
        kept.pop()
    return kept
