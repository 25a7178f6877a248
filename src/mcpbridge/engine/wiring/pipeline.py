"""Build the pipeline of calls from the settings, and hold the state that calls leave for later ones.

`pipeline/plan.py` decides which stages there are and their order; here they get what they work with. The options of a
tool (`ToolOptions`) are resolved once, from its own settings, its server's and the defaults.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec import Struct

from mcpbridge.base.masking.known_values import known_only
from mcpbridge.config.schema import Settings
from mcpbridge.core.call_options import CallOptions, Hints
from mcpbridge.core.call_settings import CALL_SECONDS, CallDefaults
from mcpbridge.core.events import EventBus
from mcpbridge.core.model import BRIDGE, BUILTIN, Asks, Call, CallHandler, Precheck, Tool
from mcpbridge.core.result_settings import ResultSettings
from mcpbridge.core.settings_precedence import resolve, result_options
from mcpbridge.core.source_settings import OfferSettings, ToolSettings
from mcpbridge.engine.audit_trail import AuditTrail, audit_log, roles_of, rules_of
from mcpbridge.engine.leases import Lease
from mcpbridge.engine.wiring.results import ResultStages
from mcpbridge.pipeline.approvals.approved_calls import RecentApprovals
from mcpbridge.pipeline.approvals.approvers import ApprovalHandler, ClientApprover, HandlerApprover
from mcpbridge.pipeline.approvals.grants import Grants, recording
from mcpbridge.pipeline.approvals.pending import PendingApprovals
from mcpbridge.pipeline.deliver import Deliver
from mcpbridge.pipeline.hooks.call import Changes, Hook
from mcpbridge.pipeline.observability.metrics import CountsBySession, Metrics
from mcpbridge.pipeline.observability.recorder import Recorder
from mcpbridge.pipeline.permissions.policy import Policy
from mcpbridge.pipeline.plan import Pipelines, StageParts, call_stages
from mcpbridge.pipeline.stage import StageFactory
from mcpbridge.pipeline.stages.abandoned_calls import AbandonedCalls
from mcpbridge.pipeline.stages.approval import Approval, Approver
from mcpbridge.pipeline.stages.cache import Cache
from mcpbridge.pipeline.stages.call_budget import BudgetState
from mcpbridge.pipeline.stages.concurrency_limit import Slots
from mcpbridge.pipeline.stages.held_definition import HeldDefinition, Judge
from mcpbridge.pipeline.stages.hooks import Hooks
from mcpbridge.pipeline.stages.lethal_trifecta import LethalTrifecta
from mcpbridge.pipeline.stages.lost_memory import LostMemory
from mcpbridge.pipeline.stages.observe import Record
from mcpbridge.pipeline.stages.rate_limit import Buckets
from mcpbridge.pipeline.stages.redact import Redact
from mcpbridge.pipeline.stages.validate_arguments import ValidateArguments
from mcpbridge.pipeline.trifecta.session_labels import SessionLabels
from mcpbridge.pipeline.trifecta.tool_labels import ToolLabels
from mcpbridge.storage.call_log.format import CallRecord
from mcpbridge.storage.call_log.log import CallLog
from mcpbridge.storage.settings import Recorded, RunMode, quotas_path, recorded, redis_address
from mcpbridge.storage.store import Store
from mcpbridge.upstream.pool import Pool
from mcpbridge.upstream.settings import ServerSettings

if TYPE_CHECKING:
    from mcpbridge.pipeline.approvals.pending import Report
    from mcpbridge.pipeline.observability.tracing import Peer, Tracing
    from mcpbridge.pipeline.observability.tracing_setup import OpenTelemetry
    from mcpbridge.pipeline.roles.break_glass import BreakGlass
    from mcpbridge.storage.quotas import QuotaLedger
    from mcpbridge.storage.redis.epochs import SharedEpochs
    from mcpbridge.storage.redis.run_leases import RunLeases
    from mcpbridge.storage.redis.shares import SharedCounts


MOST_KNOWN = 50_000
"""Tools whose options are kept; see `MOST_PLANS` in `pipeline/plan.py`."""


def recorded_by(settings: Settings, mode: RunMode) -> Recorded:
    """What the call log keeps."""
    is_shared = settings.auth.is_on or bool(settings.roles)
    return recorded(settings.call_log, settings.store, mode, is_shared=is_shared)


class ToolOptions:
    """How the calls of each tool are treated."""

    def __init__(
        self,
        servers: Mapping[str, OfferSettings],
        calls: CallDefaults,
        results: ResultSettings | None = None,
        *,
        is_own_function: Callable[[Tool], bool] = lambda tool: False,
    ) -> None:
        """`is_own_function`: whether a tool is a function of whoever runs the bridge."""
        self._is_own_function = is_own_function
        self._servers, self._calls, self._results = servers, calls, results
        # What is set for all tools is meant for those of servers: each of them is judged, however it is called.
        self._own = calls.model_copy(update={"permission": None})
        self._known: dict[str, tuple[str, Hints, CallOptions]] = {}

    def of(self, tool: Tool) -> CallOptions:
        """The options of this tool."""
        name, hints = tool.name, tool.hints
        known = self._known.get(tool.id)
        if known is not None and known[0] == name and known[1] == hints:
            return known[2]
        server = self._servers.get(tool.server)
        own = server.tool.get(name) if server is not None else None
        options = resolve(
            name,
            hints,
            tool=own,
            server=server,
            calls=self._own if tool.server == BRIDGE else self._calls,
            is_trusted=_is_trusted(own, server, tool),
            limits=(
                own.max_concurrent if own is not None else 0,
                own.rate_limit if own is not None else None,
                server.rate_limit if server is not None else None,
            ),
            is_local=tool.server in (BRIDGE, BUILTIN),
            is_own_function=self._is_own_function(tool),
            results=result_options(
                own.results if own is not None else None, server.results if server is not None else None, self._results
            ),
        )
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known[tool.id] = name, hints, options
        return options


def _is_trusted(own: ToolSettings | None, server: OfferSettings | None, tool: Tool) -> bool:
    if own is not None and own.trusted is not None:
        return own.trusted
    return server.trusted if server is not None else tool.server == BRIDGE


class PipelineContext(Struct, frozen=True):
    """What a `CallPipeline` is built with besides the settings; it outlives them."""

    pool: Pool
    store: Store
    answers: Store
    """The same, for what is used once, such as what people say to calls: a copy in memory could be used as well."""
    audit: CallLog
    """Where approvals are written down, and calls if they are."""
    recorder: Recorder
    """Which calls are."""
    mode: RunMode
    """How the bridge runs, which decides that where the settings do not."""
    metrics: Metrics
    events: EventBus
    approver: ApprovalHandler | None
    functions: Sequence[Hook]
    """The program's hooks."""
    redact: Callable[[str], str]
    trail: AuditTrail
    """The audit log in effect."""
    judge: Callable[[Tool], Judge | None] = lambda tool: None
    """What decides about calls of a tool of which an old definition is listed."""
    changes_of: Callable[[Tool], str] = lambda tool: ""
    """The classes of what the server of a tool changed of it and nobody agreed to; empty: nothing."""


