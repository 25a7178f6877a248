"""Make the record of a call, as the call log and listeners of events get it."""

import re
from collections.abc import Callable
from hashlib import sha256
from time import time

from msgspec import Raw

from mcpbridge.base.errors import BridgeError, UpstreamAnswered
from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.context import run_of, text_in
from mcpbridge.core.model import Call, Tool
from mcpbridge.core.recording import Names, Recording, RunningCall, new_uid, uid_text
from mcpbridge.protocol.body import LARGE, Body
from mcpbridge.protocol.canonical_json import canonical
from mcpbridge.results.token_count import estimated_tokens
from mcpbridge.storage.call_log.format import CallRecord, Outcome, SentCall, deciding_rule

RuleOf = Callable[[Tool, CallOptions], Callable[[Call], str]]
"""What says of the calls of a tool which setting decided that they may be made, or may not; or which role opens it."""

Decides = Callable[[Call], tuple[str, str]]
"""Both of a call: the setting, and the role."""


def deciding(rule_of: RuleOf | None, role_of: RuleOf | None, tool: Tool | None, options: CallOptions) -> Decides | None:
    """What says both of the calls of a tool; None: nobody asks, or no tool is called."""
    if tool is None or (rule_of is None and role_of is None):
        return None
    rule = rule_of(tool, options) if rule_of is not None else None
    role = role_of(tool, options) if role_of is not None else None
    return lambda call: (rule(call) if rule is not None else "", role(call) if role is not None else "")


def decided(call: Call, decides: Decides | None) -> tuple[str, str]:
    """The setting and the role, which are found out once where the call is recorded; empty: nobody asks."""
    recorded = call.recorded
    if recorded is not None and recorded.decided is not None:
        return recorded.decided
    return decides(call) if decides is not None else ("", "")


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
    role: str = "",
) -> CallRecord:
    """The record of a call. `at`: seconds since 1970, when it began."""
    context, meta, tool, size = call.existing_context, call.meta, call.tool, len(result)
    recorded, asked, stages, original, names = call.recorded, call.asked, (), 0, ()
    # What the call says beside its name, as far as it got. Written out where it is needed: every call would enter it.
    found = call.params.data if tool is None else call.params.fields.get("arguments") or b""
    arguments, digest = bytes(found), b""
    if recorded is not None:
        at, stages = recorded.at, recorded.express_stages or recorded.stages
        asked = asked or recorded.asked
        names = recorded.names
        if recorded.digested is found:
            digest = recorded.digest
    if asked is found or (asked := bytes(asked)) == arguments:
        asked = b""
    if call.original and size:
        original = len(call.original)
        original = 0 if original == size else original
    # Who calls what is found out once for each call: mostly when its entry was made.
    method, server, id_, client, principal, session, run, revision, user, address, version, oauth_client = (
        names or _names_of(call)
    )
    return CallRecord(
        at=at,
        seconds=seconds,
        method=method,
        server=server,
        tool=id_,
        client=client,
        principal=principal,
        session=session,
        run=run if context is None else context.run,
        outcome=outcome,
        error=error,
        arguments=arguments,
        result=result if size > LARGE else bytes(result),
        keeps_content=keeps_content,
        facts=call.facts if meta is None else _facts(call, meta),
        sent=len(arguments),
        received=size,
        running=call.running or (recorded.running if recorded is not None else 0),
        uid=new_uid(at) if recorded is None else recorded.uid,
        parent=parent_of(call) if call.within is not None else 0,
        revision=revision,
        asked=asked,
        stages=stages,
        arguments_digest=digest,
        tokens=estimated_tokens(size) if size else 0,
        original_size=original,
        original_tokens=estimated_tokens(original) if original else 0,
        rule=rule,
        user=user,
        address=address,
        client_version=version,
        oauth_client=oauth_client,
        role=role,
    )


def _names_of(call: Call) -> Names:
    """Who calls what."""
    caller, context = call.caller, call.existing_context
    identity, version = caller.identity, caller.info.get("version")
    return (
        call.method,
        call.upstream,
        call.tool.id if call.tool is not None else call.target,
        caller.name,
        caller.principal,
        caller.session.id,
        context.run if context is not None else run_of(call.meta) if call.meta is not None else "",
        caller.version,
        identity.name if identity is not None else "",
        caller.address,
        version if isinstance(version, str) else "",
        identity.client_id if identity is not None else "",
    )


def interrupted(call: Call, at: float, decides: Decides | None, *, keeps_content: bool) -> CallRecord:
    """The record of a call that was sent, as it is if nothing more is heard of it. `at`: see `record_of`."""
    rule, role = decided(call, decides)
    if call.recorded is not None:
        call.recorded.decided = rule, role
    return record_of(call, at=at, outcome="interrupted", keeps_content=keeps_content, rule=rule, role=role)


def sent_call(call: Call, decides: Decides | None = None) -> SentCall:
    """What the journal has of a call that is about to be sent. What is noted of it begins here, if it had not yet."""
    recorded, asked = call.recorded, call.asked
    arguments = call.params.data if call.tool is None else call.params.fields.get("arguments") or b""
    if recorded is None:
        at = time()
        recorded = call.recorded = Recording(new_uid(at), at, call.began)
    else:
        asked = asked or recorded.asked
    digest = sha256(canonical(arguments)).digest()
    recorded.digested, recorded.digest = arguments, digest
    rule = role = ""
    if decides is not None:  # where nobody asks, calls do not pay for it
        recorded.decided = rule, role = decided(call, decides)
    facts = call.facts
    recorded.names = names = _names_of(call)
    return SentCall(
        recorded.at,
        recorded.uid,
        parent_of(call) if call.within is not None else 0,
        len(arguments),
        0 if not asked or asked is arguments or bytes(asked) == bytes(arguments) else len(asked),
        digest,
        (*names, role, rule if facts is None else deciding_rule(facts, rule)),
        facts if call.meta is None else _facts(call, call.meta),
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
