"""`mcpbridge approvals`, `approve` and `deny`: calls that wait for a person, in running bridges and in the store."""

import getpass
import os
import time
from pathlib import Path
from typing import Any, cast

import click

from mcpbridge.app.admin.control_client import ask, sockets
from mcpbridge.app.admin.errors import Problem
from mcpbridge.app.cli.calls.store import KeptApprovals
from mcpbridge.app.cli.failures import CommandFailed, fail
from mcpbridge.app.cli.options import as_json_option, config_option, header_option
from mcpbridge.app.cli.output import first_line, note, print_json, print_table, visible
from mcpbridge.app.exit_codes import DECIDED, OK, TOOL_ERROR, UNREACHABLE, USAGE
from mcpbridge.base.directories import runtime_directory
from mcpbridge.base.errors import ConfigError
from mcpbridge.base.units import show_seconds

Waiting = dict[str, Any]
"""One call that waits, as `admin/approvals.py` describes it."""

_CODES = {"unknown": TOOL_ERROR, "decided": DECIDED, "invalid": USAGE, "forbidden": TOOL_ERROR}


def waiting(config: str | None = None) -> list[tuple[Path | None, Waiting]]:
    """Each call that waits, with the socket of a bridge that takes its answer, oldest first; None: only the store does.

    Bridges may share a store, so several can know the same one; the bridge that waits for it comes before others.
    `config` names the configuration whose store it is.

    Raises:
        ConfigError: no bridge is running, and the configuration is wrong.
        CommandFailed: no bridge is running, and nothing waits in the store.
    """
    answers = [(path, ask(path, {"do": "approvals"})) for path in sockets(runtime_directory(os.environ))]
    alive = [(path, answer) for path, answer in answers if answer is not None]
    found: dict[str, tuple[Path | None, Waiting]] = {}
    for path, answer in alive:
        for one in cast("list[Waiting]", answer.get("approvals", [])):
            if one["id"] not in found or one["here"]:
                found[one["id"]] = path, one
    for one in _stored_approvals(config, is_alone=not alive):
        found.setdefault(one["id"], (None, one))
    if not alive and not found:
        fail(
            UNREACHABLE, "no bridge is running, and no call can still be approved", "Start one with `mcpbridge serve`."
        )
    return sorted(found.values(), key=lambda entry: entry[1]["since"])


def _stored_approvals(config: str | None, *, is_alone: bool) -> list[Waiting]:
    try:
        return KeptApprovals(config).listed()
    except ConfigError:
        if is_alone or config:
            raise
        return []  # the bridges that run tell what they know


def decide(typed: str, decision: str, scope: str, config: str | None = None, reason: str = "") -> Waiting:
    """Answer the call whose id is, or begins with, what was typed. Ends the command where that cannot be."""
    wanted = typed.strip().lower()
    found = [(path, one) for path, one in waiting(config) if one["id"].startswith(wanted)]
    if len(found) > 1:
        several = ", ".join(one["id"] for _, one in found)
        fail(USAGE, f"several calls wait whose id begins with {typed!r}: {several}", "Type more of it.")
    id_, by = found[0][1]["id"] if found else wanted, f"cli:{_user()}"
    answer = {"decision": decision, "for": scope, **({"reason": reason} if reason else {})}
    if found and found[0][0] is None:
        return _decide_stored(id_, answer, by, config)
    # One that was answered does not wait any more; the bridges remember by whom.
    paths = [path for path, _ in found if path is not None] or sockets(runtime_directory(os.environ))
    answers = [ask(path, {"do": "decide", **answer, "by": by, "id": id_}) for path in paths]
    said = [dict(answer) for answer in answers if answer is not None]
    done = next((answer for answer in said if "error" not in answer), None)
    if done is None:
        raise _why_not(said)
    return done


def _decide_stored(id_: str, answer: dict[str, str], by: str, config: str | None) -> Waiting:
    try:
        return KeptApprovals(config).decide(id_, answer, by)
    except Problem as problem:
        raise _why_not([{"code": problem.code, "error": str(problem)}]) from problem


