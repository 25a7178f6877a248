"""Whose time counts from when on."""

import asyncio

from mcpbridge.catalog.snapshot import ToolRef
from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.call_settings import RetrySettings
from mcpbridge.core.model import Call
from mcpbridge.pipeline.stages.deadline import Deadline
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.deadlines import Timeouts
from support.upstreams.scripted_upstream import call_of

TOOL = ToolRef("up", "look", "up__look", "up/look", b"{}", b"{}", b"{}", {})
OWN = Timeouts(5, 50)


async def passed(options: CallOptions) -> Call:
    """A call as it leaves the stage."""
    stage, call = Deadline(lambda server: 60.0).stage(TOOL, options), call_of()

    async def proceed(call: Call) -> Body:
        return call.params

    assert stage is not None
    assert await stage(call, proceed) is call.params
    return call


async def test_a_tool_without_times_of_its_own_and_with_one_try_has_no_stage() -> None:
    """Its time counts from its first wait on, wherever that is."""
    deadline = Deadline(lambda server: 60.0)
    assert deadline.stage(TOOL, CallOptions()) is None
    assert deadline.stage(None, CallOptions(timeouts=OWN)) is None


async def test_a_tool_has_times_of_its_own() -> None:
    call = await passed(CallOptions(timeouts=OWN))
    assert (call.timeouts, call.deadline) == (OWN, 0.0)


async def test_the_time_of_a_call_that_is_tried_again_counts_from_the_beginning() -> None:
    now = asyncio.get_running_loop().time()
    retry = RetrySettings(tries=2)
    for own, seconds in ((None, 60), (OWN, 5)):
        call = await passed(CallOptions(retry=retry, timeouts=own))
        assert now + seconds <= call.deadline <= asyncio.get_running_loop().time() + seconds
        assert call.timeouts == own
