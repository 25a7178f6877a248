"""Sums of the calls in the call log: who used what, how often and at what cost. Calls themselves: `reader.py`.

What a call that another call made got (a program of `run_code`, say) is no token of a model: only the outer result is.
A call that was answered with a question has a record for each round; the last one counts. One that needed a sign-in and
got none is no failure of its server, which did nothing: it is counted apart. One that was done after the sign-in counts
as done.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

from msgspec import Struct

from mcpbridge.base.errors import SignInNeeded
from mcpbridge.storage.call_log.reader import Filter, Row, conditions, opened

UsageBy = Literal["user", "server", "tool", "client", "team", "role", "day"]
"""What calls can be grouped by. A team is a role; days are those of UTC."""
USAGE_BY: tuple[UsageBy, ...] = get_args(UsageBy)

MOST_ROWS = 10_000
"""Groups of one report, those with the most calls."""

_WITH_TOKENS = 3
_WITH_USERS = 4
"""The versions of the file from which on there are columns for these."""

_GROUPS = {
    "user": "principal",
    "server": "server",
    "tool": "CASE method WHEN 'tools/call' THEN tool ELSE method END",
    "client": "client",
    "day": "strftime('%Y-%m-%d', at, 'unixepoch')",
}
_NAMES = "SELECT principal, max(id), user_name FROM call WHERE user_name <> '' GROUP BY principal"
"""The last name of each user: with `max`, SQLite takes other columns from the row that has it."""
_NEEDED = f"(outcome = 'needed_sign_in' OR (outcome = 'failed' AND error = '{SignInNeeded.__name__}'))"
"""The latter is how older bridges wrote it."""
COUNTED = ("tools/call", "prompts/get", "resources/read")
"""The methods of what counts as a call."""


class Whose(Struct, frozen=True):
    """Whose calls somebody may see: those of these principals, and those that were made by these roles."""

    principals: Sequence[str]
    roles: Sequence[str] = ()


def read_usage(path: Path, which: Filter, *, by: Sequence[UsageBy], whose: Whose | None = None) -> list[Row]:
    """A row for each group, the one with the most calls first; days in their order.

    Of `which`, texts and times count. `whose`: only these calls; None: all. In a row are the fields that `by` names
    and, with `user`, the `name` of the user; then `calls`, `failures`, `needed_sign_in`, `refused`, `cancelled`,
    `bytes_in`, `tokens_out`, `tokens_saved` and `seconds`.

    Raises:
        StoreFailed: the file cannot be read, or is no call log.
    """
    with opened(path) as (connection, version):
        wanted, values = _wanted(which, whose, version)
        groups = {one: _group(one, version) for one in by}
        name = "max(user_name)" if version >= _WITH_USERS else "NULL"
        columns = [f'{expression} AS "{one}"' for one, expression in groups.items()]
        columns += [f"{name} AS name"] if "user" in by else []
        numbers = ", ".join(str(place + 1) for place in range(len(by)))
        order = ", ".join(['"day"'] * ("day" in by) + ["calls DESC", numbers])
        query = (
            f"SELECT {', '.join([*columns, *_sums(version)])} FROM call WHERE {' AND '.join(wanted)}"
            f" GROUP BY {numbers} ORDER BY {order} LIMIT {MOST_ROWS}"
        )
        return [dict(row) for row in connection.execute(query, values)]


class UserCalls(Struct, frozen=True):
    """A user in the call log."""

    user: str
    """The principal."""
    name: str
    """For people, as in the last call that has one; empty: none has."""
    last_seen: float | None
    """Seconds since 1970 of the last call; None: there is none."""
    calls: int
    """All that are recorded, refused ones too."""


def read_users(path: Path) -> list[UserCalls]:
    """Everybody whose calls are recorded, those who called last first, at most `MOST_ROWS`.

    Raises:
        StoreFailed: the file cannot be read, or is no call log.
    """
    with opened(path) as (connection, version):
        names: dict[str, str] = {}
        if version >= _WITH_USERS:
            names = {row["principal"]: row["user_name"] for row in connection.execute(_NAMES)}
        query = (
            "SELECT principal, max(at) AS last_seen, count(*) AS calls FROM call"
            f" GROUP BY principal ORDER BY last_seen DESC LIMIT {MOST_ROWS}"
        )
        return [
            UserCalls(row["principal"], names.get(row["principal"]) or "", row["last_seen"], row["calls"])
            for row in connection.execute(query)
        ]


def read_gaps(path: Path, which: Filter) -> tuple[float | None, int]:
    """When the oldest call that is kept began, and how many calls of the time were counted but not recorded.

    Raises:
        StoreFailed: the file cannot be read, or is no call log.
    """
    with opened(path) as (connection, _):
        oldest = connection.execute("SELECT min(at) FROM call").fetchone()[0]
        times = {"since": which.since or 0.0, "until": which.until if which.until is not None else 1e15}
        (missing,) = connection.execute(
            "SELECT sum(json_extract(facts, '$.calls')) FROM event"
            " WHERE kind = 'calls.not_recorded' AND at >= :since AND at < :until",
            times,
        ).fetchone()
    return oldest, missing or 0


def _group(one: UsageBy, version: int) -> str:
    if one in ("team", "role"):
        return "coalesce(role, '')" if version >= _WITH_USERS else "''"
    return _GROUPS[one]


def _wanted(which: Filter, whose: Whose | None, version: int) -> tuple[list[str], dict[str, object]]:
    wanted, values = conditions(replace(which, since=None, until=None, text=None, principal=None), "call", version)
    wanted.append(f"method IN ({', '.join(map(repr, COUNTED))})")
    for name, sign in (("since", ">="), ("until", "<")):
        if (at := getattr(which, name)) is not None:
            wanted.append(f"at {sign} :{name}")  # by the index: a report is of all calls of its time
            values[name] = at
    if which.principal is not None:
        how = "GLOB" if any(sign in which.principal for sign in "*?[") else "="
        named = f" OR user_name {how} :principal" if version >= _WITH_USERS else ""
        wanted.append(f"(principal {how} :principal{named})")
        values["principal"] = which.principal
    if whose is not None:
        groups = {"principal": whose.principals, "role": whose.roles if version >= _WITH_USERS else ()}
        either = ["0"]
        for column, names in groups.items():
            either += [f"{column} = :{column}{number}" for number in range(len(names))]
            values |= {f"{column}{number}": name for number, name in enumerate(names)}
        wanted.append(f"({' OR '.join(either)})")
    return wanted, values


def _sums(version: int) -> list[str]:
    has_tokens = version >= _WITH_TOKENS
    outer = "parent IS NULL"
    saved = f"sum(max(original_tokens - coalesce(tokens, 0), 0)) FILTER (WHERE {outer} AND original_tokens > 0)"
    return [
        "count(*) FILTER (WHERE outcome <> 'asked') AS calls",
        f"count(*) FILTER (WHERE outcome IN ('failed', 'tool_error', 'interrupted') AND NOT {_NEEDED}) AS failures",
        f"count(*) FILTER (WHERE {_NEEDED}) AS needed_sign_in",
        "count(*) FILTER (WHERE outcome = 'refused') AS refused",
        "count(*) FILTER (WHERE outcome = 'cancelled') AS cancelled",
        f"coalesce(sum(arguments_size){f' FILTER (WHERE {outer})' if has_tokens else ''}, 0) AS bytes_in",
        f"coalesce(sum(tokens) FILTER (WHERE {outer}), 0) AS tokens_out" if has_tokens else "0 AS tokens_out",
        f"coalesce({saved}, 0) AS tokens_saved" if has_tokens else "0 AS tokens_saved",
        "sum(seconds) AS seconds",
    ]
