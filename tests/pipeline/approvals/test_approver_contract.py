"""What every approver promises, in each way that a person can be asked: nothing reaches a server without a yes."""

import asyncio
from pathlib import Path
from typing import Any

import anyio
import pytest

from support.approvers import WAYS, is_refused
from support.approvers import approving as approving_by
from support.virtual_time import pass_time


@pytest.fixture(params=list(WAYS))
def way(request: pytest.FixtureRequest) -> Any:
    return WAYS[request.param]


async def test_a_yes_is_for_one_call(way: Any, tmp_path: Path) -> None:
    async with approving_by(way, tmp_path) as person:
        call = person.begins(text="a")
        await person.is_asked()
        assert person.arrived == 0
        await person.says("once")
        assert (await call)["content"][0]["text"] == "done"
        again = person.begins(text="a")
        await person.says("no")
        assert is_refused(await again)
        assert person.arrived == 1


async def test_a_yes_for_the_session_is_for_the_same_call(way: Any, tmp_path: Path) -> None:
    async with approving_by(way, tmp_path) as person:
        call = person.begins(text="a", more=[1, {"b": 2, "c": 3}])
        await person.says("session")
        assert "isError" not in await call
        assert "isError" not in await person.begins(more=[1, {"c": 3, "b": 2}], text="a")
        assert person.arrived == 2
        other = person.begins(text="b", more=[1, {"b": 2, "c": 3}])
        await person.says("no")
        assert is_refused(await other)
        assert person.arrived == 2


async def test_a_no_is_told_and_nothing_is_sent(way: Any, tmp_path: Path) -> None:
    async with approving_by(way, tmp_path) as person:
        call = person.begins()
        await person.says("no")
        assert is_refused(await call, "up/echo", "Nothing was sent", "Do not repeat")
        assert person.arrived == 0


async def test_silence_is_a_no(way: Any, tmp_path: Path) -> None:
    async with approving_by(way, tmp_path, timeout=60) as person:
        call = person.begins()
        await person.says_nothing()
        pass_time(61)
        assert is_refused(await call, "Nobody answered within 1m", "up/echo")
        assert person.arrived == 0


async def test_a_call_that_is_withdrawn_is_not_asked_for_any_more(way: Any, tmp_path: Path) -> None:
    async with approving_by(way, tmp_path) as person:
        call = person.begins()
        await person.is_asked()
        await person.withdraws(call)
        with anyio.fail_after(30):
            while await person.bridge.approvals.pending():
                await asyncio.sleep(0.005)
        assert person.arrived == 0


async def test_calls_at_the_same_time_need_a_yes_each(way: Any, tmp_path: Path) -> None:
    async with approving_by(way, tmp_path) as person:
        first, second = person.begins(text="a"), person.begins(text="a")
        await person.is_asked(2)
        await person.says("once")
        await person.says("no")
        results = [await first, await second]
        assert sum("isError" not in result for result in results) == 1
        assert person.arrived == 1


async def test_a_bridge_that_stops_says_no(way: Any, tmp_path: Path) -> None:
    async with approving_by(way, tmp_path) as person:
        call = person.begins()
        await person.is_asked()
    if person.ask == "pending":
        assert is_refused(await call, "the bridge is stopping")
    call.cancel()  # a client or a handler that still thinks does so without the bridge
    await asyncio.wait([call])
    assert person.arrived == 0
