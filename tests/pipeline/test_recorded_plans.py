"""The plan of a call that is recorded: the same as any other, and the times of its stages are noted."""

from collections.abc import Awaitable, Generator
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.model import Call, CallHandler, Tool
from mcpbridge.core.recording import MOST_STAGES, SERVER, Recording, new_uid
from mcpbridge.pipeline.plan import STAGE_NAMES, Pipelines
from mcpbridge.pipeline.stage import Stage
from mcpbridge.pipeline.stages.retry import Retry
from mcpbridge.pipeline.stages.validate_arguments import ValidateArguments
from mcpbridge.protocol.body import Body

RAISED = ValueError("no")


class Unnamed(ValidateArguments):
    """A stage that does something. Its time is part of the stage around it, as it has no name."""

    def __init__(self, how: str) -> None:
        self.how = how

    def stage(self, tool: Tool | None, options: CallOptions) -> Stage | None:
        del tool, options
        return getattr(self, f"_{self.how}") if self.how != "absent" else None

    async def _passes(self, call: Call, proceed: CallHandler) -> Body:
        return await proceed(call)

    def _passes_at_once(self, call: Call, proceed: CallHandler) -> Awaitable[Body]:
        return proceed(call)

    async def _twice(self, call: Call, proceed: CallHandler) -> Body:
        await proceed(call)
        return await proceed(call)

    async def _answers(self, call: Call, proceed: CallHandler) -> Body:
        del call, proceed
        return Body(b'{"own":1}')

    async def _raises(self, call: Call, proceed: CallHandler) -> Body:
        del call, proceed
        raise RAISED

    def _raises_at_once(self, call: Call, proceed: CallHandler) -> Awaitable[Body]:
        del call, proceed
        raise RAISED

    async def _changes(self, call: Call, proceed: CallHandler) -> Body:
        result = (await proceed(call)).copy()
        result.put("changed", 1)
        return result


class Named(Unnamed):
    """The same under a name that people know."""


@pytest.fixture(autouse=True, scope="module")
def named() -> Generator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(cast("dict[type, str]", STAGE_NAMES), Named, "named")
        yield


class Choice:
    is_open = False


KINDS = ("passes", "passes_at_once", "twice", "answers", "raises", "raises_at_once", "changes", "absent")
STAGES = st.lists(st.builds(lambda kind, how: kind(how), st.sampled_from([Named, Unnamed]), st.sampled_from(KINDS)))


def call_of() -> Call:
    call = Call("prompts/get", "up", "p", Body(b"{}"))
    call.recorded = Recording(new_uid(1.0), 1.0, 0.0)
    return call


@given(STAGES.filter(lambda stages: sum(stage.how == "twice" for stage in stages) < 4), st.booleans())
async def test_what_comes_of_a_call_is_the_same_with_and_without_the_times(stages: list[Unnamed], fails: bool) -> None:
    seen: list[list[str]] = []

    async def deliver(call: Call) -> Body:
        seen[-1].append(call.target)
        if fails:
            raise RAISED
        return Body(b'{"served":1}')

    async def outcome(*, is_recorded: bool) -> Any:
        seen.append([])
        choice = Choice()
        choice.is_open = is_recorded
        plans = Pipelines(deliver, stages, lambda tool: CallOptions(), choice)
        plans.configure(deliver, stages, lambda tool: CallOptions(), stages)
        try:
            return bytes((await plans(call_of())).data)
        except ValueError as error:
            return error

    assert await outcome(is_recorded=False) == await outcome(is_recorded=True)
    assert seen[0] == seen[1]


async def test_the_times_of_stages_lie_within_one_another() -> None:
    async def deliver(call: Call) -> Body:
        assert call.recorded is not None
        assert call.recorded.stage == SERVER
        return Body(b"{}")

    choice = Choice()
    choice.is_open = True
    stages = [ValidateArguments(), Retry()]
    inner = [_always(stage) for stage in stages]
    plans = Pipelines(deliver, inner, lambda tool: CallOptions(), choice)
    plans.configure(deliver, inner, lambda tool: CallOptions(), inner)
    call = call_of()
    await plans(call)
    assert call.recorded is not None
    assert call.recorded.sent_at > 0
    names = [name for name, _, _ in call.recorded.stages]
    assert names == [SERVER, "retry", "check arguments"], "in the order in which it left them"
    server, retry, check = call.recorded.stages
    assert check[1] <= retry[1] <= server[1] <= server[2] <= retry[2] <= check[2]


async def test_a_call_that_is_tried_without_end_has_a_bounded_number_of_times() -> None:
    async def deliver(call: Call) -> Body:
        return Body(b"{}")

    async def often(call: Call, proceed: CallHandler) -> Body:
        for _ in range(5 * MOST_STAGES):
            result = await proceed(call)
        return result

    choice = Choice()
    choice.is_open = True
    stage = _always(Retry(), often)
    plans = Pipelines(deliver, [stage], lambda tool: CallOptions(), choice)
    plans.configure(deliver, [stage], lambda tool: CallOptions(), [stage])
    call = call_of()
    await plans(call)
    assert call.recorded is not None
    assert len(call.recorded.stages) == MOST_STAGES


def _always(factory: Any, stage: Any = None) -> Any:
    """A factory of the same kind, whose stage passes every call."""

    async def passes(call: Call, proceed: CallHandler) -> Body:
        return await proceed(call)

    factory.stage = lambda tool, options: stage or passes
    return factory
