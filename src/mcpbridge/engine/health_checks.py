"""Health checks of servers, backends and single tools: on request, and periodically.

The settings `health` (`config/health_settings.py`) have the interval; `generation.py` starts the `PeriodicCheck` by it.
"""

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Literal

import anyio
import msgspec
from msgspec import Struct

from mcpbridge.base.errors import BridgeError, UnknownName
from mcpbridge.base.log import get_logger
from mcpbridge.base.suggestions import nearest
from mcpbridge.catalog.refresh import Catalog
from mcpbridge.catalog.snapshot import ToolRef
from mcpbridge.core.model import BRIDGE, BUILTIN, TOOLS
from mcpbridge.engine.wiring.builtin import BuiltinTools
from mcpbridge.engine.wiring.tools import Backends
from mcpbridge.upstream.pool import Pool
from mcpbridge.upstream.supervisor import Upstream

log = get_logger("mcpbridge.health")

_SECONDS = 30.0
_AT_ONCE = 8


class Checkup(Struct, frozen=True):
    """What one look found."""

    name: str
    """Of the server or backend, or the tool's id."""
    kind: Literal["server", "backend", "builtin", "tool"]
    ok: bool
    detail: str
    """What was found, a line."""
    seconds: float
    at: str
    """When, in ISO 8601."""

    def as_json(self) -> dict[str, Any]:
        """As JSON values."""
        return msgspec.to_builtins(self)


class HealthChecks:
    """Looks at whatever a bridge has."""

    def __init__(self, pool: Pool, catalog: Catalog, backends: Backends, builtins: BuiltinTools) -> None:
        self._pool, self._catalog, self._backends, self._builtins = pool, catalog, backends, builtins
        self.last: dict[str, Checkup] = {}
        """What was found last, by name."""

    async def check(self, name: str) -> Checkup:
        """Look at one: a server (which is started for it), a backend, a built-in tool, or a tool by id or name.

        Raises:
            UnknownName: there is none of this name; the nearest are named.
        """
        found = await self._check(name, starts=True)
        if found is None:
            known = [*self._names(), *(ref.id for ref in self._refs())]
            raise UnknownName("server or tool", name, candidates=lambda: nearest(name, known))
        return found

    async def check_all(self, *, starts: bool = False) -> list[Checkup]:
        """Look at every server and backend; those that rest are left alone unless `starts`."""
        found: dict[str, Checkup] = {}
        slots = anyio.Semaphore(_AT_ONCE)

        async def look(name: str) -> None:
            async with slots:
                checkup = await self._check(name, starts=starts)
            if checkup is not None:
                found[name] = checkup

        async with anyio.create_task_group() as tasks:
            for name in self._names():
                tasks.start_soon(look, name)
        return [found[name] for name in sorted(found)]

    def checkups(self) -> list[Checkup]:
        """The last checkup of everything that is still there, by name."""
        known = {*self._names(), *self._builtins.now.tools.get(BUILTIN, ())}
        return [self.last[name] for name in sorted(self.last) if name in known]

    def _names(self) -> list[str]:
        return [*self._pool.upstreams, *self._backends.names()]

    def _refs(self) -> list[ToolRef]:
        self._catalog.flush()
        return list(self._catalog.snapshot.tools.values())

    async def _check(self, name: str, *, starts: bool) -> Checkup | None:
        began = time.monotonic()
        upstream = self._pool.upstreams.get(name)
        kind: Literal["server", "backend", "builtin", "tool"] = "server"
        if upstream is not None:
            ok, detail = await _of_server(upstream, starts=starts)
        elif name in self._backends.names():
            health = await self._backends.check(name)
            kind, ok, detail = "backend", health.ok, health.detail
        elif (tool := self._builtins.now.tools.get(BUILTIN, {}).get(name.removeprefix(f"{BUILTIN}/"))) is not None:
            why_not = str(getattr(tool, "why_not", ""))
            kind, ok, detail = "builtin", bool(getattr(tool, "is_ready", True)) and not why_not, why_not
            name = name.removeprefix(f"{BUILTIN}/")
        else:
            return await self._of_tool(name, starts=starts)
        return self._noted(Checkup(name, kind, ok, detail, round(time.monotonic() - began, 3), _now()))

    async def _of_tool(self, name: str, *, starts: bool) -> Checkup | None:
        """A tool works if it is offered and its server or backend works."""
        began = time.monotonic()
        ref = next((ref for ref in self._refs() if name in (ref.id, ref.wire)), None)
        if ref is None:
            return None
        if ref.server == BRIDGE:
            return Checkup(ref.id, "tool", ok=True, detail="answered by the bridge", seconds=0.0, at=_now())
        owner = await self._check(ref.name if ref.server in (TOOLS, BUILTIN) else ref.server, starts=starts)
        if owner is None:
            return None
        detail = f"{owner.kind} {owner.name}: {owner.detail}" if owner.detail else f"{owner.kind} {owner.name} works"
        return Checkup(ref.id, "tool", owner.ok, detail, round(time.monotonic() - began, 3), _now())

    def _noted(self, checkup: Checkup) -> Checkup:
        before = self.last.get(checkup.name)
        self.last[checkup.name] = checkup
        if checkup.ok != (before is None or before.ok):
            log.warning("health changed", name=checkup.name, ok=checkup.ok, detail=checkup.detail)
        return checkup


async def _of_server(upstream: Upstream, *, starts: bool) -> tuple[bool, str]:
    try:
        with anyio.fail_after(_SECONDS):
            status = upstream.status
            if upstream.session is None and not starts and not status.reason and status.state in ("idle", "starting"):
                return True, "it rests; it starts at its next use" if status.state == "idle" else "it is starting"
            with upstream.usage.held(counts=False):  # else it may be stopped as idle before it has answered
                if upstream.session is None and starts:
                    if status.state in ("retrying", "failed"):  # who asks wants to know how it is now
                        upstream.connection.poke()
                        with anyio.move_on_after(1):
                            await upstream.connection.stepped()
                    await upstream.requests.ready()
                session = upstream.session
                if session is None:
                    return False, upstream.connection.state_text
                await session.ping()
                return True, f"it answers ({upstream.version}, {len(upstream.lists.get('tools', ()))} tools)"
    except TimeoutError:
        return False, f"no answer within {_SECONDS:g} s"
    except BridgeError as error:
        return False, str(error)


class PeriodicCheck:
    """Looks at everything every so many seconds."""

    def __init__(self, looking: HealthChecks, seconds: float) -> None:
        self._looking, self._seconds = looking, seconds

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """It does meanwhile."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._run)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()

    async def _run(self) -> None:
        while True:
            await anyio.sleep(self._seconds)
            try:
                await self._looking.check_all()
            except Exception as error:
                log.error("health check failed unexpectedly", exc_info=error)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
