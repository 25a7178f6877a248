"""The calls of a run: read from what the model wrote, made, and found again by who goes on after a pause."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from msgspec.structs import replace

from mcpbridge.approvals.request import ASKED, ApprovalRequest
from mcpbridge.builtin.deliverables import DELIVERABLE
from mcpbridge.errors import UnknownName, nearest
from mcpbridge.events import Event, Subscription
from mcpbridge.library.call_results import failed
from mcpbridge.library.calling import run_calls
from mcpbridge.library.finished import Finished
from mcpbridge.library.formats.front import Offered, unanswered
from mcpbridge.library.formats.gemini import MADE_UP
from mcpbridge.library.models.model import INVALID_JSON
from mcpbridge.library.run_events import ApprovalPending, BusEvent, CallReturned, RunEvent
from mcpbridge.library.running_options import Running, RunOptions
from mcpbridge.toolcalls import CallResult, PausedCall, ToolCall

__all__ = ["RunCalls"]

_CUT_OFF = "The arguments are no JSON: nothing was called. Call it again with one JSON object."

Result = CallResult[Any]
Wanted = ToolCall[Any, Any]


class RunCalls:
    """All calls of one run."""

    def __init__(self, bridge: Running, options: RunOptions, emit: Callable[[RunEvent], object]) -> None:
        self._bridge, self._options, self._emit = bridge, options, emit
        self._run, self._user = options.asked.run, options.asked.user
        self._finished = Finished(bridge.store, run=self._run, user=self._user)
        self.deliverable: Mapping[str, Any] | None = None
        """See `RunOutcome`."""

    def wanted(self, history: Sequence[Mapping[str, Any]], written: int, offered: Offered) -> list[Wanted]:
        """The calls without an answer in the last `written` messages of a history, of tools by their wire names."""
        found = unanswered(self._options.format, history[len(history) - written :])
        named = [_findable(call, f"{len(history)}_{place}") for place, call in enumerate(found)]
        return offered.restored(named)

    async def make(
        self, calls: Sequence[Wanted], offered: Offered, earlier: Mapping[str, str] | None = None
    ) -> list[Result]:
        """What comes of calls, in their order. One of a tool that the model is not offered is not made.

        `earlier`: ids of approvals by the ids of calls that are made again.
        """
        known = set(offered.names.values())
        possible = [call for call in calls if call.name in known or call.problem]
        async with self._hearing():
            made = await run_calls(
                self._bridge,
                possible,
                self._options.asked,
                at_once=self._bridge.calls_at_once,
                pauses=self._options.pauses,
                earlier=earlier,
                hooks=self._options.hooks,
                on_event=self._emit,
                keep=self._finished.keep,
            )
        results = iter(made)
        return [next(results) if call.name in known or call.problem else self._unknown(call, offered) for call in calls]

    def _unknown(self, call: Wanted, offered: Offered) -> Result:
        """Whatever else there is in the bridge: this model was offered no such tool."""
        error = UnknownName("tool", call.name, candidates=nearest(call.name, offered.names))
        result = failed(error.told(), call)
        self._emit(CallReturned(result))
        return result

    async def settle(self, calls: Sequence[Wanted], offered: Offered) -> list[Result]:
        """What came of calls that an earlier run left open; those are made now that never were, or may be now."""
        known: list[Result | None] = []
        earlier: dict[str, str] = {}
        for call in calls:
            before = await self._finished.find(call)
            if before is not None and before.paused is not None:
                approval = before.paused.id
                before = await self._gone_on(call, before, before.paused)
                if before is None:
                    earlier[call.id] = approval
            if before is not None and before.paused is None:
                self._emit(CallReturned(before))
            known.append(before)
        rest = [call for call, result in zip(calls, known, strict=True) if result is None]
        made = iter(await self.make(rest, offered, earlier))
        return [result if result is not None else next(made) for result in known]

    async def _gone_on(self, call: Wanted, before: Result, paused: PausedCall) -> Result | None:
        """What a call came to that was paused: perhaps that it still is. None: it is to be made again."""
        if paused.kind == "approval":
            pending = await self._bridge.pending_approvals()
            return before if any(one.request.id == paused.id for one in pending) else None
        answer = await self._bridge.answered(self._run, call.id, user=self._user)
        if answer is None:
            return before
        answer = replace(answer, call=call)
        await self._finished.keep(call, answer)
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
            if event.run != self._run:
                continue
            if event.name == DELIVERABLE:
                self.deliverable = cast("Mapping[str, Any]", event.data)
            self._emit(_told(event))


def _findable(call: Wanted, place: str) -> Wanted:
    """A call as whoever goes on finds it again, and with the fault that some APIs cannot say otherwise."""
    if call.id.startswith(MADE_UP):
        call = replace(call, id=f"{MADE_UP}{place}")
    is_cut_off = not call.problem and call.arguments.keys() == {INVALID_JSON}
    return replace(call, arguments={}, problem=_CUT_OFF) if is_cut_off else call


def _told(event: Event) -> RunEvent:
    """An event of the bus, as those hear it who follow the run."""
    if event.name == ASKED and isinstance(event.data, ApprovalRequest):
        asked = event.data
        return ApprovalPending(asked.id, asked.tool, asked.arguments, asked.call, asked.reason)
    return BusEvent(event)
