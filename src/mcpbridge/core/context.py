"""The context of a call: whose it is, the run and the client it belongs to, and who listens.

A call gets its context when somebody first asks for it (`Call.context`); until then it costs nothing. What clients
write about themselves in `_meta` is their claim. Only the principal, and a tenant fixed by a token, are proved.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, TypeVar, cast
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct, field

from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.core.elicitation import NOBODY, Elicitor
from mcpbridge.core.events import EventBus
from mcpbridge.core.jobs import Jobs
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import decode_text
from mcpbridge.protocol.meta import CONTEXT, RUN

_LONGEST = 200
"""Characters of a name that a client gives; what is longer counts as none."""

T = TypeVar("T")

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Session(Struct, eq=False, weakref=True):
    """What lasts over the calls of one client: a legacy session, a modern channel, or who the requests are of."""

    principal: str = ""
    """Who was authenticated; empty for the local user."""
    client: str = ""
    """`clientInfo.name`, as the client declared it."""
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    state: dict[str, Any] = field(default_factory=dict[str, Any])
    """For hooks and local tools; the bridge itself keeps nothing in it."""
    run: str = ""
    """The run of the program that it is for, if it is for one alone."""
    program: object = None
    """The program as the client of this session, where it answers questions: it lives as long as the session."""
    name: str = ""
    """The same in all bridges of a fleet, for what they count together; empty: no other one has this session."""


class Cancellation:
    """Says that nobody wants the outcome of a call any more."""

    __slots__ = ("_event", "is_cancelled")

    def __init__(self) -> None:
        self.is_cancelled = False
        """May be read from any thread."""
        self._event: asyncio.Event | None = None

    async def wait(self) -> None:
        """Return when it is cancelled."""
        if self.is_cancelled:
            return
        self._event = self._event or asyncio.Event()
        await self._event.wait()

    def cancel(self) -> None:
        """It is not wanted any more. On the event loop."""
        self.is_cancelled = True
        if self._event is not None:
            self._event.set()


class Listed(Protocol):
    """What is known of a value of the store without reading it; see `Entry`, which is one."""

    @property
    def label(self) -> bytes: ...  # noqa: D102 - as in `Entry`
    @property
    def size(self) -> int: ...  # noqa: D102 - as in `Entry`


class Keeping(Protocol):
    """The part of the store that tools of the program's own need; see `Store`, which is one."""

    async def put(  # noqa: D102 - as in `Store`
        self, kind: str, body: bytes, *, principal: str, expires_in: float, handle: str = "", label: bytes = b""
    ) -> str: ...
    async def get(  # noqa: D102 - as in `Store`
        self, kind: str, handle: str, *, principal: str, renew: float | None = None
    ) -> bytes | None: ...
    async def take(self, kind: str, handle: str, *, principal: str) -> bytes | None: ...  # noqa: D102 - as in `Store`
    async def drop(self, kind: str, handle: str, *, principal: str) -> bool: ...  # noqa: D102 - as in `Store`
    async def entries(self, kind: str, *, principal: str | None) -> Sequence[Listed]: ...  # noqa: D102 - as in `Store`


class Pauses:
    """What this process knows of calls that wait for an answer from outside; the calls themselves are in the store."""

    __slots__ = ("resuming", "sessions")

    def __init__(self) -> None:
        self.resuming = Jobs[Any]()
        """The calls that the program goes on with right now, by a key that nobody else knows."""
        self.sessions: WeakValueDictionary[str, Session] = WeakValueDictionary()
        """The sessions of calls that were paused here, by id, as long as they last."""


