"""Describe every tool of a bridge for the search: its definition, and where it comes from."""

from collections.abc import Mapping

from mcpbridge.catalog.snapshot import Snapshot, ToolRef
from mcpbridge.catalog.tool_info import Origin, Representation, represented
from mcpbridge.config.schema import Settings
from mcpbridge.core.model import BRIDGE, BUILTIN, TOOLS
from mcpbridge.engine.wiring.tools import ConfiguredBackend
from mcpbridge.tools.settings import BackendSettings

_PROTOCOLS = {"function": "python", "executor": "python", "command": "process", "agent": "a2a", "openapi": "http"}
_REMOTE = frozenset({"http", "openapi", "grpc", "agent"})


def representations(
    snapshot: Snapshot, settings: Settings, backends: Mapping[str, ConfiguredBackend]
) -> list[Representation]:
    """All of them, by id. Pure."""
    refs = [*snapshot.tools.values(), *snapshot.unlisted.values()]
    found = [represented(ref, _origin(ref, settings, backends)) for ref in refs]
    return sorted(found, key=lambda one: one.id)


def _origin(ref: ToolRef, settings: Settings, backends: Mapping[str, ConfiguredBackend]) -> Origin:
    if ref.server in (BRIDGE, BUILTIN):
        own = settings.builtin.tool.get(ref.name)
        return Origin("builtin", "local", "python", tuple(own.tags) if own is not None else ())
    one = backends.get(ref.name if ref.server == TOOLS else ref.server)
    if one is not None:
        return _of_backend(one.backend.kind, one.settings, ref)
    server = settings.servers.get(ref.server)
    if server is None:
        return Origin("mcp", "local", "")
    own = server.tool.get(ref.name)
    tags = (*server.tags, *(own.tags if own is not None else ()))
    return Origin("mcp", "local" if server.url is None else "remote", server.kind, tuple(dict.fromkeys(tags)))


def _of_backend(kind: str, settings: BackendSettings, ref: ToolRef) -> Origin:
    own = settings.tool.get(ref.name)
    tags = (*settings.tags, *(own.tags if own is not None else ()))
    runtime = "remote" if kind in _REMOTE else "local"
    return Origin(kind, runtime, _PROTOCOLS.get(kind, kind), tuple(dict.fromkeys(tags)), tuple(settings.examples))
