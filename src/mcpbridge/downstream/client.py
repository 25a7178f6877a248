"""What the bridge knows of one client, and how it reaches it.

Each front (stdio, HTTP) makes one `Client` for each legacy session, and one for each modern request, since a modern
request declares everything anew (MCP 2026-07-28, `_meta` envelope). What lasts over the requests of a modern client
is found again in `sessions.py`. `ResourceSubscription` is a subscription of a client at the server that owns the
resource.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from msgspec import Raw, Struct, field

from mcpbridge.core.context import Session
from mcpbridge.core.elicitation import NO_CAPABILITIES, ClientCapabilities, Elicitor
from mcpbridge.core.identity import Identity, application_of
from mcpbridge.downstream.sessions import Sessions
from mcpbridge.protocol.jsonrpc import Frame
from mcpbridge.protocol.payload import Pieces
from mcpbridge.upstream.session.subscriptions import Wanted


class ResourceSubscription(Struct, eq=False):
    """Counts as a subscriber from the moment that it is made until `end`."""

    wanted: Wanted | None
    """Of the server; None: nobody announces changes."""
    uri: str
    """As the server has it."""
    waiting: int = 0
    """Requests that wait in `begun`."""
    is_held: bool = False
    """One of them was answered, so the subscriber counts on it."""

    def __post_init__(self) -> None:
        if self.wanted is not None:
            self.wanted.subscribe(self.uri)

    async def begun(self) -> None:
        """Return when the server has taken the subscription, or takes too long to.

        Where the request is withdrawn meanwhile, `is_wanted` says whether the subscription is still of use.
        """
        self.waiting += 1
        try:
            if self.wanted is not None:
                await self.wanted.follows(self.uri)
            self.is_held = True
        finally:
            self.waiting -= 1

    @property
    def is_wanted(self) -> bool:
        """A request for it was answered, or waits."""
        return self.is_held or self.waiting > 0

    def end(self) -> None:
        """One subscriber less."""
        if self.wanted is not None:
            self.wanted.unsubscribe(self.uri)


LONGEST_NAME = 200
"""Characters of a client's name that count: it is kept in many places, and clients choose it."""

Notify = Callable[[bytes], object]
"""Takes one whole JSON-RPC message towards the client, at once.

Returns False when the message has no way to the client (it reads no streams, it is gone, it takes nothing) and was
dropped; anything else when it is on its way.
"""


def _nowhere(_: bytes) -> bool:
    """The way to a client that has no channel for unsolicited messages."""
    return False


class Requests(Protocol):
    """The bridge's own requests to one client."""

    async def request(self, method: str, params: bytes | Raw, notify: Notify, *, seconds: float | None = None) -> Raw:
        """Send one through `notify`; returns the result. Raises QuestionRefused; after `seconds`, if that is sooner."""
        ...

    @property
    def is_open(self) -> bool:
        """Some of them wait for their answers."""
        ...

    def answered(self, frame: Frame) -> bool:
        """Take an answer of the client; False when it answers nothing."""
        ...

    def end(self) -> None:
        """The client is gone, or says nothing more."""
        ...


