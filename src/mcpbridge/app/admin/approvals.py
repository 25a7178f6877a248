"""Calls that wait for a person, as JSON documents: the same for commands and for the HTTP API."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import msgspec

from mcpbridge.app.admin.errors import Problem
from mcpbridge.base.errors import StoreFailed
from mcpbridge.base.hidden_text import with_hidden_shown
from mcpbridge.core.model import ApproveBy
from mcpbridge.pipeline.approvals.pending import (
    AlreadyDecided,
    MayNotDecide,
    Pending,
    PendingApprovals,
    UnknownApproval,
)
from mcpbridge.pipeline.approvals.request import ApprovalEvent, Scope, one_line_of, readable_arguments
from mcpbridge.protocol.canonical_json import canonical_digest
from mcpbridge.storage.sqlite.database import may_exist

if TYPE_CHECKING:  # few rules name who approves
    from mcpbridge.pipeline.approvals.decider import Decider

LONGEST_REASON = 500
"""Characters of the reason of a no."""
_LONGEST_LINE = 200
"""Characters of the arguments on one line."""


async def list_approvals(desk: PendingApprovals) -> list[dict[str, Any]]:
    """What waits, oldest first, with what is new in it against the last approved call of the same tool."""
    return [{**_document(one), **await _compared(desk, one)} for one in await desk.pending()]


async def _compared(desk: PendingApprovals, pending: Pending) -> dict[str, Any]:
    """`last_approved`: null if none is known; `changes`: null if there is nothing that can be compared."""
    last = await desk.approved.last(pending.request)
    if last is None:
        return {"last_approved": None, "changes": None}
    found = desk.approved.differences(last, pending.request)
    return {
        "last_approved": {"at": round(last.at, 3), "by": last.by, "client": last.client},
        "changes": None if found is None else [msgspec.to_builtins(one) for one in found],
    }


ENDED = ("granted", "denied", "expired", "cancelled", "unavailable")
"""What can become of a request, as events of the call log."""


async def recent_approvals(desk: PendingApprovals, log_file: Path, *, limit: int = 50) -> list[dict[str, Any]]:
    """What became of the last requests, newest first, also before the bridge started; these without arguments.

    Requests that can still be answered are not among them: see `list_approvals`.
    """
    open_ids = {one.request.id for one in await desk.pending()}
    found = [_ended(at, event) for at, event in desk.recent.ended()]
    known = {one["id"] for one in found}
    for row in reversed(await anyio.to_thread.run_sync(_logged, log_file, limit)):
        id_ = row.get("facts", {}).get("approval", "")
        if id_ not in known:
            known.add(id_)
            found.append(_ended_of_log(row, id_))
    return [one for one in found if one["id"] not in open_ids][:limit]


def _logged(log_file: Path, limit: int) -> list[dict[str, Any]]:
    if not may_exist(log_file):
        return []
    from mcpbridge.storage.call_log.reader import Filter  # for who looks at what has ended
    from mcpbridge.storage.call_log.timeline import read_events

    try:
        return read_events(log_file, Filter(), limit=limit, kinds=ENDED)
    except StoreFailed:
        return []  # what is in memory is shown all the same


def _ended(at: float, event: ApprovalEvent) -> dict[str, Any]:
    request = event.request
    return {
        "id": request.id,
        "event": event.event,
        "at": round(at, 3),
        "server": request.server,
        "tool": request.tool,
        "client": request.client,
        "principal": request.principal,
        "by": event.by,
        "for": event.scope,
        "reason": request.reason,
        "rule": request.rule,
        "arguments_line": one_line_of(request.arguments_json, _LONGEST_LINE),
    }


def _ended_of_log(row: Mapping[str, Any], id_: str) -> dict[str, Any]:
    is_scope = row["event"] == "granted"
    detail = str(row.get("detail", ""))
    return {
        "id": id_,
        "event": row["event"],
        "at": datetime.fromisoformat(row["at"]).timestamp(),
        "server": str(row.get("tool", "")).partition("/")[0],
        "tool": row.get("tool", ""),
        "client": row.get("client", ""),
        "principal": row.get("principal", ""),
        "by": row.get("who", ""),
        "for": detail if is_scope else "",
        "reason": "" if is_scope else detail,
        "rule": "",
        "arguments_line": "",
    }


async def decide(
    desk: PendingApprovals, id_: str, answer: Mapping[str, object], by: str, decider: "Decider | None" = None
) -> dict[str, Any]:
    """Answer a request: `decision` is `approve` or `deny`, `for` is `once` (default) or `session`.

    For the session: the same call gets the same answer as often as it comes in it. `reason`: why not; whoever calls
    reads it. `decider`: who answers; None: the operator of the bridge.

    Raises:
        Problem: that is no answer, or there is nothing to answer.
    """
    decision, wanted = answer.get("decision"), answer.get("for", "once")
    if decision not in ("approve", "deny"):
        raise Problem("invalid", 'decision: expected "approve" or "deny"')
    if wanted not in ("once", "session"):
        raise Problem("invalid", 'for: expected "once" or "session"')
    reason = answer.get("reason") or ""
    if not isinstance(reason, str) or len(reason) > LONGEST_REASON:
        raise Problem("invalid", f"reason: expected a text of at most {LONGEST_REASON} characters")
    scope: Scope | None = None if decision == "deny" else "session" if wanted == "session" else "once"
    try:
        pending = await desk.decide(
            id_, scope, by, in_session=wanted == "session", decider=decider, reason=inert_reason(reason)
        )
    except UnknownApproval:
        raise Problem("unknown", f"no call waits for approval as {id_[:40]!r}, or not any more") from None
    except MayNotDecide as refused:
        raise Problem("forbidden", str(refused)) from None
    except AlreadyDecided as decided:
        raise Problem("decided", f"{id_} was {decided}") from None
    except StoreFailed as error:
        raise Problem("failed", f"the answer to {id_} cannot be kept: {error}. Look whether it still waits") from None
    how_long = "session" if wanted == "session" else scope
    return {**_document(pending), "decision": decision, "for": how_long, "by": by}


def inert_reason(reason: str) -> str:
    """A reason on one line, with what cannot be seen spelled out: a model reads it."""
    return " ".join(with_hidden_shown(reason).split())


def _approvers(approve_by: ApproveBy | None) -> dict[str, Any] | None:
    if approve_by is None:
        return None
    return {
        "roles": list(approve_by.roles),
        "principals": list(approve_by.principals),
        "four_eyes": approve_by.four_eyes,
        "operator": approve_by.operator,
    }


def _document(pending: Pending) -> dict[str, Any]:
    request = pending.request
    digest = request.digest or canonical_digest(request.arguments_json)
    return {
        "id": request.id,
        "server": request.server,
        "tool": request.tool,
        "arguments": readable_arguments(request.arguments_json, digest),
        "arguments_line": one_line_of(request.arguments_json, _LONGEST_LINE),
        "arguments_bytes": len(request.arguments_json),
        "arguments_sha256": digest,
        "reason": request.reason,
        "rule": request.rule,
        "asked": request.asked,
        "approve_by": _approvers(request.approve_by),
        "requester": request.requester,
        "principal": request.principal,
        "client": request.client,
        "since": round(request.at, 3),
        "until": round(pending.until, 3),
        "waiting": pending.is_waiting,
        "here": pending.is_here,
    }
