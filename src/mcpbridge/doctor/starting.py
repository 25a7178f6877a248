"""Start servers to look at them, a few at a time, and say how each of them is."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from mcpbridge._version import __version__
from mcpbridge.catalog.sent import tokens_sent
from mcpbridge.catalog.snapshot import KINDS, Builder, Offer, Snapshot
from mcpbridge.config.schema import Settings
from mcpbridge.doctor.boot import Boot, MakeTransport, look_at
from mcpbridge.doctor.report import ServerReport
from mcpbridge.errors import BridgeError
from mcpbridge.model import BRIDGE
from mcpbridge.redaction import Redactor
from mcpbridge.results.tokens import counter
from mcpbridge.storage.tokens import SealedFiles
from mcpbridge.upstream.auth_account import Surroundings
from mcpbridge.upstream.auth_flights import Flights
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.transports import TransportMaker

__all__ = ["AT_A_TIME", "catalog_of", "look_at_all", "reach", "report_of", "tokens_of"]

AT_A_TIME = 4
"""Servers that are started side by side: they load packages, and each keeps a processor busy."""

Told = Callable[[Boot], None]
"""Hears of each server as it is done."""


@asynccontextmanager
async def reach(settings: Settings, redact: Redactor) -> AsyncGenerator[MakeTransport]:
    """Makes transports to servers meanwhile, with the sign-ins that there are; nobody is asked to sign in."""
    flights = Flights()
    around = Surroundings(SealedFiles(), flights.spawn, learn=redact.learn)
    async with flights.running():
        yield TransportMaker(max_bytes=settings.limits.max_frame, redact=redact, around=around)


async def look_at_all(
    servers: Mapping[str, ServerSettings], make: MakeTransport, *, seconds: float | None, told: Told = lambda boot: None
) -> dict[str, Boot]:
    """Look at each of them once. `seconds`: for each to start, instead of its `init_timeout`."""
    slots, info = asyncio.Semaphore(AT_A_TIME), {"name": "mcpbridge", "version": __version__}
    found: dict[str, Boot] = {}

    async def look(name: str, settings: ServerSettings) -> None:
        async with slots:
            boot = await look_at(name, settings, make, seconds=seconds or settings.init_timeout, client_info=info)
        found[name] = boot
        told(boot)

    async with asyncio.TaskGroup() as tasks:
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
    builder = Builder(name_length=bridge.name_length, prefix=bridge.prefix, results=settings.results)
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
