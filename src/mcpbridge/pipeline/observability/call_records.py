"""Make the record of a call, as the call log and listeners of events get it."""

import re

from msgspec import Raw

from mcpbridge.base.errors import BridgeError, UpstreamAnswered
from mcpbridge.core.context import run_of, text_in
from mcpbridge.core.model import Call
from mcpbridge.core.recording import RunningCall, new_uid, uid_text
from mcpbridge.protocol.body import LARGE, Body
from mcpbridge.results.token_count import estimated_tokens
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
    rule: str = "",
) -> CallRecord:
    """The record of a call. `at`: seconds since 1970, when it began."""
    session, context, arguments = call.caller.session, call.existing_context, bytes(arguments_of(call))
    recorded, asked, stages, size, original = call.recorded, call.asked, (), len(result), 0
    if recorded is not None:
        at, stages = recorded.at, recorded.stages
        asked = bytes(asked or recorded.asked)
    if call.original and size:
        original = len(call.original)
        original = 0 if original == size else original
    return CallRecord(
        at=at,
        seconds=seconds,
        method=call.method,
        server=call.upstream,
        tool=call.tool.id if call.tool is not None else call.target,
        client=call.caller.name,
        principal=call.caller.principal,
        session=session.id,
        run=context.run if context is not None else run_of(call.meta) if call.meta is not None else "",
        outcome=outcome,
        error=error,
        arguments=arguments,
        result=result if size > LARGE else bytes(result),
        keeps_content=keeps_content,
        facts=call.facts if call.meta is None else _facts(call, call.meta),
        sent=len(arguments),
        received=size,
        running=call.running or (recorded.running if recorded is not None else 0),
        uid=new_uid(at) if recorded is None else recorded.uid,
        parent=parent_of(call) if call.within is not None else 0,
        revision=call.caller.version,
        asked=b"" if asked == arguments else asked,
        stages=stages,
        tokens=estimated_tokens(size) if size else 0,
        original_size=original,
        original_tokens=estimated_tokens(original) if original else 0,
        rule=rule,
    )


TRACE = "trace"
"""The fact that names the trace of a call, in hexadecimal: the bridge's own if calls are traced, else the client's."""
MESSAGE = "message"
"""The fact that says why a call failed, where its content may be kept."""
_LONGEST_MESSAGE = 2000
_PARENT = "traceparent"
_TRACE_ID = re.compile("[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


def trace_id(traceparent: str) -> str:
    """The id in a `traceparent` (W3C Trace Context, 3.2); empty: it is none."""
    found = _TRACE_ID.match(traceparent)
    return found[1] if found else ""


def message_of(error: BaseException) -> str:
    """What a call that failed says to people: the message of our own errors, what a server answered, or nothing."""
    if isinstance(error, UpstreamAnswered):
        return error.error.decode("utf-8", "replace")[:_LONGEST_MESSAGE]
    return error.full_message()[:_LONGEST_MESSAGE] if isinstance(error, BridgeError) else ""


def _facts(call: Call, meta: Body) -> dict[str, object] | None:
    facts = call.facts
    if facts is not None and TRACE in facts:
        return facts
    trace = trace_id(text_in(meta, _PARENT))
    return {**(facts or {}), TRACE: trace} if trace else facts


def parent_of(call: Call) -> int:
    """The uid of the nearest call around this one that has one; 0: none has."""
    outer = call.within
    while outer is not None:
        if outer.recorded is not None:
            return outer.recorded.uid
        outer = outer.within
    return 0


def running_call(call: Call, now: float) -> RunningCall | None:
    """A call under way as people see it; None: nothing is noted of it. `now`: of `time.perf_counter`."""
    recorded = call.recorded
    if recorded is None:
        return None
    parent = parent_of(call)
    return RunningCall(
        uid_text(recorded.uid),
        call.method,
        call.upstream,
        call.tool.id if call.tool is not None else call.target,
        call.caller.name,
        call.caller.principal,
        call.caller.session.id,
        recorded.at,
        now - recorded.began,
        recorded.stage,
        uid_text(parent) if parent else "",
    )
