"""`Engine`: builds everything from settings, as one async context manager. `Bridge` is what programs see of it."""

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec
from anyio import CancelScope, move_on_after
from msgspec import Raw

from mcpbridge.base.background_tasks import OwnedTasks
from mcpbridge.base.errors import BridgeClosed, BridgeError
from mcpbridge.base.log import get_logger
from mcpbridge.base.redaction import Redactor
from mcpbridge.base.version import __version__
from mcpbridge.catalog.definitions.cache import DefinitionCache
from mcpbridge.catalog.definitions.check import Kind
from mcpbridge.catalog.refresh import Catalog
from mcpbridge.catalog.snapshot import Snapshot
from mcpbridge.catalog.snapshot_builder import SnapshotBuilder
from mcpbridge.catalog.tool_info import Representation
from mcpbridge.config.load import Reloaded, changed_sections, in_effect
from mcpbridge.config.schema import Settings
from mcpbridge.core.context import BridgeContext, Session, new_run
from mcpbridge.core.elicitation import NO_CAPABILITIES
from mcpbridge.core.events import EventBus
from mcpbridge.core.model import Call
from mcpbridge.downstream.client import Notify
from mcpbridge.downstream.elicitation.program import Program, ProgramAnswers
from mcpbridge.downstream.errors import failed_call
from mcpbridge.downstream.requests.session_tools import Resolve
from mcpbridge.downstream.server import Server
from mcpbridge.engine.generation import Generation, Standing, build, identity_of, servers_of
from mcpbridge.engine.health_checks import Looking
from mcpbridge.engine.leases import Holdings, Lease
from mcpbridge.engine.registry.registry import Registry
from mcpbridge.engine.session_tools import check_names
from mcpbridge.engine.status import dropped, servers_standing
from mcpbridge.engine.wiring.builtin import BuiltinParts, Sandboxes, builtin_context
from mcpbridge.engine.wiring.pipeline import CallState, PipelineContext
from mcpbridge.engine.wiring.results import ResultParts
from mcpbridge.engine.wiring.search import RoutingParts
from mcpbridge.engine.wiring.tools import BackendParts, Given
from mcpbridge.engine.wiring.upstream_events import Observing
from mcpbridge.pipeline.approvals.approvers import ApprovalHandler
from mcpbridge.pipeline.approvals.pending import PendingApprovals
from mcpbridge.pipeline.hooks.call import Hook
from mcpbridge.pipeline.observability.metrics import Metrics
from mcpbridge.pipeline.permissions.policy import Policy
from mcpbridge.protocol.json_values import decoded
from mcpbridge.protocol.jsonrpc import Frame, encode
from mcpbridge.protocol.meta import CONTEXT, RUN, TURN
from mcpbridge.protocol.transport import Transport
from mcpbridge.storage.audit_log import CallLog
from mcpbridge.storage.open_store import LazyStore
from mcpbridge.storage.settings import call_log_path
from mcpbridge.storage.store import Store
from mcpbridge.storage.token_store import SealedFiles
from mcpbridge.tools.python.run_context.store import RunContexts
from mcpbridge.tools.serving import Serving
from mcpbridge.upstream.auth.authorization import Authorization
from mcpbridge.upstream.auth.grant import AuthTasks, SecretStore
from mcpbridge.upstream.auth.oauth_tokens import AuthContext, Show
from mcpbridge.upstream.manifest import Manifest
from mcpbridge.upstream.pool import Pool
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.startup_wait import StartupWait
from mcpbridge.upstream.transports.factory import TransportMaker

if TYPE_CHECKING:  # loaded by who has one
    from mcpbridge.engine.cassettes.cassette import Cassette


log = get_logger("mcpbridge")


_BUILT = frozenset(
    ("server", "pool", "catalog", "startup", "backends", "looking", "results", "approvals", "_now", "_standing")
)
"""What there is once the bridge runs."""
_OF_PROGRAMS, _ROOM = ("artifact", "context", "finished"), 64 * 1024**2
"""What tools and runs of programs keep, and bytes of each kind: what is used least makes room."""


