"""The parts of a running engine, by name.

`Engine` creates them. Requests, reloads and the status are separate classes over the same parts.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from mcpbridge.base.background_tasks import OwnedTasks
from mcpbridge.base.errors import BridgeClosed
from mcpbridge.catalog.listing.list_ledger import ListLedger
from mcpbridge.catalog.refresh import Catalog
from mcpbridge.config.schema import Settings
from mcpbridge.core.context import BridgeContext
from mcpbridge.downstream.elicitation.program import Program
from mcpbridge.downstream.server import Server
from mcpbridge.engine.audit_trail import AuditTrail
from mcpbridge.engine.generation import Generation, SharedState
from mcpbridge.engine.health_checks import HealthChecks
from mcpbridge.engine.history import History
from mcpbridge.engine.leases import Leases
from mcpbridge.engine.pins.enforcement import PinEnforcement
from mcpbridge.engine.registry.registry import Registry
from mcpbridge.engine.wiring.builtin import BuiltinTools
from mcpbridge.engine.wiring.results import LargeResults
from mcpbridge.engine.wiring.sandbox import Sandboxes
from mcpbridge.engine.wiring.tools import Backends, ProgramTool
from mcpbridge.engine.wiring.upstream_events import UpstreamEvents
from mcpbridge.pipeline.approvals.pending import PendingApprovals
from mcpbridge.pipeline.observability.metrics import Metrics
from mcpbridge.pipeline.observability.recorder import Recorder
from mcpbridge.storage.call_log.log import CallLog
from mcpbridge.storage.open_store import LazyStore
from mcpbridge.upstream.pool import Pool
from mcpbridge.upstream.startup_wait import StartupWait
from mcpbridge.upstream.transports.factory import TransportMaker

if TYPE_CHECKING:  # loaded by who has one
    from mcpbridge.engine.cassettes.cassette import Cassette
    from mcpbridge.pipeline.observability.tracing_setup import OpenTelemetry
    from mcpbridge.pipeline.stages.lost_memory import Processes
    from mcpbridge.upstream.transports.continued_sessions import SessionKeeper
    from mcpbridge.upstream.transports.in_fleet import FleetPlaces

    class FleetServers(FleetPlaces, Processes, Protocol):
        """The servers that the fleet has once."""


_BUILT = frozenset({
    "server", "pool", "pins", "catalog", "startup", "backends", "health_checks", "results", "list_ledger", "approvals",
    "_generation", "_shared",
})  # fmt: skip
"""What there is once the bridge runs."""


class EngineState:
    """The parts of an engine; those of `_BUILT` exist once it runs."""

    settings: Settings
    """What is in effect."""
    config_error: Mapping[str, str] | None
    """What is wrong with a configuration that was to take effect: `message`, `file`, `line`, `at`; see `status`."""
    metrics: Metrics
    """What is counted of calls, since this was made."""
    store: LazyStore
    """What outlives a call."""
    audit: CallLog
    """Where approvals are written down, and calls if they are."""
    recorder: Recorder
    """Which calls are."""
    trail: AuditTrail
    """The audit log in effect."""
    history: History
    """What else the call log keeps: what happens, and what is counted."""
    registry: Registry
    """Servers and tools that come, change and go while the bridge runs."""
    server: Server
    pool: Pool
    pins: PinEnforcement
    """What servers show and nobody agreed to."""
    catalog: Catalog
    startup: StartupWait
    backends: Backends
    """Tools that no server has."""
    health_checks: HealthChecks
    """Whether servers, backends and tools work."""
    results: LargeResults
    """Kept results, and what is counted of them."""
    list_ledger: ListLedger
    """What lists of tools cost clients."""
    approvals: PendingApprovals
    """Calls that wait for a person to agree."""
    leases: Leases
    """What runs because the settings say so."""

    _builtins: BuiltinTools
    _cassette: "Cassette | None"
    _context: BridgeContext
    _program_tools: dict[str, ProgramTool]
    """Tools of the program, by name."""
    _generation: Generation
    """What follows from the settings in effect."""
    _shared: SharedState
    _upstream_events: UpstreamEvents
    _program: Program
    """The program as a client of the bridge."""
    _background: OwnedTasks
    """What runs by itself, and ends with the bridge."""
    _sandboxes: Sandboxes
    _transports: TransportMaker

    _reloads: asyncio.Lock
    """Reloads wait for one another."""
    _wanted: Settings
    """What was last to take effect, whether or not all of it did."""
    _base: Settings
    """The same without what the registry says over it."""
    _needs_restart: tuple[str, ...]
    """Sections of the wanted settings that take effect with a restart only."""

    _started: float
    """When this was made, on the monotonic clock."""
    _has_settled: bool
    _project: str
    """The `file://` URI of the directory that the program works in; empty: in none."""
    _stack: Any
    """What ends the engine; None before it runs."""
    _has_ended: bool

    def join_fleet(self, places: "FleetServers") -> None:
        """Servers that the fleet has once are where this says."""
        self._transports.membership.join(places)
        self._shared.calls.lost_memory.join(places)

    def otel(self) -> "OpenTelemetry | None":
        """What traces calls now; None: nothing does."""
        return self._shared.calls.otel

    def stopped_servers(self) -> list[str]:
        """Servers at an address to which no calls pass, since all of them failed."""
        return [
            name
            for name, one in self.pool.upstreams.items()
            if one.settings.url is not None and one.requests.breaker_state != "closed"
        ]

    def warn_of(self, server: str) -> None:
        """Calls of another bridge to this server were stopped."""
        one = self.pool.upstreams.get(server)
        if one is not None and one.settings.url is not None:
            one.requests.breaker.warn()

    def keep_sessions(self, keeper: "Callable[[str, object, str], SessionKeeper | None]") -> None:
        """Sessions of one client with a server are written down for other bridges; see `Pool.keeper`."""
        self.pool.keeper = keeper

    def leave_fleet(self) -> None:
        """They cannot be used any more."""
        self.pool.keeper = None
        self._transports.membership.join(None)
        self._shared.calls.lost_memory.join(None)

    if not TYPE_CHECKING:  # else every name would pass for one that there is

        def __getattr__(self, name: str) -> Any:
            """What is built when the bridge begins to run is not there before."""
            if name in _BUILT:
                raise BridgeClosed(f"the bridge does not run yet, so it has no `{name}`: use `async with`")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def require_running(self) -> None:
        """Refuse work before the bridge runs, or afterwards.

        Raises:
            BridgeClosed: it does not run.
        """
        if self._stack is None or self._has_ended:
            raise BridgeClosed(
                "the bridge has ended" if self._has_ended else "the bridge does not run: use `async with`"
            )
