"""Seconds and bytes as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.base.units import (
    MAX_BYTES,
    MAX_SECONDS,
    Rate,
    parse_bytes,
    parse_moment,
    parse_rate,
    parse_seconds,
    show_bytes,
    show_seconds,
)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (30, 30),
        (1.5, 1.5),
        (0, 0),
        ("30", 30),
        ("30s", 30),
        (" 30 s ", 30),
        ("5m", 300),
        ("1.5 min", 90),
        ("1h", 3600),
        ("2 days", 172800),
        ("250ms", 0.25),
        ("300 ms", 0.3),
        ("1_000", 1000),
        (".5s", 0.5),
        ("10 SECONDS", 10),
    ],
)
def test_a_time_may_have_a_unit(written: object, seconds: float) -> None:
    assert parse_seconds(written) == seconds


@pytest.mark.parametrize(
    ("written", "size"),
    [
        (4096, 4096),
        ("4096", 4096),
        ("64 KiB", 65536),
        ("64k", 65536),
        ("2 MiB", 2 * 1024**2),
        ("2 MB", 2_000_000),
        ("0.5 GiB", 1024**3 // 2),
        ("10 bytes", 10),
    ],
)
def test_a_size_may_have_a_unit(written: object, size: int) -> None:
    assert parse_bytes(written) == size


@pytest.mark.parametrize(
    "written",
    ["", "s", "-1", "-1s", "1 parsec", "1s 2m", "1e3", "١s", "0x10", None, True, [], float("nan"), float("inf"), -1],
)
def test_anything_else_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match=r"expected a|below 0"):
        parse_seconds(written)
    with pytest.raises(ValueError, match=r"expected a|below 0"):
        parse_bytes(written)


def test_what_is_out_of_all_proportion_is_refused() -> None:
    with pytest.raises(ValueError, match="ten years"):
        parse_seconds("4000 days")
    with pytest.raises(ValueError, match="1 TiB"):
        parse_bytes("2000 GiB")
    with pytest.raises(ValueError, match="whole number"):
        parse_bytes("1.5")


@given(st.integers(min_value=0, max_value=int(MAX_SECONDS * 1_000_000)))
def test_what_is_shown_reads_back_the_same_time(microseconds: int) -> None:
    seconds = microseconds / 1_000_000
    assert parse_seconds(show_seconds(seconds)) == seconds


@given(st.integers(min_value=0, max_value=MAX_BYTES))
def test_what_is_shown_reads_back_the_same_size(size: int) -> None:
    assert parse_bytes(show_bytes(size)) == size


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (parse_seconds, parse_bytes):
        try:
            assert parse(text) >= 0
        except ValueError:
            pass


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0s"), (0.25, "250ms"), (1.5, "1.5s"), (60, "1m"), (90, "90s"), (3600, "1h"), (86400, "1d")],
)
def test_a_time_is_shown_in_its_largest_exact_unit(seconds: float, shown: str) -> None:
    assert show_seconds(seconds) == shown


@pytest.mark.parametrize(("size", "shown"), [(0, "0 B"), (1000, "1000 B"), (65536, "64 KiB"), (64 * 1024**2, "64 MiB")])
def test_a_size_is_shown_in_its_largest_exact_unit(size: int, shown: str) -> None:
    assert show_bytes(size) == shown


@pytest.mark.parametrize(
    ("written", "rate", "shown"),
    [
        ("30/min", Rate(30, 60), "30/min"),
        ("5 / s", Rate(5, 1), "5/s"),
        ("100/h", Rate(100, 3600), "100/h"),
        ("1000/1d", Rate(1000, 86400), "1000/d"),
        ("10/30s", Rate(10, 30), "10/30s"),
        ("1/.5s", Rate(1, 0.5), "1/500ms"),
        (Rate(2, 7), Rate(2, 7), "2/7s"),
    ],
)
def test_a_rate_is_so_many_times_within_a_span(written: object, rate: Rate, shown: str) -> None:
    assert parse_rate(written) == rate
    assert str(rate) == shown


@pytest.mark.parametrize(
    "written", ["", "30", "30/", "/min", "0/min", "-1/s", "1.5/s", "5/0s", "5/fortnight", 30, None]
)
def test_what_is_no_rate_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="expected a rate such as"):
        parse_rate(written)


@given(st.integers(1, 10**6), st.integers(1, 10**12))
def test_a_rate_that_is_shown_reads_back_the_same(times: int, microseconds: int) -> None:
    rate = Rate(times, microseconds / 1e6)
    assert parse_rate(str(rate)) == rate


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1000, "1000 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1025, "1025 B"),
        (10**6, "1 MB"),
        (3 * 10**6, "3 MB"),
        (1024**2, "1 MiB"),
        (64 * 1024**2, "64 MiB"),
        (256 * 10**6, "256 MB"),
        (10**9, "1 GB"),
        (1024**3, "1 GiB"),
        (5 * 1024**3, "5 GiB"),
        (1536 * 1024, "1536 KiB"),
        (1500, "1500 B"),
    ],
)
def test_a_size_is_shown_in_the_largest_unit_that_is_exact(size: int, text: str) -> None:
    assert show_bytes(size) == text


NOW = 1_785_000_000.0


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("1h", NOW - 3600),
        (" 30 s ", NOW - 30),
        ("0", NOW),
        ("2026-07-28T12:00:00Z", 1_785_240_000),
        ("2026-07-28T14:00:00+02:00", 1_785_240_000),
        ("1970-01-01T00:00:00Z", 0),
    ],
)
def test_a_moment_is_a_span_before_now_or_a_point_in_time(text: str, moment: float) -> None:
    assert parse_moment(text, NOW) == moment


@pytest.mark.parametrize("text", ["", "yesterday", "-1h", "2026-13-01", "9999-12-31T23:59:59.999999-23:59", "1e9"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a time span"):
        parse_moment(text, NOW)
