"""Where the contexts of runs are: in memory while calls of the run are under way, else in the store.

A call reads its tool's value and the shared one before its handler runs, and writes what has changed before its result
goes up, also where it failed. Calls side by side have the same values, of which the first reads or makes them; one that
comes when none is under way reads the store again, as another process may have gone on with the run meanwhile. Where
two processes have calls of one run at the same time, the last to end wins.
"""

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Protocol, TypeVar

import anyio
import msgspec
from msgspec import Struct

from mcpbridge.base.errors import ConfigError, ContextRefused, StoreFailed
from mcpbridge.base.log import get_logger
from mcpbridge.core.context import CallContext, Keeping, run_of
from mcpbridge.core.events import EventBus
from mcpbridge.core.model import Call
from mcpbridge.tools.python.run_context.context import (
    Cell,
    Context,
    Init,
    Keeps,
    OnChange,
    RunName,
    RunValue,
    Shared,
    Slot,
    Slots,
    context_in,
)
from mcpbridge.tools.python.run_context.value_types import Misfit, Shape

log = get_logger("mcpbridge.backends")

UPDATED = "context.updated"
"""Name of the event that a value changed: `{"tool": id, or empty for the shared one, "value": the JSON value}`."""
LIFETIME = 7 * 86400.0
"""Seconds that a value is kept after its last use."""
SAVING_SECONDS = 5.0
"""Seconds that the store gets to take a value."""

_KIND = "context"

T = TypeVar("T")


class Start(Protocol):
    """Runs code of the user: see `Invoker.value`."""

    async def __call__(self, function: Callable[..., Any], positional: tuple[Any, ...], /) -> object:
        """Call the function with these arguments and return what it returns; a coroutine is awaited."""
        ...


