"""Calls that wait for a person, as JSON documents: the same for commands and for the HTTP API."""

from collections.abc import Mapping
from typing import Any

from mcpbridge.app.admin.errors import Problem
from mcpbridge.pipeline.approvals.pending import AlreadyDecided, Pending, PendingApprovals, UnknownApproval
from mcpbridge.pipeline.approvals.request import Scope, one_line_of, readable_arguments
from mcpbridge.protocol.canonical_json import canonical_digest

_LONGEST_LINE = 200
"""Characters of the arguments on one line."""


async def list_approvals(desk: PendingApprovals) -> list[dict[str, Any]]:
    """What waits, oldest first."""
    return [_document(pending) for pending in await desk.pending()]


async def decide(desk: PendingApprovals, id_: str, answer: Mapping[str, object], by: str) -> dict[str, Any]:
    """Answer a request: `decision` is `approve` or `deny`, `for` is `once` (default) or `session`.

    Raises:
        Problem: that is no answer, or there is nothing to answer.
    """
    decision, wanted = answer.get("decision"), answer.get("for", "once")
    if decision not in ("approve", "deny"):
        raise Problem("invalid", 'decision: expected "approve" or "deny"')
    if wanted not in ("once", "session"):
        raise Problem("invalid", 'for: expected "once" or "session"')
    scope: Scope | None = None if decision == "deny" else "session" if wanted == "session" else "once"
    try:
        pending = await desk.decide(id_, scope, by)
    except UnknownApproval:
        raise Problem("unknown", f"no call waits for approval as {id_[:40]!r}, or not any more") from None
    except AlreadyDecided as decided:
        raise Problem("decided", f"{id_} was {decided}") from None
    return {**_document(pending), "decision": decision, "for": scope, "by": by}


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
        "asked": request.asked,
        "principal": request.principal,
        "client": request.client,
        "since": round(request.at, 3),
        "until": round(pending.until, 3),
        "waiting": pending.is_waiting,
        "here": pending.is_here,
    }
