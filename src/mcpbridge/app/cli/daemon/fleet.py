"""`mcpbridge fleet`: the bridges that act as one behind a balancer: who they are, how they are, and draining one.

A bridge of the fleet that runs on this machine is asked; it asks the others.
"""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn, cast

import click

from mcpbridge.app.admin.control_client import Document
from mcpbridge.app.cli.config.config_path import config_path
from mcpbridge.app.cli.failures import fail
from mcpbridge.app.cli.options import as_json_option, config_option, header_option
from mcpbridge.app.cli.output import counted, note, print_json, print_table, progress, visible
from mcpbridge.app.cli.running_bridges import RunningBridge, survey
from mcpbridge.app.exit_codes import OK, TIMED_OUT, UNREACHABLE, USAGE
from mcpbridge.base.units import show_seconds

_HOW_TO = "docs/how-to/several-machines.md#act-as-one-bridge"
_LOOK = 0.2
"""Seconds between two looks whether a bridge has handed on what it had."""

Row = Mapping[str, Any]


@click.group("fleet")
def fleet_command() -> None:
    """Show the bridges that act as one behind a balancer, and take one of them out.

    \u0008
    Examples:
      mcpbridge fleet members
      mcpbridge fleet status
      mcpbridge fleet drain bridge-2
    """


@fleet_command.command("members")
@config_option
@as_json_option
@header_option
def list_members(*, config: str | None, as_json: bool) -> int:
    """List the bridges of the fleet, the oldest first.

    Notes says which one runs here, which drain, and which have another configuration than this one. Exit code 2: there
    is no fleet; 4: no bridge runs here.

    \u0008
    Examples:
      mcpbridge fleet members
    """
    answer = _ask(_bridge(config), "fleet.members")
    _warn(answer)
    rows = cast("Sequence[Row]", answer["members"])
    if as_json:
        print_json("fleet-members/1", {"members": [_document(row) for row in rows], **_around(answer)})
        return OK
    titles = ["Name", "Id", "Address", "Version", "Since", "Notes"]
    print_table(titles, [[*_identity(row), row["version"], _time(row["since"]), _notes(row)] for row in rows])
    return OK


@fleet_command.command("status")
@config_option
@as_json_option
@header_option
def show_status(*, config: str | None, as_json: bool) -> int:
    """Show how each bridge of the fleet is, by its own words, and all of them together.

    Exit code 2: there is no fleet; 4: no bridge runs here, or one of the fleet does not answer.

    \u0008
    Examples:
      mcpbridge fleet status
      mcpbridge fleet status --json
    """
    answer = _ask(_bridge(config), "fleet.status")
    rows, together = cast("Sequence[Row]", answer["members"]), cast("Row", answer["together"])
    code = UNREACHABLE if together["silent"] else OK
    _warn(answer)
    if as_json:
        document = {"members": [_document(row) for row in rows], "together": together, **_around(answer)}
        print_json("fleet-status/1", document)
        return code
    names = {row["id"]: row["name"] for row in rows}
    titles = ["Name", "Address", "Sessions", "Calls", "Forwarded", "Lease", "Notes"]
    print_table(titles, [_status_cells(row, names) for row in rows], wraps="Notes")
    sessions, calls = counted(together["sessions"], "session"), counted(together["calls"], "call")
    lost = sum(together["forwarded"].get(name, 0) for name in ("not_sent", "unknown"))
    forwarded = f"{sum(together['forwarded'].values())} requests were forwarded, {lost} of them in vain"
    print(visible(f"together: {counted(len(rows), 'bridge')}, {sessions}, {calls} under way; {forwarded}"))
    return code


@fleet_command.command("drain")
@click.argument("name", default="")
@click.option("--undo", is_flag=True, help="Have it take new sessions again.")
@click.option(
    "--wait",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    help="How long to wait until it has handed on its sessions; 0: not at all.",
)
@config_option
@as_json_option
def drain_member(*, name: str, undo: bool, wait: float, config: str | None, as_json: bool) -> int:
    """Have the bridge NAME take nothing new, and hand on its sessions when their calls have ended.

    NAME is its name or id; without it, the bridge on this machine. It stays up: `GET /healthz/ready` answers 503, so
    that a balancer sends it nothing more. What comes all the same is answered, or sent to another bridge of the fleet.
    A restart ends the state, as `--undo` does.

    Exit code 2: there is no fleet, or no such bridge; 4: it cannot be reached; 7: it still has calls after `--wait`.

    \u0008
    Examples:
      mcpbridge fleet drain bridge-2
      mcpbridge fleet drain bridge-2 --undo
      mcpbridge fleet drain --wait 60
    """
    bridge = _bridge(config, is_named=bool(name))
    answer = _ask(bridge, "fleet.drain", name=name, undo=undo)
    is_over = undo or _until_empty(bridge, str(answer["id"]), wait)
    if as_json:
        document = {"name": answer["name"], "id": answer["id"], "draining": not undo, "is_empty": is_over and not undo}
        print_json("fleet-drain/1", document)
    elif undo:
        print(visible(f"{answer['name']} takes new sessions again"))
    elif is_over:
        print(visible(f"{answer['name']} takes nothing new, and has handed on its sessions"))
    else:
        print(visible(f"{answer['name']} takes nothing new"))
    if wait and not is_over:
        advice = "They move when their calls have ended; `mcpbridge fleet status` shows how many there are."
        fail(TIMED_OUT, f"{answer['name']} still has sessions or calls after {show_seconds(wait)}", advice)
    return OK


