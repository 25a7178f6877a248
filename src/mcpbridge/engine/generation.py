"""A `Generation`: everything that follows from one reading of the settings, built and replaced as a whole.

A new one is built beside the one in effect and changes nothing before `take_effect`. That waits for nothing, so no call
sees half of each. What outlives a generation (the store, the catalog, upstreams, sessions, state of calls) is in
`SharedState`; what runs is held by its lease (`leases.py`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import Struct

from mcpbridge.base.version import __version__
from mcpbridge.catalog.refresh import Catalog
from mcpbridge.catalog.search.service import SavedBytes
from mcpbridge.catalog.snapshot_builder import SnapshotBuilder
from mcpbridge.catalog.tool_names import Prefix
from mcpbridge.catalog.unmatched_names import Selector, UnmatchedNames
from mcpbridge.config.schema import Settings
from mcpbridge.core.model import BUILTIN, TOOLS
from mcpbridge.core.source_settings import OfferSettings
from mcpbridge.downstream.requests.initialize import Identity
from mcpbridge.downstream.requests.lists import Listing
from mcpbridge.downstream.requests.result_resources import ResultResources
from mcpbridge.downstream.server import Service
from mcpbridge.downstream.settings import AskingSettings
from mcpbridge.engine.health_checks import HealthChecks, PeriodicCheck
from mcpbridge.engine.leases import Lease
from mcpbridge.engine.wiring.builtin import BuiltinSet, BuiltinTools
from mcpbridge.engine.wiring.pipeline import CallPipeline, CallState, PipelineContext, PipelineInputs, ToolOptions
from mcpbridge.engine.wiring.results import LargeResults, ResultStages
from mcpbridge.engine.wiring.search import SearchContext, ToolSearch
from mcpbridge.engine.wiring.tools import Backends, BackendSet, ProgramTool
from mcpbridge.pipeline.hooks.call import Hook
from mcpbridge.pipeline.permissions.policy import Policy
from mcpbridge.pipeline.roles.settings import RoleSettings
from mcpbridge.pipeline.trifecta.tool_labels import ToolLabels
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.protocol.meta import SERVER_INFO
from mcpbridge.storage.settings import RunMode, call_log_path, recorded
from mcpbridge.tools.builtin.factory import BuiltinContext
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.startup_wait import StartupWait

if TYPE_CHECKING:  # few bridges have roles
    from mcpbridge.pipeline.roles.roles import Roles
    from mcpbridge.pipeline.roles.scopes import ToolScopes

_DEFAULT_INSTRUCTIONS = "This server offers the tools, prompts and resources of several servers."
_HOW_NAMES_BEGIN: dict[Prefix, str] = {
    "always": " Names begin with the server they come from: server__tool.",
    "on-collision": " A name that several servers use begins with the server it comes from: server__tool.",
    "never": "",
}


class SharedState(Struct, frozen=True):
    """What one bridge has for all its life, whatever the settings are."""

    catalog: Catalog
    startup: StartupWait
    context: PipelineContext
    calls: CallState
    results: LargeResults
    backends: Backends
    builtins: BuiltinTools
    health_checks: HealthChecks
    builtin_context: Callable[[Settings], BuiltinContext]
    """What built-in tools are made with."""
    is_whole: bool
    """The settings have all servers that there are; otherwise what rules and hooks name may be of others."""
    saved: SavedBytes | None = None
    """Where the search keeps its index between runs; None: nowhere."""


class Generation(Struct, frozen=True):
    """What follows from one reading of the settings."""

    settings: Settings
    servers: Mapping[str, ServerSettings]
    """With what `[calls]` says where they say nothing."""
    policy: Policy
    results: ResultStages
    tool_search: ToolSearch
    pipeline: CallPipeline
    service: Service
    unmatched: UnmatchedNames
    lease: Lease
    """What runs for it; ended once its last call is over."""
    sources: Mapping[str, OfferSettings]
    """What is set of all that offer tools, by server."""
    backends: BackendSet
    builtins: BuiltinSet
    _builder: SnapshotBuilder

    @property
    def enabled(self) -> frozenset[str]:
        """The servers that are to be there."""
        return frozenset(name for name, server in self.servers.items() if not server.disabled)

    def take_effect(self, shared: SharedState) -> None:
        """Calls and lists are by these settings from now on, lists as soon as the catalog is flushed."""
        catalog = shared.catalog
        shared.results.take_effect(self.results)
        self.pipeline.take_effect()
        catalog.configure(self.sources, self._builder, self.policy)
        shared.backends.take_effect(self.backends)
        shared.builtins.take_effect(self.builtins)

    def before(self, shared: SharedState, after: "Generation") -> None:
        """What is over with this one as `after` takes its place: offers of servers that are not there any more."""
        for name in self.enabled - after.enabled:
            shared.catalog.remove(name)
            shared.calls.cache.forget(name)


def servers_of(settings: Settings) -> dict[str, ServerSettings]:
    """The servers, with what `[calls]` says of the time of calls where they say nothing."""
    return {name: server.within(settings.calls) for name, server in settings.servers.items()}


def identity_of(settings: Settings) -> Identity:
    """How the bridge presents itself."""
    bridge = settings.bridge
    return Identity(
        bridge.name,
        __version__,
        bridge.instructions or _DEFAULT_INSTRUCTIONS + _HOW_NAMES_BEGIN[bridge.prefix],
        instructions_budget=bridge.instructions_budget,
        list_ttl_ms=round(bridge.list_ttl * 1000),
        extensions=frozenset(bridge.extensions),
    )


_RUN_HERE = frozenset({"command", "function", "executor", "agent"})
"""Kinds of `[tools]` that run on the machine of the bridge: commands, and code in the bridge itself, as packs are."""


def roles_of(settings: Settings, shared: SharedState) -> "Roles | None":
    """Who may do what; None where nobody is kept to roles.

    Where people sign in and no role is written, they may use everything but the bridge's own tools that work on its
    machine: whoever can sign in at the provider must not get files and programs of the machine unasked.
    """
    if not settings.roles and not settings.auth.is_on:
        return None
    from mcpbridge.tools.factory import kind_of
    from mcpbridge.tools.settings import pack_name

    commands = {
        name
        for name, tool in settings.tools.items()
        if kind_of(tool) in _RUN_HERE and not getattr(tool, "is_remote", False)
    }
    commands |= {pack_name(reference) for reference in settings.packs}
    roles = settings.roles
    if not roles:
        if not (commands or settings.builtin.enable or settings.code.enabled):
            return None
        roles = [RoleSettings(name="everybody", principals=["*"], servers=["*"])]
    from mcpbridge.pipeline.roles.access import touches_machine
    from mcpbridge.pipeline.roles.roles import Roles

    on_machine = frozenset(commands)
    return Roles(
        roles,
        touches_machine=lambda tool: touches_machine(tool, on_machine),
        groups_claims=_groups_claims(settings),
        break_glass=shared.calls.break_glass,
    )


def _groups_claims(settings: Settings) -> Mapping[str, str]:
    """The claim that names groups, by issuer."""
    auth = settings.auth
    claims = {} if auth.sign_in is None else {auth.sign_in.provider_issuer: auth.sign_in.groups_claim}
    return {**claims, **{one.issuer: one.groups_claim for one in auth.issuers.values()}}


def scopes_of(settings: Settings) -> "ToolScopes | None":
    """Which scopes tokens need for calls; None: none are needed."""
    if not settings.auth.tool_scopes:
        return None
    from mcpbridge.pipeline.roles.scopes import ToolScopes

    return ToolScopes(settings.auth.tool_scopes)


def build(
    settings: Settings,
    shared: SharedState,
    lease: Lease,
    before: Generation | None,
    given: Mapping[str, ProgramTool] = MappingProxyType({}),
) -> Generation:
    """The generation of these settings, which is in effect nowhere yet. `before`: the one whose place it takes.

    `given`: backends that the program brought, by name.

    Raises:
        ConfigError: something that the settings switch on cannot be had here.
    """
    context, catalog, servers = shared.context, shared.catalog, servers_of(settings)
    backends = shared.backends.build(settings, given, lease)
    offering = {**servers, **backends.sources}
    results = shared.results.build(settings.results, offering, lease, _call_log(settings, context.mode))
    search_context = SearchContext(
        catalog, context.pool, context.store, shared.startup.settled, shared.calls.plans, shared.saved
    )
    tool_search = ToolSearch(
        settings, search_context, lease, offering, previous=before.tool_search if before is not None else None
    )
    own_tools = {**results.builtins, **tool_search.builtins}
    read = ResultResources(results.kept_results).read
    builtins = shared.builtins.build(settings, own_tools, shared.builtin_context(settings), lease, read)
    sources = {**offering, **builtins.sources}
    options = ToolOptions(sources, settings.calls, settings.results, is_own_function=backends.is_own_function)
    policy = Policy(
        settings.permissions, sources, settings.calls, options.of, roles_of(settings, shared), scopes_of(settings)
    )
    asks = shared.backends.asking(backends, builtins.asks)
    on_call_end = tool_search.call_ended if tool_search.feedback is not None else None
    serve = {**builtins.serve, **backends.serve}
    if every := settings.health.every:
        lease.hold("health", every, lambda: PeriodicCheck(shared.health_checks, every), run=PeriodicCheck.running)
    inputs = PipelineInputs(
        servers,
        options,
        policy,
        ToolLabels(sources, settings.calls, options.of, is_own_function=backends.is_own_function),
        results,
        sources,
        serve,
        builtins.precheck,
        asks,
        on_call_end,
    )
    identity = identity_of(settings)
    listing = Listing(
        catalog,
        context.pool,
        shared.startup.settled,
        tool_search.exposing,
        choose=tool_search.choose,
        signature=tool_search.signature_of,
        is_open=lambda tool: policy.of(tool).is_open,
        is_unknown=policy.is_unknown,
        extra=shared.backends.extra,
    )
    return Generation(
        settings,
        servers,
        policy,
        results,
        tool_search,
        CallPipeline(settings, inputs, context, shared.calls, lease),
        Service(identity, _asking(settings), listing),
        UnmatchedNames(
            selectors_of(settings, context.functions) if shared.is_whole else (),
            {**settings.servers, **{name: OfferSettings() for name in (TOOLS, BUILTIN, *backends.sources)}},
        ),
        lease,
        {**settings.servers, **backends.sources, **builtins.sources},
        backends,
        builtins,
        _builder_of(settings, identity, is_whole=shared.is_whole),
    )


def _asking(settings: Settings) -> AskingSettings:
    """Bridges of a fleet open each other's seals."""
    key = settings.fleet.state_key
    asking = settings.questions
    return asking if key is None or asking.state_key else asking.model_copy(update={"state_key": key})


