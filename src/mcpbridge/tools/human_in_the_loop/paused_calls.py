"""Calls that wait for an answer from outside, in the store: they outlive the client and the process.

A tool that cannot answer at once stores the call, as it was let through, and gives a result that says so. Whoever
answers later makes the call once more, on the way that every call goes; the tool then finds the answer with the call.
Only this process can say that a call is such a one: the key that names it is made here, is forgotten when the call is
over, and cannot be guessed by a client.
"""

import secrets
import time
from collections.abc import Mapping
from typing import Any, Literal, cast

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from mcpbridge.base.errors import ArgumentsRefused, Overloaded, UpstreamUnavailable
from mcpbridge.base.json_values import decoded
from mcpbridge.base.units import show_bytes
from mcpbridge.core.context import Keeping, run_of, text_in
from mcpbridge.core.jobs import Job
from mcpbridge.core.model import Call
from mcpbridge.core.tool_calls_and_results import PAUSED, PausedCall
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import EMPTY_OBJECT, encode
from mcpbridge.protocol.meta import CALL as CALL_ID

KIND = "paused"
"""The kind of value that paused calls are in the store."""

State = Literal["waiting", "answered", "cancelled"]


class PausedRecord(Struct, frozen=True, omit_defaults=True):
    """A call that waits, or what came of it."""

    tool: str
    """Its id, `server/tool`."""
    kind: Literal["manual", "human"]
    arguments: Raw
    """As the tool got them: an object."""
    created: float
    """Seconds since 1970."""
    expires: float
    id: str = ""
    """Its handle in the store, where it is left out."""
    call_id: str = ""
    """The model's."""
    run: str = ""
    """As the client named it."""
    reason: str = ""
    schema: dict[str, Any] | None = None
    """Of the answer; None: any."""
    principal: str = ""
    client: str = ""
    session: str = ""
    user: str = ""
    tenant: str = ""
    metadata: dict[str, Any] = {}
    agreed: str = ""
    """See `Call.agreed`: nobody is asked twice about one call."""
    state: State = "waiting"
    result: Raw = Raw()
    """What came of it, an object; empty: nothing yet."""

    @property
    def call(self) -> PausedCall:
        """As programs see it.

        Raises:
            msgspec.DecodeError: its arguments are nested too deep.
        """
        arguments = cast("dict[str, Any]", decoded(bytes(self.arguments)))
        return PausedCall(
            self.id,
            self.tool,
            arguments,
            self.kind,
            self.call_id,
            self.run,
            self.reason,
            self.schema,
            self.created,
            self.expires,
            is_answered=self.state != "waiting",
        )

    @property
    def label(self) -> bytes:
        """What lists show of it without reading it."""
        return encode(Label(self.run, self.call_id, self.state, self.tenant))


class Label(Struct, frozen=True):
    """What a list of the store shows of a paused call."""

    run: str = ""
    call_id: str = ""
    state: State = "waiting"
    tenant: str = ""


_decode_label = msgspec.json.Decoder(Label).decode


def label_of(data: bytes) -> Label:
    """What a list of the store shows of a paused call."""
    try:
        return _decode_label(data)
    except msgspec.DecodeError:  # of another release
        return Label()


_decode_record = msgspec.json.Decoder(PausedRecord).decode


def record_of(data: bytes, handle: str) -> PausedRecord | None:
    """What the store has under a handle; None: it is of another release, or cannot be read here."""
    try:
        return replace(_decode_record(data), id=handle)
    except (msgspec.DecodeError, RecursionError):
        return None


RESUME = "mcpbridge/resume"
"""In `_meta` of a call that the program itself makes: the key of the paused call that it continues."""
PAUSED_EVENT = "paused"
"""The event with the `PausedCall`, when a call is paused."""
MOST = 1000
"""Paused calls of one principal; more are refused."""

MOST_BYTES = 8 * 1024**2
"""Bytes of those; more are refused."""


class Resuming(Job):
    """One paused call that the program continues now. Its id is the key that only this process knows.

    It finishes when the tool has made its result of the answer, and fails with why the tool could not take it.
    """

    __slots__ = ("answer", "record")

    def __init__(self, record: PausedRecord, answer: object, key: str = "") -> None:
        super().__init__(record.principal, id=key or secrets.token_hex(16))
        self.record = record
        self.answer = answer
        """A JSON value, checked against the record's schema."""


