"""The stages of a call in their order, and the plan of each tool.

`call_stages` is the one place that decides the order. A stage that has nothing to do for a tool is not in the tool's
plan, so a tool with nothing configured has the shortest one. Each stage decides that itself (`StageFactory.stage`).
Some stages act on few calls, such as those with a reference among their arguments; all other calls take a plan without
these stages (`Trigger`). Of each plan there is one more, which notes the times of its stages, for calls that are
recorded (`observability/recorder.py`).

What a stage does lies in `stages/`, what the parts are made of in `engine/wiring/pipeline.py`.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Raw, Struct

from mcpbridge.base.units import Rate
from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.call_settings import CallDefaults
from mcpbridge.core.events import EventBus
from mcpbridge.core.model import Asks, Call, CallHandler, Tool
from mcpbridge.core.recording import MOST_STAGES, SERVER, ExpressStages, express_text
from mcpbridge.pipeline.deliver import mirroring
from mcpbridge.pipeline.observability.metrics import Metrics
from mcpbridge.pipeline.permissions.policy import Policy
from mcpbridge.pipeline.stage import (
    ExpressAnswer,
    ExpressBegin,
    ExpressEnd,
    ExpressOver,
    ExpressPlan,
    ExpressSent,
    ExpressUnsent,
    ExpressWithdrawn,
    Stage,
    StageFactory,
    Trigger,
    chain,
)
from mcpbridge.pipeline.stages.abandoned_calls import AbandonedCalls
from mcpbridge.pipeline.stages.approval import Approval
from mcpbridge.pipeline.stages.cache import Cache
from mcpbridge.pipeline.stages.call_budget import BudgetState, CallBudget
from mcpbridge.pipeline.stages.compress import Compress
from mcpbridge.pipeline.stages.concurrency_limit import ConcurrencyLimit, Slots
from mcpbridge.pipeline.stages.deadline import Deadline
from mcpbridge.pipeline.stages.held_definition import HeldDefinition
from mcpbridge.pipeline.stages.hooks import Hooks
from mcpbridge.pipeline.stages.lethal_trifecta import LethalTrifecta
from mcpbridge.pipeline.stages.lost_memory import LostMemory
from mcpbridge.pipeline.stages.observe import Observe, Record, Recording, RuleOf
from mcpbridge.pipeline.stages.original_names import OriginalNames
from mcpbridge.pipeline.stages.permission import DecideByArguments, DenyByTool
from mcpbridge.pipeline.stages.rate_limit import Buckets, RateLimit
from mcpbridge.pipeline.stages.record_running import RecordRunning, RunningLog
from mcpbridge.pipeline.stages.redact import Redact
from mcpbridge.pipeline.stages.references import References
from mcpbridge.pipeline.stages.retry import Retry
from mcpbridge.pipeline.stages.validate_arguments import ValidateArguments
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode

if TYPE_CHECKING:  # few bridges trace
    from mcpbridge.pipeline.observability.tracing import Tracing

MOST_PLANS = 50_000
"""Plans that are kept: a server that gives its tools new names all the time must not fill the memory."""


class StageParts(Struct, frozen=True):
    """What the stages are made with, for one reading of the settings."""

    calls: CallDefaults
    """The `calls` section."""
    rates: Mapping[str, Rate]
    """How often each server may be called, where that is limited."""
    idle_timeout: Callable[[str], float]
    """Seconds that calls to a server have, by its name."""
    tracing: "Tracing | None"
    """None: calls are not traced."""
    metrics: Metrics | None
    """None: calls are not counted."""
    events: EventBus
    record: Record | None
    """Gets the record of each call, however it is; None: nobody does."""
    recorder: Recording | None
    """Gets the records of calls that are recorded, and of others if they fail; None: none are."""
    rule_of: RuleOf | None
    """Which rule decided about calls, for their records, as the next says which role did; None: nobody asks."""
    role_of: RuleOf | None
    is_audited: bool
    running: RunningLog | None
    """Gets to know of each recorded call before it is sent; None: nobody does."""
    policy: Policy
    trifecta: LethalTrifecta
    asks: Callable[[Tool], Asks | None]
    """What says of a call by its arguments whether a person must agree; None: the arguments do not matter."""
    lost_memory: LostMemory
    compress: Compress
    references: References
    hooks: Hooks
    held: HeldDefinition
    approval: Approval
    abandoned: AbandonedCalls
    cache: Cache
    redact: Redact
    quotas: tuple[Sequence[StageFactory], Sequence[StageFactory]]
    budgets: BudgetState
    buckets: Buckets
    slots: Slots


def call_stages(parts: StageParts, *, is_recorded: bool = False) -> list[StageFactory]:
    """The life of a tool call, outermost first; stages with nothing to do are left out. `is_recorded`: it is logged."""
    calls = parts.calls
    received, sent = _tracing(parts.tracing)
    return [
        *received,  # around everything: the span is the client's whole request
        Observe(  # refusals are counted and logged too
            parts.metrics,
            parts.events,
            parts.record,
            recorder=parts.recorder,
            is_recorded=is_recorded,
            rule_of=parts.rule_of,
            role_of=parts.role_of,
            is_audited=parts.is_audited,
        ),
        *parts.quotas[0],  # what the client gets is counted
        parts.lost_memory,  # what it adds is for this client alone, and the bridge's own word
        parts.compress,  # above all that runs or repeats a call: the cache and late results hold whole results
        DenyByTool(parts.policy),  # what is denied whatever its arguments are ends before it costs time
        parts.references,  # all below see what a handle among the arguments stands for, and decide about that
        OriginalNames(),  # models know parameters by their cleaned names; hooks and checks see the server's own
        parts.hooks,  # they see calls as clients make them and may change arguments: before those are checked
        ValidateArguments(),  # nobody is asked about a call that cannot work; rules see what the tool gets
        parts.held,  # nobody is asked about a call of a tool that is held; it sees what the tool gets
        DecideByArguments(parts.policy, parts.asks),  # rules with conditions on the arguments
        parts.trifecta,  # what else the session has done decides last, and only ever for more care
        CallBudget(
            calls, state=parts.budgets, max_calls_of=parts.policy.max_calls_of
        ),  # nobody is asked about a call that may not run yet
        RateLimit(calls.rate_limit, parts.rates, buckets=parts.buckets, rate_of=parts.policy.rate_of),  # the same
        *parts.quotas[1],  # the same
        parts.approval,  # below this a person has agreed, if one had to
        parts.abandoned,  # a client that gives up from here on does not lose the result
        parts.cache,  # a hit needs the same permission; above retries: it keeps only what came of them
        Deadline(parts.idle_timeout),  # its time counts from here on: waiting and retries are part of it
        Retry(),  # above the limits: a call that waits for its next try holds no slot
        ConcurrencyLimit(calls, parts.idle_timeout, slots=parts.slots),  # the last that a call waits for
        RecordRunning(parts.running if is_recorded else None, parts.rule_of, parts.role_of),  # a row says: it is sent
        parts.redact,  # innermost: all above, and all that is kept, has placeholders
        *sent,  # one span for each try, without the waiting
    ]


STAGE_NAMES: Mapping[type, str] = {
    Compress: "shorten the result",
    DenyByTool: "permission",
    References: "kept results",
    OriginalNames: "original names",
    Hooks: "hooks",
    ValidateArguments: "check arguments",
    HeldDefinition: "held definition",
    DecideByArguments: "permission by arguments",
    LethalTrifecta: "lethal trifecta",
    CallBudget: "call budget",
    RateLimit: "rate limit",
    Approval: "approval",
    AbandonedCalls: "late result",
    Cache: "cache",
    Deadline: "deadline",
    Retry: "retry",
    ConcurrencyLimit: "wait for a slot",
    Redact: "redact",
    RecordRunning: "write to the call log",
}
"""What people see the stages named, by their factories; the time in others is part of the stage around them."""


def _tracing(tracing: "Tracing | None") -> tuple[list[StageFactory], list[StageFactory]]:
    """The outermost stage and the innermost, if calls are traced."""
    if tracing is None:
        return [], []
    from mcpbridge.pipeline.observability.tracing import TraceReceived, TraceSent

    return [TraceReceived(tracing)], [TraceSent(tracing)]


_SAME_TURN = (Observe, LostMemory, Compress, ValidateArguments)
"""Stages that pass a call on in the same turn of the event loop, as it was or with other arguments of the same meaning.

