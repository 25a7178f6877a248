"""The calls that wait for an answer from outside, for the program that gives it.

An answer is checked, and then the call is made once more, as its caller made it: by the same principal, in the same
session and run, with the arguments that the tool got. So rules, hooks on results, logs and the shortening of results
apply; it is not counted again, hooks before calls have had their say, and nobody who agreed to it is asked again. The
tool finds the answer with the call (`Resuming`).

Of several who answer, in whatever process that shares the store, one holds the claim of the call. It lapses soon after
its process ended, and is given back when the tool could not take the answer: the call waits as before.
"""

import secrets
import time
from collections.abc import Mapping
from typing import Any, Protocol, cast

import anyio
import msgspec
from msgspec import Raw
from msgspec.structs import replace

from mcpbridge.approvals.request import PAUSE
from mcpbridge.backends.paused_record import KIND, PausedRecord, State, label_of, record_of
from mcpbridge.backends.pausing import CALL_ID, RESUME, Resuming
from mcpbridge.context import BridgeContext, Session, short
from mcpbridge.errors import AlreadyResumed, BridgeError, CallFailed, UnknownName
from mcpbridge.library.call_results import failed, meta_of, result_of
from mcpbridge.library.one_call import encoded
from mcpbridge.library.paused_claims import claimed
from mcpbridge.library.pausing_answers import STAYS, plain
from mcpbridge.library.pausing_told import call_of, is_of
from mcpbridge.logs import get_logger
from mcpbridge.storage.store import Store
from mcpbridge.toolcalls import PAUSED, CallResult, PausedCall, ToolCall
from mcpbridge.wire.envelope import APPROVALS, CONTEXT, RUN
from mcpbridge.wire.frame import encode
from mcpbridge.wire.python_values import decoded

__all__ = ["CANCELLED", "RESUMED", "PausedCalls", "Requests"]

log = get_logger("mcpbridge.library")

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

    async def told(
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

        `id`: of the paused call, which tells calls apart that a model gave one id. One that is forgotten came to an
        error that says so.
        """
        if id:
            record = await self._record(id, user)
            if record is None:
                return failed("The call was paused and is not known any more: nobody answered it in time.")
            if (record.run, record.tenant) != (short(run), short(tenant)):
                return None
        else:
            record = await self._of_call(run, call_id, user, tenant)
        return await self._result(record) if record is not None else None

    async def result(self, id: str, user: str = "") -> CallResult[Any] | None:  # noqa: A002
        """What came of a paused call; None: nothing yet.

        Raises:
            UnknownName: there is none of this id, or not any more.
        """
        return await self._result(await self._known(id, user))

    async def resume(self, id: str, answer: object, *, user: str = "") -> CallResult[Any]:  # noqa: A002
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

    async def cancel(self, id: str, reason: str = "", *, user: str = "") -> CallResult[Any]:  # noqa: A002
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
            unknown.advice = "Calls expire, and are known to the user that made them only; `paused_calls` lists those."
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
            log.warning("what came of a paused call cannot be read", id=record.id, error=str(error))
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
        record, pauses, key = resuming.record, self._around.pauses, secrets.token_hex(16)
        said = {"user": record.user, "tenant": record.tenant, "metadata": record.metadata}
        meta = {RESUME: key, CONTEXT: said, CALL_ID: record.call_id, APPROVALS: PAUSE}
        if record.run:
            meta[RUN] = record.run
        session = pauses.sessions.get(record.session)
        if session is None:
            session = Session(record.principal, record.client, record.session)
            pauses.sessions[session.id] = session
        pauses.resuming[key] = resuming
        try:
            params = {"name": record.tool, "arguments": record.arguments, "_meta": meta}
            raw = await self._requests.request("tools/call", params, user=record.principal, session=session)
        except BridgeError as error:
            raise CallFailed(
                f"The paused call of {record.tool} cannot be gone on with: {error.told()}. {STAYS}"
            ) from error
        finally:
            del pauses.resuming[key]
        if resuming.refused is not None:
            resuming.refused.advice = STAYS
            raise resuming.refused
        if not resuming.is_done:
            why = result_of(raw).text or "the tool took no answer"
            raise CallFailed(f"The answer came to nothing: {why.rstrip('. ')}. {STAYS}")
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
