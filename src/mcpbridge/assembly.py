"""The way of a call, put together from the settings: every concern in its order, and what they share.

Why each stands where it does is told in `pipeline/order.py`.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mcpbridge.approvals.by_client import ClientApprover
from mcpbridge.approvals.by_handler import ApprovalHandler, HandlerApprover
from mcpbridge.approvals.desk import Desk
from mcpbridge.approvals.grants import Grants
from mcpbridge.approvals.recording import recording
from mcpbridge.builtin.tool import Builtin
from mcpbridge.conduct import CALL_SECONDS
from mcpbridge.config.schema import Settings
from mcpbridge.events import EventBus
from mcpbridge.hooks.calls import Hook
from mcpbridge.pipeline.approval import Approval, Approver
from mcpbridge.pipeline.arguments import CheckArguments
from mcpbridge.pipeline.budgets import Budgets
from mcpbridge.pipeline.cache import Cache
from mcpbridge.pipeline.deadline import Deadline
from mcpbridge.pipeline.deliver import Deliver
from mcpbridge.pipeline.guard import Guard, Permit
from mcpbridge.pipeline.hooks import Hooks
from mcpbridge.pipeline.late import Late
from mcpbridge.pipeline.limits import Limits
from mcpbridge.pipeline.metrics import Metrics
from mcpbridge.pipeline.observe import Observe, Record
from mcpbridge.pipeline.order import Plans
from mcpbridge.pipeline.rates import Rates
from mcpbridge.pipeline.retry import Retry
from mcpbridge.pipeline.stage import Concern
from mcpbridge.pipeline.tracing import Peer, TraceReceived, TraceSent
from mcpbridge.policy.decide import Policy
from mcpbridge.result_parts import ResultParts
from mcpbridge.storage.call_log import CallLog
from mcpbridge.storage.records import CallRecord
from mcpbridge.storage.store import Store
from mcpbridge.upstream.conducts import Conducts
from mcpbridge.upstream.pool import Pool
from mcpbridge.upstream.settings import ServerSettings

if TYPE_CHECKING:  # loaded where calls are traced
    from mcpbridge.pipeline.tracing_setup import OpenTelemetry

__all__ = ["Parts", "Way"]


@dataclass(frozen=True, slots=True)
class Parts:
    """What the way is built with besides the settings."""

    servers: Mapping[str, ServerSettings]
    """With what `[calls]` says where they say nothing."""
    pool: Pool
    conducts: Conducts
    policy: Policy
    store: Store
    results: ResultParts
    builtins: Mapping[str, Builtin]
    """The bridge's own tools, by name."""
    audit: CallLog
    """Where approvals are written down."""
    call_log: CallLog | None
    """Where calls are written down."""
    metrics: Metrics
    events: EventBus
    approver: ApprovalHandler | None
    functions: Sequence[Hook]
    """The program's hooks."""
    redact: Callable[[str], str]
    otel: "OpenTelemetry | None"
    noted: Record | None = None
    """Hears of each call that has ended."""


class Way:
    """All concerns of one bridge."""

    def __init__(self, settings: Settings, parts: Parts) -> None:
        """Nothing runs before `running`."""
        self._settings, self._parts = settings, parts
        self._servers = parts.servers
        calls, policy = settings.calls, parts.policy
        self.cache = Cache(settings.cache, self._servers, calls)
        self.late = Late(parts.store, self._servers, parts.conducts.of, calls.late_lifetime)
        approval = settings.approval
        self._audit = recording(parts.audit)
        self._grants = Grants(
            parts.store, once_seconds=approval.grant_lifetime, session_seconds=approval.session_lifetime
        )
        self.approvals = Desk(approval, parts.store, self._grants, self._audit)
        """Calls that wait for a person to agree."""
        self._otel = parts.otel
        check = CheckArguments()
        directory = str(Path(settings.source).parent) if settings.source else None
        self._hooks = Hooks(settings.hooks, parts.functions, directory=directory, redact=parts.redact, arguments=check)
        rates = {name: server.rate_limit for name, server in self._servers.items() if server.rate_limit}
        traces = settings.observe.otel_content
        record = _both(parts.call_log.append if parts.call_log is not None else None, parts.noted)
        concerns: list[Concern] = [
            *([TraceReceived(self._otel, keeps_content=traces)] if self._otel else []),
            Observe(parts.metrics if settings.observe.metrics else None, parts.events, record),
            parts.results.compress,
            Guard(policy),
            parts.results.references,
            self._hooks,
            check,
            Permit(policy),
            Budgets(calls),
            Rates(calls.rate_limit, rates),
            self._approval(),
            self.late,
            self.cache,
            Deadline(self._idle_of),
            Retry(),
            Limits(calls, self._idle_of),
            *([TraceSent(self._otel, self._peer, keeps_content=traces)] if self._otel else []),
        ]
        deliver = Deliver(parts.pool, parts.builtins, answer_seconds=settings.questions.timeout)
        self.plans = Plans(deliver, concerns, parts.conducts.of)
        """What happens to each call."""

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Owns what the concerns do by themselves."""
        async with AsyncExitStack() as stack:
            if self._otel is not None:
                await stack.enter_async_context(self._otel.running())
            await stack.enter_async_context(self._parts.results.running())
            await stack.enter_async_context(self._hooks.running())
            await stack.enter_async_context(self.cache.running())
            yield

    def end(self) -> None:
        """The bridge stops: nobody is waited for any more."""
        self.approvals.end()
        self.late.end()

    def _idle_of(self, server: str) -> float:
        """Seconds that calls to a server have."""
        return self._servers[server].timeouts.idle if server in self._servers else CALL_SECONDS

    def _approval(self) -> Approval:
        settings, parts = self._settings.approval, self._parts
        ways: dict[str, Approver] = {"client": ClientApprover(self._settings.bridge.name), "pending": self.approvals}
        approvers: list[Approver] = [HandlerApprover(parts.approver)] if parts.approver is not None else []
        approvers += [ways[way] for way in settings.ask]
        return Approval(
            approvers,
            self._grants,
            seconds=settings.timeout,
            policy=lambda: parts.policy.version,
            audit=self._audit,
            needed=lambda tool, conduct: tool is not None and parts.policy.for_tool(tool, conduct).needs_call,
        )

    def _peer(self, server: str) -> Peer:
        """A server as traces name it."""
        upstream, settings = self._parts.pool.upstreams.get(server), self._servers.get(server)
        if upstream is None or settings is None:
            return Peer()
        if settings.url is None:
            return Peer(upstream.version, "pipe")
        where = urlsplit(settings.url)
        return Peer(upstream.version, "tcp", where.hostname or "", where.port or 0)


def _both(first: Record | None, second: Record | None) -> Record | None:
    if first is None or second is None:
        return first or second

    def told(record: CallRecord) -> None:
        first(record)
        second(record)

    return told
