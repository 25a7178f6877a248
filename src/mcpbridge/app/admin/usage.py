"""What people used, and what is used of quotas, as JSON: for `mcpbridge usage`, the console and the HTTP API."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import anyio.to_thread

from mcpbridge.app.admin.errors import Problem
from mcpbridge.base.errors import StoreFailed
from mcpbridge.base.units import parse_moment
from mcpbridge.core.identity import Identity
from mcpbridge.library.bridge import Bridge
from mcpbridge.pipeline.permissions.policy import Policy
from mcpbridge.pipeline.roles.quota_stage import quotas_of, team_subject, user_subject
from mcpbridge.pipeline.roles.quotas import iso_moment, resets_at
from mcpbridge.pipeline.roles.roles import Roles
from mcpbridge.pipeline.roles.settings import RoleSettings
from mcpbridge.results.token_count import estimated_tokens
from mcpbridge.storage.call_log.reader import Filter, iso_time
from mcpbridge.storage.call_log.usage import USAGE_BY, UsageBy, Whose, read_gaps, read_usage
from mcpbridge.storage.quotas import SCHEMA, Used, read_used
from mcpbridge.storage.settings import StoreSettings, quotas_path, redis_address
from mcpbridge.storage.sqlite.database import may_exist, open_file

DAYS = 7
"""How far back a report goes, if nothing is said."""

_MOST_USED = 10
"""Quotas that the status of a bridge names."""

_SUMS = (
    "calls",
    "failures",
    "needed_sign_in",
    "refused",
    "cancelled",
    "tokens_in",
    "tokens_out",
    "tokens_saved",
    "seconds",
)


def usage_of(
    path: Path,
    which: Filter,
    *,
    by: Sequence[UsageBy] = ("user",),
    whose: Whose | None = None,
    price: float | None = None,
) -> dict[str, Any]:
    """The report. It reads the file, so it belongs into a thread.

    `which.principal` is a principal or the name of a person, also as a glob. `whose`: only these calls.
    `price`: dollars per million tokens of what clients got; with it, rows have a `cost`. Tokens are estimates.

    Raises:
        StoreFailed: the call log cannot be read.
    """
    rows, oldest, missing = list[Mapping[str, Any]](), None, 0
    if may_exist(path):
        rows = read_usage(path, which, by=by, whose=whose)
        oldest, missing = read_gaps(path, which)
    return usage_report(rows, oldest, missing if whose is None else 0, which, by=by, price=price)


def usage_report(
    read: Sequence[Mapping[str, Any]],
    oldest: float | None,
    missing: int,
    which: Filter,
    *,
    by: Sequence[UsageBy],
    price: float | None,
) -> dict[str, Any]:
    """The report of what `read_usage` and `read_gaps` found. Nobody knows whose the missing calls were."""
    rows = [_row(row, price) for row in read]
    since = which.since or 0.0
    times = {"since": iso_time(since), **({} if which.until is None else {"until": iso_time(which.until)})}
    if oldest is not None and oldest > since:
        times["recorded_since"] = iso_time(oldest)
    total = {name: sum(row[name] for row in rows) for name in _SUMS}
    total["seconds"] = round(total["seconds"], 3)
    if price is not None:
        total["cost"] = round(sum(row["cost"] for row in rows), 4)
    return {"by": list(by), **times, "not_recorded": missing, "rows": rows, "total": total}


def _row(row: Mapping[str, Any], price: float | None) -> dict[str, Any]:
    said = {name: row[name] for name in (*USAGE_BY, "name") if name in row and (name != "name" or row[name])}
    sums = {"tokens_in": estimated_tokens(row["bytes_in"]), "seconds": round(row["seconds"], 3)}
    counts = {name: row.get(name, sums.get(name)) for name in _SUMS} | sums
    cost = {} if price is None else {"cost": round(row["tokens_out"] * price / 1e6, 4)}
    return {**said, **counts, **cost}


def visible_usage(policy: Policy, principal: str, identity: Identity | None) -> Whose | None:
    """What somebody may see of the usage who is no administrator; None: everybody's, as a role of theirs says."""
    roles = policy.roles
    held = roles.held(roles.of(principal, identity)) if roles is not None else []
    if any(role.settings.usage == "all" for role in held):
        return None
    return Whose([principal], [role.name for role in held if role.settings.usage == "team"])


async def requested_usage(
    bridge: Bridge,
    asked: Mapping[str, str],
    whose: Whose | None = None,
    *,
    limiter: anyio.CapacityLimiter | None = None,
) -> dict[str, Any]:
    """The report of a running bridge that a request asks for: `by`, `since`, `until`, `user`, `price`, all texts.

    `limiter`: how many are made at a time; None: as many as there are threads for all work.

    Raises:
        Problem: one of them is wrong. StoreFailed: the call log cannot be read.
    """
    which, by, price = read_request(asked, time.time())
    bridge.audit.write_soon()
    return await anyio.to_thread.run_sync(
        lambda: usage_of(bridge.audit.path, which, by=by, whose=whose, price=price),
        abandon_on_cancel=True,
        limiter=limiter,
    )