What a call triggers is looked for once, when it begins. That is right for the stages that the call reaches through
these; below any other stage it may meanwhile have become another call, or another time.
"""


class _Plan(Struct, frozen=True):
    """The stages of one tool."""

    definition: bytes
    """Of the tool that it was compiled for."""
    whole: CallHandler
    short: CallHandler | None
    """Without the stages that only some calls trigger; None: there are none."""
    arguments: tuple[bytes, ...]
    """These, and what follows, trigger one of the stages that `short` lacks; see `Trigger`."""
    meta: frozenset[str]
    while_any: tuple[Collection[object], ...]
    express: ExpressPlan | None = None
    """None: its calls are never plain."""


class Choice(Protocol):
    """Which calls are recorded; see `Recorder`, which is one."""

    @property
    def is_open(self) -> bool:
        """The call that begins now is."""
        ...

    @property
    def writes_first(self) -> bool:
        """All are, and have a row in the call log before they are sent."""
        ...


class _Nothing:
    is_open = writes_first = False


class Pipelines:
    """What happens to each call: the plan of its tool, compiled at its first call."""

    def __init__(
        self,
        deliver: CallHandler,
        stages: Sequence[StageFactory],
        options_of: Callable[[Tool], CallOptions],
        recorded: Choice | None = None,
    ) -> None:
        """`stages`: outermost first. `options_of`: how calls of a tool are treated. `recorded`: None: no calls are."""
        self.recorded: Choice = recorded or _Nothing()
        """Which calls are recorded."""
        self.configure(deliver, stages, options_of)

    def configure(
        self,
        deliver: CallHandler,
        stages: Sequence[StageFactory],
        options_of: Callable[[Tool], CallOptions],
        recorded_stages: Sequence[StageFactory] = (),
    ) -> None:
        """Other stages for all calls that begin from now on. Those under way keep their plan to the end.

        `recorded_stages`: those of calls that are recorded.
        """
        self._options_of = options_of
        self._plain = _Plans(deliver, stages, _plain_chain)
        self.timed = _Plans(_timed_delivery(deliver), recorded_stages, _timed_chain)
        """Those of calls that are recorded."""

    def forget(self, server: str) -> None:
        """Compile the plans of this server's tools anew: their calls are treated in another way from now on."""
        for plans in (self._plain, self.timed):
            for id_ in [id_ for id_ in plans.known if id_.startswith(f"{server}/")]:
                del plans.known[id_]

    def express(self, tool: Tool, arguments: Raw) -> ExpressPlan | None:
        """The plan of a call that begins now, if every stage can do its part without waiting.

        None: it cannot, or the tool was not called yet.
        """
        plan = (self.timed if self.recorded.is_open else self._plain).known.get(tool.id)
        if plan is None or plan.definition is not tool.definition or plan.express is None:
            return None
        express = plan.express
        for known in express.while_any:
            if known:
                return None
        for sign in express.arguments:
            if bytes(arguments).find(sign) >= 0:
                return None
        return express

    def __call__(self, call: Call) -> Awaitable[Body]:
        """Run a call through its plan."""
        tool = call.tool
        plans = self.timed if self.recorded.is_open else self._plain
        if tool is None:
            return plans.rest(call)
        plan = plans.known.get(tool.id)
        if plan is None or plan.definition is not tool.definition:
            plan = plans.compile(tool, self._options_of(tool))
        # All the looks are here: one in each stage's file would cost every call a function more for each.
        short, meta = plan.short, call.meta
        if short is None or (meta is not None and not plan.meta.isdisjoint(meta.fields)):
            return plan.whole(call)
        for known in plan.while_any:
            if known:
                return plan.whole(call)
        if plan.arguments:
            arguments = bytes(call.params.fields.get("arguments", b""))
            for sign in plan.arguments:
                if arguments.find(sign) >= 0:  # `in` takes twice as long
                    return plan.whole(call)
        return short(call)


