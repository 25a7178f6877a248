"""Which results say that their call is paused and are to be believed, and how programs see such calls.

A result may come from a server, which says there what it likes, and a client may have a call paused in whatever name it
gives: what this bridge itself said of this call alone counts.
"""

from typing import Any

from msgspec import DecodeError

from mcpbridge.approvals.request import ApprovalRequest
from mcpbridge.backends.paused_record import PausedRecord
from mcpbridge.context import short
from mcpbridge.library.one_call import said_id
from mcpbridge.logs import get_logger
from mcpbridge.toolcalls import PausedCall, ToolCall

__all__ = ["call_of", "is_of", "waits_for_approval"]

log = get_logger("mcpbridge.library")


def call_of(record: PausedRecord) -> PausedCall | None:
    """As programs see it; None: nobody could be shown its arguments. One such hides no other."""
    try:
        return record.call
    except DecodeError as error:
        log.warning("a paused call cannot be shown", id=record.id, tool=record.tool, error=str(error))
        return None


def is_of(record: PausedRecord, call: ToolCall[Any, Any], run: str, tenant: str) -> bool:
    """Whether a paused call of the caller is this call. `tenant`: as it holds for the caller."""
    return (record.call_id, record.run, record.tenant) == (short(said_id(call)), short(run), short(tenant))


def waits_for_approval(
    request: ApprovalRequest | None, call: ToolCall[Any, Any], run: str, user: str
) -> PausedCall | None:
    """The call, as one that somebody has to agree to. `request`: what the bridge let go; None if it is another's."""
    if request is None or (request.principal, request.run, request.call) != (user, short(run), short(said_id(call))):
        return None
    return PausedCall(
        id=request.id,
        tool=request.tool,
        arguments=_arguments_of(request, call),
        kind="approval",
        call_id=call.id,
        run=run,
        reason=request.reason,
        created=request.at,
        expires=request.expires + request.lasts,
    )


def _arguments_of(request: ApprovalRequest, call: ToolCall[Any, Any]) -> Any:
    """What will be sent, which hooks and defaults may have changed: people agree to that."""
    try:
        return request.arguments
    except DecodeError:  # nested too deep for here
        return call.arguments