class PipelineInputs(Struct, frozen=True):
    """What else follows from the same settings."""

    servers: Mapping[str, ServerSettings]
    """With what `[calls]` says where they say nothing."""
    options: ToolOptions
    policy: Policy
    labels: ToolLabels
    """What the calls of each tool touch."""
    results: ResultStages
    sources: Mapping[str, OfferSettings]
    """The same, and what is set of tools that no server has, by the server that they count as."""
    serve: Mapping[str, CallHandler]
    """Who takes calls of those, by that server."""
    precheck: Callable[[Tool], Precheck | None]
    asks: Callable[[Tool], Asks | None] = lambda tool: None
    """Where it depends on the arguments whether a person must agree: what decides that."""
    record: Record | None = None
    """Gets the record of each call that has ended."""


class CallState:
    """What calls leave behind for later ones, whatever the settings are by then; and the plans of all calls."""

    def __init__(self, settings: Settings, context: PipelineContext) -> None:
        """By the settings at the start; each `CallPipeline` that takes effect brings its own."""
        approval, self._store, self._fleet = settings.approval, settings.store, settings.fleet
        recent = RecentApprovals(recording(context.audit, context.trail.note))
        self.audit = recent.write
        self.cache = Cache(settings.cache, {}, settings.calls, together=self.epochs, leases=self.leases)
        self.redact = Redact(known_only(context.redact))
        self.abandoned = AbandonedCalls(
            context.store,
            {},
            lambda tool: CallOptions(),
            settings.calls.late_lifetime,
            together=None if settings.fleet.listen is None else context.answers,
        )
        self.grants = Grants(
            context.answers,
            once_seconds=approval.grant_lifetime,
            session_seconds=approval.session_lifetime,
            redact=context.redact,
        )
        self.approvals = PendingApprovals(approval, context.answers, self.grants, self.audit, recent)
        """Calls that wait for a person to agree."""
        self.session_labels = SessionLabels()
        """What each session has touched."""
        self.lost_memory = LostMemory()
        """Which processes of the fleet clients have used."""
        self.changes = Changes()
        self._break_glass: BreakGlass | None = None
        self.otel: OpenTelemetry | None = None
        """What traces calls; None: nothing does."""
        self.budgets, self.buckets = BudgetState(self.together), Buckets(self.together)
        self.session_counts = CountsBySession()
        """What each session called; noted while a tool tells of it."""
        self.slots = Slots(queued=settings.calls.max_queued)
        self.plans = Pipelines(Deliver(context.pool), (), lambda tool: CallOptions(), context.recorder)
        """What happens to each call."""

    @property
    def break_glass(self) -> "BreakGlass":
        """Who has taken a role for a time."""
        if self._break_glass is None:
            from mcpbridge.pipeline.roles.break_glass import BreakGlass  # few bridges have roles

            self._break_glass = BreakGlass()
        return self._break_glass

    def quotas(self, policy: Policy) -> tuple[Sequence[StageFactory], Sequence[StageFactory]]:
        """The stages that settle and take what calls use of the quotas of roles; nothing if no role has one."""
        if policy.roles is None or not any(role.settings.quota for role in policy.roles.all):
            return (), ()
        from mcpbridge.pipeline.roles.quota_stage import Quotas, SettleQuota, TakeQuota

        quotas = Quotas(policy, self.quota_store)
        return [SettleQuota(quotas)], [TakeQuota(quotas)]

    @cached_property
    def together(self) -> "SharedCounts | None":
        """What this bridge counts together with others; None: it counts alone."""
        if self._store.kind != "redis":
            return None
        from mcpbridge.storage.redis.shares import SharedCounts  # its client is large

        return SharedCounts(redis_address(self._store), self._store.prefix)

    @cached_property
    def epochs(self) -> "SharedEpochs | None":
        """When servers were written to last, by way of this bridge or another; None: it is alone."""
        if self._store.kind != "redis":
            return None
        from mcpbridge.storage.redis.epochs import SharedEpochs

        return SharedEpochs(redis_address(self._store), self._store.prefix)

    @cached_property
    def leases(self) -> "RunLeases | None":
        """Which bridge of the fleet runs a call that several get at the same time; None: there is no fleet."""
        if self._fleet.key is None or self.epochs is None:
            return None
        from mcpbridge.storage.redis.run_leases import RunLeases

        return RunLeases(self.epochs, self._store.prefix, self._fleet.key)

    @cached_property
    def quota_store(self) -> "QuotaLedger":
        """What was used of quotas."""
        if self.together is not None:
            from mcpbridge.storage.redis.quotas import RedisQuotas

            return RedisQuotas(redis_address(self._store), self._store.prefix, self.together)
        from mcpbridge.storage.quotas import QuotaStore  # few bridges have any

        return QuotaStore(None if self._store.kind == "memory" else lambda: quotas_path(self._store))

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Owns what stages do in the background."""
        async with AsyncExitStack() as stack:
            if self.epochs is not None:
                await stack.enter_async_context(self.epochs.running())
            if self.leases is not None:
                await stack.enter_async_context(self.leases.running())
            if self.together is not None:
                await stack.enter_async_context(self.together.running())
            try:
                async with self.cache.running():
                    yield
            finally:
                if "quota_store" in self.__dict__:
                    await self.quota_store.close()

    def end(self) -> None:
        """The bridge stops: nobody is waited for any more."""
        self.approvals.end()
        self.abandoned.end()


class CallPipeline:
    """All stages of calls, as one reading of the settings has them."""

    def __init__(
        self, settings: Settings, inputs: PipelineInputs, context: PipelineContext, state: CallState, lease: Lease
    ) -> None:
        """Nothing is different before `take_effect`. `lease` holds what runs.

        Raises:
            ConfigError: calls are to be traced, and what that needs is not installed.
        """
        self._settings, self._inputs, self._context, self._state = settings, inputs, context, state
        servers, observe = inputs.servers, settings.observe
        otel = self._otel = _open_telemetry(settings, lease)
        self._recorded, record = recorded_by(settings, context.mode), inputs.record
        grade = self._recorded.grade
        if {"pulse", "context-status"}.intersection(settings.builtin.enable):
            record = _both(record, state.session_counts.ended)
        self._trifecta = LethalTrifecta(
            settings.trust.watches, inputs.labels, state.session_labels, inputs.results.kept_results
        )
        self._webhook = self._reports(lease)
        self._audit_log = audit_log(settings.audit, lease, context.redact)
        if self._audit_log is not None:
            record = _both(record, self._audit_log.append)
        is_audited, has_roles = self._audit_log is not None, inputs.policy.roles is not None
        parts = StageParts(
            calls=settings.calls,
            rates={name: server.rate_limit for name, server in servers.items() if server.rate_limit},
            idle_timeout=self._idle_timeout,
            tracing=self._tracing(otel, keeps_content=observe.otel_content) if otel else None,
            metrics=context.metrics if observe.metrics else None,
            events=context.events,
            record=record,
            recorder=context.recorder if grade != "off" else None,
            rule_of=rules_of(inputs.policy) if is_audited or has_roles else None,
            role_of=roles_of(inputs.policy) if has_roles else None,
            is_audited=is_audited,
            running=context.audit if grade == "all" else None,
            policy=inputs.policy,
            trifecta=self._trifecta,
            asks=inputs.asks,
            lost_memory=state.lost_memory,
            compress=inputs.results.compress,
            references=inputs.results.references,
            hooks=self._hooks(lease),
            held=HeldDefinition(context.judge),
            approval=self._approval(),
            abandoned=state.abandoned,
            cache=state.cache,
            redact=state.redact,
            quotas=state.quotas(inputs.policy),
            budgets=state.budgets,
            buckets=state.buckets,
            slots=state.slots,
        )
        self._stages = call_stages(parts)
        self._recorded_stages = call_stages(parts, is_recorded=True)

    def take_effect(self) -> None:
        """Calls that begin from now on go this way; what is under way keeps its own."""
        settings, inputs, state = self._settings, self._inputs, self._state
        approval, options_of = settings.approval, inputs.options.of
        state.cache.configure(settings.cache, inputs.sources, settings.calls)
        state.abandoned.configure(inputs.sources, options_of, settings.calls.late_lifetime)
        state.grants.configure(once_seconds=approval.grant_lifetime, session_seconds=approval.session_lifetime)
        state.approvals.configure(approval, inputs.policy.roles_of)
        state.approvals.reports = self._webhook
        state.redact.configure(
            {name: _kinds(server.redact, settings.calls.redact) for name, server in inputs.servers.items()},
            {
                name: _kinds(server.redact_arguments, settings.calls.redact_arguments)
                for name, server in inputs.servers.items()
            },
            {name: server.secrets_to for name, server in inputs.servers.items() if server.secrets_to},
            inputs.policy.secrets_of,
        )
        state.lost_memory.configure({name for name, server in inputs.servers.items() if server.share == "fleet"})
        state.slots.queued = settings.calls.max_queued
        state.otel = self._otel
        self._context.audit.configure(settings.call_log)
        self._context.trail.replace(self._audit_log)
        self._context.recorder.configure(self._recorded)
        deliver = Deliver(self._context.pool, inputs.serve, answer_seconds=settings.questions.timeout)
        state.plans.configure(deliver, self._stages, options_of, self._recorded_stages)

    def _hooks(self, lease: Lease) -> Hooks:
        settings, context = self._settings, self._context
        directory = str(Path(settings.source).parent) if settings.source else None

        def make() -> Hooks:
            return Hooks(
                settings.hooks,
                context.functions,
                directory=directory,
                redact=context.redact,
                arguments=ValidateArguments(),
                changes=self._state.changes,
            )

        return lease.hold("hooks", (settings.hooks, directory), make, run=Hooks.running)

    def _reports(self, lease: Lease) -> "Report | None":
        """What reports calls that wait for other people, if something does."""
        settings = self._settings.approval.webhook
        if settings is None:
            return None
        from mcpbridge.pipeline.approvals.webhook import ApprovalWebhook

        redact = self._context.redact
        webhook = lease.hold(
            "approval webhook", settings, lambda: ApprovalWebhook(settings, redact), run=ApprovalWebhook.running
        )
        return webhook.report

    def _idle_timeout(self, server: str) -> float:
        """Seconds that calls to a server have."""
        return self._inputs.sources[server].timeouts.idle if server in self._inputs.sources else CALL_SECONDS

    def _approval(self) -> Approval:
        settings, inputs, state = self._settings.approval, self._inputs, self._state
        ways: dict[str, Approver] = {"client": ClientApprover(self._settings.bridge.name), "pending": state.approvals}
        approvers: list[Approver] = (
            [HandlerApprover(self._context.approver)] if self._context.approver is not None else []
        )
        approvers += [ways[way] for way in settings.ask]
        return Approval(
            approvers,
            state.grants,
            seconds=settings.timeout,
            policy=lambda: inputs.policy.version,
            audit=state.audit,
            needed=lambda tool, options: (
                tool is not None
                and (
                    inputs.policy.for_tool(tool, options).needs_call
                    or inputs.asks(tool) is not None
                    or self._trifecta.may_ask(tool)
                )
            ),
            precheck=inputs.precheck,
            as_before=state.approvals.as_before,
            keeps_content=self._keeps_content,
            changes_of=self._context.changes_of,
            approve_by=settings.approve_by.value if settings.approve_by is not None else None,
            ways=ways,
        )

    def _keeps_content(self, call: Call, asked: bool | None) -> bool:
        """Whether the arguments of a call may be written down, given what is set of its tool."""
        return self._recorded.grade != "off" and self._context.recorder.keeps_content(call, asked)

    def _tracing(self, otel: "OpenTelemetry", *, keeps_content: bool) -> "Tracing":
        from mcpbridge.pipeline.observability.tracing import Tracing

        return Tracing(otel, self._peer, keeps_content=keeps_content)

    def _peer(self, server: str) -> "Peer":
        """A server as traces name it."""
        from mcpbridge.pipeline.observability.tracing import Peer

        upstream, settings = self._context.pool.upstreams.get(server), self._inputs.servers.get(server)
        if upstream is None or settings is None:
            return Peer()
        if settings.url is None:
            return Peer(upstream.version, "pipe")
        where = urlsplit(settings.url)
        return Peer(upstream.version, "tcp", where.hostname or "", where.port or 0)


def _open_telemetry(settings: Settings, lease: Lease) -> "OpenTelemetry | None":
    if not settings.observe.otel:
        return None
    from mcpbridge.pipeline.observability.tracing_setup import OpenTelemetry

    return lease.hold("telemetry", None, OpenTelemetry.create, run=OpenTelemetry.running)


def _both(first: Record | None, second: Record | None) -> Record | None:
    if first is None or second is None:
        return first or second

    def both(record: CallRecord) -> None:
        first(record)
        second(record)

    return both


def _kinds(own: Sequence[str] | None, general: Sequence[str] | None) -> tuple[str, ...]:
    """What is redacted of a server: as it says itself, else as is said for all."""
    return tuple((own if own is not None else general) or ())
