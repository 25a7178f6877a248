"""Start servers to look at them, a few at a time: agree on a revision, list what each offers, end it; with the times.

Unlike an upstream of a running bridge, nothing is tried again here beyond what finding out its era and its transport
takes, and what went wrong is kept as it was raised.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from mcpbridge.app.doctor.report import ServerReport
from mcpbridge.base.background_tasks import TaskGroup
from mcpbridge.base.errors import BridgeError, UpstreamGone, UpstreamHttpError, UpstreamTimeout
from mcpbridge.base.log import get_logger
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.base.version import __version__
from mcpbridge.catalog.definitions.check import KINDS
from mcpbridge.catalog.snapshot import Snapshot
from mcpbridge.catalog.snapshot_builder import SnapshotBuilder
from mcpbridge.catalog.tool_info import tokens_sent
from mcpbridge.catalog.upstream_filter import Offer
from mcpbridge.config.schema import Settings
from mcpbridge.core.elicitation import LIST_ROOTS, NO_CAPABILITIES, ClientCapabilities
from mcpbridge.core.model import BRIDGE
from mcpbridge.engine.pins.current_pins import package_that_runs
from mcpbridge.engine.user_accounts import open_secrets_of
from mcpbridge.protocol.deadlines import Timeouts
from mcpbridge.protocol.jsonrpc import Frame, encode_response
from mcpbridge.protocol.peer import Peer
from mcpbridge.protocol.revisions import LATEST_LEGACY
from mcpbridge.protocol.transport import Channel, Transport
from mcpbridge.results.token_count import counter
from mcpbridge.upstream.auth.context import AuthContext
from mcpbridge.upstream.auth.grant import AuthTasks
from mcpbridge.upstream.session.listings import Lists
from mcpbridge.upstream.session.negotiation import ProbeKilled
from mcpbridge.upstream.session.session import UpstreamSession
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.transports.factory import TransportMaker
from mcpbridge.upstream.transports.http_detect import HttpOrSse
from mcpbridge.upstream.transports.stdio import StdioTransport

log = get_logger("mcpbridge.doctor")

_LIVES = 3
"""A server may have to be begun with anew for its era, and for its transport."""

MakeTransport = Callable[[str, ServerSettings], Transport]


@dataclass(frozen=True, slots=True)
class Boot:
    """What came of it. Times are milliseconds from the start of the process, or of the connection."""

    server: str
    transport: str
    is_ready: bool = False
    answered_ms: int | None = None
    """Until the revision was agreed upon; None: it never was."""
    listed_ms: int | None = None
    """Until all lists were there."""
    era: str = ""
    revision: str = ""
    title: str = ""
    instructions: str = ""
    identity: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What it says of itself: its `serverInfo`."""
    package: Mapping[str, str] = field(default_factory=dict[str, str])
    """The name and the version of the package that `npx` or `uvx` chose; empty: unknown."""
    lists: Lists = field(default_factory=dict[str, tuple[bytes, ...]])
    troubles: tuple[str, ...] = ()
    """Lists that failed."""
    runs_tasks: bool = False
    memory: int | None = None
    """Bytes that its processes held when it had listed; None where the system does not say, or nothing was started."""
    died_of_probe: bool = False
    """It ended when it was asked for the modern era, and works without that question."""
    error: BridgeError | None = None
    """What went wrong."""
    speaks: str = ""
    """The transport over which it does work, where the configuration says another one."""
    stderr: tuple[str, ...] = ()
    """The last lines it wrote to standard error, secrets masked."""
    noise: str = ""
    """What it wrote to standard output that is no message."""

    @property
    def what(self) -> str:
        """What went wrong, in one line; empty when nothing did."""
        if self.error is None:
            return ""
        return " ".join(str(getattr(self.error, "what", "") or self.error).split())


async def look_at(
    name: str, settings: ServerSettings, make_transport: MakeTransport, *, seconds: float, client_info: dict[str, str]
) -> Boot:
    """Start a server once, and end it. Whatever goes wrong is in what is returned.

    `seconds`: for the server to start and agree, and again for its lists.
    """
    transport = make_transport(name, settings)
    looking = _Looking(name, settings, transport, seconds, client_info)
    for _ in range(_LIVES):
        try:
            found = await looking.live()
        except BridgeError as error:  # before there was a channel: no such program, a certificate, no connection
            found = looking.failed(error)
        except Exception as error:
            log.exception("server failed unexpectedly", upstream=name)
            found = looking.failed(BridgeError(f"{type(error).__name__}: {error}"))
        if found is not None:
            return looking.with_words(found)
    return looking.with_words(looking.failed(BridgeError("it speaks neither one era nor the other")))