def _until_empty(bridge: RunningBridge, id_: str, seconds: float) -> bool:
    """Whether the member has no sessions and no calls any more, within this time."""
    deadline = time.monotonic() + seconds
    with progress("waiting for its calls to end …"):
        while time.monotonic() < deadline:
            rows = cast("Sequence[Row]", _ask(bridge, "fleet.status")["members"])
            row = next((one for one in rows if one["id"] == id_), None)
            if row is None:
                return True  # it has stopped
            if "error" not in row and not row["sessions"] and not row["calls"] + row.get("passing_on", 0):
                return True
            time.sleep(_LOOK)
    return False


def _bridge(config: str | None, *, is_named: bool = True) -> RunningBridge:
    """A bridge on this machine that belongs to a fleet. `is_named`: any of them will do.

    Raises:
        CommandFailed: there is none.
    """
    found = survey(config_path(config) if config else None)
    for line in found.describe_silent():
        note(line)
    members = [one for one in found.bridges if one.status.get("fleet")]
    if not members and found.bridges:
        advice = "Give the configuration a `[fleet]`, and start the bridge with `mcpbridge serve --http`."
        fail(USAGE, "no bridge that runs on this machine belongs to a fleet", advice, page=_HOW_TO)
    if not members:
        advice = "Run this on a machine that has one, as the same user; in Kubernetes, with `kubectl exec`."
        fail(UNREACHABLE, "no bridge is running on this machine", advice)
    if len(members) > 1 and not is_named:
        names = ", ".join(str(cast("Row", one.status["fleet"])["name"]) for one in members)
        fail(USAGE, f"several bridges of a fleet run on this machine: {names}", "Name the one to drain.")
    return members[0]


def _ask(bridge: RunningBridge, do: str, *, name: str = "", undo: bool = False) -> Document:
    answer = bridge.ask(do, name=name, undo=undo)
    if "error" in answer:
        _fail(bridge, answer)
    return answer


def _fail(bridge: RunningBridge, answer: Document) -> NoReturn:
    code, page = str(answer.get("code")), _HOW_TO
    if code == "unknown":
        fail(USAGE, str(answer["error"]), "`mcpbridge fleet members` lists all.")
    if code == "unsupported":
        fail(UNREACHABLE, f"process {bridge.pid} is of an older release", "Restart it.")
    fail(USAGE if code == "no_fleet" else UNREACHABLE, str(answer["error"]), page=page)


def _warn(answer: Document) -> None:
    if answer.get("problem"):
        note(f"the fleet's shared records cannot be reached, so this is who was there last: {answer['problem']}")
    for one in _around(answer)["incompatible"]:
        who = f"{one['name'] or 'a bridge'} ({one['id'] or 'no id'}, version {one['version'] or 'unknown'})"
        note(visible(f"no member: {who} keeps records in form {one['format']}, which this version does not share"))


def _around(answer: Document) -> dict[str, Any]:
    return {"incompatible": cast("Sequence[Row]", answer.get("incompatible") or []), "problem": answer["problem"]}


def _document(row: Row) -> dict[str, Any]:
    return {**row, "since": _time(row["since"])}


def _identity(row: Row) -> list[str]:
    return [str(row["name"]), str(row["id"]), str(row["address"])]


def _notes(row: Row) -> str:
    notes = ["this one"] * bool(row["is_this"]) + ["draining"] * bool(row["draining"])
    notes += ["another configuration"] * (not row["same_settings"])
    return ", ".join(notes) or "-"


def _status_cells(row: Row, names: Mapping[str, str]) -> list[str]:
    if "error" in row:
        return [str(row["name"]), str(row["address"]), "-", "-", "-", "-", f"does not answer: {row['error']}"]
    troubles = [f"cannot reach {names.get(id_, id_)}: {why}" for id_, why in row["unreachable"].items()]
    troubles += [f"shared records: {row['store']}"] * bool(row["store"]) + list(row["storage_problems"])
    lease = "held" if row["has_lease"] else f"lost for {show_seconds(round(row['lease_age']))}"
    notes = [*([] if _notes(row) == "-" else [_notes(row)]), *troubles]
    forwarded = sum(row["forwarded"].values())
    return [
        str(row["name"]),
        str(row["address"]),
        str(row["sessions"]),
        str(row["calls"]),
        str(forwarded),
        lease,
        ", ".join(notes) or "-",
    ]


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
