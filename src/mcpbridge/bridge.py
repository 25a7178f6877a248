"""`Bridge`: builds everything from settings, as one async context manager. What every command runs."""

import os
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Any, Self

import msgspec
import structlog
from msgspec import Raw

from mcpbridge._version import __version__
from mcpbridge.catalog.names import Prefix
from mcpbridge.catalog.refresh import Catalog
from mcpbridge.catalog.snapshot import KINDS, Builder, Kind, Offer
from mcpbridge.config.schema import Settings
from mcpbridge.downstream.channel import Client
from mcpbridge.downstream.opening import Identity
from mcpbridge.downstream.server import Server
from mcpbridge.errors import BridgeError
from mcpbridge.interaction import Asker
from mcpbridge.pipeline.deliver import Deliver
from mcpbridge.pipeline.order import Plans
from mcpbridge.pipeline.stage import Concern
from mcpbridge.redaction import Redactor
from mcpbridge.storage.tokens import SealedFiles
from mcpbridge.upstream.auth import Authorization
from mcpbridge.upstream.auth_account import Show, Surroundings
from mcpbridge.upstream.auth_flights import Flights
from mcpbridge.upstream.auth_grant import SecretStore
from mcpbridge.upstream.conducts import Conducts
from mcpbridge.upstream.listings import Lists
from mcpbridge.upstream.pool import Pool
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.startup import StartupWait
from mcpbridge.upstream.supervisor import Upstream
from mcpbridge.upstream.transports import TransportMaker
from mcpbridge.wire.envelope import SERVER_INFO
from mcpbridge.wire.frame import Frame, encode
from mcpbridge.wire.revisions import LATEST_LEGACY
from mcpbridge.wire.stdio import StdioTransport
from mcpbridge.wire.transport import Transport

__all__ = ["Bridge", "RequestFailed"]

log = structlog.get_logger("mcpbridge")

_DEFAULT_INSTRUCTIONS = "This server offers the tools, prompts and resources of several servers."
_HOW_NAMES_BEGIN: dict[Prefix, str] = {
    "always": " Names begin with the server they come from: server__tool.",
    "on-collision": " A name that several servers use begins with the server it comes from: server__tool.",
    "never": "",
}


