"""`Context[T]`: what a handler gets that keeps something over the calls of a run, beside all that a call has.

    async def search(context: Context[Prefs], query: str) -> str:
        context.update(last_query=query)

A run is what the client or the program names (`run=`). Each tool has one value a run (`context.value`), all tools
together another (`context.shared`). They last over the turns of the run, in the store, bound to who calls; calls side
by side see each other's changes at once. Calls of no run that was named keep theirs for as long as they take.

A value that is set is copied by way of JSON, so everybody reads what later turns will read. Calls side by side share
that copy: changes made to it in place are seen by them at once, and are noticed when a call ends. Methods may be called
from any thread.
"""

import asyncio
import base64
import hashlib
import threading
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType, TracebackType
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct
from typing_extensions import TypeVar as TypeVarWithDefault

from mcpbridge.base.errors import ContextRefused
from mcpbridge.core.context import CallContext, CallEvents, Session
from mcpbridge.core.events import EventBus
from mcpbridge.tools.python.run_context.value_types import Misfit, Shape

MOST_BYTES = 1024**2
"""Bytes that one context may take as JSON."""

OnChange = Callable[[bytes], None]
"""Is given the JSON of what a value became."""

ValueT = TypeVar("ValueT")
V = TypeVar("V")


class Cell:
    """One value and its JSON. Its methods may be called from any thread."""

    def __init__(self, shape: Shape, where: str) -> None:
        """`where`: what errors call it."""
        self.shape, self.where = shape, where
        self.value: Any = UNSET
        self.data = b""
        """JSON of the value as it was last put in; empty: there is none."""
        self._lock = threading.RLock()

    def read(self, data: bytes) -> None:
        """Fill it with what was written down. Raises Misfit."""
        self.value, self.data = self.shape.read(data), data

    def fill(self, value: object) -> None:
        """Fill it at first; nobody is notified. UNSET leaves it empty. Raises ContextRefused."""
        if value is not UNSET:
            with self._lock:
                self._put(value, self.shape, None)

    def seen_as(self, shape: Shape) -> Any:
        """The value; of another shape: a copy as that. UNSET: there is none. Raises ContextRefused: it does not fit."""
        with self._lock:
            if self.value is UNSET or shape.kind == self.shape.kind:
                return self.value
            try:
                return shape.read(self.shape.written(self.value))
            except Misfit as error:
                raise ContextRefused(self.where, str(error)) from error

    def put(self, value: object, shape: Shape, on_change: OnChange | None) -> None:
        """Take a value of a shape in place of the one that is there. Raises ContextRefused."""
        with self._lock:
            self._put(value, shape, on_change)

    def change(self, changes: dict[str, object], shape: Shape, on_change: OnChange | None) -> None:
        """Change fields of the value that is there. Raises ContextRefused."""
        with self._lock:
            try:
                changed = shape.merged(self.seen_as(shape), changes)
            except Misfit as error:
                raise ContextRefused(self.where, str(error)) from error
            self._put(changed, shape, on_change)

    def settle(self, on_change: OnChange | None) -> None:
        """Notice what was changed in place.

        Raises:
            ContextRefused: that does not fit; the value is again what was last put in.
        """
        with self._lock:
            if self.value is UNSET:
                return
            try:
                data = self.shape.written(self.value)
                if data != self.data:
                    self.shape.read(data)
                    self._check_size(data)
            except (Misfit, ContextRefused) as error:
                self.read(self.data)
                raise error if isinstance(error, ContextRefused) else ContextRefused(self.where, str(error)) from error
            if data != self.data:
                self.data = data
                if on_change is not None:
                    on_change(data)

    def _put(self, value: object, shape: Shape, on_change: OnChange | None) -> None:
        try:
            data = shape.written(value)
            if shape.kind != self.shape.kind:
                shape.read(data)
                data = self._with(data)
            found = self.shape.read(data)
        except Misfit as error:
            raise ContextRefused(self.where, str(error)) from error
        self._check_size(data)
        self.value, self.data = found, data
        if on_change is not None:
            on_change(data)

    def _with(self, part: bytes) -> bytes:
        """The JSON of the value with these members among its own."""
        if self.value is UNSET:
            return part
        try:
            whole = _members_of(self.shape.written(self.value))
            return msgspec.json.encode({**whole, **_members_of(part)})
        except msgspec.ValidationError:  # one of them is no object
            return part

    def _check_size(self, data: bytes) -> None:
        if len(data) > MOST_BYTES:
            raise ContextRefused(self.where, f"{len(data):,} bytes are more than the {MOST_BYTES:,} that it may take")


_members_of = msgspec.json.Decoder(dict[str, Raw]).decode