def _as_json(params: Mapping[str, Any]) -> Raw:
    try:
        return Raw(encode(params))
    except (TypeError, ValueError, RecursionError):  # models, or no JSON at all
        from mcpbridge.engine.session_tools import params_json

        return params_json(params)


def _unheard(message: bytes) -> None:
    """For requests whose sender wants to hear nothing meanwhile."""


class RequestFailed(BridgeError):
    """A request made through `Bridge.request` was answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data


class Engine:
    """One bridge, running: `async with Bridge(settings) as bridge`. Leaving ends every upstream and its processes."""

    def __init__(
        self,
        settings: Settings,
        *,
        redact: Callable[[str], str] = lambda text: text,
        secrets: SecretStore | None = None,
        show: Show | None = None,
        is_interactive: bool = False,
        dependencies: Mapping[str, Any] | None = None,
        approver: ApprovalHandler | None = None,
        hooks: Sequence[Hook] = (),
        is_whole: bool = True,
        manifest: Manifest | None = None,
        project: str = "",
        answers: ProgramAnswers | None = None,
        tools: Mapping[str, Given] | None = None,
        resolver: Resolve | None = None,
        cassette: "Cassette | None" = None,
    ) -> None:
        """`redact` masks secrets in what upstreams say before it is kept or shown; a `Redactor` also learns new tokens.

        `secrets` keeps what signing in brings (by default files of the user), `show` opens authorization pages, which
        happens unasked only with `is_interactive` or where a server's settings say so. `dependencies` is what hooks and
        local tools find in `call.context.dependencies`. `approver` is asked first whether a call may be made that
        somebody must agree to. `hooks` see calls, after those of the configuration: see `hooks/calls.py`.
        `is_whole`: these are all servers that there are; otherwise what rules and hooks name may be of others.
        `manifest` remembers what servers offered, so that they need not run to be listed; None: nothing does.
        `tools` are backends of the program, by name, beside those of the settings; see `set_backend` for later ones.
        `resolver` computes further tools for single clients; see `resolve_again`.
        `answers`: what upstreams may ask of the program during its calls; None: nothing.
        `project` is the `file://` URI of the directory that `request` and `call_tools` work in; empty: in none.
        `cassette` records what crosses to upstreams, or answers in their place; then `manifest` is left alone.
        """
        self._cassette = cassette
        if cassette is not None:
            cassette.begin(redact)
            settings, manifest = cassette.settings(settings), None
        self._manifest, self._is_whole, self._project = manifest, is_whole, project
        self.settings = settings
        """What is in effect."""
        self.config_error: Mapping[str, str] | None = None
        """What is wrong with a configuration that was to take effect: `message`, `file`, `line`, `at`; see `status`."""
        self._functions = tuple(hooks)
        self._given: dict[str, Given] = dict(tools or {})
        self._resolver = resolver
        self._sandboxes = Sandboxes()
        self.events = EventBus()
        """What happens: `async for event in bridge.events()`. See `Event`."""
        tenants = {token.name: token.tenant for token in settings.http.tokens if token.tenant}
        self._program = Program(answers, project)
        observe = settings.observe
        self.metrics = Metrics(max_tools=observe.max_tools, max_clients=observe.max_clients)
        """What is counted of calls, since this was made."""
        self._redact = self.redact = redact
        self._approver = approver
        self.store: Store = LazyStore(settings.store)
        """What outlives a call; opened when there is something to keep."""
        for kind in _OF_PROGRAMS:
            self.store.bound(kind, _ROOM)
        self.contexts = RunContexts(self.store, self.events)
        """What handlers keep over the calls of a run."""
        self._context = BridgeContext(dependencies or {}, self.events, tenants, self.store, contexts=self.contexts)
        where = partial(call_log_path, settings.call_log, settings.store)
        self.audit = CallLog(where, settings.call_log, redact=redact)
        """Where approvals are written down, and calls if they are."""
        self._flights = AuthTasks()
        around = AuthContext(
            secrets or SealedFiles(),
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
        self._started = time.monotonic()
        self._has_settled = False
        self._stack: Any = None
        self._has_ended = False
        self.holdings = Holdings()
        """What runs because the settings say so."""
        self._retired = OwnedTasks()
        self._reloads = asyncio.Lock()
        self._wanted = self._base = settings
        """What was last to take effect, whether or not all of it did; and the same without what was said over it."""
        self.registry = Registry(
            self.store, lambda: self._base, self._apply_registry, redact, self._retired.spawn, is_whole=is_whole
        )
        """Servers and tools that come, change and go while the bridge runs."""
        self._needs_restart: tuple[str, ...] = ()
        self._now: Generation
        self._standing: Standing
        self.server: Server
        self.pool: Pool
        self.catalog: Catalog
        self.startup: StartupWait
        self.backends: BackendParts
        """Tools that no server has."""
        self.looking: Looking
        """Whether servers, backends and tools work."""
        self.results: ResultParts
        """Kept results, and what is counted of them."""
        self.approvals: PendingApprovals
        """Calls that wait for a person to agree."""

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

    @property
    def policy(self) -> Policy:
        """Who may call what, and sees what."""
        return self._now.policy

    @property
    def routing(self) -> RoutingParts:
        """Which tools clients are listed, and how others are found."""
        return self._now.routing

    @property
    def call_log(self) -> CallLog | None:
        """Where calls are written down; None if they are not."""
        return self.audit if self.settings.call_log.enabled else None

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
        self._tell_project()
        async with AsyncExitStack() as stack:
            if self._cassette is not None:
                stack.enter_context(self._cassette.running())  # ends last: what ends says its last words
            for part in (self._keeping(), self._flights.running(), self.holdings.running()):
                await stack.enter_async_context(part)
            await self._now.lease.begin()
            # Nothing waits from here on: a client that is there already is heard before servers are talked to, which
            # are told what it can be asked.
            for part in (
                self.pool.running(),
                self.results.running(),
                self.backends.extra.running(),
                self._standing.calls.running(),
                self._retired.running(),
            ):
                await stack.enter_async_context(part)
            self._retired.spawn(self._load_registry())
            try:
                yield self
            finally:
                self._standing.calls.end()
                self.server.end()
                self.events.end()

    def _build(self) -> None:
        """Everything, of which nothing runs yet."""
        settings = self.settings
        identity = identity_of(settings)
        cache = DefinitionCache(self._manifest.aside, self._manifest.put_aside) if self._manifest is not None else None
        self.catalog = Catalog({}, SnapshotBuilder(cache=cache))
        self._observing = Observing(self.catalog)
        self.pool = Pool(
            servers_of(settings),
            self._make_transport,
            self._observing,
            client_info={"name": identity.name, "version": identity.version},
            manifest=self._manifest,
            warm_up=settings.daemon.warm_up,
            revalidate=settings.daemon.revalidate,
        )
        lifetime = settings.results.lifetime
        self.results = ResultParts(self.store, self.catalog, self.metrics, lifetime=lifetime, redact=self._redact)
        self._serving = Serving()
        self.backends = BackendParts(
            self.catalog, self._serving, self._sandboxes.of, self._redact, self._backend_changed, self._cassette
        )
        self.backends.extra.resolve = self._resolver
        builtins = self._builtins = BuiltinParts(self.catalog, self._serving, self._backend_changed, self._cassette)
        self.looking = Looking(self.pool, self.catalog, self.backends, builtins)
        self.startup = StartupWait(
            self.pool,
            settings.bridge.startup_wait,
            self.results.loaded,
            lambda: self.registry.loaded.is_set() and self.backends.have_settled and builtins.have_settled,
        )
        context = PipelineContext(
            self.pool,
            self.store,
            self.audit,
            self.metrics,
            self.events,
            self._approver,
            self._functions,
            self._redact,
        )
        calls = CallState(settings, context)
        self.approvals = calls.approvals
        self._standing = Standing(
            self.catalog,
            self.startup,
            context,
            calls,
            self.results,
            self.backends,
            builtins,
            self.looking,
            partial(builtin_context, sandboxes=self._sandboxes, tell=self._tell),
            self._is_whole,
        )
        self._now = build(settings, self._standing, self.holdings.lease(), None, self._given)
        self.catalog.on_change(self._catalog_changed)
        self.server = Server(
            self._now.service,
            self.catalog,
            self.pool,
            calls.plans,
            self.startup,
            calls.abandoned,
            self.results.shelf,
            around=self._context,
            works_on=lambda call: self.pool.works_on(call) or self._serving.works_on(call),
            missing=lambda name: self.backends.why_missing(name) or builtins.why_missing(name),
        )
        self._observing.begin(self.server.news, calls.cache, self.startup, lambda: self._now.unmatched)
        self._now.take_effect(self._standing)
        self._note_own()

    @asynccontextmanager
    async def _keeping(self) -> AsyncGenerator[None]:
        """Closes what was written to, after everybody who writes; each takes seconds at most."""
        try:
            yield
        finally:
            with CancelScope(shield=True):
                await self.audit.close()
                await self.store.close()

    def _signed_in(self, name: str) -> None:
        """There is a token for a server that could not be used without: try it at once."""
        for upstream in self.pool.everyone():
            if upstream.name == name:
                upstream.connection.poke()

    def _tell_project(self) -> None:
        """Those who ask in this process work in this project: servers that wait for one start for it."""
        if self._project:
            self.pool.expect(NO_CAPABILITIES, project=self._project)

    # -- other settings

    async def reload(self, settings: Settings) -> Reloaded:
        """Go on with these settings: what they change is changed, and nothing else is disturbed.

        Calls under way end as they began, at the server that has them; those that come after this get the new. It
        returns once servers that came are being started and those that went are being stopped. Reloads wait for one
        another.

        Raises:
            ConfigError: something that the settings switch on cannot be had here; nothing was changed.
        """
        async with self._reloads:
            base, self._base = self._base, settings
            try:
                done = await self._apply(self.registry.over(settings))
            except BaseException:
                self._base = base
                raise
            self._retired.spawn(self.backends.try_again())
            return done

    async def _apply_registry(
        self, over: Callable[[Settings], Settings], rebase: Callable[[Settings], Settings]
    ) -> Reloaded:
        async with self._reloads:
            base = rebase(self._base)
            done = await self._apply(over(base))
            self._base = base
            return done

    async def _load_registry(self) -> None:
        await self.registry.load()
        self.startup.noticed()

    async def set_backend(self, name: str, given: Given | None) -> None:
        """Add a backend of the program, put it in the place of its last one, or (None) take it out.

        Calls under way end as they began.

        Raises:
            ConfigError: a server or a tool of the settings has this name.
        """
        self.require_running()
        async with self._reloads:
            before = dict(self._given)
            if given is None:
                self._given.pop(name, None)
            else:
                self._given[name] = given
            try:
                await self._apply(self._wanted, is_same=False)
            except BaseException:
                self._given = before
                raise

    async def command(self, name: str, command: str, data: Mapping[str, Any] | None = None) -> Any:
        """Have a backend (by the name of its table) do a management command (`warmup`, `reindex`).

        Raises:
            UnknownName: there is no such backend, or it has no such command.
            UpstreamError: it failed.
        """
        return await self.backends.command(name, command, data or {})

    def representations(self, query: str = "") -> list[Representation]:
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

    def resolve_again(self, session: str = "") -> None:
        """Ask the resolver anew what tools there are for this session (its id), or for all; clients are told."""
        self.backends.extra.forget(session)
        self.server.extra_tools_changed(session)

    async def _apply(self, settings: Settings, *, is_same: bool = True) -> Reloaded:
        """Go on with these settings. `is_same`: backends of the program are as they were."""
        if is_same and settings == self._wanted:
            return Reloaded(needs_restart=self._needs_restart)
        before = self._now
        effective, needs_restart = in_effect(before.settings, settings)
        if self._cassette is not None:
            effective = self._cassette.settings(effective)
        after = await self._begun(effective)
        self._switch(before, after)
        self._wanted, self._needs_restart = settings, needs_restart
        self._retired.spawn(self._end_after_calls(before.lease, self._under_way()))
        changed = await self.pool.configure(after.servers)
        for name in changed.removed:
            self._transports.forget(name)
            self._observing.forget(name)
        self._tell_project()
        self.server.servers_changed()
        return Reloaded(
            changed.added,
            changed.removed,
            changed.replaced,
            tuple(name for name in changed.kept if before.servers[name] != after.servers[name]),
            changed_sections(before.settings, effective),
            needs_restart,
        )

    async def _begun(self, settings: Settings) -> Generation:
        """A generation that could take effect at once."""
        lease = self.holdings.lease()
        try:
            generation = build(settings, self._standing, lease, self._now, self._given)
            await lease.begin()
        except BaseException:
            lease.end()
            raise
        return generation

    def _switch(self, before: Generation, after: Generation) -> None:
        """From one moment to the next. Nothing in here waits."""
        with self.server.switching(after.service):
            self.settings, self._now = after.settings, after
            before.before(self._standing, after)
            after.take_effect(self._standing)
            self.catalog.flush()
        after.routing.search.refresh()
        self._note_own()
        for upstream in self.pool.upstreams.values():
            if upstream.lists:
                self._observing.note_unmatched(upstream.name, upstream.lists)

    def _under_way(self) -> set[asyncio.Task[Any]]:
        """The tasks in which calls run."""
        return self.server.under_way() | self._standing.calls.cache.runs.under_way()

    async def _end_after_calls(self, lease: Lease, calls: set[asyncio.Task[Any]]) -> None:
        """What ran for settings that are not in effect any more ends with the last call that began under them."""
        try:
            if calls:
                await asyncio.wait(calls)
        finally:
            lease.end()

    # -- for commands and programs

    def authorization(self, server: str) -> Authorization | None:
        """The sign-in of a server; None when it is not one that people can sign in to."""
        return self._transports.authorizations.get(server)

    async def settled(self, timeout: float) -> bool:  # noqa: ASYNC109 - the caller's patience, not a deadline of the work
        """Wait until every upstream is ready or has failed once, at most `timeout` seconds. False when time was up."""
        with move_on_after(timeout):
            await self.registry.loaded.wait()  # it may bring upstreams
        began = time.monotonic()
        done = await self.pool.settled(timeout)
        with move_on_after(max(0.0, timeout - (time.monotonic() - began))):
            await self.startup.settled()
        self.catalog.flush()
        return done

    @property
    def has_settled(self) -> bool:
        """Every upstream was ready or had failed once, or `bridge.startup_wait` was over; true from then on."""
        if not self._has_settled:
            is_late = time.monotonic() - self._started >= self.settings.bridge.startup_wait
            self._has_settled = is_late or self._observing.settled >= self.pool.upstreams.keys()
        return self._has_settled

    def status(self) -> dict[str, Any]:
        """The state of everything, as JSON values."""
        snapshot, metrics = self.catalog.snapshot, self.metrics if self.settings.observe.metrics else None
        return {
            "name": self.settings.bridge.name,
            "version": __version__,
            "pid": os.getpid(),
            "uptime_s": round(time.monotonic() - self._started, 1),
            "config": self.settings.source,
            "clients": self.server.clients,
            "servers": servers_standing(self.pool, self.settings.servers, snapshot, metrics),
            "backends": self.backends.standing(),
            "inactive": self._now.builtins.inactive(),
            "sandbox": self._sandboxes.standing(self.settings),
            "health": [found.as_json() for found in self.looking.found()],
            "added": self.registry.standing(),
            "dropped": dropped(snapshot),
            "warnings": [str(one) for one in self._now.unmatched.found()],
            "needs_restart": list(self._needs_restart),
            "config_error": dict(self.config_error) if self.config_error is not None else None,
        }

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        user: str = "",
        tenant: str = "",
        metadata: Mapping[str, Any] | None = None,
        run: str = "",
        session: Session | None = None,
        notify: Notify = _unheard,
    ) -> dict[str, Any]:
        """Make a request as a client in this process; the same way as every other client's.

        The rest is its context (`Call.context`): for whom it is made, and in which run. `user` counts as a principal,
        as the holder of a token does: what is kept for one user, no other gets. `session`: what lasts over its calls,
        where that is not one for all of the user's. `notify` gets the notifications that belong to it, encoded.

        Raises:
            RequestFailed: it was answered with an error.
            ArgumentsRefused: what it says is no JSON. ConfigError: a name is too long for one.
        """
        if session is None:  # else somebody else's names, who may be a client
            check_names(run=run, user=user, tenant=tenant)
        said: dict[str, Any] = (
            {CONTEXT: {"tenant": tenant, "metadata": dict(metadata or {})}} if tenant or metadata else {}
        )
        if run:
            said[RUN] = run
        if said:
            params = {**params, "_meta": {**params.get("_meta", {}), **said}}
        self.require_running()
        if run and session is None and self.backends.extra.are_any:
            whose = self._context.tenants.get(user, "") or tenant
            session = self._program.session(user, run, whose)  # it may have tools of its own
        frame = Frame(id=Raw(self._program.next_id()), method=method, params=_as_json(params))
        answer = await self.server.answer(self._program.client(user, session), frame, notify)
        message = decoded(answer.data)
        if "error" in message:
            error = message["error"]
            raise RequestFailed(error.get("code", 0), error.get("message", ""), error.get("data"))
        return message["result"]

    async def call_tools(
        self,
        calls: Sequence[Mapping[str, Any]],
        *,
        user: str = "",
        tenant: str = "",
        metadata: Mapping[str, Any] | None = None,
        run: str = "",
    ) -> list[dict[str, Any]]:
        """Call several tools as one turn of a model: side by side, at most `calls.batch` at a time.

        Each of `calls` is what `tools/call` takes: `name` and `arguments`. The results come in the order of the calls.
        One that fails is a result with `isError`, and no concern of the others. The rest is as for `request`.
        """
        turn = new_run()
        most = asyncio.Semaphore(self.settings.calls.batch + self.settings.calls.max_queued)

        async def result_of(params: Mapping[str, Any]) -> dict[str, Any]:
            marked = {**params, "_meta": {**params.get("_meta", {}), TURN: turn}}
            try:
                async with most:  # so that no member finds the queue of its own turn full
                    return await self.request(
                        "tools/call", marked, user=user, tenant=tenant, metadata=metadata, run=run
                    )
            except RequestFailed as error:
                return msgspec.json.decode(failed_call(str(error), type(error).__name__, modern=False))

        async with asyncio.TaskGroup() as members:
            tasks = [members.create_task(result_of(params)) for params in calls]
        return [task.result() for task in tasks]

    def clear_cache(self, *, server: str = "", tool: str = "") -> int:
        """Forget kept results: all, those of one server, or of tools whose id (`server/tool`) matches a glob.

        Says how many results were forgotten.
        """
        return self._standing.calls.cache.clear(server, tool)

    def cache_status(self) -> dict[str, Any]:
        """What is kept of results and how it served since the start, as JSON values; sizes in bytes."""
        return self._standing.calls.cache.status()

    # -- parts

    def _backend_changed(self) -> None:
        self._note_own()
        self.startup.noticed()

    def _note_own(self) -> None:
        """Tools that no server has are listed: what names others of them names nothing."""
        for server, tools in {**self.backends.listed(), **self._builtins.listed()}.items():
            for unmatched in self._now.unmatched.listed(server, tools):
                log.warning("settings match no tool", note=str(unmatched))

    async def _tell(self, call: Call, name: str) -> Mapping[str, Any]:
        from mcpbridge.engine import caller_status as telling

        tallies = self._standing.calls.tallies
        return await telling.tell(call, name, self._now, self.catalog, self.pool, self.results.shelf, tallies)

    def _catalog_changed(self, snapshot: Snapshot, kinds: frozenset[Kind]) -> None:
        self._now.routing.changed(snapshot, kinds)

    def _make_transport(self, name: str, settings: ServerSettings) -> Transport:
        if self._cassette is not None:
            return self._cassette.transport(name, settings, self._transports)
        return self._transports(name, settings)
