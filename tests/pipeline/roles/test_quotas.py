"""Quotas: their texts, the times in which they count, and that nobody ever uses more (issue 23)."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args
from zoneinfo import ZoneInfo

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpbridge.pipeline.roles.quotas import Period, Quota, QuotaSpent, parse_quota, period_of, resets_at, zone_of
from mcpbridge.storage.quotas import Full, QuotaStore, Taken, Wanted

pytestmark = pytest.mark.anyio

ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Apia", "Australia/Lord_Howe"]
MOMENTS = st.floats(min_value=1.0e9, max_value=3.0e9)


@pytest.mark.parametrize(
    ("text", "quota"),
    [
        ("1000 calls per day", Quota(1000, "calls", "day")),
        (" 1 call per  hour ", Quota(1, "calls", "hour")),
        ("2M tokens per month", Quota(2_000_000, "tokens", "month")),
        ("1.5k tokens per week", Quota(1500, "tokens", "week")),
        ("200 calls in 24h", Quota(200, "calls", None, 86400.0)),
        ("200 calls in 30 min", Quota(200, "calls", None, 1800.0)),
    ],
)
def test_a_quota_is_read_and_written(text: str, quota: Quota) -> None:
    assert parse_quota(text) == quota
    assert parse_quota(str(quota)) == quota


@pytest.mark.parametrize(
    "text",
    [
        *("", "1000", "calls per day", "0 calls per day", "-1 calls per day", "1000 calls", "1000 calls per year"),
        *("1.5 calls per day", "1e3 calls per day", "10 calls in 5s", "10 calls in soon", "10 calls in 11 years"),
        *("9" * 40 + " calls per day", "10 dollars per day", "10 calls per day per user"),
    ],
)
def test_what_is_no_quota_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match='"1000 calls per day"'):
        parse_quota(text)


def test_an_unknown_time_zone_is_refused() -> None:
    for name in ("Mars/Olympus", "", "../../etc/passwd", "Europe/Berlin\0"):
        with pytest.raises(ValueError, match="no time zone"):
            zone_of(name)


@given(MOMENTS, st.sampled_from(get_args(Period)), st.sampled_from(ZONES))
def test_every_moment_is_in_one_period_and_periods_follow_one_another(now: float, period: Period, zone: str) -> None:
    begin, end = period_of(period, now, zone_of(zone))
    assert begin <= now + 0.5
    assert now < end
    assert period_of(period, (begin + end) / 2, zone_of(zone)) == (begin, end)
    after, _ = period_of(period, end, zone_of(zone))
    assert after == end
    local = datetime.fromtimestamp(begin, ZoneInfo(zone))
    if period != "hour":
        assert timedelta(0) <= timedelta(hours=local.hour, minutes=local.minute) <= timedelta(hours=1)
    assert (local.weekday() == 0) or period != "week"
    assert (local.day == 1) or period != "month"


def test_days_begin_at_midnight_where_the_clock_is_put_forward_and_back() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    for day, hours in ((datetime(2026, 3, 29, 12, tzinfo=berlin), 23), (datetime(2026, 10, 25, 12, tzinfo=berlin), 25)):
        begin, end = period_of("day", day.timestamp(), berlin)
        assert end - begin == hours * 3600
        assert datetime.fromtimestamp(begin, berlin).hour == datetime.fromtimestamp(end, berlin).hour == 0


@given(MOMENTS, st.integers(60, 10_000_000))
def test_what_is_used_counts_for_all_of_a_rolling_time(now: float, seconds: int) -> None:
    """So in no span of this length more is used than the quota says."""
    quota = Quota(10, "calls", None, float(seconds))
    slot = quota.slot(now)
    assert slot <= now + 1e-3
    assert quota.counts_until(slot) >= now + seconds - 1e-3
    assert quota.counts_until(slot) <= now + seconds + seconds / 60 + 1e-3
    assert quota.first(now + seconds * 0.999) <= slot, "it still counts just before"


def wanted(quota: Quota, now: float, subject: str = "ann", amount: int = 1) -> Wanted:
    slot = quota.slot(now)
    return Wanted(subject, quota.counted, slot, quota.first(now), quota.counts_until(slot), quota.limit, amount, 1)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5000), st.booleans()), max_size=60), st.integers(1, 8), st.booleans())
async def test_no_span_of_time_has_more_than_the_quota(
    steps: list[tuple[int, bool]], limit: int, is_rolling: bool
) -> None:
    """The store against a list of all uses: any order of times between calls, and some that are given back."""
    quota = parse_quota(f"{limit} calls {'in 1h' if is_rolling else 'per hour'}")
    store, now, used = QuotaStore(None), 1.8e9, list[float]()
    for wait, is_sent in steps:
        now += wait
        found = await store.take([[wanted(quota, now)]], now)
        [one] = found
        if isinstance(one, Full):
            begin = now - 3600 - 60 if is_rolling else period_of("hour", now)[0]
            assert sum(at >= begin for at in used) >= limit, "it is refused only when it is used up"
            again = resets_at(quota, one.slots, 1, now)
            assert now < again <= now + 3660 + 1
            assert isinstance((await store.take([[wanted(quota, again)]], again))[0], Taken), "then there is room"
            used.append(again)
            now = again
        elif is_sent:
            store.settle([one], [1])
            used.append(now)
        else:
            store.settle([one], [0])
        span = (
            [at for at in used if at > now - 3600]
            if is_rolling
            else [at for at in used if at >= period_of("hour", now)[0]]
        )
        assert len(span) <= limit


async def test_calls_at_once_of_several_processes_never_take_more(tmp_path: Path) -> None:
    quota, now = parse_quota("25 calls per day"), 1.8e9
    stores = [QuotaStore(lambda: tmp_path / "quotas.db") for _ in range(4)]
    taken: list[Taken] = []

    async def ask(store: QuotaStore) -> None:
        for _ in range(10):
            [one] = await store.take([[wanted(quota, now)]], now)
            if isinstance(one, Taken):
                taken.append(one)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for store in stores:
                group.start_soon(ask, store)
        assert len(taken) == 25
        assert await stores[0].used(now) == [("ann", "calls day", quota.slot(now), 25)]
        for store in stores:
            await store.close()
        later = QuotaStore(lambda: tmp_path / "quotas.db")  # after a restart
        assert isinstance((await later.take([[wanted(quota, now)]], now))[0], Full)
        tomorrow = now + 86400
        assert isinstance((await later.take([[wanted(quota, tomorrow)]], tomorrow))[0], Taken)
        assert len(await later.used(0.0)) == 1, "what is over is removed"
        await later.close()


async def test_a_group_takes_all_or_nothing_and_one_group_with_room_is_enough() -> None:
    few, many, now = parse_quota("1 call per day"), parse_quota("3 calls per month"), 1.8e9
    store = QuotaStore(None)
    groups = [[wanted(few, now, "a")], [wanted(many, now, "b")]]
    assert len(await store.take(groups, now)) == 2
    for _ in range(2):
        [one] = await store.take(groups, now)
        assert isinstance(one, Taken)
        assert one.wanted.subject == "b"
    full = await store.take(groups, now)
    assert [type(one) for one in full] == [Full, Full]
    both = [[wanted(few, now, "c"), wanted(many, now, "b")]]
    await store.take(both, now)
    assert ("c", "calls day") not in {row[:2] for row in await store.used(now)}, "nothing of a group that has no room"


async def test_tokens_are_taken_as_far_as_there_are_some_and_settled_later() -> None:
    quota, now = parse_quota("100 tokens per day"), 1.8e9
    store = QuotaStore(None)
    [first] = await store.take([[wanted(quota, now, amount=70)]], now)
    [second] = await store.take([[wanted(quota, now, amount=70)]], now)
    assert isinstance(first, Taken)
    assert isinstance(second, Taken)
    assert (first.amount, second.amount) == (70, 30)
    assert isinstance((await store.take([[wanted(quota, now)]], now))[0], Full)
    store.settle([first, second], [10, 250])
    [(_, _, _, used)] = await store.used(now)
    assert used == 260, "a result that was under way is counted whole"


def test_the_error_names_the_quota_and_when_there_is_room() -> None:
    quota = parse_quota("1000 calls per day")
    end = datetime(2026, 7, 29, 0, 0, tzinfo=UTC).timestamp()
    error = QuotaSpent("Your quota of the role 'eng'", quota, 1000, end, end - 90.5)
    assert error.full_message() == (
        "Your quota of the role 'eng' is used up: 1,000 of 1,000 calls (1000 calls per day). Nothing was sent. There "
        "is room again at 2026-07-29T00:00:00Z, in 91 s. Tell the user if it matters."
    )
    facts: dict[str, Any] = dict(error.facts)
    assert facts["mcpbridge/retryAfter"] == 91
    assert facts["mcpbridge/quota"] == {
        "quota": "1000 calls per day",
        "used": 1000,
        "limit": 1000,
        "resets": "2026-07-29T00:00:00Z",
    }