class RunValue(Generic[ValueT]):
    """A value of a run, as one call sees it. From any thread."""

    __slots__ = ("_cell", "_is_over", "_on_change", "_shape")

    def __init__(self, cell: Cell, shape: Shape | None = None, on_change: OnChange | None = None) -> None:
        """`shape`: what it is seen as; left out: as what it is. `on_change`: hears of every change."""
        self._cell, self._shape, self._on_change = cell, shape or cell.shape, on_change
        self._is_over = False

    @property
    def is_set(self) -> bool:
        """There is a value: one was set, an initialiser gave one, or the type has defaults for everything."""
        return self._cell.value is not UNSET

    @property
    def value(self) -> ValueT:
        """What it is now.

        Raises:
            ContextRefused: there is none yet, and its type has no defaults.
        """
        found = self._cell.seen_as(self._shape)
        if found is UNSET:
            raise ContextRefused(self._cell.where, "there is no value yet. Set one first, or give it an initialiser")
        return found

    def set(self, value: ValueT) -> None:
        """Take a copy of this value, for all calls of the run, at once.

        Raises:
            ContextRefused: it does not fit, is too large, or the call is over.
        """
        self._check_open()
        self._cell.put(value, self._shape, self._on_change)

    def update(self, /, **changes: Any) -> None:
        """Change some fields and leave the others as they are; no other change comes in between. Raises as `set`."""
        self._check_open()
        self._cell.change(changes, self._shape, self._on_change)

    def attach(self, cell: Cell) -> None:
        """From now on it is this cell that it shows, as what that is."""
        self._cell, self._shape = cell, cell.shape

    def end(self) -> None:
        """The call is over: code that it left behind changes nothing any more."""
        self._is_over = True

    @property
    def is_over(self) -> bool:
        """The call has ended: nothing can be set any more."""
        return self._is_over

    def _check_open(self) -> None:
        if self.is_over:
            raise ContextRefused(
                self._cell.where, "the call is over, so this would be lost. Set it while the call runs"
            )


class Shared(RunValue[ValueT]):
    """What all tools of a run have in common."""

    __slots__ = ("_whole",)

    def __init__(
        self,
        cell: Cell,
        shape: Shape | None = None,
        on_change: OnChange | None = None,
        *,
        whole: "Shared[Any] | None" = None,
    ) -> None:
        """`whole`: what this is a view of. The rest is as for `RunValue`."""
        super().__init__(cell, shape, on_change)
        self._whole = whole

    def of(self, kind: type[V]) -> "Shared[V]":
        """The same, seen as another type: as that given to `Bridge.open(shared=...)`, for type checkers, or as a part.

        A part has some of the members: the others stay as they are when it is set. The value of a type other than the
        bridge's is a copy, so it is to be set to be changed.

        Raises:
            ContextRefused: values cannot be checked by that type.
        """
        try:
            shape = Shape(kind)
        except Misfit as error:
            raise ContextRefused(self._cell.where, str(error)) from error
        return Shared(self._cell, shape, self._on_change, whole=self._whole or self)

    @property
    def is_over(self) -> bool:
        """See `RunValue`."""
        return self._is_over or (self._whole is not None and self._whole.is_over)


T = TypeVarWithDefault("T", default=dict[str, Any])

Init = Callable[[CallContext], Any]
"""Makes the first value of a run; sync or async. Calls of the run wait for it, so it must make none of them itself."""

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Keeps(Struct, frozen=True):
    """What is known of a context before any call."""

    shape: Shape
    init: Init | None = None
    """None: the type's own defaults."""


