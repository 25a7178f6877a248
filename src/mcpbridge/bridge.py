"""`Bridge`: builds everything from settings, as one async context manager. What every command runs."""

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec
from anyio import CancelScope
from msgspec import Raw

from mcpbridge._version import __version__
from mcpbridge.approvals.by_handler import ApprovalHandler
from mcpbridge.approvals.desk import Desk
from mcpbridge.assembly import Parts, Way
from mcpbridge.catalog.names import Prefix
from mcpbridge.catalog.refresh import Catalog
from mcpbridge.catalog.snapshot import KINDS, Builder, Kind, Offer
from mcpbridge.catalog.unmatched import Selector, UnmatchedNames
from mcpbridge.config.schema import Settings
from mcpbridge.context import BridgeContext, new_run
from mcpbridge.downstream.channel import Client
from mcpbridge.downstream.failed_calls import failed_call
from mcpbridge.downstream.listing import Listing
from mcpbridge.downstream.opening import Identity
from mcpbridge.downstream.server import Server
from mcpbridge.downstream.sessions import Sessions
from mcpbridge.errors import BridgeError
from mcpbridge.events import EventBus
from mcpbridge.hooks.calls import Hook
from mcpbridge.interaction import Asker
from mcpbridge.logs import get_logger
from mcpbridge.model import BRIDGE
from mcpbridge.pipeline.metrics import Metrics
from mcpbridge.policy.decide import Policy
from mcpbridge.redaction import Redactor
from mcpbridge.result_parts import ResultParts
from mcpbridge.routing_parts import RoutingParts
from mcpbridge.standing import dropped, servers_standing
from mcpbridge.storage.call_log import CallLog
from mcpbridge.storage.log_settings import call_log_path
from mcpbridge.storage.opening import LazyStore
from mcpbridge.storage.store import Store
from mcpbridge.storage.tokens import SealedFiles
from mcpbridge.upstream.auth import Authorization
from mcpbridge.upstream.auth_account import Show, Surroundings
from mcpbridge.upstream.auth_flights import Flights
from mcpbridge.upstream.auth_grant import SecretStore
from mcpbridge.upstream.conducts import Conducts
from mcpbridge.upstream.listings import Lists
from mcpbridge.upstream.manifest import Manifest
from mcpbridge.upstream.pool import Pool
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.startup import StartupWait
from mcpbridge.upstream.supervisor import Upstream
from mcpbridge.upstream.transports import TransportMaker
from mcpbridge.wire.envelope import CONTEXT, RUN, SERVER_INFO, TURN
from mcpbridge.wire.frame import Frame, encode
from mcpbridge.wire.revisions import LATEST_LEGACY
from mcpbridge.wire.transport import Transport

if TYPE_CHECKING:  # loaded where calls are traced
    from mcpbridge.pipeline.tracing_setup import OpenTelemetry

__all__ = ["Bridge", "RequestFailed"]

log = get_logger("mcpbridge")

_DEFAULT_INSTRUCTIONS = "This server offers the tools, prompts and resources of several servers."
_HOW_NAMES_BEGIN: dict[Prefix, str] = {
    "always": " Names begin with the server they come from: server__tool.",
    "on-collision": " A name that several servers use begins with the server it comes from: server__tool.",
    "never": "",
}


