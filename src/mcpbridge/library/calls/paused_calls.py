"""The calls that wait for an answer from outside, for the program that gives it.

An answer is checked, and the call is made once more as its caller made it: with the same principal, session, run and
arguments. So rules, hooks on results, logs and shortening apply. It is not counted again, hooks before calls do not run
again, and nobody who agreed is asked again. The tool finds the answer with the call (`Resuming`).

If several answer, in whatever process that shares the store, one holds the claim of the call. It renews the claim while
it works; the claim lapses soon after its process ended, and is given back if the tool could not take the answer.

A server can put anything into a result, and a client can name anybody, so only what this bridge itself recorded of this
very call makes a result count as paused.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol, cast

import anyio
import msgspec
from msgspec import DecodeError, Raw
from msgspec.structs import replace

from mcpbridge.base.errors import AlreadyResumed, ArgumentsRefused, BridgeError, CallFailed, StoreFailed, UnknownName
from mcpbridge.base.json_values import decoded
from mcpbridge.base.log import get_logger
from mcpbridge.core.context import BridgeContext, Session, short
from mcpbridge.core.tool_calls_and_results import PAUSED, CallResult, PausedCall, ToolCall, ToolResult
from mcpbridge.engine.requests import encoded, meta_of, result_of
from mcpbridge.library.calls.call import failed, wire_id
from mcpbridge.pipeline.approvals.request import PAUSE, ApprovalRequest
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.protocol.meta import APPROVALS, CONTEXT, RUN
from mcpbridge.protocol.meta import CALL as CALL_ID
from mcpbridge.storage.store import Store
from mcpbridge.tools.human_in_the_loop.paused_calls import (
    KIND,
    RESUME,
    PausedRecord,
    Resuming,
    State,
    label_of,
    record_of,
)
from mcpbridge.tools.python.output import Misshapen, check_of, json_of

CLAIM = "paused-claim"
"""The kind of value that says who is answering a call."""
RUN_CLAIM = "run-claim"
"""The kind of value that says who makes what an earlier run left open."""
CLAIM_SECONDS = 60.0
"""Seconds after which a claim lapses that nobody renews."""
GIVING_BACK_SECONDS = 5.0
"""Seconds that the store gets to take a claim away; then it lapses by itself."""
LOOK_SECONDS = 0.05
"""Seconds until another look whether the claim of a run is free."""

StillWaiting = Callable[[str, str], Awaitable[object]]
"""Raises AlreadyResumed if the call of this id, of this principal, was answered."""


@asynccontextmanager
async def claimed(store: Store, record: PausedRecord, still_waiting: StillWaiting) -> AsyncGenerator[None]:
    """Nobody else answers the call meanwhile.

    Raises:
        AlreadyResumed: somebody does, or has.
    """
    async with _Claim(store, CLAIM, record.id, record.principal).held() as is_ours:
        if not is_ours:
            raise AlreadyResumed(f"Somebody else is answering the paused call {record.id} of {record.tool} right now")
        await still_waiting(record.id, record.principal)  # whoever had the claim before may have answered it
        yield


@asynccontextmanager
async def in_turn(store: Store, handle: str, principal: str) -> AsyncGenerator[None]:
    """Nobody else continues the run of this name meanwhile; waits for those who do."""
    while True:
        async with _Claim(store, RUN_CLAIM, handle, principal).held() as is_ours:
            if is_ours:
                yield
                return
        await asyncio.sleep(LOOK_SECONDS)


class _Claim:
    """That one does something, and nobody else."""

    def __init__(self, store: Store, kind: str, handle: str, principal: str) -> None:
        self._store, self._kind, self._handle, self._principal = store, kind, handle, principal
        self._mine = secrets.token_bytes(16)

    @asynccontextmanager
    async def held(self) -> AsyncGenerator[bool]:
        """Whether it could be had; if so, it is given back in the end."""
        if not await self._put():
            yield False
            return
        renewing = asyncio.create_task(self._renewing())
        try:
            yield True
        finally:
            renewing.cancel()
            with anyio.CancelScope(shield=True), anyio.move_on_after(GIVING_BACK_SECONDS):
                await asyncio.wait([renewing])
                await self._drop()

    async def _put(self) -> bool:
        put = self._store.put_if_absent(
            self._kind, self._mine, principal=self._principal, expires_in=CLAIM_SECONDS, handle=self._handle
        )
        putting = asyncio.ensure_future(put)
        try:
            return await asyncio.shield(putting) == self._mine
        except asyncio.CancelledError:  # it may be on its way into the store, and nobody wants it any more
            with anyio.CancelScope(shield=True), anyio.move_on_after(GIVING_BACK_SECONDS):
                await asyncio.wait([putting])
                if putting.exception() is None and putting.result() == self._mine:
                    await self._drop()
            raise

    async def _drop(self) -> None:
        await self._store.drop(self._kind, self._handle, principal=self._principal)

    async def _renewing(self) -> None:
        while True:
            await asyncio.sleep(CLAIM_SECONDS / 3)
            with suppress(StoreFailed):
                await self._store.renew(self._kind, self._handle, principal=self._principal, expires_in=CLAIM_SECONDS)


STAYS = "The call stays paused."


def plain(answer: object, record: PausedRecord) -> object:
    """The answer as a JSON value, or a `ToolResult` with one.

    Raises:
        ArgumentsRefused: it is none, or does not fit the schema.
    """
    given = cast("ToolResult[object]", answer) if isinstance(answer, ToolResult) else None
    if given is not None and record.kind != "manual":
        raise ArgumentsRefused(f"The answer for {record.tool} is a value; its result is what the tool makes of that")
    content = cast("object", answer) if given is None else given.content
    try:
        value: object = decoded(json_of(content))
    except (Misshapen, msgspec.DecodeError) as error:
        raise ArgumentsRefused(f"The answer is no JSON: {error}") from error
    if record.schema is not None and (given is None or not given.is_error):
        fault = check_of(record.schema)(value)
        if fault:
            refused = ArgumentsRefused(f"The answer does not fit what {record.tool} asks for: {fault}")
            refused.advice = STAYS
            raise refused
    return value if given is None else replace(given, content=value)


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
    return (record.call_id, record.run, record.tenant) == (short(wire_id(call)), short(run), short(tenant))


def waits_for_approval(
    request: ApprovalRequest | None, call: ToolCall[Any, Any], run: str, user: str
) -> PausedCall | None:
    """The call, as one that somebody has to agree to. `request`: what the bridge let go; None if it is another's."""
    if request is None or (request.principal, request.run, request.call) != (user, short(run), short(wire_id(call))):
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


