"""The calls that wait for an answer from outside, for the program that gives it.

An answer is checked, and then the call is made once more, as its caller made it: by the same principal, in the same
session and run, with the arguments that the tool got. So rules, hooks, logs and the shortening of results apply; it is
not counted again, and nobody who agreed to it is asked again. The tool finds the answer with the call (`Resuming`).

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

from mcpbridge.backends.outputs import Misshapen, check_of, json_of
from mcpbridge.backends.paused_record import KIND, PausedRecord, State, label_of, record_of
from mcpbridge.backends.pausing import CALL_ID, PAUSED, RESUME, Resuming
from mcpbridge.context import BridgeContext, Session
from mcpbridge.errors import AlreadyResumed, ArgumentsRefused, BridgeError, CallFailed, UnknownName
from mcpbridge.library.call_results import failed, result_of
from mcpbridge.library.paused_claims import claimed
from mcpbridge.storage.store import Store
from mcpbridge.toolcalls import CallResult, PausedCall, ToolResult
from mcpbridge.wire.envelope import APPROVALS, CONTEXT, RUN
from mcpbridge.wire.frame import encode

__all__ = ["CANCELLED", "RESUMED", "PausedCalls", "Requests"]

RESUMED, CANCELLED = "paused.resumed", "paused.cancelled"
"""The events with the `PausedCall` when it was answered, and when it was given up."""

KEEP_SECONDS = 10.0
"""Seconds for writing down what came of a call, whatever happens meanwhile."""

_STAYS = "The call stays paused."


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
        """Those that wait, oldest first. `run`: of this run only."""
        found: list[PausedCall] = []
        for entry in await self._store.entries(KIND, principal=user):
            label = label_of(entry.label)
            if label.state == "waiting" and run in ("", label.run):
                record = await self._record(entry.handle, user)
                if record is not None and record.state == "waiting":
                    found.append(record.call)
        return found

    async def get(self, id: str, user: str = "") -> PausedCall:  # noqa: A002 - what it is
        """One of them, also once it is answered, until it expires.

        Raises:
            UnknownName: there is none, or not any more.
        """
        return (await self._known(id, user)).call

    async def told(self, meta: Mapping[str, Any], user: str = "") -> PausedCall | None:
        """The call that a result says is paused, by `_meta` of that; None: it says nothing, or what is not true."""
        said = meta.get(PAUSED)
        id_ = cast("Mapping[str, object]", said).get("id") if isinstance(said, Mapping) else None
        record = await self._record(id_, user) if isinstance(id_, str) and id_ else None
        return record.call if record is not None else None

    async def answered(self, run: str, call_id: str, user: str = "") -> CallResult[Any] | None:
        """What came of the call that a model made under this id in this run; None: nothing yet."""
        record = await self._of_call(run, call_id, user)
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
        plain = _plain(answer, record)
        async with claimed(self._store, record, self._waiting):
            resuming = Resuming(record, plain)
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

    async def _of_call(self, run: str, call_id: str, user: str) -> PausedRecord | None:
        for entry in await self._store.entries(KIND, principal=user, newest_first=True):
            label = label_of(entry.label)
            if call_id and (label.run, label.call_id) == (run, call_id):
                return await self._record(entry.handle, user)
        return None

    async def _result(self, record: PausedRecord) -> CallResult[Any] | None:
        if not record.result:
            return None
        raw: dict[str, Any] = msgspec.json.decode(record.result)
        said = cast("Mapping[str, Any]", raw.get("_meta") or {})
        return result_of(raw, artifacts=await self._requests.artifacts_of(said, record.principal))

    async def _keep(self, record: PausedRecord, state: State, raw: Mapping[str, Any]) -> PausedRecord:
        """Write down what came of a call; it is kept for as long as it could have waited."""
        seconds = max(1.0, record.expires - record.created)
        done = replace(record, state=state, result=Raw(encode(raw)), expires=time.time() + seconds)
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
        meta = {RESUME: key, CONTEXT: said, CALL_ID: record.call_id, APPROVALS: "pause"}
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
                f"The paused call of {record.tool} cannot be gone on with: {error.told()}. {_STAYS}"
            ) from error
        finally:
            del pauses.resuming[key]
        if resuming.refused is not None:
            resuming.refused.advice = _STAYS
            raise resuming.refused
        if not resuming.is_done:
            why = result_of(raw).text or "the tool took no answer"
            raise CallFailed(f"The answer came to nothing: {why.rstrip('. ')}. {_STAYS}")
        return raw

    def _publish(self, name: str, record: PausedRecord) -> None:
        self._around.events.publish(name, record.call, run=record.run, session=record.session, tool=record.tool)


def _plain(answer: object, record: PausedRecord) -> object:
    """The answer as a JSON value, or a `ToolResult` with one.

    Raises:
        ArgumentsRefused: it is none, or does not fit the schema.
    """
    given = cast("ToolResult[object]", answer) if isinstance(answer, ToolResult) else None
    if given is not None and record.kind != "manual":
        raise ArgumentsRefused(f"The answer for {record.tool} is a value; its result is what the tool makes of that")
    content = cast("object", answer) if given is None else given.content
    try:
        value: object = msgspec.json.decode(json_of(content))
    except Misshapen as error:
        raise ArgumentsRefused(f"The answer is no JSON: {error}") from error
    if record.schema is not None and (given is None or not given.is_error):
        fault = check_of(record.schema)(value)
        if fault:
            refused = ArgumentsRefused(f"The answer does not fit what {record.tool} asks for: {fault}")
            refused.advice = _STAYS
            raise refused
    return value if given is None else replace(given, content=value)