class Held(Struct, frozen=True):
    """The context of one call. Its values are there while `during` runs."""

    context: Context[Any]
    call: CallContext
    """What initialisers get."""
    keeps: Keeps
    tool: str
    run: RunName
    is_named: bool
    """The run has further calls, so what it keeps goes into the store."""
    start: Start
    where: "RunContexts"

    async def during(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns, which calls the handler.

        Raises:
            ContextRefused: the handler left a value that does not fit. StoreFailed: what was kept cannot be read.
        """
        return await self.where.during(self, work)


def open_run_context(call: Call, surroundings: CallContext, keeps: Keeps, start: Start) -> Held:
    """The context of a call, without its values yet. `surroundings`: that of the call, for this try of it."""
    where = call.around.contexts
    contexts = where if isinstance(where, RunContexts) else RunContexts()
    tool = surroundings.events.tool or f"{call.upstream}/{call.target}"
    empty = Cell(keeps.shape, "the context")
    own = RunValue[Any](empty, on_change=_publisher(surroundings, tool))
    shared = Shared[Any](empty, on_change=_publisher(surroundings, ""))
    context = context_in(surroundings, own, shared)
    run = RunName(call.caller.principal, surroundings.tenant, surroundings.run)
    return Held(context, surroundings, keeps, tool, run, bool(run_of(call.meta)), start, contexts)


def _publisher(context: CallContext, tool: str) -> OnChange:
    def on_change(data: bytes) -> None:
        if context.events.bus.is_heard:
            context.events.publish(UPDATED, {"tool": tool, "value": msgspec.json.decode(data)})

    return on_change


class RunContexts:
    """The contexts of all runs of one bridge. Meets the protocol of this name in `context.py`."""

    def __init__(self, store: Keeping | None = None, events: EventBus | None = None) -> None:
        """`store`: None: nothing outlives a call."""
        self._store, self._events = store, events
        self._slots = Slots()
        self._kinds: dict[str, Shape] = {}
        """By id, what tools that were called keep."""
        self._shared: Keeps | None = None

    def share(self, kind: Any = dict, init: Init | None = None) -> None:
        """What all tools of a run have in common: values of a type, which `init` makes once a run. Before any call.

        Raises:
            ConfigError: values cannot be checked by that type.
        """
        try:
            self._shared = Keeps(Shape(kind), init)
        except Misfit as error:
            raise ConfigError(f"what tools share: {error}", key="shared") from error

    @property
    def shared(self) -> Keeps:
        """What is known of the value that all tools of a run have in common."""
        if self._shared is None:
            self._shared = Keeps(Shape(dict))
        return self._shared

    async def during(self, held: Held, work: Coroutine[Any, Any, T]) -> T:
        """See `Held.during`."""
        context = held.context
        try:
            async with self._slot(held, "", self.shared) as shared, self._slot(held, held.tool, held.keeps) as own:
                context.shared.attach(shared)
                context.own.attach(own)
                try:
                    return await work
                finally:
                    context.end()
        finally:
            work.close()

    async def read(self, run: RunName, tool: str = "") -> bytes:
        """The JSON of what is kept; empty: nothing. `tool` left out: what all tools share."""
        slot = self._slots.get((run, tool))
        if slot is not None:
            return slot.cell.data
        found = None if self._store is None else await self._store.get(_KIND, run.handle(tool), principal=run.principal)
        return found or b""

    async def write(self, run: RunName, value: object, tool: str = "") -> None:
        """Keep a value, in place of what there is; calls under way see it at once.

        Raises:
            ContextRefused: it does not fit what the tool keeps, as far as that is known: it was called before.
        """
        shape = self._kinds.get(tool) or Shape(Any) if tool else self.shared.shape
        slot = self._slots.attach((run, tool), shape)
        try:
            async with slot.turn:
                slot.cell.put(value, shape, partial(self._publish, run, tool))
                slot.is_loaded = True
                await self._put(slot, run, tool)
        finally:
            self._slots.let_go((run, tool), slot)

    def _publish(self, run: RunName, tool: str, data: bytes) -> None:
        if self._events is not None and self._events.is_heard:
            told = {"tool": tool, "value": msgspec.json.decode(data)}
            self._events.publish(UPDATED, told, run=run.run, principal=run.principal, tenant=run.tenant)

    @asynccontextmanager
    async def _slot(self, held: Held, tool: str, keeps: Keeps) -> AsyncGenerator[Cell]:
        """The value of a tool, or (`tool` empty) the shared one, kept in the end if it changed."""
        if tool:
            self._kinds[tool] = keeps.shape
        key = (held.run, tool)
        slot = self._slots.attach(key, keeps.shape)
        try:
            await slot.load(partial(self._fill, slot, held, tool, keeps))
            try:
                yield slot.cell
            except BaseException:
                await self._end(slot, held, tool, is_failing=True)
                raise
            await self._end(slot, held, tool, is_failing=False)
        finally:
            self._slots.let_go(key, slot)

    async def _fill(self, slot: Slot, held: Held, tool: str, keeps: Keeps) -> None:
        if held.is_named and self._store is not None:
            handle = held.run.handle(tool)
            data = await self._store.get(_KIND, handle, principal=held.run.principal, renew=LIFETIME)
            if data is not None:
                try:
                    slot.cell.read(data)
                except Misfit as error:
                    log.warning(
                        "a stored context does not match its type; starting with a new one",
                        tool=tool,
                        reason=str(error),
                    )
                else:
                    slot.stored = data
                    return
        if keeps.init is not None:
            slot.cell.fill(await held.start(keeps.init, (held.call,)))
        else:
            slot.cell.fill(keeps.shape.initial())
            slot.stored = slot.cell.data  # the same without the store's help

    async def _end(self, slot: Slot, held: Held, tool: str, *, is_failing: bool) -> None:
        fault = None
        try:
            slot.cell.settle(_publisher(held.call, tool))
        except ContextRefused as error:
            fault = error
        if held.is_named and slot.cell.data != slot.stored:
            with anyio.move_on_after(SAVING_SECONDS, shield=True) as saving:  # also of a call that was cancelled
                async with slot.turn:
                    try:
                        await self._put(slot, held.run, tool)
                    except StoreFailed as error:  # what the handler did is done: its result stands
                        log.warning("a context could not be stored", tool=tool, reason=str(error))
            if saving.cancelled_caught:
                log.warning("a context could not be stored", tool=tool, reason="the store does not answer")
        if fault is not None and is_failing:
            log.warning("a handler that failed left an invalid context", tool=tool, reason=str(fault))
        elif fault is not None:
            raise fault

    async def _put(self, slot: Slot, run: RunName, tool: str) -> None:
        data = slot.cell.data
        if self._store is not None and data != slot.stored:
            await self._store.put(_KIND, data, principal=run.principal, expires_in=LIFETIME, handle=run.handle(tool))
            slot.stored = data