RESUMED, CANCELLED = "paused.resumed", "paused.cancelled"
"""The events with the `PausedCall` when it was answered, and when it was given up."""

KEEP_SECONDS = 10.0
"""Seconds for writing down what came of a call, whatever happens meanwhile."""


class Requests(Protocol):
    """Makes requests of the program; see `Engine.request`."""

    async def request(  # noqa: D102 - as in `Engine`
        self, method: str, params: Mapping[str, Any], *, user: str = "", session: Session | None = None
    ) -> dict[str, Any]: ...

    async def artifacts_of(self, meta: Mapping[str, Any], user: str) -> list[Any]:
        """What a result's `_meta` leads to, for the program alone."""
        ...


class PausedCalls:
    """The paused calls of one store. `user` is always the principal that they are of; no other's are found."""

    def __init__(self, store: Store, around: BridgeContext, requests: Requests) -> None:
        """`around`: what the calls of the bridge have; `requests`: the bridge itself."""
        self._store, self._around, self._requests = store, around, requests

    async def list(self, user: str = "", *, run: str = "") -> list[PausedCall]:
        """Those that wait, oldest first, of all tenants. `run`: of this run only. What cannot be read is left out."""
        found: list[PausedCall] = []
        for entry in await self._store.entries(KIND, principal=user):
            label = label_of(entry.label)
            if label.state == "waiting" and run in ("", label.run):
                record = await self._record(entry.handle, user)
                if record is not None and record.state == "waiting" and (call := call_of(record)) is not None:
                    found.append(call)
        return found

    async def get(self, id: str, user: str = "") -> PausedCall:  # noqa: A002 - what it is
        """One of them, also once it is answered, until it expires.

        Raises:
            UnknownName: there is none, or not any more.
            msgspec.DecodeError: its arguments are nested too deep for here.
        """
        return (await self._known(id, user)).call

    async def of_result(
        self, meta: Mapping[str, Any], call: ToolCall[Any, Any], *, run: str = "", user: str = "", tenant: str = ""
    ) -> PausedCall | None:
        """The call, if its result says in `_meta` that it is paused; None: it says nothing, or what is not true."""
        said = meta.get(PAUSED)
        id_ = cast("Mapping[str, object]", said).get("id") if isinstance(said, Mapping) else None
        record = await self._record(id_, user) if isinstance(id_, str) and id_ else None
        return call_of(record) if record is not None and is_of(record, call, run, tenant) else None

    async def answered(
        self,
        run: str,
        call_id: str,
        user: str = "",
        tenant: str = "",
        *,
        id: str = "",  # noqa: A002 - what it is
    ) -> CallResult[Any] | None:
        """What came of the call that a model made under this id in this run, of several the latest; None: nothing yet.

        `id`: of the paused call, which distinguishes calls that a model gave one id. One that is forgotten came to an
        error that says so.
        """
        if id:
            record = await self._record(id, user)
            if record is None:
                return failed("The call was paused and is not known any more: nobody answered in time.")
            if (record.run, record.tenant) != (short(run), short(tenant)):
                return None
        else:
            record = await self._of_call(run, call_id, user, tenant)
        return await self._result(record) if record is not None else None

    async def result(self, id: str, user: str = "") -> CallResult[Any] | None:  # noqa: A002 - what it is
        """What came of a paused call; None: nothing yet.

        Raises:
            UnknownName: there is none of this id, or not any more.
        """
        return await self._result(await self._known(id, user))

    async def resume(self, id: str, answer: object, *, user: str = "") -> CallResult[Any]:  # noqa: A002 - what it is
        """Give the answer of a paused call; returns the call's result, which is kept with it from then on.

        `answer`: a JSON value, or what becomes one (models, dataclasses); for a manual tool also a `ToolResult`.
        Cancelling this leaves the call paused.

        Raises:
            UnknownName: there is no such call, or not any more.
            AlreadyResumed: it was answered before, or somebody else is answering it now.
            ArgumentsRefused: the answer does not fit its schema, or the tool's result; the call stays paused.
            CallFailed: the tool is not there, may not be called, or failed at the answer; the call stays paused.
        """
        record = await self._waiting(id, user)
        given = plain(answer, record)
        async with claimed(self._store, record, self._waiting):
            resuming = Resuming(record, given)
            raw = await self._gone_on(resuming)
            record = await self._keep(record, "answered", raw)
        self._publish(RESUMED, record)
        return await self._result(record) or failed("")

    async def cancel(self, id: str, reason: str = "", *, user: str = "") -> CallResult[Any]:  # noqa: A002 - what it is
        """Give a paused call up: its result is an error that says that it was declined, and why.

        Raises:
            UnknownName: there is no such call, or not any more.
            AlreadyResumed: it was answered before, or somebody is answering it now.
        """
        record = await self._waiting(id, user)
        async with claimed(self._store, record, self._waiting):
            text = f"The call of {record.tool} was declined{f': {reason}' if reason else ''}"
            record = await self._keep(record, "cancelled", failed(text).raw)
        self._publish(CANCELLED, record)
        return await self._result(record) or failed("")

    # -- the store

    async def _record(self, id_: str, user: str) -> PausedRecord | None:
        body = await self._store.get(KIND, id_, principal=user)
        return record_of(body, id_) if body is not None else None

    async def _known(self, id_: str, user: str) -> PausedRecord:
        record = await self._record(id_, user)
        if record is None:
            unknown = UnknownName("paused call", id_)
            whose = (
                f"Only calls of the user {user!r} are looked for." if user else "No user is named: give `user=…`, if"
            )
            rest = "" if user else " the call was made for one."
            unknown.advice = (
                f"{whose}{rest} Calls expire, and are known to the user that made them only; `paused_calls` "
            )
            unknown.advice += "lists those."
            raise unknown
        return record

    async def _waiting(self, id_: str, user: str) -> PausedRecord:
        record = await self._known(id_, user)
        if record.state != "waiting":
            raise AlreadyResumed(f"The paused call {id_} of {record.tool} was {record.state} already")
        return record

    async def _of_call(self, run: str, call_id: str, user: str, tenant: str) -> PausedRecord | None:
        for entry in await self._store.entries(KIND, principal=user, newest_first=True):
            label = label_of(entry.label)
            if call_id and (label.run, label.call_id, label.tenant) == (short(run), short(call_id), short(tenant)):
                return await self._record(entry.handle, user)
        return None

    async def _result(self, record: PausedRecord) -> CallResult[Any] | None:
        if not record.result:
            return None
        try:
            raw: dict[str, Any] = decoded(bytes(record.result))
        except msgspec.DecodeError as error:
            log.warning("outcome of a paused call cannot be read", id=record.id, error=str(error))
            return failed(f"What came of {record.tool} cannot be read: {error}")
        return result_of(raw, artifacts=await self._requests.artifacts_of(meta_of(raw), record.principal))

    async def _keep(self, record: PausedRecord, state: State, raw: Mapping[str, Any]) -> PausedRecord:
        """Write down what came of a call; it is kept for as long as it could have waited."""
        seconds = max(1.0, record.expires - record.created)
        done = replace(record, state=state, result=Raw(encoded(raw)), expires=time.time() + seconds)
        with anyio.CancelScope(shield=True), anyio.fail_after(KEEP_SECONDS):  # the tool has done its work
            await self._store.put(
                KIND, encode(done), principal=done.principal, expires_in=seconds, handle=done.id, label=done.label
            )
        return done

    # -- the call

    async def _gone_on(self, resuming: Resuming) -> dict[str, Any]:
        """Make the call once more; gives its result object.

        Raises:
            ArgumentsRefused, CallFailed: as `resume`.
        """
        record, pauses = resuming.record, self._around.pauses
        said = {"user": record.user, "tenant": record.tenant, "metadata": record.metadata}
        meta = {RESUME: resuming.id, CONTEXT: said, CALL_ID: record.call_id, APPROVALS: PAUSE}
        if record.run:
            meta[RUN] = record.run
        session = pauses.sessions.get(record.session)
        if session is None:
            session = Session(record.principal, record.client, record.session)
            pauses.sessions[session.id] = session
        pauses.resuming.add(resuming)
        try:
            params = {"name": record.tool, "arguments": record.arguments, "_meta": meta}
            raw = await self._requests.request("tools/call", params, user=record.principal, session=session)
        except BridgeError as error:
            raise CallFailed(
                f"The paused call of {record.tool} cannot be continued: {error.full_message()}. {STAYS}"
            ) from error
        finally:
            pauses.resuming.forget(resuming)
        if not resuming.is_done:
            why = result_of(raw).text or "the tool took no answer"
            raise CallFailed(f"The answer came to nothing: {why.rstrip('. ')}. {STAYS}")
        try:
            resuming.result()
        except BridgeError as refused:
            refused.advice = STAYS
            raise
        return raw

    def _publish(self, name: str, record: PausedRecord) -> None:
        call = call_of(record)
        if call is not None:
            self._around.events.publish(
                name,
                call,
                run=record.run,
                session=record.session,
                tool=record.tool,
                principal=record.principal,
                tenant=record.tenant,
            )
