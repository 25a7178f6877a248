"""Counts and durations: sums stay right, series stay bounded, quantiles stay within their bucket."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.pipeline.observability.metrics import BUCKETS, OTHER, Durations, Metrics, Series, total

seconds = st.lists(st.floats(0, 1000, allow_nan=False), max_size=60)


def durations_of(values: list[float]) -> Durations:
    durations = Durations()
    for value in values:
        durations.add(value)
    return durations


@given(seconds)
def test_every_duration_falls_into_the_bucket_that_bounds_it(values: list[float]) -> None:
    durations = durations_of(values)
    assert durations.count == len(values)
    assert durations.seconds == pytest.approx(sum(values))
    for bound, number in zip([*BUCKETS, math.inf], durations.cumulated(), strict=True):
        assert number == sum(value <= bound for value in values)


@given(seconds.filter(bool), st.floats(0.01, 1))
def test_a_quantile_is_within_the_bucket_of_the_true_one(values: list[float], share: float) -> None:
    told = durations_of(values).quantile(share)
    assert told is not None
    true = sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
    bound = next((bound for bound in BUCKETS if true <= bound), BUCKETS[-1])
    below = max((lower for lower in BUCKETS if lower < bound), default=0.0)
    assert below <= told <= bound or (true > BUCKETS[-1] and told == BUCKETS[-1])


@given(seconds, seconds)
def test_two_histograms_together_are_that_of_all_values(one: list[float], other: list[float]) -> None:
    whole = durations_of(one)
    whole.include(durations_of(other))
    assert whole.buckets == durations_of(one + other).buckets


def test_there_is_nothing_to_tell_of_no_calls() -> None:
    assert Durations().quantile(0.5) is None
    assert Durations().summary() == {}
    assert durations_of([0.005]).summary() == {"p50": 0.005, "p95": 0.0095}


def test_a_call_counts_once_in_each_sum() -> None:
    metrics = Metrics()
    one = metrics.series("s", "s/a", "tools/call", "editor")
    assert metrics.series("s", "s/a", "tools/call", "editor") is one
    one.ended("ok", 0.02, 0.01, 10, 100)
    one.ended("refused", 0.001, 0.0, 5, 0)
    one.went_wrong("refused", "NotPermitted")
    other = metrics.series("s", "s/b", "tools/call", "shell")
    other.ended("failed", 1.5, 1.4, 1, 0)
    other.went_wrong("failed", "UpstreamGone")
    other.ended("tool_error", 0.5, 0.4, 1, 7)
    whole = metrics.of_server("s")
    assert (whole.calls, whole.errors) == (4, 2)
    assert (whole.bytes_in, whole.bytes_out) == (17, 107)
    assert whole.outcomes == {"ok": 1, "refused": 1, "failed": 1, "tool_error": 1}
    assert (whole.refused, whole.failed) == ({"NotPermitted": 1}, {"UpstreamGone": 1})
    assert (whole.durations.count, whole.upstream.count) == (4, 3)
    assert metrics.of_server("t").calls == 0
    assert {key: of.calls for key, of in metrics.by_tool().items()} == {
        ("s", "s/a", "tools/call"): 2,
        ("s", "s/b", "tools/call"): 2,
    }


def test_what_stages_noted_is_counted_without_naming_anybody() -> None:
    series = Series()
    series.took_note({"retries": 2, "cache": "miss", "coerced": ["a"], "approval": "once by ann"})
    series.took_note({"cache": "hit", "approval": "denied by bob"})
    series.took_note({"cache": "shared", "approval": "nobody answered", "retries": "?", "waited": 0.1})
    whole = total([series])
    assert (whole.retries, whole.cache_hits, whole.coerced) == (2, 2, 1)
    assert whole.approvals == {"granted": 1, "denied": 1, "unanswered": 1}


def test_tokens_of_rewritten_results_add_up_over_clients() -> None:
    metrics = Metrics()
    metrics.rewrote("s", "s/a", "ear", "preview", came=900, sent=100, stored=900)
    metrics.rewrote("s", "s/a", "eye", "table", came=300, sent=200, stored=0)
    metrics.rewrote("s", "s/a", "eye", "table", came=300, sent=200, stored=300)
    metrics.recalled("s", "s/a", "eye", 40)
    whole = metrics.by_tool()["s", "s/a", "tools/call"]
    assert whole.rewritten == {"preview": 1, "table": 2}
    assert whole.tokens == {"came": 1500, "shown": 500, "stored": 1200, "recalled": 40}
    assert total(one.copy() for one in metrics).tokens == whole.tokens


def test_names_that_others_choose_make_only_so_many_series() -> None:
    """A client may call itself anything, and a server may offer anything."""
    metrics = Metrics(max_tools=3, max_clients=2)
    for tool in range(10):
        for client in range(10):
            metrics.series("s", f"s/{tool}", "tools/call", f"client {client}").ended("ok", 0, 0, 1, 1)
    assert {series.tool for series in metrics} == {"s/0", "s/1", "s/2", OTHER}
    assert {series.client for series in metrics} == {"client 0", "client 1", OTHER}
    assert metrics.of_server("s").calls == 100
    assert len(metrics) == 12


def test_there_are_never_more_than_ten_thousand_series() -> None:
    metrics = Metrics(max_tools=100_000, max_clients=100_000)
    for number in range(10_500):
        metrics.series("s", f"s/{number}", "tools/call", f"{number}").ended("ok", 0, 0, 0, 0)
    assert len(metrics) == 10_001
    assert metrics.of_server("s").calls == 10_500


def test_error_codes_that_a_server_makes_up_are_counted_together() -> None:
    series = Series()
    for code in range(100):
        series.went_wrong("failed", str(code))
    assert len(series.failed) == 21
    assert series.failed[OTHER] == 80


def test_a_client_name_of_any_length_is_cut() -> None:
    (series,) = [Metrics().series("s", "s/a", "tools/call", "x" * 1000)]
    assert len(series.client) == 64
