"""The calls of one turn of a model: made side by side, returned in their order, failures contained.

Each goes the way of every client's call and is marked as part of its turn, of which only some run at a time
(`calls.batch`). A failure becomes a result that the model reads; only a mistake of the program itself is raised.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeAlias, cast

from msgspec import Struct
from msgspec.structs import replace

from mcpbridge.base.background_tasks import TaskGroup
from mcpbridge.base.errors import BridgeError, CallRefused
from mcpbridge.core.context import new_run
from mcpbridge.core.tool_calls_and_results import CallResult, ToolCall
from mcpbridge.library.calls.call import Asked, Listener, Requesting, failed, make_call
from mcpbridge.library.calls.run_events import CallProgress, CallReturned, CallStarted, RunEvent
from mcpbridge.pipeline.approvals.request import PAUSE
from mcpbridge.protocol.meta import APPROVAL, APPROVALS
from mcpbridge.tools.python.output import EVENT, Misshapen

OnCall: TypeAlias = Callable[
    [ToolCall[Any, Any]],
    "ToolCall[Any, Any] | CallResult[Any] | Awaitable[ToolCall[Any, Any] | CallResult[Any] | None] | None",
]
"""Sees a call before it is made. None: as it is; another call: this one in its place; a result: it is not made.
Raising `CallRefused` refuses it, and the model sees that."""

OnResult: TypeAlias = Callable[[CallResult[Any]], "CallResult[Any] | Awaitable[CallResult[Any] | None] | None"]
"""Sees what came of a call, and may give another result in its place."""


class CallingHooks(Struct, frozen=True):
    """What a program does about each call, beside the hooks of the bridge, which see each as well."""

    on_call: OnCall | None = None
    on_result: OnResult | None = None


NO_HOOKS = CallingHooks()

KEEP_SECONDS = 5.0
"""Seconds for writing down what came of a call, once nobody waits for it any more."""

Keep: TypeAlias = Callable[[int, CallResult[Any]], Coroutine[Any, Any, None]]
"""Writes down what a call came to, by its place among the calls."""

_Decision: TypeAlias = ToolCall[Any, Any] | CallResult[Any] | None
"""What a hook says of a call."""


def unheard(event: RunEvent) -> None:
    """For programs that want to hear nothing meanwhile."""


async def run_calls(
    bridge: Requesting,
    calls: Sequence[ToolCall[Any, Any]],
    asked: Asked,
    *,
    at_once: int,
    pauses: bool = False,
    earlier: Sequence[str] = (),
    hooks: CallingHooks = NO_HOOKS,
    on_event: Callable[[RunEvent], object] = unheard,
    keep: Keep | None = None,
) -> list[CallResult[Any]]:
    """What came of these calls, in their order. Cancelling this cancels all of them, at their servers too.

    `at_once`: calls that may wait or run; further ones wait here. `pauses`: a call that somebody must agree to does not
    wait, but is a paused one. `earlier`: of each call the id of its approval, if it is made again now, or nothing; none
    at all: no call is. Not by the ids of calls: some models give several the same. `keep` writes down what each call
    came to, at once, also where the rest is cancelled.

    Raises:
        CallbackFailed: `on_event` failed; all calls were made, and the error has their results.
    """
    heard = Listener(on_event)
    turn = _Turn(bridge, replace(asked, turn=asked.turn or new_run()), pauses, hooks, heard, keep)
    at_a_time = asyncio.Semaphore(at_once)

    async def one(place: int, call: ToolCall[Any, Any]) -> CallResult[Any]:
        async with at_a_time:
            result = await turn.result_of(place, call, earlier[place] if earlier else "")
        if result.paused is None:
            heard(CallReturned(result))
        return result

    try:
        async with TaskGroup() as members:
            tasks = [members.create_task(one(place, call)) for place, call in enumerate(calls)]
    except ExceptionGroup as group:  # a fault of the program's own hooks: the first is as good as all
        raise group.exceptions[0] from None
    results = [task.result() for task in tasks]
    heard.settle(results)
    return results


class _Turn(Struct, frozen=True):
    bridge: Requesting
    asked: Asked
    pauses: bool
    hooks: CallingHooks
    on_event: Callable[[RunEvent], object]
    keep: Keep | None

    async def result_of(self, place: int, call: ToolCall[Any, Any], approval: str) -> CallResult[Any]:
        """What came of a call, whatever became of it. It is under the model's own id, whatever hooks make of it."""
        try:
            decision: _Decision = await _awaited(self.hooks.on_call(call)) if self.hooks.on_call is not None else None
            made = replace(decision, id=call.id) if isinstance(decision, ToolCall) else call
            self.on_event(CallStarted(made))
            result = decision if isinstance(decision, CallResult) else await self._make(made, approval)
        except CallRefused as refused:
            made, result = call, failed(refused.full_message(), call)
        result = replace(result, call=made)
        await self._write_down(place, result)
        if self.hooks.on_result is not None and result.paused is None:
            other: CallResult[Any] | None = await _awaited(self.hooks.on_result(result))
            if other is not None:
                result = replace(other, call=made)
                await self._write_down(place, result)
        return result

    async def _write_down(self, place: int, result: CallResult[Any]) -> None:
        """Written down before anything else happens: a cancelled turn, too, must not be repeated."""
        if self.keep is None:
            return
        keeping = asyncio.ensure_future(self.keep(place, result))
        try:
            await asyncio.shield(keeping)
        except asyncio.CancelledError:
            await asyncio.wait([keeping], timeout=KEEP_SECONDS)
            raise

    async def _make(self, call: ToolCall[Any, Any], approval: str) -> CallResult[Any]:
        meta: dict[str, Any] = dict(self.asked.meta or {})
        if self.pauses:
            meta[APPROVALS] = PAUSE
        if approval:
            meta[APPROVAL] = approval
        try:
            return await make_call(
                self.bridge,
                call,
                replace(self.asked, meta=meta),
                on_progress=lambda progress: self._heard(call, progress),
            )
        except BridgeError as error:
            return failed(error.full_message(), call)
        except (Misshapen, UnicodeError) as error:  # also of its name
            return failed(f"The arguments of {call.name} are no JSON: {error}", call)

    def _heard(self, call: ToolCall[Any, Any], progress: Mapping[str, Any]) -> None:
        meta: object = progress.get("_meta")
        event = cast("Mapping[str, Any]", meta).get(EVENT) if isinstance(meta, dict) else None
        message = str(progress.get("message") or "")
        self.on_event(CallProgress(call, message, progress.get("progress"), progress.get("total"), event))


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