class Context(CallContext, Generic[T], kw_only=True, eq=False):
    """All of a `CallContext`, and what this tool keeps over the calls of the run: a value of type `T`.

    `T` is a model, dataclass, typed dict, struct or other type with a schema; left out, it is a dict of JSON values.
    All methods may be called from any thread. Each change is announced as the event `context.updated` at once, with
    `{"tool": its id, "value": the JSON value}`; of what all tools share, with the tool `""`.
    """

    own: RunValue[Any]
    """Where `value` is kept."""
    shared: Shared[Any]
    """What all tools of the run have in common: a value of the type that `Bridge.open(shared=...)` names, or a dict."""

    @property
    def value(self) -> T:
        """What this tool keeps: as last set, else what its initialiser gave, else the type's defaults.

        It is the same object for all calls of the run that are under way. What is changed in it in place they see at
        once, and it is kept and announced when the call ends; with `set` and `update` it is announced now.

        Raises:
            ContextRefused: there is none yet, and its type has no defaults; see `is_set`.
        """
        return self.own.value

    @property
    def is_set(self) -> bool:
        """There is a value."""
        return self.own.is_set

    def set(self, value: T) -> None:
        """Keep a copy of this value.

        Raises:
            ContextRefused: it does not fit the type, is too large, or the call is over.
        """
        self.own.set(value)

    def set_context(self, value: T) -> None:
        """The same as `set`."""
        self.own.set(value)

    def update(self, /, **changes: Any) -> None:
        """Change some fields and leave the others; what calls side by side change does not get lost.

        Raises:
            ContextRefused: as for `set`, or there is no such field.
        """
        self.own.update(**changes)

    def end(self) -> None:
        """The call is over: code that it left behind changes nothing any more."""
        self.own.end()
        self.shared.end()

    @staticmethod
    def of(
        value: V,
        *,
        shared: object = UNSET,
        run: str = "run",
        user: str = "",
        tenant: str = "",
        metadata: Mapping[str, Any] = _NOTHING,
        dependencies: Mapping[str, Any] = _NOTHING,
        events: EventBus | None = None,
    ) -> "Context[V]":
        """A context of no call, to try a handler with: `search("x", Context.of(Prefs()))`.

        `shared`: what `context.shared` begins with; left out, `{}`. `events` hears of what the handler publishes, but
        not of changes.

        Raises:
            ContextRefused: a value has no type that it could be checked by.
        """
        own, common = _cell(value, "the context"), _cell({} if shared is UNSET else shared, "the shared context")
        session = Session(user)
        told = CallEvents(events or EventBus(), run, session.id, "")
        call = CallContext(run, session, user, tenant, metadata, dependencies, told)
        return context_in(call, RunValue(own), Shared(common))


def _cell(value: object, where: str) -> Cell:
    cell = Cell(Shape(type(value)), where)
    cell.fill(value)
    return cell


def context_in(call: CallContext, own: RunValue[Any], shared: Shared[Any]) -> Context[Any]:
    """A call's context with these values."""
    return Context(
        call.run,
        call.session,
        call.user,
        call.tenant,
        call.metadata,
        call.dependencies,
        call.events,
        call.cancellation,
        own=own,
        shared=shared,
    )


class RunName(Struct, frozen=True):
    """Which run it is: others may call theirs the same."""

    principal: str
    tenant: str
    run: str

    def handle(self, tool: str) -> str:
        """Under which the value of a tool is in the store; `tool` empty: the shared one."""
        named = msgspec.json.encode([self.tenant, self.run, tool])
        return base64.b32encode(hashlib.sha256(named).digest()[:16]).decode().rstrip("=").lower()


Key = tuple[RunName, str]
"""A run, and the id of the tool; empty: what all tools share."""


class Slot:
    """A value in memory, and what calls of the run do with it."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.users = 0
        self.stored = b""
        """What the store has, or need not have."""
        self.turn = asyncio.Lock()
        """Of who reads or writes the store, or runs the initialiser."""
        self.is_loaded = False
        self._failures = 0
        self._failure: tuple[BaseException, TracebackType | None] | None = None
        """Why it could not be made when it was last tried."""

    async def load(self, fill: Callable[[], Awaitable[None]]) -> None:
        """Read or make the value, once for all that wait for it; those share the failure, the next one tries again."""
        seen = self._failures
        async with self.turn:
            if self.is_loaded:
                return
            if self._failure is not None and self._failures > seen:
                error, trace = self._failure
                raise error.with_traceback(trace)
            try:
                await fill()
            except (Exception, SystemExit) as error:
                self._failure, self._failures = (error, error.__traceback__), self._failures + 1
                raise
            self.is_loaded = True

    def end(self) -> None:
        """Nobody uses it any more."""
        self._failure = None  # no cycle of the error, its traceback and this


class Slots:
    """The values that have users, by key."""

    def __init__(self) -> None:
        self._slots: dict[Key, Slot] = {}

    def get(self, key: Key) -> Slot | None:
        """The value, if it has users and is there."""
        slot = self._slots.get(key)
        return slot if slot is not None and slot.is_loaded else None

    def attach(self, key: Key, shape: Shape) -> Slot:
        """Use a value, which may have to be loaded."""
        slot = self._slots.get(key)
        if slot is None or slot.cell.shape.kind != shape.kind:  # another kind: the tool was replaced during a call
            where = f"the context of {key[1]}" if key[1] else "the shared context"
            slot = self._slots[key] = Slot(Cell(shape, where))
        slot.users += 1
        return slot

    def let_go(self, key: Key, slot: Slot) -> None:
        """Use it no more."""
        slot.users -= 1
        if not slot.users:
            slot.end()
            if self._slots.get(key) is slot:
                del self._slots[key]
