"""What the bridges of a fleet have, as one: sums of their reports, and who is missing in them. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from mcpbridge.app.admin.stats import rows_of
from mcpbridge.app.admin.usage import usage_report
from mcpbridge.fleet.call_logs import Said
from mcpbridge.pipeline.observability.metrics import BUCKETS, Durations, Total
from mcpbridge.storage.call_log.reader import Filter
from mcpbridge.storage.call_log.usage import UsageBy

Row = Mapping[str, Any]


def missing_of(answers: Sequence[Said]) -> list[dict[str, str]]:
    """The bridges that do not say what they have, and why."""
    return [{"bridge": one.name, "reason": one.problem} for one in answers if one.problem]


def usage_together(
    answers: Sequence[Said], which: Filter, by: Sequence[UsageBy], price: float | None, *, counts_missing: bool
) -> dict[str, Any]:
    """The report of all, with `bridges`: the sums of each; and `missing`.

    `counts_missing`: calls that were not recorded are said; see `usage_report`.
    """
    sums: dict[tuple[str, ...], dict[str, Any]] = {}
    oldest: list[float | None] = []
    bridges: list[Row] = []
    not_recorded = 0
    for one in answers:
        if one.problem:
            continue
        found: Row = one.rows[0] if one.rows else {"rows": (), "oldest": None, "missing": 0}
        missing: int = found["missing"] if counts_missing else 0
        for row in found["rows"]:
            key = tuple(str(row.get(name, "")) for name in by)
            known = sums.get(key)
            sums[key] = dict(row) if known is None else _added(known, row, by)
        not_recorded += missing
        if one.rows:
            oldest.append(found["oldest"])
        own = usage_report(found["rows"], found["oldest"], missing, which, by=by, price=price)
        since = {"recorded_since": own["recorded_since"]} if "recorded_since" in own else {}
        bridges.append({"bridge": one.name, **own["total"], **since, "not_recorded": missing})
    first = min((at for at in oldest if at is not None), default=None)
    rows = sorted(sums.items(), key=lambda entry: (_day(entry[1], by), -entry[1]["calls"], entry[0]))
    report = usage_report([row for _, row in rows], first, not_recorded, which, by=by, price=price)
    return {**report, "bridges": bridges, "missing": missing_of(answers)}


def _day(row: Row, by: Sequence[UsageBy]) -> str:
    return row["day"] if "day" in by else ""


def _added(one: dict[str, Any], other: Row, by: Sequence[UsageBy]) -> dict[str, Any]:
    for name, value in other.items():
        if name not in by and name != "name":
            one[name] = one.get(name, 0) + value
    if not one.get("name") and other.get("name"):
        one["name"] = other["name"]
    return one


def stats_together(answers: Sequence[Said]) -> dict[str, Any]:
    """`bridges`: what each has counted since it started; `together`: all of them; `missing`: who does not say."""
    totals: dict[tuple[str, str, str], Total] = {}
    bridges: list[Row] = []
    for one in answers:
        if one.problem or not one.rows:
            reason = one.problem or "it says nothing"
            bridges.append({"bridge": one.name, "pid": 0, "code": "silent", "error": reason})
            continue
        tools = list[Row]()
        for row in one.rows[0]["tools"]:
            key = row["server"], row["tool"], row["method"]
            totals.setdefault(key, Total(*key)).include(_total(row))
            tools.append({name: value for name, value in row.items() if name != "buckets"})
        bridges.append({"bridge": one.name, "pid": one.rows[0]["pid"], "tools": tools})
    return {"bridges": bridges, "together": rows_of(totals), "missing": missing_of(answers)}


def _total(row: Row) -> Total:
    """The counts that a row of `stats_of` was made of."""
    whole = Total(
        outcomes=row["outcomes"],
        durations=_durations(row["buckets"], row["seconds"]),
        upstream=_durations((), row["server_seconds"]),
        refused=row["refused"],
        failed=row["failed"],
        approvals=row["approvals"],
        rewritten=row["rewritten"],
        tokens=row["rewritten_tokens_estimated"],
    )
    for name in ("bytes_in", "bytes_out", "retries", "cache_hits", "coerced"):
        setattr(whole, name, row[name])
    return whole


def _durations(buckets: Sequence[int], seconds: float) -> Durations:
    """Of a bridge of another version with other bounds, the last bucket that there is here has the rest."""
    durations = Durations()
    for number, count in enumerate(buckets):
        durations.buckets[min(number, len(BUCKETS))] += count
    durations.seconds = seconds
    return durations