class RequestFailed(BridgeError):
    """A request made through `Bridge.request` was answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data


class Bridge:
    """One bridge: `async with Bridge(settings) as bridge`. Leaving ends every upstream and its processes."""

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
    ) -> None:
        """`redact` masks secrets in what upstreams say before it is kept or shown; a `Redactor` also learns new tokens.

        `secrets` keeps what signing in brings (by default files of the user), `show` opens authorization pages, which
        happens unasked only with `is_interactive` or where a server's settings say so. `dependencies` is what hooks and
        local tools find in `call.context.dependencies`. `approver` is asked first whether a call may be made that
        somebody must agree to. `hooks` see calls, after those of the configuration: see `hooks/calls.py`.
        `is_whole`: these are all servers that there are; otherwise what rules and hooks name may be of others.
        `manifest` remembers what servers offered, so that they need not run to be listed; None: nothing does.
        """
        self._manifest = manifest
        self.settings = settings
        self._functions = tuple(hooks)
        self.events = EventBus()
        """What happens: `async for event in bridge.events.subscribe()`. See `Event`."""
        tenants = {token.name: token.tenant for token in settings.http.tokens if token.tenant}
        self._context = BridgeContext(dependencies or {}, self.events, tenants)
        self._sessions = Sessions()
        observe = settings.observe
        self.metrics = Metrics(max_tools=observe.max_tools, max_clients=observe.max_clients)
        """What is counted of calls, since this was made."""
        self._redact = redact
        self._approver = approver
        self.store: Store = LazyStore(settings.store)
        """What outlives a call; opened when there is something to keep."""
        where = partial(call_log_path, settings.call_log, settings.store)
        self.audit = CallLog(where, settings.call_log, redact=redact)
        """Where approvals are written down, whether or not calls are."""
        self.call_log = self.audit if settings.call_log.enabled else None
        """Where calls are written down; None if they are not."""
        self._flights = Flights()
        around = Surroundings(
            secrets or SealedFiles(),
            self._flights.spawn,
            show,
            is_interactive=is_interactive,
            learn=redact.learn if isinstance(redact, Redactor) else lambda name, secrets: None,
        )
        self._transports = TransportMaker(max_bytes=settings.limits.max_frame, redact=redact, around=around)
        self._unmatched = UnmatchedNames(self._selectors() if is_whole else (), settings.servers)
        self._started = time.monotonic()
        self._settled: set[str] = set()
        self._has_settled = False
        self._stack: Any = None
        self.server: Server
        self.pool: Pool
        self.catalog: Catalog
        self.policy: Policy
        self.startup: StartupWait
        self.results: ResultParts
        """Kept results, and what is counted of them."""
        self.routing: RoutingParts
        """Which tools clients are listed, and how others are found."""
        self.approvals: Desk
        """Calls that wait for a person to agree."""

    async def __aenter__(self) -> Self:
        self._stack = self._running()
        return await self._stack.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, trace)

    @asynccontextmanager
    async def _running(self) -> AsyncGenerator[Self]:
        settings = self.settings
        identity = Identity(
            settings.bridge.name,
            __version__,
            settings.bridge.instructions or _DEFAULT_INSTRUCTIONS + _HOW_NAMES_BEGIN[settings.bridge.prefix],
            instructions_budget=settings.bridge.instructions_budget,
            list_ttl_ms=round(settings.bridge.list_ttl * 1000),
            extensions=frozenset(settings.bridge.extensions),
        )
        server_info = {"name": identity.name, "version": identity.version}
        builder = Builder(
            name_length=settings.bridge.name_length,
            prefix=settings.bridge.prefix,
            page_size=settings.bridge.page_size,
            ttl_ms=identity.list_ttl_ms,
            modern_tail=b'"_meta":{"%b":%b}' % (SERVER_INFO.encode(), encode(server_info)),
            results=settings.results,
            slim=settings.expose.mildest,
        )
        servers = {name: server.within(settings.calls) for name, server in settings.servers.items()}
        conducts = Conducts(servers, settings.calls, settings.results)
        self.policy = Policy(settings.permissions, servers, settings.calls, conducts.of)
        self.catalog = Catalog(settings.servers, builder, policy=self.policy)
        self.pool = Pool(
            servers,
            self._make_transport,
            self,
            client_info=server_info,
            manifest=self._manifest,
            warm_up=settings.daemon.warm_up,
            revalidate=settings.daemon.revalidate,
        )
        self.results = ResultParts(
            settings.results,
            self.store,
            self.catalog,
            self.metrics,
            servers=servers,
            policy=self.policy,
            redact=self._redact,
            call_log=call_log_path(settings.call_log, settings.store) if self.call_log is not None else None,
        )
        self.startup = StartupWait(self.pool, settings.bridge.startup_wait)
        self.routing = RoutingParts(
            settings.expose,
            settings.profiles,
            settings.search,
            settings.router,
            settings.code,
            catalog=self.catalog,
            pool=self.pool,
            policy=self.policy,
            store=self.store,
            servers=servers,
            settled=self.startup.settled,
        )
        builtins = {**self.results.builtins, **self.routing.builtins}
        self.catalog.update(Offer(BRIDGE, tuple(encode(builtin.definition) for builtin in builtins.values())))
        parts = Parts(
            servers=servers,
            pool=self.pool,
            conducts=conducts,
            policy=self.policy,
            store=self.store,
            results=self.results,
            builtins=builtins,
            audit=self.audit,
            call_log=self.call_log,
            metrics=self.metrics,
            events=self.events,
            approver=self._approver,
            functions=self._functions,
            redact=self._redact,
            otel=self._open_telemetry(),
            noted=self.routing.ended if self.routing.feedback is not None else None,
        )
        self._way = Way(settings, parts)
        self.approvals = self._way.approvals
        self.routing.plan = self._way.plans
        listing = Listing(
            self.catalog,
            self.pool,
            self.startup.settled,
            self.routing.exposing,
            choose=self.routing.choose,
            signature=self.routing.signature_of,
            is_open=lambda tool: self.policy.of(tool).is_open,
        )
        self.server = Server(
            identity,
            self.catalog,
            self.pool,
            self._way.plans,
            self.startup,
            settings.questions,
            self._way.late,
            self.results.shelf,
            listing,
            around=self._context,
            audience=self.policy.audience if self.policy.names_callers else None,
        )
        for name in self._transports.authorizations:
            self._transports.authorizations[name].on_signed_in = partial(self._signed_in, name)
        async with (
            self._keeping(),
            self._flights.running(),
            self.pool.running(),
            self.routing.running(),
            self._way.running(),
        ):
            try:
                yield self
            finally:
                self._way.end()
                self.server.end()
                self.events.end()

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
                upstream.poke()

    # -- for commands and programs

    def authorization(self, server: str) -> Authorization | None:
        """The sign-in of a server; None when it is not one that people can sign in to."""
        return self._transports.authorizations.get(server)

    async def settled(self, timeout: float) -> bool:  # noqa: ASYNC109 - the caller's patience, not a deadline of the work
        """Wait until every upstream is ready or has failed once, at most `timeout` seconds. False when time was up."""
        done = await self.pool.settled(timeout)
        self.catalog.flush()
        return done

    @property
    def has_settled(self) -> bool:
        """Every upstream was ready or had failed once, or `bridge.startup_wait` was over; true from then on."""
        if not self._has_settled:
            is_late = time.monotonic() - self._started >= self.settings.bridge.startup_wait
            self._has_settled = is_late or self._settled >= self.pool.upstreams.keys()
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
            "dropped": dropped(snapshot),
            "warnings": [str(one) for one in self._unmatched.found()],
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
    ) -> dict[str, Any]:
        """Make a request as a client in this process; the same way as every other client's.

        The rest is its context (`Call.context`): for whom it is made, and in which run. `user` counts as a principal,
        as the holder of a token does: what is kept for one user, no other gets.

        Raises:
            RequestFailed: it was answered with an error.
        """
        client = Client(principal=user, version=LATEST_LEGACY, kept_session=self._sessions.of(user))
        said: dict[str, Any] = (
            {CONTEXT: {"tenant": tenant, "metadata": dict(metadata or {})}} if tenant or metadata else {}
        )
        if run:
            said[RUN] = run
        if said:
            params = {**params, "_meta": {**params.get("_meta", {}), **said}}
        frame = Frame(id=Raw(b"1"), method=method, params=Raw(encode(params)))
        answer = await self.server.answer(client, frame, lambda message: None)
        message = msgspec.json.decode(answer.data)
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
        return self._way.cache.clear(server, tool)

    def cache_status(self) -> dict[str, Any]:
        """What is kept of results and how it served since the start, as JSON values; sizes in bytes."""
        return self._way.cache.status()

    # -- Observer of the upstreams

    def offered(self, upstream: Upstream, lists: Lists) -> None:
        """An upstream listed anew."""
        for unmatched in self._unmatched.listed(upstream.name, lists.get("tools", ())):
            log.warning("settings match no tool", note=str(unmatched))
        self._way.cache.offered(upstream.name, lists)
        tools, prompts, resources, templates = (lists.get(kind, ()) for kind in KINDS)
        ttl_ms: dict[Kind, int] = {kind: upstream.list_ttl_ms[kind] for kind in KINDS if kind in upstream.list_ttl_ms}
        self.catalog.update(Offer(upstream.name, tools, prompts, resources, templates, ttl_ms, upstream.runs_tasks))

    def resource_updated(self, upstream: Upstream, params: Raw) -> None:
        """A resource of an upstream changed."""
        self.server.news.resource_updated(upstream, params)

    def logged(self, upstream: Upstream, params: Raw) -> None:
        """An upstream logged something that belongs to no call."""
        self.server.news.logged(upstream, params)

    def elicitation_completed(self, upstream: Upstream, params: Raw) -> None:
        """A page that an upstream had somebody open has done its work."""
        self.server.news.elicitation_completed(upstream, params)

    def beside(self, upstream: Upstream) -> Asker | None:
        """Who can be asked for roots outside of any call."""
        return self.server.news.beside(upstream)

    def stepped(self, upstream: Upstream) -> None:
        """An upstream changed its state."""
        log.debug("upstream state", upstream=upstream.name, state=upstream.status.state)
        if upstream.status.state == "starting":
            self._way.cache.forget(upstream.name)  # what it held in memory is gone
        if upstream.has_settled:
            self._settled.add(upstream.name)
        self.startup.noticed()

    # -- parts

    def _selectors(self) -> Iterator[Selector]:
        """What the settings say of tools by name."""
        for number, rule in enumerate(self.settings.permissions, 1):
            yield Selector(f"rule {number} of `permissions`", rule.tools, rule.servers or ("*",))
        for profile, own in self.settings.profiles.items():
            if own.tools:
                yield Selector(f"profile '{profile}' of `profiles`", own.tools, own.servers or ("*",))
        if self.settings.expose.pins:
            yield Selector("`expose.pins`", self.settings.expose.pins, ("*",))
        for number, hook in enumerate(self.settings.hooks, 1):
            name = f" ('{hook.name}')" if hook.name else ""
            yield Selector(f"hook {number}{name} of `hooks`", hook.tools, hook.servers)
        for function in self._functions:
            yield Selector(f"hook '{function.name}' of the program", function.tools, function.servers)

    def _open_telemetry(self) -> "OpenTelemetry | None":
        if not self.settings.observe.otel:
            return None
        from mcpbridge.pipeline.tracing_setup import OpenTelemetry

        return OpenTelemetry.made()

    def _make_transport(self, name: str, settings: ServerSettings) -> Transport:
        return self._transports(name, settings)