Chain = Callable[[Sequence[tuple[StageFactory, Stage]], CallHandler], CallHandler]


class _Plans:
    """The plans of all tools whose calls were seen, of one kind."""

    def __init__(self, deliver: CallHandler, factories: Sequence[StageFactory], chain_: Chain) -> None:
        self.known: dict[str, _Plan] = {}
        self.has_express = False
        """Calls of some tool can be plain."""
        self._deliver, self._factories, self._chain = deliver, factories, chain_
        self.rest = chain_(self._stages_of(None, CallOptions()), deliver)

    def compile(self, tool: Tool, options: CallOptions) -> _Plan:
        """The plan of a tool."""
        deliver = mirroring(tool.headers, self._deliver) if tool.headers else self._deliver
        stages = self._stages_of(tool, options)
        always: list[tuple[StageFactory, Stage]] = []
        triggers: list[Trigger] = []
        is_same_turn = True
        for factory, stage in stages:
            trigger: Trigger | None = getattr(stage, "trigger", None)
            if trigger is not None and is_same_turn:
                triggers.append(trigger)
            else:
                always.append((factory, stage))
                is_same_turn = is_same_turn and isinstance(factory, _SAME_TURN)
        plain = self._chain(always, deliver)
        plan = _Plan(
            tool.definition,
            self._chain(stages, deliver) if triggers else plain,
            plain if triggers else None,
            tuple(sign for trigger in triggers for sign in trigger.arguments),
            frozenset(trigger.meta for trigger in triggers if trigger.meta),
            tuple(trigger.while_any for trigger in triggers if trigger.while_any is not None),
            None if tool.headers else _express(tool, always, triggers, plain),
        )
        self.has_express = self.has_express or plan.express is not None
        if len(self.known) >= MOST_PLANS:
            self.known.clear()
        self.known[tool.id] = plan
        return plan

    def _stages_of(self, tool: Tool | None, options: CallOptions) -> list[tuple[StageFactory, Stage]]:
        stages = ((factory, factory.stage(tool, options)) for factory in self._factories)
        return [(factory, stage) for factory, stage in stages if stage is not None]


