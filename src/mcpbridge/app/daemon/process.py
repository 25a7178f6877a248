"""A bridge as a process runs it, whatever its front: with its configuration watched, and answers for commands."""

import gc
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from mcpbridge.app.admin.control_commands import control_answers
from mcpbridge.app.admin.control_socket import Answers, publish
from mcpbridge.app.connections.desk import PREFIX, ConnectionsDesk, origin_of
from mcpbridge.app.console.desk import ConsoleDesk
from mcpbridge.app.daemon.config_watcher import Reloading
from mcpbridge.app.fleet.desk import FleetDesk
from mcpbridge.base.directories import cache_directory, runtime_directory, state_directory
from mcpbridge.base.log import Level, get_logger
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.config.load import Loaded
from mcpbridge.config.schema import Settings
from mcpbridge.config.trust.decisions import TrustStore
from mcpbridge.library.bridge import Bridge
from mcpbridge.storage.settings import RunMode
from mcpbridge.upstream.auth.browser import has_browser, open_page
from mcpbridge.upstream.auth.context import Page
from mcpbridge.upstream.manifest import Manifest

if TYPE_CHECKING:  # loaded where it is used
    from mcpbridge.app.page_sign_in.sessions import PageSessions
    from mcpbridge.downstream.auth.resource_server import ResourceServer
    from mcpbridge.downstream.http.app import HttpFront
    from mcpbridge.downstream.http.routes import App
    from mcpbridge.downstream.http.server import ListenAddress

log = get_logger()


class Running(Struct, frozen=True):
    """What a front is made for."""

    bridge: Bridge
    reloading: Reloading | None
    """Reads the configuration again; None: there is no file."""
    console: ConsoleDesk
    """Opens the console."""
    connections: ConnectionsDesk
    """Opens the pages where people connect their accounts."""
    fleet: FleetDesk
    """Answers what is asked about the fleet, once there is one."""


@asynccontextmanager
async def running(
    loaded: Loaded,
    redact: Redactor,
    *,
    facts: Callable[[], Mapping[str, object]],
    more_answers: Answers | None = None,
    is_interactive: bool = False,
    view: str = "",
    mode: RunMode = "own",
    log_level: Level | None = None,
    look_every: float = 5.0,
) -> AsyncGenerator[Running]:
    """Run a bridge for the time of the context.

    `facts`: what the status says beside what the bridge says of itself; `front` at least. `more_answers`: what it
    answers commands beside what every bridge does. `look_every`: see `publish`. `view`: the one server that `loaded`
    was cut down to. `mode`: whom it serves. The rest is as for `Bridge` and `Reloading`.
    """
    gc.freeze()  # what is loaded by now stays to the end: no collection has to look at it
    gc.enable()
    for warning in loaded.warnings:
        log.warning("configuration", note=warning)
    async with (
        _manifest_of(loaded.settings) as manifest,
        Bridge(
            loaded.settings,
            redact=redact,
            show=_open_in_browser if has_browser(os.environ) else None,
            is_interactive=is_interactive,
            is_whole=not view,
            manifest=manifest,
            sights=state_directory(os.environ) / "pins",
            mode=mode,
        ) as bridge,
    ):
        more, directory = more_answers or {}, runtime_directory(os.environ)
        connections, fleet = ConnectionsDesk(bridge), FleetDesk(bridge)
        more = {**more, **fleet.answers()}
        facts = partial(_facts, facts, fleet)
        if loaded.settings.source is None:
            desk = ConsoleDesk(bridge, redact, facts=facts, reload=None, fleet=fleet)
            more = {"console": desk.link, "connections.link": connections.link, **more}
            answers = control_answers(bridge, redact, facts, None, more)
            async with publish(answers, directory), desk.running():
                yield Running(bridge, None, desk, connections, fleet)
            return
        reloading = Reloading(
            bridge,
            Path(loaded.settings.source),
            redact=redact,
            view=view,
            log_level=log_level,
            warnings=loaded.warnings,
            missing=loaded.missing,
            trust=TrustStore(os.environ) if loaded.is_found else None,
            providers=loaded.providers,
            trusted=loaded.trusted,
        )
        bridge.check_before_start(reloading.check_before_start)
        desk = ConsoleDesk(bridge, redact, facts=facts, reload=reloading.reload, fleet=fleet)
        more = {"console": desk.link, "connections.link": connections.link, **more}
        answers = control_answers(bridge, redact, facts, reloading.reload, more)
        async with reloading.watching(), publish(answers, directory, look_every=look_every), desk.running():
            yield Running(bridge, reloading, desk, connections, fleet)


def _facts(of_front: Callable[[], Mapping[str, object]], fleet: FleetDesk) -> Mapping[str, object]:
    return {**of_front(), **fleet.facts()}


