"""Scripted servers that a manifest knows: learned in one run of a pool or bridge, and listed in the next."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from mcpbridge.config.schema import Settings
from mcpbridge.library.bridge import Bridge
from mcpbridge.upstream.manifest import Manifest
from mcpbridge.upstream.pool import Pool
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.supervisor import Upstream
from support.in_process_bridge import BridgeToScripts
from support.upstreams.scripted_upstream import ScriptedTransport, Watcher

__all__ = ["BridgeThatRemembers", "learned", "remembering", "remembering_bridge"]

Given = Mapping[str, Any]


def how(name: str, given: Given) -> dict[str, Any]:
    """Settings of a server: no two are started alike."""
    return {"command": "scripted", "args": [name], **given} if "url" not in given else dict(given)


class Remembering:
    """A pool with a manifest, and who watches its servers."""

    def __init__(self, directory: Path, transports: Mapping[str, ScriptedTransport], **settings: Any) -> None:
        self.watcher = Watcher()
        servers = {name: ServerSettings.model_validate(how(name, settings.get(name, {}))) for name in transports}
        self.pool = Pool(
            servers,
            lambda name, _: transports[name],
            self.watcher,
            client_info={"name": "b"},
            manifest=Manifest(directory),
            warm_up=settings.get("warm_up", 0),
            revalidate=settings.get("revalidate", 86400.0),
        )

    @property
    def up(self) -> Upstream:
        """The server named so."""
        return self.pool.upstreams["up"]


@asynccontextmanager
async def remembering(
    directory: Path, transports: ScriptedTransport | Mapping[str, ScriptedTransport], **settings: Any
) -> AsyncIterator[Remembering]:
    """A running pool with a manifest in this directory; a single server is named `up`, and `settings` are its own.

    With several, `settings` are by name. `warm_up` and `revalidate` are the pool's.
    """
    if isinstance(transports, ScriptedTransport):
        own = {key: settings.pop(key) for key in ("warm_up", "revalidate") if key in settings}
        transports, settings = {"up": transports}, {"up": settings, **own}
    with anyio.fail_after(60):
        running = Remembering(directory, transports, **settings)
        async with running.pool.running():
            yield running


async def learned(directory: Path, transports: Any, **settings: Any) -> None:
    """Have the manifest know these servers as they are now."""
    async with remembering(directory, transports, **settings) as running:
        assert await running.pool.settled(30)
    for transport in [transports] if isinstance(transports, ScriptedTransport) else transports.values():
        transport.lines.clear()
        transport.attempts = 0


class BridgeThatRemembers(BridgeToScripts):
    """A bridge whose servers are scripts, with a manifest."""

    def __init__(self, settings: Settings, transports: dict[str, ScriptedTransport], manifest: Manifest) -> None:
        Bridge.__init__(self, settings, manifest=manifest)
        self.transports = transports


@asynccontextmanager
async def remembering_bridge(
    directory: Path, transports: dict[str, ScriptedTransport], *, servers: Given | None = None, **sections: Any
) -> AsyncIterator[BridgeThatRemembers]:
    """A running bridge with a manifest in this directory.

    `servers` are settings of single servers by name.
    """
    sections = {"results": {"strategy": "off"}, "daemon": {"warm_up": 0}, **sections}
    own = {name: how(name, (servers or {}).get(name, {})) for name in transports}
    settings = Settings.model_validate({"servers": own, **sections})
    with anyio.fail_after(60):
        async with BridgeThatRemembers(settings, transports, Manifest(directory)) as bridge:
            yield bridge