class Client(Struct, eq=False):
    """One client: a legacy session for its whole life, or the sender of one modern request."""

    principal: str = ""
    """Who the front authenticated; empty for the local user."""
    view: str = ""
    """Name of the one server that this client's endpoint shows, by its own names; empty: all servers, merged."""
    profile_name: str = ""
    """The profile of `[profiles]` whose endpoint it came to; empty: another endpoint."""
    modern: bool = False
    version: str = ""
    """The negotiated protocol revision; empty before `initialize`."""
    info: dict[str, Any] = field(default_factory=dict[str, Any])
    """`clientInfo` as declared; for logs and quirks, never for permission. Set by `introduce`."""
    declared_capabilities: dict[str, Any] = field(default_factory=dict[str, Any])
    """As it sent them."""
    log_level: str = ""
    """The least severe level wanted (`logging/setLevel`, or the request's `logLevel`); empty: none asked for."""
    push: Notify = _nowhere
    """Sends a message outside any request: stdout, or the session's GET stream. Legacy only."""
    runs_tasks: bool = False
    """Legacy: it learned that it may call tools as tasks (2025-11-25)."""
    is_guest: bool = False
    """Legacy: its session is at another bridge of the fleet, and this bridge has one request of it."""
    is_handed_on: bool = False
    """Legacy: another bridge has its session now, or gets it when it asks. One that comes back has another client."""
    initialized: bool = False
    """The client has sent `notifications/initialized`: from then on it may be sent unsolicited messages."""
    capabilities: ClientCapabilities = NO_CAPABILITIES
    """What it can be asked."""
    bystander: Elicitor | None = None
    """Legacy: the same for all its calls, if it can be asked nothing."""
    requests: Requests | None = None
    """The bridge's own requests to it. Legacy only, once it has initialized."""
    channel: object = None
    """Modern: the connection whose requests share it, if it is one client's alone (stdio, WebSocket)."""
    started_in: str = ""
    """URI of the directory that it was started in, as its front learned; empty: the front knows of none."""
    project: str | None = None
    """URI of the directory that it works in, as it said itself; None when it was not asked yet."""
    projects: tuple[str, ...] | None = None
    """Directories below which what it says of its project counts; None: anywhere, it is a program of this user."""
    project_again_at: float = 0.0
    """Loop time before which it is not asked again: it gave no answer."""
    asking_project: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while it is asked for that directory: one question is enough for several calls."""
    elicitations: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """URL questions that it was asked (2025-11-25): server and id, to be notified when they are done."""
    param_headers: Mapping[str, str] | None = None
    """Modern: the `Mcp-Param-*` headers of the request, by lower-case name; None where a channel has no headers."""
    subscriptions: dict[str, ResourceSubscription] = field(default_factory=dict[str, ResourceSubscription])
    """Resources that it subscribed to (legacy), by URI in the client's spelling."""
    conversation: str = ""
    """Modern, over HTTP: which of its conversations a request belongs to, as it says. Legacy: the session's id."""
    sessions: Sessions | None = None
    """Modern: where the session of one without a channel is found again."""
    activated: tuple[str, ...] = ()
    """Legacy: ids of tools that its searches found, which it is listed from then on (`expose.activate`)."""
    front: str = ""
    """How it came: `stdio`, `http`, `websocket`, `sse`, or `program` for one in this process."""
    address: str = ""
    """The IP address that it has, as far as that is known (`http.trusted_proxies`); empty: it came over no network."""
    hang_up: Callable[[str], object] | None = None
    """Ends its session or connection, for this reason; None: nobody but the client ends it."""
    has_role: bool = False
    """It had a role when that was looked at last, or needed none."""
    cached_session: Session | None = None
    """See `session`; made when somebody asks for it."""
    name: str = ""
    """`clientInfo.name`, as the client declared it, up to `LONGEST_NAME`. Read several times in each call."""
    identity: Identity | None = None
    """What the token of its latest request says; None: the local user, or an entry of `http.tokens`."""
    cached_caller: "TokenCaller | None" = None
    """See `caller`; of the latest token."""

    def __post_init__(self) -> None:
        if self.info:
            self.introduce(self.info)

    def introduce(self, info: dict[str, Any]) -> None:
        """It declares this `clientInfo`."""
        name: object = info.get("name", "")
        self.info, self.name = info, name[:LONGEST_NAME] if isinstance(name, str) else ""

    @property
    def known_project(self) -> str:
        """URI of the directory that it works in, as far as that is known without asking; what it said itself counts."""
        if self.project:
            return self.project
        if not self.started_in and isinstance(self.channel, Client):
            return self.channel.started_in
        return self.started_in

    @property
    def caller(self) -> "Client | TokenCaller":
        """Whose the call is that it makes now. A later request may come with another token; the call has this one."""
        if self.identity is None or self.modern:
            return self  # nothing changes: there is no token, or the request has a client of its own
        known = self.cached_caller
        if known is None or known.identity is not self.identity or known.address != self.address:
            known = self.cached_caller = TokenCaller(
                self,
                self.principal,
                self.identity,
                self.name,
                self.version,
                self.view,
                self.profile_name,
                self.session,
                self.address,
                self.info,
            )
        return known

    @property
    def session(self) -> Session:
        """What lasts over its calls."""
        if self.cached_session is None:
            if isinstance(self.channel, Client):
                self.cached_session = self.channel.cached_session or Session(self.principal, self.name)
                self.channel.cached_session = self.cached_session
            elif self.sessions is not None:
                self.cached_session = self.sessions.of(
                    self.principal, self.name, self.conversation, application=application_of(self.identity), by=self
                )
            else:
                self.cached_session = Session(self.principal, self.name, name=self.conversation)
        return self.cached_session


class TokenCaller(Struct, frozen=True, eq=False):
    """A legacy client with the token that one of its requests came with. See `Caller`."""

    client: Client
    principal: str
    identity: Identity
    name: str
    version: str
    view: str
    profile_name: str
    session: Session
    address: str
    info: Mapping[str, Any]


def client_behind(caller: object) -> Client | None:
    """The client whose call it is; None: it is a program's in this process."""
    if isinstance(caller, TokenCaller):
        return caller.client
    return caller if isinstance(caller, Client) else None


class Answer(Struct, frozen=True):
    """The answer to one request: a whole JSON-RPC message, and its error code (0 for a result)."""

    data: bytes | Pieces
    code: int = 0
    scopes: frozenset[str] = frozenset()
    """All that a token must have for this, where the client's lacks some: over HTTP the answer is 403."""