class RunContexts(Protocol):
    """Keeps what handlers keep over the calls of a run: `RunContexts` of `backends`, where alone it is used."""

    def during(self, held: Any, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """What `work` returns, with the values of `held` (a `Held`) read before it and kept after it."""
        ...


class BridgeContext(Struct, frozen=True):
    """What is the same for all calls of one bridge."""

    dependencies: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    """What the program gave: `Bridge(dependencies=...)`."""
    events: EventBus = field(default_factory=EventBus)
    tenants: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    """Tenant by principal, where a token fixes it."""
    store: Keeping | None = None
    """What outlives a call; None outside of any bridge."""
    pauses: Pauses = field(default_factory=Pauses)
    """Calls that are gone on with."""
    contexts: RunContexts | None = None
    """What handlers keep over the calls of a run; None outside of any bridge: then it lasts as long as the call."""
    redact: Callable[[str], str] = Redactor()
    """Masks secrets in reports of failures."""


NOWHERE = BridgeContext()
"""Of calls that are made outside of any bridge."""


class CallEvents(Struct, frozen=True):
    """Publishes in the name of one call."""

    bus: EventBus
    run: str
    session: str
    tool: str
    principal: str = ""
    tenant: str = ""

    def publish(self, name: str, data: object = None) -> None:
        """Notify everybody who listens to `Bridge.events`, from any thread."""
        self.bus.publish(
            name,
            data,
            run=self.run,
            session=self.session,
            tool=self.tool,
            principal=self.principal,
            tenant=self.tenant,
        )


class CallContext(Struct, eq=False):
    """What hooks, rules with conditions and local tools may know of a call beside its arguments."""

    run: str
    """The run that it belongs to: as the client names it, else made for this call alone."""
    session: Session
    user: str
    """Who was authenticated; for the local user what the client or the program says, or empty."""
    tenant: str
    """As the caller's token fixes it, else as the client says; or empty."""
    metadata: Mapping[str, Any]
    """As the client says."""
    dependencies: Mapping[str, Any]
    """What the program gave: `Bridge(dependencies=...)`."""
    events: CallEvents
    cancellation: Cancellation = field(default_factory=Cancellation)
    client: Elicitor = NOBODY
    """Who can be asked meanwhile: `SamplingModel(context)` asks its model."""

    @property
    def state(self) -> dict[str, Any]:
        """What hooks and local tools keep over the calls of one session."""
        return self.session.state

    @property
    def cancelled(self) -> bool:
        """Nobody wants the outcome any more; `cancellation.wait()` waits for that."""
        return self.cancellation.is_cancelled


class _ClaimedContext(msgspec.Struct):
    tenant: Any = ""
    user: Any = ""
    metadata: Any = None


_decode_claims = msgspec.json.Decoder(_ClaimedContext).decode


def new_run() -> str:
    """A run id that no other call has."""
    return secrets.token_hex(8)


def run_of(meta: Body | None) -> str:
    """The run that a request's `_meta` names; empty when it names none."""
    return text_in(meta, RUN)


def context_of(meta: Body | None, session: Session, tool: str, around: BridgeContext) -> CallContext:
    """The context of a call: what its `_meta` says, as far as it can be read, and what surrounds it."""
    claims = _claimed_context(meta)
    user = session.principal or short(claims.user)
    tenant = (around.tenants.get(session.principal, "") if session.principal else "") or short(claims.tenant)
    claimed: object = claims.metadata
    metadata = MappingProxyType(cast("dict[str, Any]", claimed)) if isinstance(claimed, dict) else _NOTHING
    run = run_of(meta) or new_run()
    events = CallEvents(around.events, run, session.id, tool, session.principal, tenant)
    return CallContext(run, session, user, tenant, metadata, around.dependencies, events)


def _claimed_context(meta: Body | None) -> _ClaimedContext:
    """What the client says of itself; what has the wrong shape is left out."""
    try:
        raw = meta.get(CONTEXT) if meta is not None else None
        return _decode_claims(raw) if raw is not None else _ClaimedContext()
    except (msgspec.DecodeError, RecursionError):
        return _ClaimedContext()


def text_in(meta: Body | None, key: str) -> str:
    """A name in a request's `_meta`; empty when there is none, or none of a sensible length."""
    try:
        raw = meta.get(key) if meta is not None else None
        return short(decode_text(raw)) if raw is not None else ""
    except (msgspec.DecodeError, RecursionError):
        return ""


def short(value: object) -> str:
    """A name that a client gives; empty if it is none, or too long for one."""
    return value if isinstance(value, str) and len(value) <= _LONGEST else ""