@asynccontextmanager
async def _manifest_of(settings: Settings) -> AsyncGenerator[Manifest]:
    """What servers offered last: here, and in a fleet on any of its bridges."""
    manifest = Manifest(cache_directory(os.environ) / "manifest")
    if settings.fleet.listen is None:
        yield manifest
        return
    from mcpbridge.fleet.catalog import shared_catalog

    async with shared_catalog(settings.fleet, settings.store, manifest):
        yield manifest


async def _open_in_browser(page: Page) -> bool:
    """Bring an authorization page before the user of this desktop."""
    return await open_page(page.url)


async def serve_over_http(
    bridge: Bridge,
    at: "ListenAddress",
    on_ready: Callable[[str], None],
    console: ConsoleDesk,
    connections: ConnectionsDesk,
    fleet: FleetDesk | None = None,
) -> None:
    """Serve MCP at this address, and beside it `/api`, `/metrics` and the console, each made when it is asked for.

    Cancelling ends it in order.
    """
    from mcpbridge.app.approval_pages.desk import PREFIX as APPROVALS
    from mcpbridge.app.approval_pages.desk import ApprovalDesk
    from mcpbridge.downstream.http.server import serve_http

    def api() -> "App":
        from mcpbridge.app.admin.http_api import make_api

        return make_api(bridge.approvals, bridge.results.kept_results, bridge.results.ledger, bridge, desk)

    def metrics() -> "App":
        from mcpbridge.app.admin.prometheus import make_metrics

        readers = frozenset(token.name for token in bridge.settings.http.tokens if token.metrics)
        return make_metrics(bridge, readers=readers, more=desk.metrics)

    def pages() -> "App":
        return console.app_at(at)

    def accounts() -> "App":
        return connections.app_at(at)

    @cache
    def sessions() -> "PageSessions":
        from mcpbridge.app.page_sign_in.sessions import PageSessions

        found = PageSessions(
            lambda: bridge.settings.console.sign_in_lifetime, is_secure=connections.origin.startswith("https:")
        )
        bridge.user_accounts.visits.append(found.end_all)
        return found

    approvals = ApprovalDesk(bridge, lambda: connections.origin, sessions)

    def approving() -> "App":
        return approvals.app_at(at)

    desk = fleet or FleetDesk(bridge)
    console.serve_at(at)
    connections.serve_at(at)
    mounts = {"/api": api, **({"/metrics": metrics} if bridge.settings.observe.metrics else {})}
    shown = {PREFIX: accounts, APPROVALS: approving, **({"/console": pages} if bridge.settings.console.enabled else {})}
    http = bridge.settings.http
    if connections.origin.startswith("https:") or bridge.settings.accounts.url is not None:
        # Forms of our own pages come from there.
        http = http.model_copy(update={"allowed_origins": [*http.allowed_origins, origin_of(connections.origin)]})
    server = at.auth.resource_server
    async with AsyncExitStack() as stack:
        if server is not None:
            from mcpbridge.downstream.auth.revocations import Revocations

            revocations = server.tokens.revocations = Revocations(bridge.store.shared)
            revocations.put_out.on_written = server.ended  # other bridges may have let them in meanwhile
            bridge.user_accounts.doors = server
            await stack.enter_async_context(revocations.running())
        join = await stack.enter_async_context(_fleet_of(bridge, desk, server))
        public: Mapping[str, Callable[[], App]] = {}
        if bridge.settings.auth.sign_in is not None and server is not None:
            from mcpbridge.app.sign_in.app import signing_in

            signed_in = console.sessions = connections.sessions = sessions()
            note = bridge.trail.note
            public = await stack.enter_async_context(
                signing_in(bridge.settings, bridge.store, server, bridge.user_accounts, signed_in, note)
            )
        await serve_http(bridge, http, at, on_ready=on_ready, mounts=mounts, pages=shown, public=public, join=join)


@asynccontextmanager
async def _fleet_of(
    bridge: Bridge, desk: FleetDesk, doors: "ResourceServer | None"
) -> AsyncGenerator[Callable[["HttpFront"], None]]:
    """What makes a front one of a fleet's, if there is a fleet."""
    settings = bridge.settings
    if settings.fleet.listen is None:
        yield lambda _: None
        return
    from mcpbridge.app.daemon.fleet_changes import configured_alike, sharing_changes
    from mcpbridge.fleet.fleet import running_fleet
    from mcpbridge.fleet.upstream_sessions import UpstreamSessions

    shared = configured_alike(settings)
    async with (
        running_fleet(settings.fleet, settings.store, settings.http, shared) as fleet,
        sharing_changes(bridge, fleet, doors),
    ):
        desk.open(fleet)
        bridge.user_accounts.bridge = fleet.sessions.me
        bridge.join_fleet(fleet.servers)
        bridge.keep_sessions(UpstreamSessions(bridge.store.shared, fleet.sessions.tasks).keeper)
        fleet.forwarding.otel = bridge.otel
        fleet.breakers.join(bridge.stopped_servers, bridge.warn_of)
        try:
            yield fleet.join
        finally:
            bridge.leave_fleet()
            desk.close()