def _call_log(settings: Settings, mode: RunMode) -> Path | None:
    """The file that calls are written to, if all of them are: a model may look for one that it made."""
    has_all = recorded(settings.call_log, settings.store, mode).grade == "all"
    return call_log_path(settings.call_log, settings.store) if has_all else None


def _builder_of(settings: Settings, identity: Identity, *, is_whole: bool) -> SnapshotBuilder:
    server_info = encode({"name": identity.name, "version": identity.version})
    builder = SnapshotBuilder(
        name_length=settings.bridge.name_length,
        prefix=settings.bridge.prefix,
        page_size=settings.bridge.page_size,
        ttl_ms=identity.list_ttl_ms,
        modern_tail=b'"_meta":{"%b":%b}' % (SERVER_INFO.encode(), server_info),
        results=settings.results,
        slim=settings.expose.mildest,
    )
    builder.always_recalls = not is_whole
    return builder


def selectors_of(settings: Settings, functions: Sequence[Hook] = ()) -> Iterator[Selector]:
    """What the settings say of tools by name."""
    for number, rule in enumerate(settings.permissions, 1):
        yield Selector(f"rule {number} of `permissions`", rule.tools, rule.servers or ("*",))
    for role in settings.roles:
        if role.tools:
            yield Selector(f"role '{role.name}' of `roles`", role.tools, role.servers or ("*",))
    for profile, own in settings.profiles.items():
        if own.tools:
            yield Selector(f"profile '{profile}' of `profiles`", own.tools, own.servers or ("*",))
    if settings.expose.pins:
        yield Selector("`expose.pins`", settings.expose.pins, ("*",))
    if settings.expose.hide:
        yield Selector("`expose.hide`", settings.expose.hide, ("*",))
    for number, hook in enumerate(settings.hooks, 1):
        name = f" ('{hook.name}')" if hook.name else ""
        yield Selector(f"hook {number}{name} of `hooks`", hook.tools, hook.servers)
    for function in functions:
        yield Selector(f"hook '{function.name}' of the program", function.tools, function.servers)