async def pause(
    call: Call,
    *,
    kind: Literal["manual", "human"],
    reason: str,
    schema: Mapping[str, Any] | None,
    expires_in: float,
) -> Body:
    """Write down a call that waits for an answer; gives the result that says so.

    `reason`: what people are asked. `schema`: of the answer; None: any. `expires_in` seconds it is forgotten.

    Raises:
        UpstreamUnavailable: there is no store to keep it in.
        Overloaded: too many calls of this principal wait already.
        ArgumentsRefused: nobody could be shown its arguments.
        StoreFailed: it cannot be kept.
    """
    store = call.around.store
    tool = call.tool.id if call.tool is not None else f"{call.upstream}/{call.target}"
    if store is None:
        raise UpstreamUnavailable(tool, "its calls wait for an answer, and there is no store to keep them in")
    principal = call.caller.principal
    await _refuse_too_many(store, principal, len(call.params.get("arguments") or b""))
    context, now = call.context, time.time()
    record = PausedRecord(
        tool=tool,
        kind=kind,
        arguments=call.params.get("arguments") or Raw(EMPTY_OBJECT),
        created=now,
        expires=now + expires_in,
        call_id=text_in(call.meta, CALL_ID),
        run=run_of(call.meta),
        reason=reason,
        schema=dict(schema) if schema is not None else None,
        principal=principal,
        client=call.caller.name,
        session=call.caller.session.id,
        user=context.user,
        tenant=context.tenant,
        metadata=dict(context.metadata),
        agreed=call.agreed,
    )
    try:
        shown = record.call  # before anything is kept that nobody could answer
    except msgspec.DecodeError as error:
        raise ArgumentsRefused(f"The arguments of {tool} cannot be shown to anybody: {error}") from error
    handle = await store.put(KIND, encode(record), principal=principal, expires_in=expires_in, label=record.label)
    record = replace(record, id=handle)
    call.around.pauses.sessions[record.session] = call.caller.session
    call.note("paused", record.id)
    context.events.publish(PAUSED_EVENT, replace(shown, id=handle))
    return _result_of(record)


async def _refuse_too_many(store: Keeping, principal: str, size: int) -> None:
    """`size`: bytes that one more takes. What is kept for one principal must not push out what is for another."""
    entries = await store.entries(KIND, principal=principal)
    waiting = [entry for entry in entries if label_of(entry.label).state == "waiting"]
    if len(waiting) >= MOST:
        raise Overloaded(f"{MOST} calls wait for an answer from outside already; no more are accepted")
    if sum(entry.size for entry in waiting) + size > MOST_BYTES:
        raise Overloaded(f"calls that wait for an answer from outside take {show_bytes(MOST_BYTES)}; more is not kept")


def _result_of(record: PausedRecord) -> Body:
    why = f": {record.reason}" if record.reason else ""
    end = "" if why.endswith((".", "?", "!")) else "."
    text = f"This call of {record.tool} is paused{why}{end} It waits for an answer from outside (id {record.id})."
    text += " Do not repeat it: its result comes when a person has answered."
    about: dict[str, Any] = {
        "id": record.id,
        "tool": record.tool,
        "kind": record.kind,
        "reason": record.reason,
        "call": record.call_id,
        "run": record.run,
        "created": record.created,
        "expires": record.expires,
    }
    if record.schema is not None:
        about["schema"] = record.schema
    return Body(encode({"content": [{"type": "text", "text": text}], "_meta": {PAUSED: about}}))


def resuming_of(call: Call) -> Resuming | None:
    """What is known of the answer, if this is a paused call that is gone on with; None: it is a new one."""
    key = text_in(call.meta, RESUME)
    resuming = call.around.pauses.resuming.get(key) if key else None
    if not isinstance(resuming, Resuming):
        return None
    record, tool = resuming.record, call.tool.id if call.tool is not None else ""
    is_it = (record.tool, record.principal) == (tool, call.caller.principal)
    return resuming if is_it else None  # a call that is made within one carries its `_meta`


def go_on(call: Call) -> None:
    """Let a paused call be gone on with: it was let through and counted when it was made, and nothing is kept of it."""
    resuming = resuming_of(call)
    if resuming is not None:
        call.continues, call.agreed = True, resuming.record.agreed
        call.note("hooks", {})  # those before the call have seen it, and its arguments are as they left them
