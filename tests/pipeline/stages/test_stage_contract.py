"""What every stage promises (`pipeline/stage.py`): `proceed` once to pass, and nothing is lost on the way.

One suite over all of them. A new stage is a line in `CONCERNS`, with settings that give it something to do.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec import Raw

from mcpbridge.base.errors import BridgeError, UpstreamAnswered, UpstreamGarbled
from mcpbridge.base.units import Rate
from mcpbridge.core.call_options import CallOptions, Hints
from mcpbridge.core.call_settings import CallDefaults, RetrySettings
from mcpbridge.core.events import EventBus
from mcpbridge.core.model import Call, Tool
from mcpbridge.pipeline.approvals.approvers import HandlerApprover
from mcpbridge.pipeline.approvals.grants import Grants
from mcpbridge.pipeline.hooks.call import before
from mcpbridge.pipeline.observability.metrics import Metrics
from mcpbridge.pipeline.observability.tracing import Peer, TraceReceived, TraceSent, Tracing
from mcpbridge.pipeline.permissions.policy import Policy
from mcpbridge.pipeline.permissions.settings import PermissionRule
from mcpbridge.pipeline.settings import CacheSettings
from mcpbridge.pipeline.stage import Stage, StageFactory
from mcpbridge.pipeline.stages.abandoned_calls import AbandonedCalls
from mcpbridge.pipeline.stages.approval import Approval
from mcpbridge.pipeline.stages.cache import Cache
from mcpbridge.pipeline.stages.call_budget import CallBudget
from mcpbridge.pipeline.stages.concurrency_limit import ConcurrencyLimit
from mcpbridge.pipeline.stages.deadline import Deadline
from mcpbridge.pipeline.stages.hooks import Hooks
from mcpbridge.pipeline.stages.lost_memory import LostMemory
from mcpbridge.pipeline.stages.observe import Observe
from mcpbridge.pipeline.stages.original_names import OriginalNames
from mcpbridge.pipeline.stages.permission import DecideByArguments, DenyByTool
from mcpbridge.pipeline.stages.rate_limit import RateLimit
from mcpbridge.pipeline.stages.redact import Redact
from mcpbridge.pipeline.stages.retry import Retry
from mcpbridge.pipeline.stages.validate_arguments import ValidateArguments
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.deadlines import Timeouts
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.storage.memory_store import MemoryStore

SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "hid\u200bden": {}, "times": {"type": "integer", "default": 1}},
    "required": ["text"],
}
DEFINITION = encode({"name": "echo", "inputSchema": SCHEMA})
OPTIONS = CallOptions(
    effect="write",
    is_idempotent=True,
    is_serial=True,
    timeouts=Timeouts(20, 60),
    retry=RetrySettings(tries=2, backoff=0),
    max_concurrent=2,
    rate_limit=Rate(1000, 1),
    redact=("secrets", "pii"),
)
"""Something to do for every stage."""


@dataclass(frozen=True)
class Echo:
    """A tool."""

    id: str = "up/echo"
    server: str = "up"
    name: str = "echo"
    wire: str = "up__echo"
    definition: bytes = DEFINITION
    hints: Hints = Hints()  # noqa: RUF009
    headers: Any = field(default_factory=dict[tuple[str, ...], str])


def policy() -> Policy:
    rules = [
        PermissionRule.model_validate({"when": "args.text == 'never'", "permission": "deny"}),
        PermissionRule.model_validate({"principals": "nobody", "permission": "deny"}),
    ]
    return Policy(rules, {}, CallDefaults(), lambda tool: OPTIONS)


def approval() -> Approval:
    grants = Grants(MemoryStore(), once_seconds=60, session_seconds=60)
    approver = HandlerApprover(lambda request: True)
    return Approval([approver], grants, seconds=60, policy=str, audit=lambda event: None)


def hooks() -> Hooks:
    @before
    def looks_on(call: Any) -> None:
        """Lets every call pass."""

    return Hooks((), [looks_on], directory=None, redact=str, arguments=ValidateArguments())


def traced(kind: type[TraceReceived] | type[TraceSent]) -> StageFactory:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.trace import TracerProvider

    from mcpbridge.pipeline.observability.tracing_setup import OpenTelemetry

    otel = OpenTelemetry(TracerProvider(), MeterProvider())
    return kind(Tracing(otel, lambda server: Peer(), keeps_content=False))


def lost_memory() -> LostMemory:
    memory = LostMemory()
    memory.configure({"up"})
    return memory


CONCERNS: dict[str, Callable[[], StageFactory]] = {
    "trace received": lambda: traced(TraceReceived),
    "observe": lambda: Observe(Metrics(), EventBus(), lambda record: None),
    "lost memory": lost_memory,
    "guard": lambda: DenyByTool(policy()),
    "original names": OriginalNames,
    "hooks": hooks,
    "arguments": ValidateArguments,
    "permit": lambda: DecideByArguments(policy()),
    "budgets": lambda: CallBudget(CallDefaults(max_calls=1000, max_chain=1000)),
    "rates": lambda: RateLimit(Rate(1000, 1), {"up": Rate(1000, 1)}),
    "approval": approval,
    "late": lambda: AbandonedCalls(MemoryStore(), {}, lambda tool: OPTIONS, 60),
    "cache": lambda: Cache(CacheSettings(), {}, CallDefaults(cache=60)),
    "deadline": lambda: Deadline(lambda server: 60),
    "retry": Retry,
    "limits": lambda: ConcurrencyLimit(CallDefaults(max_per_client=3), lambda server: 60),
    "redact": Redact,
    "trace sent": lambda: traced(TraceSent),
}


@asynccontextmanager
async def stage_of(name: str, tool: Tool | None = Echo()) -> AsyncIterator[Stage | None]:
    concern = CONCERNS[name]()
    running: AbstractAsyncContextManager[object] = (
        concern.running() if isinstance(concern, Cache | Hooks) else nullcontext()
    )
    options = CallOptions(effect="read", cache=60) if name == "cache" else OPTIONS
    async with asyncio.timeout(10), running:
        yield concern.stage(tool, options)


def call_of(text: str = "hello") -> Call:
    arguments = Raw(encode({"text": text, "times": 1}))
    call = Call("tools/call", "up", "echo", Body(encode({"name": "echo", "arguments": arguments})))
    call.tool, call.approval = Echo(), "somebody has to agree"
    return call


@pytest.fixture(params=list(CONCERNS))
def name(request: pytest.FixtureRequest) -> str:
    return request.param


async def test_a_call_passes_once_and_its_result_comes_back(name: str) -> None:
    sent: list[bytes] = []

    async def rest(call: Call) -> Body:
        sent.append(bytes(call.params.data))
        return Body(b'{"content":[],"big":12345678901234567890123}')

    async with stage_of(name) as stage:
        assert stage is not None
        call = call_of()
        before = bytes(call.params.data)
        result = await stage(call, rest)
    assert sent == [before]
    assert bytes(result.data) == b'{"content":[],"big":12345678901234567890123}'


@pytest.mark.parametrize(
    "error", [UpstreamAnswered("up", b'{"code":-1,"message":"no"}'), UpstreamGarbled("up", "noise"), ValueError("bug")]
)
async def test_what_goes_wrong_further_on_comes_back_as_it_is(name: str, error: Exception) -> None:
    tries = 0

    async def rest(call: Call) -> Body:
        nonlocal tries
        tries += 1
        raise error

    async with stage_of(name) as stage:
        assert stage is not None
        with pytest.raises(type(error)) as raised:
            await stage(call_of(), rest)
        assert str(raised.value) == str(error)
        assert tries == 1  # an answer, and a fault, are no reason to try again


async def test_a_cancel_goes_through_and_holds_nothing_back(name: str) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def stuck(call: Call) -> Body:
        begun.set()
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            ended.set()

    async def rest(call: Call) -> Body:
        return Body()

    async with stage_of(name) as stage:
        assert stage is not None
        for _ in range(5):  # more than there are places
            begun.clear()
            ended.clear()
            task = asyncio.ensure_future(stage(call_of(), stuck))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await ended.wait()
        assert (await stage(call_of(), rest)).data == b"{}"


async def test_calls_side_by_side_get_each_its_own_result(name: str) -> None:
    async def rest(call: Call) -> Body:
        await asyncio.sleep(0)
        arguments = call.params.inner("arguments")
        assert arguments is not None
        return Body(encode({"content": arguments.text("text")}))

    async with stage_of(name) as stage:
        assert stage is not None
        results = await asyncio.gather(*(stage(call_of(f"{number}"), rest) for number in range(40)))
    assert [result.value()["content"] for result in results] == [f"{number}" for number in range(40)]


async def test_requests_that_call_no_tool_pass(name: str) -> None:
    async def rest(call: Call) -> Body:
        return Body(b'{"messages":[]}')

    async with stage_of(name, None) as stage:
        if stage is not None:
            call = Call("prompts/get", "up", "hello", Body(b'{"name":"hello"}'))
            assert (await stage(call, rest)).data == b'{"messages":[]}'


async def test_a_refusal_is_one_that_says_what_to_do() -> None:
    """What a stage refuses is `CallRefused`, so that callers know that nothing was sent."""
    async with stage_of("permit") as stage:
        assert stage is not None

        async def rest(call: Call) -> Body:
            raise AssertionError("sent all the same")

        with pytest.raises(BridgeError) as raised:
            await stage(call_of("never"), rest)
        assert raised.value.advice