def _why_not(answers: list[dict[str, object]]) -> CommandFailed:
    """Of several bridges, the one that knows most tells."""
    answers = sorted(answers, key=lambda answer: answer.get("code") != "decided")
    error = answers[0] if answers else {"error": "the bridge has ended"}
    code = _CODES.get(str(error.get("code")), UNREACHABLE)
    is_known = error.get("code") in ("decided", "forbidden")
    return CommandFailed(code, str(error["error"]), "" if is_known else "`mcpbridge approvals` lists them.")


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())


@click.command("approvals")
@config_option
@as_json_option
@header_option
def approvals_command(*, config: str | None, as_json: bool) -> int:
    """List the calls that wait for approval, and those that gave up but can still be approved.

    Exit code 4: no bridge is running, and there is no such call.

    \u0008
    Examples:
      mcpbridge approvals
    """
    found = [one for _, one in waiting(config)]
    if as_json:
        print_json("approvals/1", {"approvals": found})
    elif not found:
        note("no call waits for approval")
    else:
        titles = ["ID", "Tool", "Client", "Since", "Answer within", "Arguments"]
        print_table(titles, [_row(one, time.time()) for one in found])
    return OK


def _row(one: Waiting, now: float) -> list[str]:
    who = " as ".join(filter(None, [one["client"], one["principal"]])) or "-"
    since, left = (show_seconds(round(max(0.0, span))) for span in (now - one["since"], one["until"] - now))
    arguments = first_line(one["arguments_line"], 60)
    state = since if one["waiting"] else f"{since}, gave up"
    return [one["id"], first_line(one["tool"], 40), first_line(who, 30), state, left, arguments]


@click.command("approve")
@click.argument("id_", metavar="ID")
@config_option
@click.option("--session", is_flag=True, help="Also the same call again, for as long as the session lasts.")
@as_json_option
def approve_command(*, id_: str, config: str | None, session: bool, as_json: bool) -> int:
    """Approve the call ID, or the one whose id begins with ID; `mcpbridge approvals` lists them.

    A call that gave up waiting passes when it is made again; no bridge has to run for that. A rule can name other
    people who approve (`approve_by`). Exit code 5: no such call waits, or it is for others to answer. 6: it was
    answered before.

    \u0008
    Examples:
      mcpbridge approve sp35hsvp
      mcpbridge approve sp --session
    """
    done = decide(id_, "approve", "session" if session else "once", config)
    if as_json:
        print_json("approve/1", done)
        return OK
    more = ", and the same call for this session" if session else ""
    then = "" if done["waiting"] else "; the call gave up waiting, it passes when it is made again"
    print(visible(f"approved: {done['tool']}{more}{then}\n{done['arguments']}"))
    return OK


@click.command("deny")
@click.argument("id_", metavar="ID")
@config_option
@click.option("--session", is_flag=True, help="Also the same call again, for as long as the session lasts.")
@click.option("--reason", default="", metavar="TEXT", help="Why not; whoever called reads it.")
@as_json_option
def deny_command(*, id_: str, config: str | None, session: bool, reason: str, as_json: bool) -> int:
    """Refuse the call ID, or the one whose id begins with ID; `mcpbridge approvals` lists them.

    A call that gave up waiting is refused when it is made again; no bridge has to run for that. Exit code 5: no such
    call waits, or it is for others to answer. 6: it was answered before.

    \u0008
    Examples:
      mcpbridge deny sp35hsvp
      mcpbridge deny sp --session
      mcpbridge deny sp --reason "Wait for the audit"
    """
    done = decide(id_, "deny", "session" if session else "once", config, reason)
    if as_json:
        print_json("deny/1", done)
    else:
        more = ", and the same call for this session" if session else ""
        print(visible(f"denied: {done['tool']}{more}"))
    return OK
