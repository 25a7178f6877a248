"""`mcpbridge usage`: who used what, from the call log of this user's bridges, whether or not any of them runs."""

import csv
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from time import time
from typing import Any

import anyio.to_thread
import click

from mcpbridge.app.admin.errors import Problem
from mcpbridge.app.admin.usage import DAYS, kept_quotas, read_request, rows_of_quotas, usage_of
from mcpbridge.app.cli.bridge_session import run
from mcpbridge.app.cli.config.config_path import load_only_to_look
from mcpbridge.app.cli.options import as_json_option, config_option, header_option
from mcpbridge.app.cli.output import note, print_json, print_table, visible
from mcpbridge.app.exit_codes import OK
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.base.units import show_seconds
from mcpbridge.config.load import Loaded
from mcpbridge.config.schema import Settings
from mcpbridge.storage.call_log.usage import USAGE_BY
from mcpbridge.storage.settings import call_log_path, recorded
from mcpbridge.storage.sqlite.database import may_exist

LOCAL = "(local user)"
_NUMBERS = ("calls", "failures", "needed_sign_in", "refused", "tokens_in", "tokens_out", "tokens_saved", "seconds")
_TITLES = ("Calls", "Failed", "Needed sign-in", "Refused", "Tokens in", "Tokens out", "Saved", "Time")


@click.command("usage")
@click.option("--by", metavar="LIST", default="user", help=f"Some of {', '.join(USAGE_BY)}, with commas between.")
@click.option("--since", metavar="TIME", default=f"{DAYS}d", help=f'Since then: "24h", 2026-07-28 (default: {DAYS}d).')
@click.option("--until", metavar="TIME", help="Until then.")
@click.option("--user", metavar="GLOB", help="Only these users, by principal or name; '' is the local one.")
@click.option("--price", metavar="DOLLARS", help="Per million tokens of results: adds what they cost.")
@click.option("--quotas", "about_quotas", is_flag=True, help="Show what is used of the quotas of roles.")
@click.option("--bridge", metavar="NAME", help="Only what this bridge of the fleet has recorded.")
@click.option("--here", is_flag=True, help="Only what the file of this machine has, without the others of the fleet.")
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values.")
@config_option
@as_json_option
@header_option
def usage_command(
    *,
    by: str,
    since: str,
    until: str | None,
    user: str | None,
    price: str | None,
    about_quotas: bool,
    bridge: str | None,
    here: bool,
    as_csv: bool,
    config: str | None,
    as_json: bool,
) -> int:
    """Show who called what, how often it failed, and what it cost in tokens and time.

    Calls that needed a sign-in and got none are counted apart from those that failed. It is summed up from the call
    log, so no bridge has to run, and it goes back as far as `call_log.keep`. Tokens are estimates. "Saved" is what
    results were shortened by. A team is a role: that which opened the tool. --quotas shows what is used of the quotas
    of [[roles]] instead, and when there is room again.

    Where the configuration has a `[fleet]` and one of its bridges runs here, all of them are asked: it is the sum of
    what they have recorded, and below it that of each. One that does not answer is named.

    \u0008
    Examples:
      mcpbridge usage
      mcpbridge usage --by user,server --since 30d
      mcpbridge usage --by day,team --since 2026-07-01 --csv
      mcpbridge usage --quotas
    """
    if bridge and here:
        raise click.UsageError("--bridge asks others, and --here nobody: give one of them.")
    if about_quotas and (bridge or here):
        raise click.UsageError("Quotas are counted by all bridges together: leave --bridge and --here out.")
    asked = {"by": by, "since": since, "until": until or "", "price": price or ""}
    try:
        which, groups, dollars = read_request(asked if user is None else {**asked, "user": user}, time())
    except Problem as problem:
        raise click.UsageError(f"--{problem}") from None

    async def show(loaded: Loaded, _: Redactor) -> int:
        settings = loaded.settings
        if about_quotas:
            return _show_quotas(settings, user, as_json=as_json)
        path = call_log_path(settings.call_log, settings.store)
        report = (
            None if here else await anyio.to_thread.run_sync(_of_fleet, settings, config, bridge or "", asked, user)
        )
        if report is None:
            report = usage_of(path, which, by=groups, price=dollars)
        if as_json:
            print_json("usage/1", report)
        elif as_csv:
            _print_csv(report)
        elif report["rows"]:
            _print(report)
        else:
            is_logged = recorded(settings.call_log, settings.store, "own").grade != "off"
            _explain_absence(since, is_logged=is_logged, is_empty=not may_exist(path), user=user)
        return OK

    return run(show, config, as_json=as_json, load=load_only_to_look)


