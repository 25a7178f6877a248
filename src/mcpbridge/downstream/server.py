"""The server that clients see: MCP requests to the view, the pipeline, or an answer of its own.

One `Server` for all clients and both eras. A front decodes messages and hands them in; whatever goes wrong
becomes an answer in `errors_to_wire`, the one place for that.
"""

import asyncio
from typing import Any
from weakref import WeakSet

import msgspec
import structlog
from msgspec import Raw

from mcpbridge.catalog.refresh import Catalog
from mcpbridge.catalog.snapshot import Snapshot
from mcpbridge.downstream.calls import Calls
from mcpbridge.downstream.channel import Answer, Client, Notify
from mcpbridge.downstream.errors_to_wire import to_answer
from mcpbridge.downstream.handling import EMPTY, Handler, Startup, text
from mcpbridge.downstream.listeners import Listeners, covers
from mcpbridge.downstream.updates import LEVELS
from mcpbridge.downstream.watching import Watching
from mcpbridge.errors import BadRequest
from mcpbridge.model import Plan
from mcpbridge.upstream.pool import Pool
from mcpbridge.upstream.supervisor import Upstream
from mcpbridge.wire.body import Body
from mcpbridge.wire.codes import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND
from mcpbridge.wire.frame import Frame, encode, encode_response
from mcpbridge.wire.peer import cancelled_id
from mcpbridge.wire.revisions import LEGACY, MODERN, negotiate

__all__ = ["Identity", "Server"]

log = structlog.get_logger("mcpbridge.server")


class Identity(msgspec.Struct, frozen=True):
    """How the bridge presents itself."""

    name: str
    version: str
    instructions: str


class _InitializeParams(msgspec.Struct, rename="camel"):
    protocol_version: str
    capabilities: dict[str, object] = {}
    client_info: dict[str, object] = {}


_decode_initialize = msgspec.json.Decoder(_InitializeParams).decode


