"""The way of a call: stages around the delivery, and the delivery itself."""

import pytest

from mcpbridge.base.errors import UpstreamUnavailable
from mcpbridge.core.model import Call, CallHandler
from mcpbridge.pipeline.deliver import Deliver
from mcpbridge.pipeline.stage import Stage, chain
from mcpbridge.protocol.body import Body
from support.upstreams.scripted_upstream import LEGACY_SERVER, ScriptedTransport, call_of, pool_of


def noting(name: str, notes: list[str]) -> Stage:
    """A stage that writes down when a call enters and leaves it."""

    async def run(call: Call, proceed: CallHandler) -> Body:
        notes.append(f"{name} in")
        result = await proceed(call)
        notes.append(f"{name} out")
        return result

    return run


async def test_stages_wrap_the_delivery_the_first_outermost() -> None:
    notes: list[str] = []

    async def deliver(call: Call) -> Body:
        notes.append("delivered")
        return call.params

    call = call_of()
    assert await chain([noting("a", notes), noting("b", notes)], last=deliver)(call) is call.params
    assert notes == ["a in", "b in", "delivered", "b out", "a out"]


async def test_a_stage_may_answer_itself_or_try_again() -> None:
    tries: list[Call] = []

    async def fails_once(call: Call) -> Body:
        tries.append(call)
        if len(tries) == 1:
            raise UpstreamUnavailable("up", "starting")
        return Body()

    async def again(call: Call, proceed: CallHandler) -> Body:
        try:
            return await proceed(call)
        except UpstreamUnavailable:
            return await proceed(call)

    async def answers(call: Call, proceed: CallHandler) -> Body:
        return Body(b'{"cached":true}')

    assert (await chain([again], last=fails_once)(call_of())).data == b"{}"
    assert len(tries) == 2
    assert (await chain([answers], last=fails_once)(call_of())).value() == {"cached": True}
    assert len(tries) == 2


async def test_a_plan_without_stages_is_the_delivery_itself() -> None:
    """What is not used costs nothing."""
    deliver = Deliver(pool_of({}))
    assert chain([], last=deliver) is deliver


async def test_a_call_is_delivered_to_the_server_that_owns_its_target() -> None:
    pool = pool_of({"up": ScriptedTransport(LEGACY_SERVER)})
    async with pool.running():
        assert await pool.settled(30)
        deliver = Deliver(pool)
        assert (await deliver(call_of())).value()["content"]
    with pytest.raises(UpstreamUnavailable, match="not configured any more"):
        await Deliver(pool_of({}))(call_of())