def _of_fleet(
    settings: Settings, config: str | None, bridge: str, asked: Mapping[str, str], user: str | None
) -> Mapping[str, Any] | None:
    """The report of all bridges of the fleet; None: there is none to ask."""
    if settings.fleet.listen is None and not bridge:
        return None
    from mcpbridge.app.cli.calls.fleet_member import ask_fleet, member_to_ask, name_missing

    found = member_to_ask(settings, config, bridge)
    if found is None:
        return None
    answer = ask_fleet(found, "fleet.usage", **asked, user=user, bridge=bridge)
    name_missing(answer)
    return {name: value for name, value in answer.items() if name != "pid"}


def _show_quotas(settings: Settings, user: str | None, *, as_json: bool) -> int:
    now = time()
    rows = rows_of_quotas(settings.roles, kept_quotas(settings.store, now), now)
    if user is not None:
        rows = [row for row in rows if fnmatchcase(row.get("user", ""), user)]
    if as_json:
        print_json("usage-quotas/1", {"quotas": rows})
    elif rows:
        titles = ["Role", "User", "Quota", "Used", "Part", "Room again"]
        print_table(titles, [_quota_cells(row) for row in rows], wraps="User")
    elif not any(role.quota for role in settings.roles):
        note('no role has a quota; `quota = ["1000 calls per day"]` in `[[roles]]` sets one')
    else:
        note("nothing is used of any quota")
    return OK


def _quota_cells(row: Mapping[str, Any]) -> list[str]:
    at = datetime.fromisoformat(row["resets"]).astimezone()
    user = (row["user"] or LOCAL) if "user" in row else "(the whole team)"
    return [row["role"], visible(user), row["quota"], f"{row['used']:,}", f"{row['share']:.0%}", f"{at:%Y-%m-%d %H:%M}"]


def _explain_absence(since: str, *, is_logged: bool, is_empty: bool, user: str | None) -> None:
    if not is_logged:
        note("calls are not recorded (`call_log.enabled = false`), so there is nothing to sum up")
    elif is_empty:
        note("nothing was called yet")
    elif user is not None:
        note(f"no call of this user since {since}; `mcpbridge usage` shows who called")
    else:
        note(f"no call since {since}; `--since 30d` looks further back")


def _print(report: Mapping[str, Any]) -> None:
    by: list[str] = report["by"]
    has_cost = "cost" in report["total"]
    titles = [*(one.capitalize() for one in by), *_TITLES, *(["Dollars"] if has_cost else [])]
    rows = [[*(_group(row, one) for one in by), *_cells(row)] for row in report["rows"]]
    if len(rows) > 1:
        rows.append(["total", *[""] * (len(by) - 1), *_cells(report["total"])])
    print_table(titles, rows, wraps=titles[0])
    if len(report.get("bridges", ())) > 1:
        print()
        print_table(
            ["Bridge", *titles[len(by) :]], [[visible(one["bridge"]), *_cells(one)] for one in report["bridges"]]
        )
    if recorded_since := report.get("recorded_since"):
        note(f"the call log begins at {datetime.fromisoformat(recorded_since).astimezone():%Y-%m-%d %H:%M}")
    if report["not_recorded"]:
        note(
            f"{report['not_recorded']:,} more calls were counted and not recorded, as they came too fast; with "
            "`call_log.enabled = true` every call is"
        )


def _group(row: Mapping[str, Any], by: str) -> str:
    if by == "user":
        name, principal = row.get("name", ""), row["user"]
        return visible(f"{name} ({principal})" if name and name != principal else principal or LOCAL)
    return visible(row[by] or "-")


def _cells(row: Mapping[str, Any]) -> list[str]:
    numbers = [f"{row[name]:,}" for name in _NUMBERS[:-1]]
    seconds: float = row["seconds"]
    took = f"{seconds:.2f} s" if seconds < 60 else show_seconds(round(seconds))
    return [*numbers, took, *([f"{row['cost']:.2f}"] if "cost" in row else [])]


def _print_csv(report: Mapping[str, Any]) -> None:
    by: list[str] = report["by"]
    columns = [*by, *(["name"] if "user" in by else []), *_NUMBERS, "cancelled"]
    columns += ["cost"] if "cost" in report["total"] else []
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    rows: Sequence[Mapping[str, Any]] = report["rows"]
    writer.writerows([_inert(row.get(column, "")) for column in columns] for row in rows)


def _inert(value: object) -> object:
    """A text that no spreadsheet takes for a formula: clients choose their names."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