class Server:
    """Answers the requests of all clients."""

    def __init__(self, identity: Identity, catalog: Catalog, pool: Pool, plan: Plan, startup: Startup) -> None:
        self._identity = identity
        self._catalog = catalog
        self._pool = pool
        self._server_info = encode({"name": identity.name, "version": identity.version})
        self._running: dict[Client, dict[bytes, asyncio.Task[Any]]] = {}
        self._withdrawn: WeakSet[asyncio.Task[Any]] = WeakSet()
        self.listeners = Listeners()
        calls = Calls(catalog, pool, plan, self._server_info, startup)
        both = calls.handlers
        self._watching = Watching(calls, pool, self.listeners)
        self._legacy: dict[str, Handler] = {
            **both,
            **self._watching.legacy,
            "initialize": self._initialize,
            "ping": self._ping,
            "logging/setLevel": self._set_level,
        }
        self._modern: dict[str, Handler] = {**both, **self._watching.modern, "server/discover": self._discover}
        catalog.on_change(self._changed)

    # -- for the fronts

    def open(self, client: Client) -> None:
        """A legacy session begins: it may be sent unsolicited messages."""
        self.listeners.clients.add(client)

    def close(self, client: Client) -> None:
        """A client is gone: what it has under way is cancelled upstream, its subscriptions are dropped."""
        self.listeners.clients.discard(client)
        for task in list(self._running.pop(client, {}).values()):
            task.cancel()
        self._watching.forget(client)
        self._spread_log_level()

    async def answer(self, client: Client, frame: Frame, notify: Notify, *, cancel_as: Client | None = None) -> Answer:
        """Answer one request. `notify` gets what belongs to it meanwhile. Cancel this task to cancel the call.

        `cancel_as` is whose `notifications/cancelled` may name this request: on a channel with one space of ids, the
        channel's client; else `client` itself. An empty answer means that there is nothing to send: the request
        was cancelled by that notification.
        """
        id_ = bytes(frame.id)
        if id_[:1] not in _ID_STARTS:
            return to_answer(
                BadRequest(INVALID_REQUEST, "The id must be a string or a number"), b"null", "", modern=False
            )
        task = asyncio.current_task()
        owner = cancel_as or client
        running = self._running.get(owner)
        if running is None:
            running = self._running[owner] = {}
        if task is None or id_ in running:
            error = BadRequest(INVALID_REQUEST, "A request with this id is still being answered; ids must be unique")
            return to_answer(error, id_, frame.method, modern=client.modern)
        running[id_] = task
        try:
            handler = (self._modern if client.modern else self._legacy).get(frame.method)
            if handler is None:
                raise self._unknown_method(client, frame.method)
            if not client.version and frame.method not in ("initialize", "ping"):
                raise BadRequest(INVALID_REQUEST, _NOT_INITIALIZED)
            return Answer(encode_response(id_, await handler(client, frame, notify)))
        except asyncio.CancelledError:
            if task not in self._withdrawn:
                raise
            self._withdrawn.discard(task)
            task.uncancel()
            return Answer(b"")
        except (msgspec.DecodeError, RecursionError) as error:
            return to_answer(BadRequest(INVALID_PARAMS, f"Invalid params: {error}"), id_, "", modern=client.modern)
        except Exception as error:  # noqa: BLE001 - the error-to-wire boundary: every failure becomes an answer
            return to_answer(error, id_, frame.method, modern=client.modern)
        finally:
            running.pop(id_, None)
            if not running and self._running.get(owner) is running:
                del self._running[owner]

    def notification(self, client: Client, frame: Frame) -> None:
        """Take a notification of a client."""
        if frame.method == "notifications/initialized":
            client.initialized = True
        elif frame.method == "notifications/cancelled":
            self._cancel(client, frame)

    @property
    def clients(self) -> int:
        """Open sessions and listen streams."""
        return len(self.listeners.clients) + len(self.listeners.listens)

    # -- for the upstreams

    def resource_updated(self, upstream: Upstream, params: Raw) -> None:
        """A resource of an upstream has changed."""
        try:
            uri = Body(params).text("uri")
        except (msgspec.DecodeError, KeyError):
            return
        published = self._catalog.snapshot.published_uri(upstream.name, uri)
        self.listeners.resource_updated(params, published, covers)

    def logged(self, upstream: Upstream, params: Raw) -> None:
        """An upstream logged something that belongs to no single call.

        It may be of somebody's call all the same, and tell of it. So it goes to the session that asked for its level
        only while there is no other client whose it could be (spec 2.8: only if attributable).
        """
        if len(self.listeners.clients) == 1 and self._running.keys() <= self.listeners.clients:
            self.listeners.logged(upstream.name, params)

    def _changed(self, snapshot: Snapshot, kinds: frozenset[str]) -> None:
        lists = {"resources" if kind == "templates" else kind for kind in kinds}
        for kind in sorted(lists):
            self.listeners.list_changed(kind)

    # -- opening

    async def _initialize(self, client: Client, frame: Frame, notify: Notify) -> bytes:
        params = _decode_initialize(frame.params)
        if params.protocol_version in MODERN:
            log.info("client offers a modern revision in a handshake; answering with the newest legacy one")
        client.version = negotiate(params.protocol_version)
        client.info, client.capabilities = params.client_info, params.capabilities
        log.info("client initialized", client=str(params.client_info.get("name"))[:100], revision=client.version)
        return encode(
            {
                "protocolVersion": client.version,
                "capabilities": _CAPABILITIES,
                "serverInfo": Raw(self._server_info),
                "instructions": self._identity.instructions,
            }
        )

    async def _discover(self, client: Client, frame: Frame, notify: Notify) -> bytes:
        return encode(
            {
                "resultType": "complete",
                "supportedVersions": [*MODERN, *reversed(LEGACY)],
                "capabilities": _CAPABILITIES,
                "instructions": self._identity.instructions,
                "ttlMs": 60_000,
                "cacheScope": "private",
                "_meta": {"io.modelcontextprotocol/serverInfo": Raw(self._server_info)},
            }
        )

    async def _ping(self, client: Client, frame: Frame, notify: Notify) -> bytes:
        return EMPTY

    async def _set_level(self, client: Client, frame: Frame, notify: Notify) -> bytes:
        level = text(Body(frame.params), "level")
        if level not in LEVELS:
            raise BadRequest(INVALID_PARAMS, f"Unknown log level {level[:50]!r}; known: {', '.join(LEVELS)}")
        client.log_level = level
        self._spread_log_level()
        return EMPTY

    def _spread_log_level(self) -> None:
        level = self.listeners.log_level
        for upstream in self._pool.upstreams.values():
            upstream.wanted.want_log_level(level)

    # -- withdrawing

    def _cancel(self, client: Client, frame: Frame) -> None:
        task = self._running.get(client, {}).get(cancelled_id(frame.params))
        if task is not None:
            self._withdrawn.add(task)
            task.cancel()

    def _unknown_method(self, client: Client, method: str) -> BadRequest:
        text = f"Method not found: {method[:100]}"
        if client.modern and method in self._legacy:
            text += f" (it is not part of revision {client.version})"
        elif not client.modern and method in self._modern and method != "server/discover":
            text += " (it needs the per-request _meta envelope of revision 2026-07-28)"
        return BadRequest(METHOD_NOT_FOUND, text)


_ID_STARTS = frozenset(b"%c" % digit for digit in b'"-0123456789')
_NOT_INITIALIZED = (
    "Send `initialize` first (revisions up to 2025-11-25), "
    "or put the _meta envelope of revision 2026-07-28 into every request"
)
_CAPABILITIES: dict[str, dict[str, bool]] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "completions": {},
    "logging": {},
}
"""What clients are told: upstreams come and go, so everything that one may offer."""