def _express(
    tool: Tool, stages: Sequence[tuple[StageFactory, Stage]], triggers: Sequence[Trigger], whole: CallHandler
) -> ExpressPlan | None:
    """`stages`: those that every call passes; `triggers`: those of the others.

    None: some stage cannot do its part at once.
    """
    # None of the stages with a trigger does anything for a plain call.
    all_triggers = [*triggers]
    begin: list[ExpressBegin] = []
    sent: list[ExpressSent] = []
    end: list[ExpressEnd] = []
    over: list[ExpressOver] = []
    observe: list[ExpressEnd] = []
    withdrawn: list[ExpressWithdrawn] = []
    unsent: list[ExpressUnsent] = []
    passed: list[tuple[str, bool]] = []
    answer: ExpressAnswer | None = None
    for factory, stage in stages:
        of_trigger: Trigger | None = getattr(stage, "trigger", None)
        parts = _parts_of(stage if of_trigger is None else None)
        if of_trigger is not None:
            all_triggers.append(of_trigger)
        elif not any(parts.values()):
            return None
        begin += filter(None, [parts["begin"]])
        sent += filter(None, [parts["sent"]])
        outermost_last = observe if isinstance(factory, Observe) else end
        outermost_last[:0] = filter(None, [parts["end"]])
        over[:0] = filter(None, [parts["over"]])
        withdrawn[:0] = filter(None, [parts["withdrawn"]])
        unsent[:0] = filter(None, [parts["unsent"]])
        if (name := STAGE_NAMES.get(type(factory))) is not None:
            passed.insert(0, (name, parts["end"] is not None))
        if (answer := parts["answer"]) is not None:
            break  # what it answers passes no stage below it; what it does not is not plain
    if withdrawn:  # calls are recorded
        observe.insert(0, partial(_note_times, express_text(passed[::-1], is_sent=answer is None)))
    return ExpressPlan(
        whole,
        tuple(begin),
        tuple(sent),
        tuple(end),
        tuple(over),
        tuple(observe),
        tuple(withdrawn),
        tuple(unsent),
        None if tool.name == tool.wire else Raw(encode(tool.name)),
        tuple(sign for trigger in all_triggers for sign in trigger.arguments),
        tuple(trigger.while_any for trigger in all_triggers if trigger.while_any is not None),
        answer,
    )


def _parts_of(stage: Stage | None) -> dict[str, Any]:
    """What a stage does on the express lane, by name; see `pipeline/stage.py`."""
    return {part: getattr(stage, f"express_{part}", None) for part in _PARTS}


_PARTS = ("begin", "sent", "end", "over", "withdrawn", "unsent", "answer")


def _plain_chain(stages: Sequence[tuple[StageFactory, Stage]], deliver: CallHandler) -> CallHandler:
    return chain([stage for _, stage in stages], last=deliver)


# -- with the times of stages


def _timed_chain(stages: Sequence[tuple[StageFactory, Stage]], deliver: CallHandler) -> CallHandler:
    """The same plan, of which each stage that has a name notes when a call comes and leaves."""
    named = [(stage, STAGE_NAMES.get(type(factory))) for factory, stage in stages]
    return chain([stage if name is None else partial(_timed, stage, name) for stage, name in named], last=deliver)


def _note_times(text: str, call: Call, _: Raw, _seconds: float) -> bool:
    """Note the same of a call that ends on the express lane. `text`: see `ExpressStages`."""
    recorded = call.recorded
    if recorded is not None:
        sent = recorded.sent_at - recorded.began
        over = perf_counter() - recorded.began
        recorded.express_stages = ExpressStages(text, sent, sent + call.upstream_seconds, over)
    return True


async def _timed(stage: Stage, name: str, call: Call, proceed: CallHandler) -> Body:
    recorded = call.recorded
    if recorded is None:
        return await stage(call, proceed)
    # One that continues from the express lane has passed it on its way to the server.
    came = recorded.began
    if call.sent is None:
        recorded.stage, came = name, perf_counter()
    try:
        return await stage(call, proceed)
    finally:
        if len(recorded.stages) < MOST_STAGES:
            began = recorded.began
            recorded.stages.append((name, came - began, perf_counter() - began))


def _timed_delivery(deliver: CallHandler) -> CallHandler:
    async def run(call: Call) -> Body:
        recorded = call.recorded
        if recorded is None:
            return await deliver(call)
        recorded.stage = SERVER
        came = perf_counter() if call.sent is None else recorded.sent_at
        recorded.sent_at = recorded.sent_at or came
        try:
            return await deliver(call)
        finally:
            if len(recorded.stages) < MOST_STAGES:
                began = recorded.began
                recorded.stages.append((SERVER, came - began, perf_counter() - began))

    return run
