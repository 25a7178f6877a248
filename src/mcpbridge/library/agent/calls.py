"""The calls of a run: read from the model's message, made, and recorded so that a run that continues repeats none.

The records are in the store, by tenant, run and call, and belong to the user of the run, so another process finds them
too. A record that cannot be kept is logged, and the run continues.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence, Set
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any, cast

import msgspec
from msgspec import DecodeError, Raw, Struct
from msgspec.structs import replace

from mcpbridge.base.errors import FormatError, StoreFailed, UnknownName
from mcpbridge.base.json_values import decoded
from mcpbridge.base.log import get_logger
from mcpbridge.base.suggestions import nearest
from mcpbridge.core.context import Keeping
from mcpbridge.core.events import Event, Subscription
from mcpbridge.core.tool_calls_and_results import CallResult, PausedCall, ToolCall
from mcpbridge.engine.requests import encoded, result_of
from mcpbridge.library.agent.models.model import INVALID_JSON
from mcpbridge.library.agent.options import Running, RunOptions
from mcpbridge.library.calls.calls import run_calls
from mcpbridge.library.calls.paused_calls import in_turn
from mcpbridge.library.calls.run_events import ApprovalPending, BusEvent, CallReturned, RunEvent
from mcpbridge.library.llm_formats.format import unanswered
from mcpbridge.library.llm_formats.gemini import MADE_UP
from mcpbridge.library.llm_formats.tool_definitions import Offered
from mcpbridge.pipeline.approvals.request import ASKED, ApprovalRequest
from mcpbridge.tools.builtin.meta.session_status import DELIVERABLE
from mcpbridge.tools.python.output import Misshapen, json_of

log = get_logger("mcpbridge.library")

KIND = "finished"
KEPT_SECONDS = 7 * 24 * 3600.0
"""How long a run can be gone on with and finds what its calls came to."""


class _Record(Struct, frozen=True):
    raw: Raw
    """The result object; each as JSON, since it is read as programs get it (`decoded`)."""
    artifacts: Raw
    paused: Raw
    """The `PausedCall`, or null."""


class Finished:
    """The records of one run."""

    def __init__(self, store: Keeping, *, run: str, user: str, tenant: str = "") -> None:
        self._store, self._run, self._user, self._tenant = store, run, user, tenant

    def handles(self, calls: Sequence[ToolCall[Any, Any]]) -> list[str]:
        """The names of the records of a turn's calls, all of them, in their order.

        Not their ids: some models count their calls anew in each turn, or give all of a turn the same.
        """
        seen = Counter[str]()
        named: list[str] = []
        for call in calls:
            name = self._named(call.id, call.name, arguments=_arguments(call))
            named.append(f"{name}-{seen[name]}" if name in seen else name)
            seen[name] += 1
        return named

    @property
    def name(self) -> str:
        """Of all records of the run together, as a handle."""
        return self._named("")

    async def keep(self, handle: str, result: CallResult[Any]) -> None:
        """Keep what came of a call; also that it is paused. Does not raise."""
        try:
            body = _encode({"raw": result.raw, "artifacts": result.artifacts, "paused": result.paused})
            await self._store.put(KIND, body, principal=self._user, expires_in=KEPT_SECONDS, handle=handle)
        except (StoreFailed, Misshapen, TypeError, ValueError, RecursionError) as error:
            log.warning("result of a run not stored", run=self._run, error=str(error))

    async def find(self, handle: str, call: ToolCall[Any, Any]) -> CallResult[Any] | None:
        """What came of a call before, perhaps that it is paused; None: it was not made, or that is not known.

        Raises:
            StoreFailed: the store cannot be read: then nobody knows what was made.
        """
        body = await self._store.get(KIND, handle, principal=self._user)
        if body is None:
            return None
        try:
            record = msgspec.json.decode(body, type=_Record)
            paused = msgspec.convert(decoded(bytes(record.paused)), PausedCall | None)
            return result_of(
                decoded(bytes(record.raw)), call, artifacts=decoded(bytes(record.artifacts)), paused=paused
            )
        except (msgspec.DecodeError, RecursionError) as error:
            log.warning("result of a run cannot be read", run=self._run, error=str(error))
            return None

    def _named(self, *names: str, arguments: bytes = b"") -> str:
        texts = [self._run, *names, *([self._tenant] if self._tenant else [])]
        whole = sha256()
        for part in [*(text.encode("utf-8", "surrogatepass") for text in texts), arguments]:
            whole.update(b"%d:%b" % (len(part), part))
        return whole.hexdigest()


def _as_json(value: object) -> Any:
    return Raw(json_of(value))


_encode = msgspec.json.Encoder(decimal_format="number", enc_hook=_as_json).encode
_encode_sorted = msgspec.json.Encoder(decimal_format="number", order="sorted").encode


def _arguments(call: ToolCall[Any, Any]) -> bytes:
    """In one spelling for all that are equal, as far as they can be read."""
    if call.problem:
        return call.problem.encode()
    try:
        data = encoded(call.arguments)
    except Misshapen:  # such a call is never made
        return b""
    try:
        return _encode_sorted(decoded(data))
    except (msgspec.DecodeError, ValueError, RecursionError):
        return data


_CUT_OFF = "The arguments are no JSON: nothing was called. Call it again with one JSON object."

Result = CallResult[Any]
Wanted = ToolCall[Any, Any]


RECALL = "mcpbridge/recall"
"""The tool that the previews of large results point to."""


class _Open(Struct, frozen=True):
    """A call that is to be made."""

    call: Wanted
    record: str
    """Under which what it comes to is kept."""
    approval: str = ""
    """Of what it was paused for, if it is made again."""

    def is_of(self, known: Set[str]) -> bool:
        """Whether it is of one of these tools, or says itself why it is not made."""
        return bool(self.call.problem) or self.call.name in known


class RunCalls:
    """All calls of one run.

    The bridge's own `recall` may be called in every run, whatever tools that is of: a model that is shown the preview
    of a large result must be able to ask for the rest.
    """

    def __init__(self, bridge: Running, options: RunOptions, emit: Callable[[RunEvent], object]) -> None:
        self._bridge, self._options, self._emit = bridge, options, emit
        self._run, self._user, self._tenant = options.asked.run, options.asked.user, options.asked.tenant
        self._finished = Finished(bridge.store, run=self._run, user=self._user, tenant=self._tenant)
        self._unreported: dict[str, Result] = {}
        self.deliverable: Mapping[str, Any] | None = None
        """See `RunOutcome`."""

    def wanted(self, history: Sequence[Mapping[str, Any]], written: int, offered: Offered) -> list[Wanted]:
        """The calls without an answer in the last `written` messages of a history, of tools by their wire names."""
        found = unanswered(self._options.format, history[len(history) - written :])
        named = [_findable(call, f"{len(history)}_{place}") for place, call in enumerate(found)]
        return offered.restored(named)

    @property
    def unreported(self) -> Sequence[Result]:
        """What came of calls of a turn that failed before all of them were over."""
        return list(self._unreported.values())

    async def with_recall(self, offered: Offered) -> Offered:
        """These tools and `recall`, where the bridge has it for this user and the API takes one more."""
        try:
            return await self._offered([*offered.names.values(), RECALL])
        except (UnknownName, FormatError):
            return offered

    async def make(self, calls: Sequence[Wanted], offered: Offered) -> list[Result]:
        """What comes of all calls of a turn, in their order. One of a tool that is not offered is not made."""
        return await self._make(
            [_Open(*one) for one in zip(calls, self._finished.handles(calls), strict=True)], offered
        )

    async def _make(self, calls: "Sequence[_Open]", offered: Offered) -> list[Result]:
        known = set(offered.names.values())
        if not all(one.is_of(known) for one in calls):
            offered = await self.with_recall(offered)
            calls = [one if one.is_of(known) else replace(one, call=offered.restored([one.call])[0]) for one in calls]
            known |= set(offered.names.values())
            calls = [one if one.is_of(known) else replace(one, call=_unknown(one.call, offered)) for one in calls]

        async def keep(place: int, result: Result) -> None:
            if result.call is not None and result.call.problem:  # it was not made, nor will it be by others
                return
            record = calls[place].record
            self._unreported[record] = result
            await self._finished.keep(record, result)

        async with self._hearing():
            made = await run_calls(
                self._bridge,
                [one.call for one in calls],
                self._options.asked,
                at_once=self._bridge.calls_at_once,
                pauses=self._options.pauses,
                earlier=[one.approval for one in calls],
                hooks=self._options.hooks,
                on_event=self._emit,
                keep=keep,
            )
        self._unreported = {}
        return made

    async def _offered(self, tools: Sequence[str]) -> Offered:
        asked = self._options.asked
        return await self._bridge.tools_for(
            self._options.format,
            tools=tools,
            strict=self._options.strict,
            user=asked.user,
            tenant=asked.tenant,
            run=asked.run,
        )

    async def settle(self, calls: Sequence[Wanted], offered: Offered) -> list[Result]:
        """What came of calls that an earlier run left open; those are made now that never were, or may be now.

        One at a time does that for a run, in whatever process that shares the store: the next finds what it came to.
        """
        async with in_turn(self._bridge.store, self._finished.name, self._user):
            return await self._settled(calls, offered)

    async def _settled(self, calls: Sequence[Wanted], offered: Offered) -> list[Result]:
        known: list[Result | None] = []
        rest: list[_Open] = []
        for call, record in zip(calls, self._finished.handles(calls), strict=True):
            before, approval = await self._finished.find(record, call), ""
            if before is not None and before.paused is not None:
                approval = before.paused.id
                before = await self._gone_on(call, record, before, before.paused)
            if before is None:
                rest.append(_Open(call, record, approval))
            elif before.paused is None:
                self._emit(CallReturned(before))
            known.append(before)
        made = iter(await self._make(rest, offered))
        return [result if result is not None else next(made) for result in known]

    async def _gone_on(self, call: Wanted, record: str, before: Result, paused: PausedCall) -> Result | None:
        """What a call came to that was paused: perhaps that it still is. None: it is to be made again."""
        if paused.kind == "approval":
            pending = await self._bridge.pending_approvals()
            return before if any(one.request.id == paused.id for one in pending) else None
        answer = await self._bridge.answered(self._run, call.id, id=paused.id, user=self._user, tenant=self._tenant)
        if answer is None:
            return before
        answer = replace(answer, call=call)
        await self._finished.keep(record, answer)
        return answer

    @asynccontextmanager
    async def _hearing(self) -> AsyncGenerator[None]:
        """Hear what is published in the name of the run; all of it is heard when this ends."""
        subscription = self._bridge.events.subscribe()
        hearing = asyncio.create_task(self._hear(subscription))
        try:
            yield
            subscription.close()
            await hearing
        finally:
            subscription.close()
            hearing.cancel()

    async def _hear(self, subscription: Subscription) -> None:
        async for event in subscription:
            if event.run != self._run or not self._is_ours(event):
                continue
            if event.name == DELIVERABLE:
                self.deliverable = cast("Mapping[str, Any]", event.data)
            self._emit(_as_run_event(event))

    def _is_ours(self, event: Event) -> bool:
        """Whether it is of this run, and not of one that another client gave the same name."""
        is_programs = not event.session and not event.principal
        return (is_programs or event.principal == self._user) and event.tenant in ("", self._tenant)


def _findable(call: Wanted, place: str) -> Wanted:
    """A call as whoever goes on finds it again, and with the fault that some APIs cannot say otherwise."""
    if call.id.startswith(MADE_UP):
        call = replace(call, id=f"{MADE_UP}{place}")
    is_cut_off = not call.problem and call.arguments.keys() == {INVALID_JSON}
    return replace(call, arguments={}, problem=_CUT_OFF) if is_cut_off else call


def _unknown(call: Wanted, offered: Offered) -> Wanted:
    """A call that is not made: whatever else there is in the bridge, this model was offered no such tool."""
    error = UnknownName("tool", call.name, candidates=nearest(call.name, offered.names))
    return replace(call, problem=error.full_message())


def _as_run_event(event: Event) -> RunEvent:
    """An event of the bus, as those hear it who follow the run."""
    if event.name == ASKED and isinstance(event.data, ApprovalRequest):
        asked = event.data
        try:
            arguments = asked.arguments
        except DecodeError:  # nested too deep for here: somebody has to agree all the same
            arguments = None
        return ApprovalPending(asked.id, asked.tool, arguments, asked.call, asked.reason)
    return BusEvent(event)
