"""Approvals are written down, step by step, whether or not calls are."""

from mcpbridge.approvals.request import ApprovalEvent, Audit
from mcpbridge.logs import get_logger
from mcpbridge.storage.call_log import CallLog

__all__ = ["recording"]

log = get_logger("mcpbridge")


def recording(audit: CallLog) -> Audit:
    """Writes what became of an approval into the log, and into `audit`."""

    def write(event: ApprovalEvent) -> None:
        request = event.request
        log.info(
            "approval", step=event.event, id=request.id, tool=request.tool, by=event.by, principal=request.principal
        )
        audit.append_event(
            event.event,
            {
                "tool": request.tool,
                "client": request.client,
                "principal": request.principal,
                "session": request.session,
                "arguments": request.arguments_json,
                "who": event.by,
                "detail": event.scope or request.reason,
                "approval": request.id,
            },
        )

    return write