class RequestFailed(BridgeError):
    """A request made through `Bridge.request` was answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data


class Bridge:
    """One bridge: `async with Bridge(settings) as bridge`. Leaving ends every upstream and its processes."""

    def __init__(
        self,
        settings: Settings,
        *,
        redact: Callable[[str], str] = lambda text: text,
        secrets: SecretStore | None = None,
        show: Show | None = None,
        is_interactive: bool = False,
    ) -> None:
        """`redact` masks secrets in what upstreams say before it is kept or shown; a `Redactor` also learns new tokens.

        `secrets` keeps what signing in brings (by default files of the user), `show` opens authorization pages, which
        happens unasked only with `is_interactive` or where a server's settings say so.
        """
        self.settings = settings
        self._redact = redact
        self._flights = Flights()
        around = Surroundings(
            secrets or SealedFiles(),
            self._flights.spawn,
            show,
            is_interactive=is_interactive,
            learn=redact.learn if isinstance(redact, Redactor) else lambda name, secrets: None,
        )
        self._transports = TransportMaker(max_bytes=settings.limits.max_frame, redact=redact, around=around)
        self._started = time.monotonic()
        self._settled: set[str] = set()
        self._has_settled = False
        self._stack: Any = None
        self.server: Server
        self.pool: Pool
        self.catalog: Catalog
        self.startup: StartupWait

    async def __aenter__(self) -> Self:
        self._stack = self._running()
        return await self._stack.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, trace)

    @asynccontextmanager
    async def _running(self) -> AsyncGenerator[Self]:
        settings = self.settings
        identity = Identity(
            settings.bridge.name,
            __version__,
            settings.bridge.instructions or _DEFAULT_INSTRUCTIONS + _HOW_NAMES_BEGIN[settings.bridge.prefix],
            instructions_budget=settings.bridge.instructions_budget,
            list_ttl_ms=round(settings.bridge.list_ttl * 1000),
            extensions=frozenset(settings.bridge.extensions),
        )
        server_info = {"name": identity.name, "version": identity.version}
        builder = Builder(
            name_length=settings.bridge.name_length,
            prefix=settings.bridge.prefix,
            page_size=settings.bridge.page_size,
            ttl_ms=identity.list_ttl_ms,
            modern_tail=b'"_meta":{"%b":%b}' % (SERVER_INFO.encode(), encode(server_info)),
        )
        self.catalog = Catalog(settings.servers, builder)
        servers = {name: server.within(settings.calls) for name, server in settings.servers.items()}
        conducts = Conducts(servers, settings.calls)
        self.pool = Pool(servers, self._make_transport, self, client_info=server_info)
        concerns: list[Concern] = [
            # observe
            # guard
            # hooks
            # arguments
            # permit
            # rates and budgets
            # approval
            # late
            # cache
            # time
            # retry
            # limits
        ]
        plan = Plans(Deliver(self.pool, answer_seconds=settings.questions.timeout), concerns, conducts.of)
        self.startup = StartupWait(self.pool, settings.bridge.startup_wait)
        self.server = Server(identity, self.catalog, self.pool, plan, self.startup, settings.questions)
        for name in self._transports.authorizations:
            self._transports.authorizations[name].on_signed_in = partial(self._signed_in, name)
        async with self._flights.running(), self.pool.running():
            try:
                yield self
            finally:
                self.server.end()

    def _signed_in(self, name: str) -> None:
        """There is a token for a server that could not be used without: try it at once."""
        for upstream in self.pool.everyone():
            if upstream.name == name:
                upstream.poke()

    # -- for commands and programs

    def authorization(self, server: str) -> Authorization | None:
        """The sign-in of a server; None when it is not one that people can sign in to."""
        return self._transports.authorizations.get(server)

    async def settled(self, timeout: float) -> bool:  # noqa: ASYNC109 - the caller's patience, not a deadline of the work
        """Wait until every upstream is ready or has failed once, at most `timeout` seconds. False when time was up."""
        done = await self.pool.settled(timeout)
        self.catalog.flush()
        return done

    @property
    def has_settled(self) -> bool:
        """Every upstream was ready or had failed once, or `bridge.startup_wait` was over; true from then on."""
        if not self._has_settled:
            is_late = time.monotonic() - self._started >= self.settings.bridge.startup_wait
            self._has_settled = is_late or self._settled >= self.pool.upstreams.keys()
        return self._has_settled

    def status(self) -> dict[str, Any]:
        """The state of everything, as JSON values."""
        servers = [self._status_of(upstream) for upstream in self.pool.upstreams.values()]
        servers += [
            {"name": name, "state": "disabled", "reason": "disabled = true in the configuration"}
            for name, settings in self.settings.servers.items()
            if settings.disabled
        ]
        return {
            "name": self.settings.bridge.name,
            "version": __version__,
            "pid": os.getpid(),
            "uptime_s": round(time.monotonic() - self._started, 1),
            "config": self.settings.source,
            "clients": self.server.clients,
            "servers": sorted(servers, key=lambda server: server["name"]),
            "dropped": [
                {"server": lost.server, "kind": lost.kind, "name": lost.name, "reason": lost.reason}
                for lost in self.catalog.snapshot.dropped
            ],
        }

    async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Make a request as a client in this process; the same way as every other client's.

        Raises:
            RequestFailed: it was answered with an error.
        """
        client = Client(version=LATEST_LEGACY)
        frame = Frame(id=Raw(b"1"), method=method, params=Raw(encode(params)))
        answer = await self.server.answer(client, frame, lambda message: None)
        message = msgspec.json.decode(answer.data)
        if "error" in message:
            error = message["error"]
            raise RequestFailed(error.get("code", 0), error.get("message", ""), error.get("data"))
        return message["result"]

    # -- Observer of the upstreams

    def offered(self, upstream: Upstream, lists: Lists) -> None:
        """An upstream listed anew."""
        tools, prompts, resources, templates = (lists.get(kind, ()) for kind in KINDS)
        ttl_ms: dict[Kind, int] = {kind: upstream.list_ttl_ms[kind] for kind in KINDS if kind in upstream.list_ttl_ms}
        self.catalog.update(Offer(upstream.name, tools, prompts, resources, templates, ttl_ms, upstream.runs_tasks))

    def resource_updated(self, upstream: Upstream, params: Raw) -> None:
        """A resource of an upstream changed."""
        self.server.news.resource_updated(upstream, params)

    def logged(self, upstream: Upstream, params: Raw) -> None:
        """An upstream logged something that belongs to no call."""
        self.server.news.logged(upstream, params)

    def elicitation_completed(self, upstream: Upstream, params: Raw) -> None:
        """A page that an upstream had somebody open has done its work."""
        self.server.news.elicitation_completed(upstream, params)

    def beside(self, upstream: Upstream) -> Asker | None:
        """Who can be asked for roots outside of any call."""
        return self.server.news.beside(upstream)

    def stepped(self, upstream: Upstream) -> None:
        """An upstream changed its state."""
        log.debug("upstream state", upstream=upstream.name, state=upstream.status.state)
        if upstream.has_settled:
            self._settled.add(upstream.name)
        self.startup.noticed()

    # -- parts

    def _make_transport(self, name: str, settings: ServerSettings) -> Transport:
        return self._transports(name, settings)

    def _published(self, server: str) -> dict[str, int]:
        """How many things of a server clients see, by kind."""
        snapshot = self.catalog.snapshot
        kinds = {
            "tools": snapshot.tools,
            "resources": snapshot.resources,
            "templates": snapshot.templates,
            "prompts": snapshot.prompts,
        }
        return {kind: sum(ref.server == server for ref in refs.values()) for kind, refs in kinds.items()}

    def _status_of(self, upstream: Upstream) -> dict[str, Any]:
        transport = upstream.transport
        session = upstream.session
        status: dict[str, Any] = {
            "name": upstream.name,
            "state": upstream.status.state,
            "reason": upstream.state_text if upstream.status.reason else "",
            "cause": upstream.status.reason,
            "transport": transport.kind,
            "era": "" if session is None else "modern" if session.modern else "legacy",
            "protocol": session.version if session is not None else "",
            **self._published(upstream.name),
            "running": len(upstream.running),
            "restarts": upstream.restarts,
            "instances": self.pool.instances(upstream.name),
        }
        if isinstance(transport, StdioTransport):
            status |= {"pid": transport.pid, "stderr": transport.stderr_lines[-10:]}
        return status
