"""`Context[T]`: what a handler gets that keeps something over the calls of a run, beside all that a call has.

    async def search(context: Context[Prefs], query: str) -> str:
        context.update(last_query=query)

A run is what the client or the program names (`run=`). Each tool has one value a run (`context.value`), all tools
together another (`context.shared`). They last over the turns of the run, in the store, bound to who calls; calls side
by side see each other's changes at once. Calls of no run that was named keep theirs for as long as they take.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Generic

from msgspec import UNSET, Struct
from typing_extensions import TypeVar

from mcpbridge.backends.context_shapes import Shape
from mcpbridge.backends.context_values import Cell, RunValue, Shared
from mcpbridge.context import CallContext, CallEvents, Session
from mcpbridge.events import EventBus

__all__ = ["Context", "Init", "Keeps", "Shared", "context_in"]

T = TypeVar("T", default=dict[str, Any])
V = TypeVar("V")

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
    All methods may be called from any thread. Each change is told as the event `context.updated` at once, with
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
        once, and it is kept and told when the call ends; with `set` and `update` everybody is told now.

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
