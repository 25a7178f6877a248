"""`Engine`: builds everything from the settings, and runs it as one async context manager.

`generation.py` and `wiring/` build what follows from the settings. This file has what lives as long as the engine, and
the order of start and stop. Programs use it through `Bridge`.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from anyio import CancelScope

from mcpbridge.base.background_tasks import OwnedTasks
from mcpbridge.base.errors import BridgeClosed, BridgeError, ConfigError
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.catalog.definitions.cache import DefinitionCache
from mcpbridge.catalog.definitions.check import Kind
from mcpbridge.catalog.listing.list_ledger import ListLedger
from mcpbridge.catalog.refresh import Catalog
from mcpbridge.catalog.snapshot import Snapshot
from mcpbridge.catalog.snapshot_builder import SnapshotBuilder
from mcpbridge.config.schema import Settings
from mcpbridge.core.context import BridgeContext
from mcpbridge.core.events import EventBus
from mcpbridge.core.model import Call
from mcpbridge.downstream.client import Client
from mcpbridge.downstream.elicitation.program import Program, ProgramAnswers
from mcpbridge.downstream.requests.session_tools import Resolve
from mcpbridge.downstream.server import Server
from mcpbridge.engine.audit_trail import SIGNED_IN, AuditTrail
from mcpbridge.engine.generation import SharedState, build, identity_of, servers_of
from mcpbridge.engine.health_checks import HealthChecks
from mcpbridge.engine.history import History
from mcpbridge.engine.leases import Leases
from mcpbridge.engine.pins.enforcement import PinEnforcement
from mcpbridge.engine.registry.registry import Registry
from mcpbridge.engine.reload import Reloading
from mcpbridge.engine.requests import ProgramRequests
from mcpbridge.engine.running_calls import RunningCalls
from mcpbridge.engine.status import EngineStatus
from mcpbridge.engine.user_accounts import EngineAccounts, open_secrets_of
from mcpbridge.engine.wiring.builtin import BuiltinTools, builtin_context
from mcpbridge.engine.wiring.pipeline import CallState, PipelineContext, recorded_by
from mcpbridge.engine.wiring.results import LargeResults
from mcpbridge.engine.wiring.sandbox import Sandboxes
from mcpbridge.engine.wiring.search import ToolSearch
from mcpbridge.engine.wiring.tools import Backends, ProgramTool
from mcpbridge.engine.wiring.upstream_events import UpstreamEvents
from mcpbridge.pipeline.approvals.approvers import ApprovalHandler
from mcpbridge.pipeline.hooks.call import Hook
from mcpbridge.pipeline.observability.metrics import Metrics
from mcpbridge.pipeline.observability.recorder import Recorder
from mcpbridge.pipeline.permissions.policy import Policy
from mcpbridge.protocol.transport import Transport
from mcpbridge.storage.call_log.log import CallLog
from mcpbridge.storage.open_store import LazyStore
from mcpbridge.storage.settings import RunMode, call_log_path
from mcpbridge.tools.python.run_context.store import RunContexts
from mcpbridge.tools.serving import Serving
from mcpbridge.upstream.auth.context import AuthContext, Show
from mcpbridge.upstream.auth.grant import AuthTasks, SecretStore
from mcpbridge.upstream.manifest import Manifest
from mcpbridge.upstream.pool import Pool
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.startup_wait import StartupWait
from mcpbridge.upstream.transports.factory import TransportMaker

if TYPE_CHECKING:  # loaded by who has one
    from mcpbridge.catalog.tool_info import Representation
    from mcpbridge.engine.cassettes.cassette import Cassette
    from mcpbridge.engine.originals import Original
    from mcpbridge.upstream.auth.authorization import Authorization


_OF_PROGRAMS, _ROOM = ("artifact", "context", "finished"), 64 * 1024**2
"""What tools and runs of programs keep, and bytes of each kind: what is used least makes room."""


class Engine(Reloading, ProgramRequests, EngineStatus, RunningCalls):
    """One bridge, running: `async with Bridge(settings) as bridge`. Leaving ends every upstream and its processes."""

    def __init__(
        self,
        settings: Settings,
        *,
        redact: Callable[[str], str] | None = None,
        secrets: SecretStore | None = None,
        show: Show | None = None,
        is_interactive: bool = False,
        dependencies: Mapping[str, Any] | None = None,
        approver: ApprovalHandler | None = None,
        hooks: Sequence[Hook] = (),
        is_whole: bool = True,
        manifest: Manifest | None = None,
        sights: Path | None = None,
        project: str = "",
        answers: ProgramAnswers | None = None,
        tools: Mapping[str, ProgramTool] | None = None,
        resolver: Resolve | None = None,
        cassette: "Cassette | None" = None,
        mode: RunMode = "embedded",
    ) -> None:
        """`redact` masks secrets in reports of failures; a `Redactor`, as by default, also learns new tokens.

        `secrets` keeps what signing in brings (by default files of the user), `show` opens authorization pages, which
        happens unasked only with `is_interactive` or where a server's settings say so. `dependencies` is what hooks and
        local tools find in `call.context.dependencies`. `approver` is asked first whether a call may be made that
        somebody must agree to. `hooks` see calls, after those of the configuration: see `pipeline/hooks/call.py`.
        `is_whole`: these are all servers that there are; otherwise what rules and hooks name may be of others.
        `manifest` remembers what servers offered, so that they need not run to be listed; None: nothing does.
        `sights` is the directory that keeps what was seen of servers first; None: that is known until the end only.
        `tools` are backends of the program, by name, beside those of the settings; see `set_backend` for later ones.
        `resolver` computes further tools for single clients; see `resolve_again`.
        `answers`: what upstreams may ask of the program during its calls; None: nothing.
        `project` is the `file://` URI of the directory that `request` and `call_tools` work in; empty: in none.
        `cassette` records what crosses to upstreams, or answers in their place; then `manifest` is left alone.
        `mode` decides what of calls is recorded where the settings do not say.

        Raises:
            ConfigError: `settings` are not checked settings; `Bridge.open` reads a file or its tables.
        """
        if not isinstance(settings, Settings):  # pyright: ignore[reportUnnecessaryIsInstance] - of programs without types
            what = f"Bridge(...) takes Settings that were checked, not {type(settings).__name__}"
            raise ConfigError(what, key="settings", hint="Bridge.open(...) reads a file or its tables as a mapping.")
        redact = redact if redact is not None else Redactor()
        self._cassette = cassette
        if cassette is not None:
            cassette.begin(redact)
            settings, manifest = cassette.settings(settings), None
        self._manifest, self._is_whole, self._project = manifest, is_whole, project
        self._sights = sights if cassette is None else None
        self.settings = settings
        self.config_error = None
        self._hooks = tuple(hooks)
        self._program_tools = dict(tools or {})
        self._resolver = resolver
        self._sandboxes = Sandboxes()
        self.events = EventBus()
        """What happens: `async for event in bridge.events()`. See `Event`."""
        tenants = {token.name: token.tenant for token in settings.http.tokens if token.tenant}
        self._program = Program(answers, project)
        observe = settings.observe
        self.metrics = Metrics(max_tools=observe.max_tools, max_clients=observe.max_clients)
        self._redact = self.redact = redact
        self._approver = approver
        self.store = LazyStore(settings.store)
        """What outlives a call; opened when there is something to keep."""
        for kind in _OF_PROGRAMS:
            self.store.bound(kind, _ROOM)
        self.contexts = RunContexts(self.store, self.events)
        """What handlers keep over the calls of a run."""
        self._context = BridgeContext(
            dependencies or {}, self.events, tenants, self.store, contexts=self.contexts, redact=redact
        )
        where = partial(call_log_path, settings.call_log, settings.store)
        self.audit = CallLog(where, settings.call_log, redact=redact)
        """Where approvals are written down, and calls if they are."""
        self._mode: RunMode = mode
        self.recorder = Recorder(self.audit, self.events, recorded_by(settings, mode))
        """Which calls are."""
        self.trail = AuditTrail()
        self.history = History(self.audit, self.recorder, self.metrics, self.events, self.trail)
        """What else the call log keeps."""
        self._flights = AuthTasks()
        around = AuthContext(
            secrets or open_secrets_of(lambda: self.settings),
            self._flights.spawn,
            show,
            is_interactive=is_interactive,
            learn=redact.learn if isinstance(redact, Redactor) else lambda name, secrets: None,
        )
        self._transports = TransportMaker(
            max_bytes=settings.limits.max_frame,
            redact=redact,
            around=around,
            runner=lambda: self._sandboxes.of(self.settings),
        )
        self._transports.signed_in = self._signed_in
        self.user_accounts = EngineAccounts(
            lambda: self.settings,
            around,
            pool=lambda: self.pool,
            forget_results=lambda server: self.clear_cache(server=server),
            note=self.trail.note,
        )
        """The accounts of single users at servers."""
        self._started = time.monotonic()
        self._has_settled = False
        self._stack = None
        self._has_ended = False
        self.leases = Leases()
        self._background = OwnedTasks()
        self._watching = OwnedTasks()
        """What runs as long as the bridge does."""
        self._reloads = asyncio.Lock()
        self._wanted = self._base = settings
        kept, spawn = self.store.shared, self._background.spawn
        self.registry = Registry(kept, lambda: self._base, self._apply_registry, redact, spawn, is_whole=is_whole)
        self._needs_restart = ()

    @property
    def policy(self) -> Policy:
        """Who may call what, and sees what."""
        return self._generation.policy

    @property
    def tool_search(self) -> ToolSearch:
        """Which tools clients are listed, and how others are found."""
        return self._generation.tool_search

    @property
    def call_log(self) -> CallLog | None:
        """Where calls are written down; None if they are not."""
        return self.audit if self.recorder.recorded.grade != "off" else None

    async def __aenter__(self) -> Self:
        if self._stack is not None:
            raise BridgeClosed("a bridge runs once: make another one")
        self._stack = self._running()
        return await self._stack.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._has_ended = True
        return await self._stack.__aexit__(kind, error, trace)

    @asynccontextmanager
    async def _running(self) -> AsyncGenerator[Self]:
        self._build()
        self._expect_project()
        async with AsyncExitStack() as stack:
            if self._cassette is not None:
                stack.enter_context(self._cassette.running())  # ends last: what ends says its last words
            for part in (
                self.store.running(),  # ends last of these
                self._closing_logs(),
                self.history.running(),
                self.user_accounts.running(),
                self._flights.running(),
                self.leases.running(),
            ):
                await stack.enter_async_context(part)
            await self._generation.lease.begin()
            # Nothing waits from here on: a client that is there already is heard before servers are talked to, which
            # are told what it can be asked.
            for part in (
                self.pool.running(),
                self.results.running(),
                self.list_ledger.running(),
                self.backends.extra.running(),
                self._shared.calls.running(),
                self._background.running(),
                self._watching.running(),
            ):
                await stack.enter_async_context(part)
            self._background.spawn(self._load_registry())
            self._watching.spawn(self.pins.watch(self.review_pins))
            if self.recorder.recorded.grade == "all":
                self.audit.recover()
            try:
                yield self
            finally:
                self.history.end()
                self._shared.calls.end()
                self.server.end()
                self.events.end()

    def _build(self) -> None:
        """Everything, of which nothing runs yet."""
        settings = self.settings
        identity = identity_of(settings)
        cache = DefinitionCache(self._manifest.aside, self._manifest.put_aside) if self._manifest is not None else None
        self.catalog = Catalog({}, SnapshotBuilder(cache=cache))
        self.pins = PinEnforcement(
            self._sights, self._redact, self._tools_by_server, self._held_changed, self.history.note
        )
        self.pins.configure(settings)
        self._upstream_events = UpstreamEvents(self.catalog, self.history.note, self.pins)
        self.pool = Pool(
            servers_of(settings),
            self._make_transport,
            self._upstream_events,
            client_info={"name": identity.name, "version": identity.version},
            manifest=self._manifest,
            warm_up=settings.daemon.warm_up,
            revalidate=settings.daemon.revalidate,
            redact=self._redact,
            require_account=self.user_accounts.require,
        )
        lifetime = settings.results.lifetime
        self.results = LargeResults(self.store, self.catalog, self.metrics, lifetime=lifetime, redact=self._redact)
        self.list_ledger = ListLedger(
            self.store, lambda: self.settings.source or "", lambda: self.settings.results.tokenizer
        )
        self._serving = Serving(self._redact)
        self.backends = Backends(
            self.catalog,
            self._serving,
            self._sandboxes.of,
            self._redact,
            self._backend_changed,
            self._cassette,
            self.pins,
        )
        self.backends.extra.resolve = self._resolver
        builtins = self._builtins = BuiltinTools(self.catalog, self._serving, self._backend_changed, self._cassette)
        self.health_checks = HealthChecks(self.pool, self.catalog, self.backends, builtins)
        self.startup = StartupWait(
            self.pool,
            settings.bridge.startup_wait,
            self.results.loaded,
            lambda: self.registry.loaded.is_set() and self.backends.have_settled and builtins.have_settled,
            is_fixed="startup_wait" in settings.bridge.model_fields_set,
        )
        context = PipelineContext(
            self.pool,
            self.store,
            self.store.shared,
            self.audit,
            self.recorder,
            self._mode,
            self.metrics,
            self.events,
            self._approver,
            self._hooks,
            self._redact,
            self.trail,
            self.pins.judge,
            self.pins.changes_of,
        )
        calls = CallState(settings, context)
        self.approvals = calls.approvals
        self._shared = SharedState(
            self.catalog,
            self.startup,
            context,
            calls,
            self.results,
            self.backends,
            builtins,
            self.health_checks,
            partial(builtin_context, sandboxes=self._sandboxes, report=self._caller_status),
            self._is_whole,
            self._manifest,
        )
        self._generation = build(settings, self._shared, self.leases.lease(), None, self._program_tools)
        self.catalog.on_change(self._catalog_changed)
        self.server = Server(
            self._generation.service,
            self.catalog,
            self.pool,
            calls.plans,
            self.startup,
            calls.abandoned,
            self.results.kept_results,
            around=self._context,
            works_on=lambda call: self.pool.works_on(call) or self._serving.works_on(call),
            missing=lambda name: self.backends.why_missing(name) or builtins.why_missing(name),
            on_unplanned=self._unplanned,
            note=self.history.note,
            on_listed=self.list_ledger.note,
        )
        self._upstream_events.begin(self.server.news, calls.cache, self.startup, lambda: self._generation.unmatched)
        self._generation.take_effect(self._shared)
        self._note_own_tools()

    @asynccontextmanager
    async def _closing_logs(self) -> AsyncGenerator[None]:
        """Closes what was written to, after everybody who writes; each takes seconds at most."""
        try:
            yield
        finally:
            with CancelScope(shield=True):
                self.recorder.end()
                await self.audit.close()

    def _unplanned(self, client: Client, name: str, refused: BridgeError) -> None:
        self.metrics.refused_unplanned(client.name, refused)
        self.trail.note_unplanned(client, name, refused)

    def _signed_in(self, name: str) -> None:
        """There is a token for a server that could not be used without: try it at once."""
        self.trail.note(SIGNED_IN, {"server": name})
        for upstream in self.pool.everyone():
            if upstream.name == name:
                upstream.connection.poke()

    async def _load_registry(self) -> None:
        await self.registry.load()
        self.startup.noticed()

    async def command(self, name: str, command: str, data: Mapping[str, Any] | None = None) -> Any:
        """Have a backend (by the name of its table) do a management command (`warmup`, `reindex`).

        Cancelling this asks the backend to stop; what it did by then stays.

        Raises:
            UnknownName: there is no such backend, or it has no such command.
            UpstreamError: it failed.
        """
        return await self.backends.command(name, command, data or {})

    def representations(self, query: str = "") -> "list[Representation]":
        """What is known of every tool, by id, of those that a boolean query holds for.

        Raises:
            QueryProblem: the query cannot be read.
        """
        from mcpbridge.catalog.search.query_filters import parse_query
        from mcpbridge.engine.wiring.tool_info import representations

        self.catalog.flush()
        found = representations(self.catalog.snapshot, self.settings, self.backends.names())
        holds = parse_query(query).holds
        return [one for one in found if not query or holds(one.texts())]

    def originals(self, server: str = "") -> "list[Original]":
        """What servers (or this one) list, each definition as it was sent beside what clients are given of it.

        What a server sent can hold anything, hidden characters too.
        """
        from mcpbridge.engine.originals import originals

        self.catalog.flush()
        lists = {name: one.lists for name, one in self.pool.upstreams.items() if server in ("", name)}
        return originals(lists, self.catalog.snapshot)

    def resolve_again(self, session: str = "") -> None:
        """Ask the resolver anew what tools there are for this session (its id), or for all; clients are notified."""
        self.backends.extra.forget(session)
        self.server.extra_tools_changed(session)

    # -- for commands and programs

    def authorization(self, server: str) -> "Authorization | None":
        """The sign-in of a server; None when it is not one that people can sign in to."""
        return self._transports.authorizations.get(server)

    def check_before_start(self, check: Callable[[str], None]) -> None:
        """Have `check` called with the name of a server before a program of it is started; it raises to refuse that."""
        self._transports.before_start = check

    def clear_cache(self, *, server: str = "", tool: str = "") -> int:
        """Forget kept results: all, those of one server, or of tools whose id (`server/tool`) matches a glob.

        Says how many results were forgotten.
        """
        return self._shared.calls.cache.clear(server, tool)

    def cache_status(self) -> dict[str, Any]:
        """What is kept of results and how it served since the start, as JSON values; sizes in bytes."""
        return self._shared.calls.cache.status()

    # -- parts

    def _tools_by_server(self) -> Mapping[str, Sequence[str]]:
        found = defaultdict[str, list[str]](list)
        for ref in self.catalog.snapshot.tools.values():
            found[ref.server].append(ref.name)
        return found

    def _held_changed(self, server: str) -> None:
        self._shared.calls.plans.forget(server)

    def _backend_changed(self) -> None:
        self._note_own_tools()
        self.startup.noticed()

    async def _caller_status(self, call: Call, name: str) -> Mapping[str, Any]:
        from mcpbridge.engine.caller_status import caller_status

        calls = self._shared.calls
        return await caller_status(
            call,
            name,
            self._generation,
            self.catalog,
            self.pool,
            self.results.kept_results,
            calls.session_counts,
            calls.budgets,
        )

    def _catalog_changed(self, snapshot: Snapshot, kinds: frozenset[Kind]) -> None:
        self._generation.tool_search.catalog_changed(snapshot, kinds)

    def _make_transport(self, name: str, settings: ServerSettings, user: str | None = None) -> Transport:
        if self._cassette is not None:
            return self._cassette.transport(name, settings, self._transports)
        if settings.auth.is_per_user:
            self._transports.users = self.user_accounts.all
        return self._transports(name, settings, user)
