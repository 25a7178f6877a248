"""Calls that wait for approval in all running bridges of this user, and how a command answers one."""

import getpass
import os
from pathlib import Path
from typing import Any, cast

from mcpbridge.admin.control_socket import ask, runtime_directory, sockets
from mcpbridge.cli.exits import DECIDED, TOOL_ERROR, UNREACHABLE, USAGE, CommandFailed, fail

__all__ = ["Waiting", "decide", "waiting"]

Waiting = dict[str, Any]
"""One call that waits, as `admin/approvals.py` tells it."""

_CODES = {"unknown": TOOL_ERROR, "decided": DECIDED, "invalid": USAGE}


def waiting() -> list[tuple[Path, Waiting]]:
    """Each call that waits, with the socket of a bridge that takes its answer, oldest first.

    Bridges may share a store, so several can know the same one; the bridge that waits for it comes before others.
    Ends the command if no bridge is running.
    """
    answers = [(path, ask(path, {"do": "approvals"})) for path in sockets(runtime_directory(os.environ))]
    alive = [(path, answer) for path, answer in answers if answer is not None]
    if not alive:
        fail(UNREACHABLE, "no bridge is running", "Start one with `mcpbridge serve`.")
    found: dict[str, tuple[Path, Waiting]] = {}
    for path, answer in alive:
        for one in cast("list[Waiting]", answer.get("approvals", [])):
            if one["id"] not in found or one["here"]:
                found[one["id"]] = path, one
    return sorted(found.values(), key=lambda entry: entry[1]["since"])


def decide(typed: str, decision: str, scope: str) -> Waiting:
    """Answer the call whose id is, or begins with, what was typed. Ends the command where that cannot be."""
    wanted = typed.strip().lower()
    found = [(path, one) for path, one in waiting() if one["id"].startswith(wanted)]
    if len(found) > 1:
        several = ", ".join(one["id"] for _, one in found)
        fail(USAGE, f"several calls wait whose id begins with {typed!r}: {several}", "Type more of it.")
    request = {"do": "decide", "decision": decision, "for": scope, "by": f"cli:{_user()}"}
    # One that was answered does not wait any more; the bridges remember by whom.
    paths = [found[0][0]] if found else sockets(runtime_directory(os.environ))
    answers = [ask(path, {**request, "id": found[0][1]["id"] if found else wanted}) for path in paths]
    said = [dict(answer) for answer in answers if answer is not None]
    done = next((answer for answer in said if "error" not in answer), None)
    if done is None:
        raise _why_not(said)
    return done


def _why_not(said: list[dict[str, object]]) -> CommandFailed:
    """Of several bridges, the one that knows most tells."""
    said = sorted(said, key=lambda answer: answer.get("code") != "decided")
    error = said[0] if said else {"error": "the bridge has ended"}
    code = _CODES.get(str(error.get("code")), UNREACHABLE)
    return CommandFailed(code, str(error["error"]), "" if code == DECIDED else "`mcpbridge approvals` lists them.")


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())
