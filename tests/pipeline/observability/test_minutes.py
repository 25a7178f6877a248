"""What was counted in each minute, from the metrics alone (issue 20: rates survive a restart)."""

from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.pipeline.observability.metrics import BUCKETS, Metrics
from mcpbridge.pipeline.observability.minutes import Minutes
from mcpbridge.storage.call_log.format import Outcome

NAMES = st.sampled_from(["a", "b"])
OUTCOMES = st.sampled_from(["ok", "tool_error", "refused", "failed", "cancelled"])
CALLS = st.lists(st.tuples(NAMES, NAMES, OUTCOMES, st.floats(0, 400)), max_size=20)


def test_a_minute_has_what_was_counted_since_the_last_one() -> None:
    metrics = Metrics()
    minutes = Minutes(metrics)
    series = metrics.series("files", "files/read", "tools/call", "ear")
    series.ended("ok", 0.05, 0.04, 10, 100)
    series.ended("failed", 3.0, 2.0, 10, 0)
    [first] = minutes.take(130.0)
    assert (first.at, first.server, first.tool, first.client) == (120, "files", "files/read", "ear")
    assert (first.calls, first.errors, first.refused, first.bytes_in, first.bytes_out) == (2, 1, 0, 20, 100)
    assert (first.seconds, first.upstream_seconds) == (3.05, 2.04)
    assert first.buckets[BUCKETS.index(0.05)] == 1
    assert minutes.take(190.0) == []
    series.ended("refused", 0.001, 0.0, 5, 0)
    [second] = minutes.take(200.0)
    assert (second.at, second.calls, second.refused, second.bytes_in, [*second.buckets]) == (180, 1, 1, 5, [1])


@given(st.lists(CALLS, max_size=5))
def test_the_sum_of_all_minutes_is_what_the_metrics_have(turns: list[list[tuple[str, str, Outcome, float]]]) -> None:
    metrics = Metrics()
    minutes = Minutes(metrics)
    taken = []
    for number, calls in enumerate(turns):
        for server, client, outcome, seconds in calls:
            metrics.series(server, f"{server}/x", "tools/call", client).ended(outcome, seconds, 0.0, 1, 2)
        taken += minutes.take(60.0 * number)
    assert sum(one.calls for one in taken) == sum(series.calls for series in metrics)
    assert sum(one.errors for one in taken) == sum(series.errors for series in metrics)
    assert sum(one.bytes_out for one in taken) == sum(series.bytes_out for series in metrics)
    assert sum(sum(one.buckets) for one in taken) == sum(series.durations.count for series in metrics)


def test_methods_of_one_server_are_one_sum() -> None:
    metrics = Metrics()
    metrics.series("files", "", "prompts/get", "ear").ended("ok", 0.1, 0.1, 1, 1)
    metrics.series("files", "", "resources/read", "ear").ended("ok", 0.1, 0.1, 1, 1)
    [minute] = Minutes(metrics).take(0.0)
    assert (minute.tool, minute.calls) == ("", 2)