class _Looking:
    """The lives of one server until it is known how it is."""

    def __init__(
        self, name: str, settings: ServerSettings, transport: Transport, seconds: float, client_info: dict[str, str]
    ) -> None:
        self._name, self._settings, self._transport = name, settings, transport
        self._seconds, self._client_info = seconds, client_info
        self._loop = asyncio.get_running_loop()
        self._era: str = settings.era
        self._died_of_probe = False
        self._began = 0.0
        self._lost = ""

    async def live(self) -> Boot | None:
        """One life; None when another one is to begin.

        Raises:
            BridgeError: there is no way to it.
        """
        self._began, self._lost = self._loop.time(), ""
        peer = Peer(self._name, on_notification=_unheard, on_closed=self._closed, on_request=self._asked)
        self._peer = peer
        async with self._transport.connect(peer) as channel:
            peer.attach(channel)
            try:
                # Errors are caught in here: through the task groups of a transport they would come in groups.
                return await self._converse(peer, channel)
            except BridgeError as error:
                return self.failed(error)
            except TimeoutError:
                return self.failed(UpstreamTimeout(self._name, self._seconds))
            finally:
                peer.end("it is being stopped")

    def failed(self, error: BridgeError) -> Boot:
        """It does not work."""
        if isinstance(error, UpstreamGone) and self._lost:
            error = UpstreamGone(self._name, self._lost)
        return Boot(self._name, self._transport.kind, error=error)

    def with_words(self, boot: Boot) -> Boot:
        """The same, with what the server said beside the protocol. To be asked once it has ended."""
        boot = replace(boot, died_of_probe=self._died_of_probe)
        if not isinstance(self._transport, StdioTransport):
            return boot
        lines = tuple(line for line in self._transport.stderr_lines if line.strip())
        return replace(boot, stderr=lines, noise=self._transport.noise)

    async def _converse(self, peer: Peer, channel: Channel) -> Boot | None:
        is_plain = self._transport.kind in ("stdio", "websocket")
        session = UpstreamSession(
            self._name, peer, channel, is_plain=is_plain, client_info=self._client_info, profile=self._profile
        )
        try:
            async with asyncio.timeout(self._seconds):
                await session.open("legacy" if self._transport.kind == "sse" else self._era, self._seconds)
        except ProbeKilled:
            self._era, self._died_of_probe = "legacy", True
            return None
        except UpstreamHttpError as error:
            if isinstance(self._transport, HttpOrSse) and self._transport.refused(error):
                return None
            raise
        answered = self._since_start()
        return await self._listed(session, answered)

    async def _listed(self, session: UpstreamSession, answered: int) -> Boot:
        limits = Timeouts(self._seconds, self._seconds)
        kinds = session.lists
        listings = await asyncio.gather(*(session.list_all(kind, limits) for kind in kinds))
        troubles = tuple(listing.trouble for listing in listings if listing.trouble)
        title = session.server_info.get("title") or session.server_info.get("name")
        tasks = session.capabilities.get("tasks")
        boot = Boot(
            self._name,
            self._transport.kind,
            is_ready=not troubles or len(troubles) < len(kinds),
            answered_ms=answered,
            listed_ms=self._since_start(),
            era="modern" if session.modern else "legacy",
            revision=session.version,
            title=title if isinstance(title, str) else "",
            instructions=session.instructions,
            identity=session.server_info,
            package=package_that_runs(self._settings, self._transport),
            lists={kind: listing.entries for kind, listing in zip(kinds, listings, strict=True)},
            troubles=troubles,
            runs_tasks=not session.modern and session.version >= LATEST_LEGACY and bool(tasks),
        )
        if not boot.is_ready:
            return replace(boot, error=BridgeError("; ".join(troubles)))
        if not isinstance(self._transport, StdioTransport):
            return boot
        return replace(boot, memory=await self._transport.memory())

    def _since_start(self) -> int:
        return round((self._loop.time() - self._began) * 1000)

    def _profile(self) -> ClientCapabilities:
        return NO_CAPABILITIES.with_roots() if self._settings.roots else NO_CAPABILITIES

    def _asked(self, frame: Frame, via: bytes) -> bool:
        if frame.method != LIST_ROOTS or not self._settings.roots:
            return False
        self._peer.reply(encode_response(frame.id, self._settings.roots_result))
        return True

    def _closed(self, reason: str) -> None:
        self._lost = reason


