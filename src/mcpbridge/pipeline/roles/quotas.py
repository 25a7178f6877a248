"""Quotas: how many calls, or tokens, somebody may have in a time, and when there is room again. Pure; times come in.

A quota is a text: `1000 calls per day` counts by the calendar, `1000 calls in 24h` in any 24 hours. What is counted
lies in slots of time. A calendar quota has one slot, its period. A rolling one has slots of a sixtieth of its time, of
which each counts until the whole of it is older than that: in no span of this length is more used than the quota says.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from math import ceil, floor
from typing import Literal

from msgspec import Struct

from mcpbridge.base.errors import RETRY_AFTER, Overloaded
from mcpbridge.base.units import MAX_SECONDS, parse_seconds, show_seconds

Unit = Literal["calls", "tokens"]
Period = Literal["hour", "day", "week", "month"]

QUOTA = "mcpbridge/quota"
"""In `_meta` of a refused call, and of a result when a quota is nearly used up: which one, used, limit, reset."""
NEARLY = 0.9
"""The part of a quota that is used when results begin to say so."""

_SLOTS = 60
_QUOTA = re.compile(
    r"\s*(?P<amount>\d{1,15}|\d{1,12}\.\d{1,6})\s*(?P<scale>[kKmM]?)\s*(?P<unit>calls?|tokens?)\s+"
    r"(?:per\s+(?P<period>hour|day|week|month)|in\s+(?P<span>\S.*?))\s*",
    re.ASCII,
)
_SCALES = {"": 1, "k": 1000, "m": 1_000_000}
_EXPECTED = 'expected a quota such as "1000 calls per day", "2M tokens per month" or "200 calls in 24h"'


class Quota(Struct, frozen=True):
    """One quota."""

    limit: int
    unit: Unit
    period: Period | None
    """Of the calendar; None: it is rolling."""
    seconds: float = 0.0
    """Of a rolling one."""

    def __str__(self) -> str:
        """As people write it."""
        when = f"per {self.period}" if self.period else f"in {show_seconds(self.seconds)}"
        return f"{self.limit} {self.unit} {when}"

    @property
    def counted(self) -> str:
        """What is counted, whatever the limit: a limit that is raised leaves counted what was used."""
        return f"{self.unit} {self.period or self.seconds}"

    def slot(self, now: float, zone: tzinfo = UTC) -> float:
        """Where what is used now is counted: when its slot of time begins."""
        if self.period:
            return period_of(self.period, now, zone)[0]
        grain = self.seconds / _SLOTS
        return floor(now / grain) * grain

    def first(self, now: float, zone: tzinfo = UTC) -> float:
        """The first slot that counts now."""
        if self.period:
            return period_of(self.period, now, zone)[0]
        grain = self.seconds / _SLOTS
        return (floor((now - self.seconds) / grain)) * grain

    def counts_until(self, slot: float, zone: tzinfo = UTC) -> float:
        """When what lies in this slot counts no more."""
        if self.period:
            return period_of(self.period, slot, zone)[1]
        grain = self.seconds / _SLOTS
        return (round(slot / grain) + 1) * grain + self.seconds


def parse_quota(text: str) -> Quota:
    """A quota from a text.

    Raises:
        ValueError: it is none; says what would be one.
    """
    found = _QUOTA.fullmatch(text) if len(text) <= 100 else None
    if found is None:
        raise ValueError(f"{_EXPECTED} (found {text[:60]!r})")
    exact = float(found["amount"]) * _SCALES[found["scale"].lower()]
    limit = int(found["amount"]) * _SCALES[found["scale"].lower()] if found["amount"].isdigit() else round(exact)
    if limit < 1 or limit > 10**15 or (limit != exact and not found["amount"].isdigit()):
        raise ValueError(f"{_EXPECTED}: a whole number from 1 (found {text[:60]!r})")
    unit: Unit = "calls" if found["unit"].startswith("call") else "tokens"
    if found["period"]:
        period: Period = found["period"]  # type: ignore[assignment] - the pattern has these alone
        return Quota(limit, unit, period)
    try:
        seconds = parse_seconds(found["span"])
    except ValueError as error:
        raise ValueError(f"{_EXPECTED}: {error}") from None
    if not 60 <= seconds <= MAX_SECONDS:
        raise ValueError(f"{_EXPECTED}: the time is at least a minute")
    return Quota(limit, unit, None, seconds)


def zone_of(name: str) -> tzinfo:
    """A time zone by its name.

    Raises:
        ValueError: there is none of this name.
    """
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):  # ZoneInfoNotFoundError is a KeyError
        raise ValueError(f"there is no time zone {name[:60]!r}; expected one such as Europe/Berlin") from None


def period_of(period: Period, now: float, zone: tzinfo = UTC) -> tuple[float, float]:
    """When the hour, day, week (from Monday) or month of this moment begins, and when it ends, by this time zone."""
    at = datetime.fromtimestamp(now, zone)
    if period == "hour":  # by UTC, as a clock that is put back has the same hour twice
        begin = now - (at.minute * 60 + at.second + at.microsecond / 1e6)
        begin = float(round(begin))
        return begin, begin + 3600
    day = at.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    if period == "day":
        begin, end = day, day + timedelta(days=1)
    elif period == "week":
        begin = day - timedelta(days=day.weekday())
        end = begin + timedelta(days=7)
    else:
        begin = day.replace(day=1)
        end = (begin + timedelta(days=32)).replace(day=1)
    return begin.timestamp(), end.timestamp()


def resets_at(quota: Quota, slots: Sequence[tuple[float, int]], at_least: int, now: float, zone: tzinfo = UTC) -> float:
    """When so much is free again, if nothing more is used. `slots`: those that count, with what was used in each."""
    used = sum(amount for _, amount in slots)
    end = now
    for slot, amount in sorted(slots):
        if quota.limit - used >= at_least:
            break
        used -= amount
        end = quota.counts_until(slot, zone)
    return end


def iso_moment(at: float) -> str:
    """A moment as people and programs read it, in UTC."""
    return datetime.fromtimestamp(ceil(at), UTC).isoformat().replace("+00:00", "Z")


class QuotaSpent(Overloaded):
    """The quota of a person or of a team is used up. `retry_after` is in seconds."""

    def __init__(self, whose: str, quota: Quota, used: int, resets: float, now: float) -> None:
        """`whose`: "your quota of the role 'x'". `resets`: when there is room again."""
        wait, until = max(1, ceil(resets - now)), iso_moment(resets)
        super().__init__(f"{whose} is used up: {used:,} of {quota.limit:,} {quota.unit} ({quota})")
        self.retry_after = float(wait)
        self.facts = {
            RETRY_AFTER: wait,
            QUOTA: {"quota": str(quota), "used": used, "limit": quota.limit, "resets": until},
        }
        self.advice = f"Nothing was sent. There is room again at {until}, in {wait} s. Tell the user if it matters."
