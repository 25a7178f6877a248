"""`Bridge`: builds everything from settings, as one async context manager. What every command runs."""

import os
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

import msgspec
import structlog
from msgspec import Raw

from mcpbridge._version import __version__
from mcpbridge.catalog.refresh import Catalog
from mcpbridge.catalog.snapshot import Builder, Offer
from mcpbridge.config.schema import Settings
from mcpbridge.downstream.channel import Client
from mcpbridge.downstream.server import Identity, Server
from mcpbridge.errors import BridgeError
from mcpbridge.pipeline.deliver import Deliver
from mcpbridge.pipeline.order import compile_plan
from mcpbridge.upstream.pool import Pool
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.startup import StartupWait
from mcpbridge.upstream.supervisor import Lists, Upstream
from mcpbridge.wire.envelope import SERVER_INFO
from mcpbridge.wire.frame import Frame, encode
from mcpbridge.wire.process import ProcessSpec, child_environment
from mcpbridge.wire.revisions import LATEST_LEGACY
from mcpbridge.wire.stdio import StdioTransport
from mcpbridge.wire.transport import Transport

__all__ = ["Bridge", "RequestFailed"]

log = structlog.get_logger("mcpbridge")

_DEFAULT_INSTRUCTIONS = (
    "This server offers the tools, prompts and resources of several servers. "
    "Names begin with the server they come from: server__tool."
)


class RequestFailed(BridgeError):
    """A request made through `Bridge.request` was answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data


class Bridge:
    """One bridge: `async with Bridge(settings) as bridge`. Leaving ends every upstream and its processes."""

    def __init__(self, settings: Settings, *, redact: Callable[[str], str] = lambda text: text) -> None:
        """`redact` masks secrets in what upstreams write to stderr before it is kept or shown."""
        self.settings = settings
        self._redact = redact
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
        identity = Identity(settings.bridge.name, __version__, settings.bridge.instructions or _DEFAULT_INSTRUCTIONS)
        server_info = {"name": identity.name, "version": identity.version}
        builder = Builder(
            name_length=settings.bridge.name_length,
            page_size=settings.bridge.page_size,
            modern_tail=b'"_meta":{"%b":%b}' % (SERVER_INFO.encode(), encode(server_info)),
        )
        self.catalog = Catalog(settings.servers, builder)
        self.pool = Pool(settings.servers, self._make_transport, self, client_info=server_info)
        plan = compile_plan(Deliver(self.pool.upstreams))
        self.startup = StartupWait(self.pool, settings.bridge.startup_wait)
        self.server = Server(identity, self.catalog, self.pool, plan, self.startup)
        async with self.pool.running():
            try:
                yield self
            finally:
                self.server.listeners.end_all()

    # -- for commands and programs

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
        self.catalog.update(Offer(server=upstream.name, **lists))

    def resource_updated(self, upstream: Upstream, params: Raw) -> None:
        """A resource of an upstream changed."""
        self.server.resource_updated(upstream, params)

    def logged(self, upstream: Upstream, params: Raw) -> None:
        """An upstream logged something that belongs to no call."""
        self.server.logged(upstream, params)

    def stepped(self, upstream: Upstream) -> None:
        """An upstream changed its state."""
        log.debug("upstream state", upstream=upstream.name, state=upstream.status.state)
        if upstream.has_settled:
            self._settled.add(upstream.name)
        self.startup.noticed()

    # -- parts

    def _make_transport(self, name: str, settings: ServerSettings) -> Transport:
        if settings.command is not None:
            environment = child_environment(settings.env, settings.inherit_env, os.environ)
            spec = ProcessSpec(settings.command, tuple(settings.args), environment, settings.cwd)
            return StdioTransport(name, spec, max_bytes=self.settings.limits.max_frame, redact=self._redact)
        from mcpbridge.wire.streamable_http import StreamableHttpTransport  # 0.1 s that stdio alone need not pay

        assert settings.url is not None
        return StreamableHttpTransport(
            name,
            settings.url,
            headers=settings.headers,
            max_bytes=self.settings.limits.max_frame,
            redact=self._redact,
        )

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
            "transport": "stdio" if upstream.settings.command is not None else "streamable-http",
            "era": "" if session is None else "modern" if session.modern else "legacy",
            "protocol": session.version if session is not None else "",
            **self._published(upstream.name),
            "running": len(upstream.running),
            "restarts": upstream.restarts,
        }
        if isinstance(transport, StdioTransport):
            status |= {"pid": transport.pid, "stderr": transport.stderr_lines[-10:]}
        return status