def _unheard(method: str, params: object, via: bytes) -> None:
    """Nobody is there to tell."""


AT_A_TIME = 4
"""Servers that are started side by side: they load packages, and each keeps a processor busy."""

Told = Callable[[Boot], None]
"""Hears of each server as it is done."""


@asynccontextmanager
async def reach(settings: Settings, redact: Redactor) -> AsyncGenerator[MakeTransport]:
    """Makes transports to servers meanwhile, with the sign-ins that there are; nobody is asked to sign in."""
    flights = AuthTasks()
    kept = open_secrets_of(lambda: settings)
    around = AuthContext(kept, flights.spawn, learn=redact.learn)
    try:
        async with flights.running():
            yield TransportMaker(max_bytes=settings.limits.max_frame, redact=redact, around=around)
    finally:
        await kept.close()


async def look_at_all(
    servers: Mapping[str, ServerSettings],
    make: MakeTransport,
    *,
    seconds: float | None,
    report: Told = lambda boot: None,
) -> dict[str, Boot]:
    """Look at each of them once. `seconds`: for each to start, instead of its `init_timeout`."""
    slots, info = asyncio.Semaphore(AT_A_TIME), {"name": "mcpbridge", "version": __version__}
    found: dict[str, Boot] = {}

    async def look(name: str, settings: ServerSettings) -> None:
        async with slots:
            boot = await look_at(name, settings, make, seconds=seconds or settings.init_timeout, client_info=info)
        found[name] = boot
        report(boot)

    async with TaskGroup() as tasks:
        for name, settings in servers.items():
            if settings.unavailable:
                found[name] = Boot(name, settings.kind, error=BridgeError(settings.unavailable))
            else:
                tasks.create_task(look(name, settings))
    return {name: found[name] for name in servers}


def catalog_of(settings: Settings, boots: Mapping[str, Boot]) -> Snapshot:
    """The catalog that a bridge would have of these servers."""
    offers = [_offer(boot) for boot in boots.values() if boot.is_ready]
    bridge = settings.bridge
    builder = SnapshotBuilder(name_length=bridge.name_length, prefix=bridge.prefix, results=settings.results)
    return builder.build(offers, settings.servers)


def _offer(boot: Boot) -> Offer:
    tools, prompts, resources, templates = (boot.lists.get(kind, ()) for kind in KINDS)
    return Offer(boot.server, tools, prompts, resources, templates, runs_tasks=boot.runs_tasks)


def tokens_of(settings: Settings, snapshot: Snapshot) -> dict[str, dict[str, int]]:
    """Tokens of each server's tools as they are sent, by the name that clients see."""
    count = counter(settings.results.tokenizer)
    found: dict[str, dict[str, int]] = {}
    for ref in snapshot.tools.values():
        if ref.server != BRIDGE:
            found.setdefault(ref.server, {})[ref.wire] = tokens_sent(ref, count)
    return found


def report_of(boot: Boot, tokens: Mapping[str, int], stderr_lines: int = 10) -> ServerReport:
    """What there is to show of a server that was looked at."""
    counts = {kind: len(boot.lists.get(kind, ())) for kind in KINDS}
    return ServerReport(
        boot.server,
        boot.is_ready,
        state=boot.what,
        transport=boot.transport,
        era=boot.era,
        revision=boot.revision,
        answered_ms=boot.answered_ms,
        listed_ms=boot.listed_ms,
        tools=counts["tools"],
        prompts=counts["prompts"],
        resources=counts["resources"],
        templates=counts["templates"],
        tokens=sum(tokens.values()) if boot.is_ready else None,
        memory=boot.memory,
        stderr=() if boot.is_ready else _last(boot.stderr, stderr_lines),
    )


def _last(lines: Sequence[str], most: int) -> tuple[str, ...]:
    return tuple(lines[-most:])
