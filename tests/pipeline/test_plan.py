"""The plan of a tool: which stages a call passes, and which it is spared."""

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field

import pytest
from msgspec import Raw

from mcpbridge.core.call_options import NO_HINTS, CallOptions, Hints
from mcpbridge.core.model import Call, CallHandler, Tool
from mcpbridge.pipeline.plan import Pipelines
from mcpbridge.pipeline.stage import Stage, StageFactory, Trigger
from mcpbridge.pipeline.stages.validate_arguments import ValidateArguments
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode

SCHEMA: dict[str, object] = {"type": "object", "properties": {"text": {}}}


@dataclass
class Look:
    """A tool."""

    id: str = "up/look"
    server: str = "up"
    name: str = "look"
    wire: str = "look"
    hints: Hints = NO_HINTS
    definition: bytes = encode({"name": "look", "inputSchema": SCHEMA})
    headers: Mapping[tuple[str, ...], str] = field(default_factory=dict[tuple[str, ...], str])


class Named:
    """A stage of all tools that writes down that a call passed it; `trigger`: of which calls it is."""

    def __init__(self, name: str, passed: list[str], trigger: Trigger | None = None) -> None:
        self.name, self.passed, self.trigger = name, passed, trigger

    def stage(self, tool: Tool | None, options: CallOptions) -> Stage | None:
        """See `StageFactory`."""
        return self

    def __call__(self, call: Call, proceed: CallHandler) -> Awaitable[Body]:
        self.passed.append(self.name)
        return proceed(call)


async def passed_by(
    stages: list[StageFactory], passed: list[str], *, arguments: object = None, meta: object = None
) -> list[str]:
    """The stages that one call passes."""

    async def deliver(call: Call) -> Body:
        return Body(b'{"content":[]}')

    call = Call("tools/call", "up", "look", Body(), Body(encode(meta)) if meta is not None else None)
    if arguments is not None:
        call.params.put("arguments", Raw(encode(arguments)))
    call.tool = Look()
    plan = Pipelines(deliver, stages, lambda _: CallOptions())
    passed.clear()
    await plan(call)
    return list(passed)


LATE: dict[str, int] = {}
BUSY = {"one": 1}


@pytest.mark.parametrize(
    ("trigger", "arguments", "meta", "is_passed"),
    [
        (Trigger(meta="turn"), None, None, False),
        (Trigger(meta="turn"), None, {}, False),
        (Trigger(meta="turn"), {"turn": "x"}, {"other": 1}, False),
        (Trigger(meta="turn"), None, {"turn": 1}, True),
        (Trigger(meta="turn"), None, {"other": 1, "turn": None}, True),
        (Trigger(arguments=(b"{{", b'"$ref"')), None, None, False),
        (Trigger(arguments=(b"{{", b'"$ref"')), {"text": "ref"}, None, False),
        (Trigger(arguments=(b"{{", b'"$ref"')), {"text": "{{x"}, None, True),
        (Trigger(arguments=(b"{{", b'"$ref"')), {"text": {"$ref": "x"}}, None, True),
        (Trigger(while_any=LATE), {"text": "{{"}, {"turn": 1}, False),
        (Trigger(while_any=BUSY), None, None, True),
        (Trigger(), {"text": "{{"}, {"turn": 1}, False),
        (None, None, None, True),
    ],
)
async def test_a_call_is_spared_the_stages_that_it_does_not_trigger(
    trigger: Trigger | None, arguments: object, meta: object, is_passed: bool
) -> None:
    """Promise of the bridge: a stage that can do nothing for a call is not on its way."""
    passed: list[str] = []
    stages: list[StageFactory] = [ValidateArguments(), Named("some", passed, trigger)]
    assert await passed_by(stages, passed, arguments=arguments, meta=meta) == (["some"] if is_passed else [])


async def test_what_one_stage_is_triggered_by_leads_through_all_in_their_order() -> None:
    passed: list[str] = []
    stages: list[StageFactory] = [
        Named("first", passed, Trigger(meta="a")),
        ValidateArguments(),
        Named("second", passed, Trigger(while_any=LATE)),
        Named("third", passed),
        Named("fourth", passed, Trigger(meta="b")),
    ]
    assert await passed_by(stages, passed) == ["third", "fourth"]
    assert await passed_by(stages, passed, meta={"a": 1}) == ["first", "second", "third", "fourth"]


async def test_below_a_stage_that_may_wait_or_change_the_call_none_is_left_out() -> None:
    """What triggers it is looked for at the start, and may come to be while the call waits above."""
    passed: list[str] = []
    stages: list[StageFactory] = [Named("approval", passed), Named("late", passed, Trigger(while_any=LATE))]
    assert await passed_by(stages, passed) == ["approval", "late"]


async def test_a_trigger_that_comes_to_be_later_holds_for_the_next_call_of_a_compiled_plan() -> None:
    passed: list[str] = []
    late: dict[str, int] = {}

    async def deliver(call: Call) -> Body:
        return Body()

    tool = Look()
    plan = Pipelines(deliver, [Named("late", passed, Trigger(while_any=late))], lambda _: CallOptions())
    for known, expected in ((False, 0), (True, 1), (False, 1)):
        late.clear()
        if known:
            late["a"] = 1
        call = Call("tools/call", "up", "look", Body(), None)
        call.tool = tool
        await plan(call)
        assert len(passed) == expected
