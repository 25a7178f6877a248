"""Make the record of a call, as the call log and listeners of events get it."""

from msgspec import Raw

from mcpbridge.core.context import run_of
from mcpbridge.core.model import Call
from mcpbridge.protocol.body import LARGE
from mcpbridge.storage.call_log.format import CallRecord, Outcome


def arguments_of(call: Call) -> bytes | Raw:
    """What the call says beside its name, as far as it got."""
    return call.params.data if call.tool is None else call.params.get("arguments") or b""


def record_of(
    call: Call,
    *,
    at: float,
    outcome: Outcome,
    keeps_content: bool,
    seconds: float = 0.0,
    error: str = "",
    result: bytes | Raw = b"",
) -> CallRecord:
    """The record of a call. `at`: seconds since 1970, when it began."""
    session, context, arguments = call.caller.session, call.existing_context, bytes(arguments_of(call))
    return CallRecord(
        at=at,
        seconds=seconds,
        method=call.method,
        server=call.upstream,
        tool=call.tool.id if call.tool is not None else call.target,
        client=call.caller.name,
        principal=call.caller.principal,
        session=session.id,
        run=context.run if context is not None else run_of(call.meta),
        outcome=outcome,
        error=error,
        arguments=arguments,
        result=result if len(result) > LARGE else bytes(result),
        keeps_content=keeps_content,
        facts=call.facts,
        sent=len(arguments),
        received=len(result),
        running=call.running,
    )
