"""What each server shows at this moment, as pins: servers are started and their lists are asked for once more."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import anyio
import msgspec

from mcpbridge.base.errors import BridgeError
from mcpbridge.catalog.pins.definition import Fact, Pin
from mcpbridge.catalog.pins.server_pins import command_without_secrets, origin_of, pins_of
from mcpbridge.protocol.transport import Transport
from mcpbridge.upstream.isolation.packages import package_of
from mcpbridge.upstream.isolation.running_package import running_version
from mcpbridge.upstream.pool import Pool
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.supervisor import Upstream
from mcpbridge.upstream.transports.stdio import StdioTransport


@dataclass(frozen=True, slots=True)
class ServerPins:
    """One server."""

    pins: tuple[Pin, ...] = ()
    fault: str = ""
    """Why it could not be asked, or not for everything; then there are no pins."""


async def current_pins(
    pool: Pool, servers: Collection[str], redact: Callable[[str], str], seconds: float
) -> Mapping[str, ServerPins]:
    """The pins of these servers, without those that are switched off. Cancelling is safe.

    `seconds`: how long each of them may take.
    """
    found: dict[str, ServerPins] = {}

    async def ask(name: str, upstream: Upstream) -> None:
        found[name] = ServerPins(fault=f"it did not answer within {seconds:g} s")
        with anyio.move_on_after(seconds):
            found[name] = await _pins(upstream, redact)

    async with anyio.create_task_group() as tasks:
        for name, upstream in list(pool.upstreams.items()):
            if name in servers:
                tasks.start_soon(ask, name, upstream)
    return {name: found[name] for name in sorted(found)}


async def _pins(upstream: Upstream, redact: Callable[[str], str]) -> ServerPins:
    with upstream.usage.held(counts=False):
        await upstream.tried()
        session = upstream.session
        if session is None:
            return ServerPins(fault=redact(upstream.status.reason or "it does not run"))
        try:
            failed = await upstream.listings.again(session, list(session.lists))
        except BridgeError as error:
            return ServerPins(fault=redact(str(error)))
        if failed:
            return ServerPins(fault=f"it does not list its {', '.join(failed)}")
        settings = upstream.settings
        pins = pins_of(
            upstream.lists,
            session.instructions,
            session.server_info,
            command=_command(settings, redact),
            package=package_that_runs(settings, upstream.transport),
            origin=_origin(settings),
        )
        return ServerPins(pins)


def how_it_is_reached(
    settings: ServerSettings, redact: Callable[[str], str], package: Mapping[str, str]
) -> dict[Fact, bytes]:
    """How a server is started, which package runs (empty: unknown), or where it is, as JSON."""
    command, origin = _command(settings, redact), _origin(settings)
    found: dict[Fact, bytes] = {}
    if package:
        found["package"] = msgspec.json.encode(dict(package))
    if command:
        found["command"] = msgspec.json.encode(list(command))
    if origin:
        found["origin"] = msgspec.json.encode(origin)
    return found


def package_that_runs(settings: ServerSettings, transport: Transport) -> dict[str, str]:
    """The name of a running server's package and the version that `npx` or `uvx` chose; empty: unknown."""
    if settings.command is None or not isinstance(transport, StdioTransport) or transport.pid is None:
        return {}
    package = package_of(settings.command, settings.args)
    version = running_version(package, transport.pid) if package.runner else ""
    return {"name": package.name, "version": version} if version else {}


def _origin(settings: ServerSettings) -> str:
    return origin_of(settings.url) if settings.url is not None else ""


def _command(settings: ServerSettings, redact: Callable[[str], str]) -> tuple[str, ...]:
    """The command line as the file has it: what variables stand for differs from machine to machine."""
    program = settings.command or settings.image
    words = settings.written or ((program, *settings.args) if program is not None else ())
    return command_without_secrets(words, redact)