def read_request(asked: Mapping[str, str], now: float) -> tuple[Filter, list[UsageBy], float | None]:
    """What a request asks for.

    Raises:
        Problem: something of it is wrong; says what would be right.
    """
    by = [one.strip() for one in asked.get("by", "user").split(",")]
    if not set(by) <= set(USAGE_BY):
        raise Problem("invalid", f"by: expected some of {', '.join(USAGE_BY)}, with commas between")
    times: dict[str, float] = {}
    for name in ("since", "until"):
        if text := asked.get(name, f"{DAYS}d" if name == "since" else ""):
            try:
                times[name] = parse_moment(text, now)
            except ValueError as error:
                raise Problem("invalid", f"{name}: {error}") from None
    try:
        price = float(asked["price"]) if asked.get("price") else None
    except ValueError:
        price = -1.0
    if price is not None and not 0 <= price < 1e6:
        raise Problem("invalid", "price: expected dollars per million tokens")
    which = Filter(principal=asked.get("user"), since=times["since"], until=times.get("until"))
    return which, cast("list[UsageBy]", list(dict.fromkeys(by))), price


async def running_quotas(bridge: Bridge) -> list[dict[str, Any]]:
    """As `quota_rows`, of a running bridge. Cancelling is safe.

    Raises:
        StoreFailed: what was used cannot be read.
    """
    now = time.time()
    return rows_of_quotas(bridge.settings.roles, await bridge.used_quotas(now), now)


async def own_quotas(bridge: Bridge, principal: str, identity: Identity | None) -> list[dict[str, Any]]:
    """The quotas of the roles of one person, also where nothing is used; of a team's, what all of the team used.

    Raises:
        StoreFailed: what was used cannot be read.
    """
    roles = bridge.policy.roles
    held = roles.held(roles.of(principal, identity)) if roles is not None else []
    if not any(role.settings.quota for role in held):
        return []
    now = time.time()
    names = frozenset(role.name for role in held)
    return rows_of_quotas(bridge.settings.roles, await bridge.used_quotas(now), now, of=(principal, names))


async def quotas_status(bridge: Bridge) -> dict[str, Any] | None:
    """How the quotas of a running bridge are, in short; None: no role has one, or they cannot be read."""
    if not any(role.quota for role in bridge.settings.roles):
        return None
    try:
        rows = await running_quotas(bridge)
    except StoreFailed:  # the log of the bridge says so with the next call
        return None
    return {"used_up": sum(row["share"] >= 1 for row in rows), "most_used": rows[:_MOST_USED]}


def quota_rows(settings: Sequence[RoleSettings], path: Path, now: float) -> list[dict[str, Any]]:
    """A row for each quota and whoever has used something of it; of teams also where nothing was used.

    It reads a file, so it belongs into a thread.

    Raises:
        StoreFailed: the file cannot be read.
    """
    return rows_of_quotas(settings, _used_in(path, now), now)


def kept_quotas(store: StoreSettings, now: float) -> list[Used]:
    """What is used of quotas, as bridges with this store have written down. Not where an event loop runs.

    Raises:
        StoreFailed: it cannot be read.
    """
    if store.kind != "redis":
        return _used_in(quotas_path(store), now)
    from mcpbridge.storage.redis.quotas import read_used as read_shared  # its client is large

    return asyncio.run(read_shared(redis_address(store), store.prefix, now))


def _used_in(path: Path, now: float) -> list[Used]:
    if not may_exist(path):
        return []
    connection = open_file(path, SCHEMA)
    try:
        return read_used(connection, now)
    finally:
        connection.close()


def rows_of_quotas(
    settings: Sequence[RoleSettings], used: Sequence[Used], now: float, of: tuple[str, frozenset[str]] | None = None
) -> list[dict[str, Any]]:
    """A row for each quota and whoever has used something of it, that which is used most first.

    `of`: the rows of this principal with these roles, all of them.
    """
    rows: list[dict[str, Any]] = []
    for one in quotas_of(Roles(settings)):
        role = one.role.name
        if of is not None and role not in of[1]:
            continue
        begin = team_subject(role) if one.of_team else user_subject(role, "")
        for quota in one.quotas:
            first = quota.first(now, one.zone)
            slots: dict[str, list[tuple[float, int]]] = {begin: []} if one.of_team else {}
            if of is not None:
                slots = {one.subject(of[0]): []}
            for subject, counted, slot, amount in used:
                is_of_it = subject == begin if one.of_team else subject.startswith(begin)
                is_of_it = subject in slots if of is not None else is_of_it
                if is_of_it and counted == quota.counted and slot >= first:
                    slots.setdefault(subject, []).append((slot, amount))
            for subject, amounts in slots.items():
                amount = sum(one_amount for _, one_amount in amounts)
                whose = {} if one.of_team else {"user": subject.removeprefix(begin)}
                end = quota.counts_until(quota.slot(now, one.zone), one.zone)
                resets = end if quota.period else resets_at(quota, amounts, quota.limit, now, one.zone)
                rows.append(
                    {
                        "role": role,
                        **whose,
                        "quota": str(quota),
                        "unit": quota.unit,
                        "used": amount,
                        "limit": quota.limit,
                        "share": round(amount / quota.limit, 4),
                        "resets": iso_moment(resets),
                    }
                )
    return sorted(rows, key=lambda row: -row["share"])
