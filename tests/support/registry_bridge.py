"""A bridge with a configuration file and a store, whose servers are scripts, and where tools come and go."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from mcpbridge.app.daemon.config_watcher import Reloading
from mcpbridge.base.log import Logger
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.config.load import read
from mcpbridge.library.bridge import Bridge
from mcpbridge.protocol.transport import Transport
from mcpbridge.upstream.settings import ServerSettings
from support.upstreams.scripted_upstream import LEGACY_SERVER, ScriptedTransport

__all__ = ["FILE", "REMOTE", "WEATHER", "World", "registering"]

FILE = """# mine

[servers.clock]   # runs here
command = "clockwork"

[servers.far]
url = "https://far.example/mcp"  # elsewhere

[servers.asleep]
url = "https://asleep.example/mcp"
disabled = true

[tools.today]
command = ["date"]

[tools.rates]
endpoint = "http://127.0.0.1:9/rates/{currency}"
tags = ["money"]
"""

REMOTE: dict[str, Any] = {"url": "https://more.example/mcp"}
WEATHER: dict[str, Any] = {"endpoint": "http://127.0.0.1:9/weather/{city}", "tags": ["sky"]}


class Scripted(Bridge):
    """A bridge whose servers are scripts."""

    broken: frozenset[str] = frozenset()
    """Servers that cannot be reached."""

    def _make_transport(self, name: str, settings: ServerSettings) -> Transport:
        return super()._make_transport(name, settings) if name in self.broken else ScriptedTransport(LEGACY_SERVER)


@dataclass
class World:
    """The bridge and what is around it."""

    bridge: Scripted
    path: Path
    redact: Redactor
    reloading: Reloading
    logged: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list[tuple[str, str, dict[str, Any]]])

    @property
    def text(self) -> str:
        """What the file says."""
        return self.path.read_text()

    def names(self, query: str = "") -> list[str]:
        """The ids of the tools that there are."""
        return [one.id for one in self.bridge.representations(query)]

    def said(self) -> str:
        """Everything that the bridge tells of itself."""
        shown = [repr(line) for line in self.logged]
        return json.dumps(self.bridge.status()) + "".join(shown)

    async def listed(self) -> list[str]:
        """What clients see."""
        return [tool["name"] for tool in (await self.bridge.request("tools/list", {}))["tools"]]


@asynccontextmanager
async def registering(
    folder: Path,
    text: str = FILE,
    *,
    environ: Mapping[str, str] | None = None,
    broken: frozenset[str] = frozenset(),
    settle: bool = True,
    **more: Any,
) -> AsyncIterator[World]:
    """A running one. The file is written if it is not there; the store is beside it."""
    path = folder / "servers.toml"
    if not path.exists():
        # Waits for the trial of the sandbox, which takes seconds on a busy machine.
        bridge_table = "" if "[bridge]" in text else '[bridge]\nstartup_wait = "30s"\n'
        path.write_text(f'{text}\n[store]\npath = "store.db"\n{bridge_table}')
    loaded = read(path, environ or {})
    redact = Redactor(loaded.secrets)
    bridge = Scripted(loaded.settings, redact=redact, **more)
    bridge.broken = broken
    made = World(bridge, path, redact, Reloading(bridge, path, redact=redact, environ=environ or {}))
    Logger.sink = lambda level, event, fields: made.logged.append((level, event, fields))
    with anyio.fail_after(60):
        async with bridge:
            if settle:
                assert await bridge.settled(30)
                await bridge.startup.settled()
            yield made
