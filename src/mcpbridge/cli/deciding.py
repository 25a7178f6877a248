"""Calls that wait for approval in all running bridges of this user, or in their store; how a command answers one."""

import getpass
import os
from pathlib import Path
from typing import Any, cast

from mcpbridge.admin.approvals import Problem
from mcpbridge.admin.control_socket import ask, sockets
from mcpbridge.cli.exits import DECIDED, TOOL_ERROR, UNREACHABLE, USAGE, CommandFailed, fail
from mcpbridge.cli.kept_approvals import KeptApprovals
from mcpbridge.errors import ConfigError
from mcpbridge.places import runtime_directory

__all__ = ["Waiting", "decide", "waiting"]

Waiting = dict[str, Any]
"""One call that waits, as `admin/approvals.py` tells it."""

_CODES = {"unknown": TOOL_ERROR, "decided": DECIDED, "invalid": USAGE}


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
    for one in _kept(config, is_alone=not alive):
        found.setdefault(one["id"], (None, one))
    if not alive and not found:
        fail(
            UNREACHABLE, "no bridge is running, and no call can still be approved", "Start one with `mcpbridge serve`."
        )
    return sorted(found.values(), key=lambda entry: entry[1]["since"])


def _kept(config: str | None, *, is_alone: bool) -> list[Waiting]:
    try:
        return KeptApprovals(config).listed()
    except ConfigError:
        if is_alone or config:
            raise
        return []  # the bridges that run tell what they know


def decide(typed: str, decision: str, scope: str, config: str | None = None) -> Waiting:
    """Answer the call whose id is, or begins with, what was typed. Ends the command where that cannot be."""
    wanted = typed.strip().lower()
    found = [(path, one) for path, one in waiting(config) if one["id"].startswith(wanted)]
    if len(found) > 1:
        several = ", ".join(one["id"] for _, one in found)
        fail(USAGE, f"several calls wait whose id begins with {typed!r}: {several}", "Type more of it.")
    id_, by = found[0][1]["id"] if found else wanted, f"cli:{_user()}"
    answer = {"decision": decision, "for": scope}
    if found and found[0][0] is None:
        return _decide_kept(id_, answer, by, config)
    # One that was answered does not wait any more; the bridges remember by whom.
    paths = [path for path, _ in found if path is not None] or sockets(runtime_directory(os.environ))
    answers = [ask(path, {"do": "decide", **answer, "by": by, "id": id_}) for path in paths]
    said = [dict(answer) for answer in answers if answer is not None]
    done = next((answer for answer in said if "error" not in answer), None)
    if done is None:
        raise _why_not(said)
    return done


def _decide_kept(id_: str, answer: dict[str, str], by: str, config: str | None) -> Waiting:
    try:
        return KeptApprovals(config).decide(id_, answer, by)
    except Problem as problem:
        raise _why_not([{"code": problem.code, "error": str(problem)}]) from problem


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
