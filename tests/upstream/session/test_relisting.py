"""Lists that change while somebody uses them: what a server said before its answer counts when the answer comes."""

import asyncio
import json
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.upstream.session import relisting as module
from mcpbridge.upstream.session.relisting import BURST, CALL_COST, LONGEST_PAUSE, PACE, RelistBrake
from support.in_process_bridge import BridgeToScripts, Ear, bridged
from support.upstreams.scripted_upstream import LEGACY_SERVER, SILENCE, Refusal, ScriptedTransport

CAPABILITIES = {"tools": {"listChanged": True}, "prompts": {"listChanged": True}, "resources": {"listChanged": True}}
CHANGED = "notifications/{}/list_changed"


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}}


class Growing(ScriptedTransport):
    """A server that has one more tool after each call, and says so before or after its answer."""

    def __init__(self, **script: Any) -> None:
        self.tools = [tool("grow")]
        initialize = {**LEGACY_SERVER["initialize"], "capabilities": CAPABILITIES}
        lists = {"tools/list": self.listed, "prompts/list": {"prompts": []}, "resources/list": {"resources": []}}
        lists["resources/templates/list"] = {"resourceTemplates": []}
        super().__init__(LEGACY_SERVER, initialize=initialize, **{**lists, "tools/call": self.called, **script})

    def listed(self, _: Any) -> Any:
        return {"tools": list(self.tools)}

    def called(self, _: Any) -> Any:
        self.grow()
        return {"content": [{"type": "text", "text": "done"}]}

    def grow(self) -> None:
        self.tools.append(tool(f"grown_{len(self.tools)}"))
        self.line.says(CHANGED.format("tools"))


@pytest.fixture
def no_gathering(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without somebody who waits, announcements would be gathered for ever."""
    monkeypatch.setattr(module, "RELIST_DELAY", 3600.0)


async def names(ear: Ear) -> list[str]:
    return [one["name"] for one in (await ear.ask("tools/list"))["result"]["tools"]]


async def client_of(bridge: BridgeToScripts) -> Ear:
    bridge.catalog._settle = 3600.0  # nothing here may depend on changes that are in force by themselves
    ear = Ear(bridge.server)
    await ear.initialize()
    await ear.ask("tools/list")
    return ear


def is_error(answer: Any) -> bool:
    return "error" in answer or bool(answer["result"].get("isError"))


@pytest.mark.usefixtures("no_gathering")
async def test_what_a_call_has_changed_is_announced_before_its_answer() -> None:
    async with bridged({"up": Growing()}) as bridge:
        ear = await client_of(bridge)
        for times in range(1, 4):
            await ear.ask("tools/call", {"name": "up__grow"})
            assert [one["method"] for one in ear.told] == [CHANGED.format("tools")] * times, "at the latest by now"


@pytest.mark.usefixtures("no_gathering")
@pytest.mark.parametrize("fails", [False, True])
async def test_the_tool_that_a_call_brought_is_listed_and_called_right_after_it(fails: bool) -> None:
    """A call that fails may have changed something as well."""
    up = Growing()

    def refused(_: Any) -> Any:
        up.grow()
        return Refusal(-32000, "half done")

    up.script["tools/call"] = refused if fails else up.called
    async with bridged({"up": up}) as bridge:
        ear = await client_of(bridge)
        assert is_error(await ear.ask("tools/call", {"name": "up__grow"})) is fails
        up.script["tools/call"] = LEGACY_SERVER["tools/call"]
        assert not is_error(await ear.ask("tools/call", {"name": "up__grown_1"}))
        assert await names(ear) == ["up__grow", "up__grown_1"]


@pytest.mark.usefixtures("no_gathering")
@pytest.mark.parametrize("kind", ["tools", "prompts", "resources"])
async def test_who_asks_for_what_was_announced_a_moment_ago_has_it(kind: str) -> None:
    """Without any call: a list, and a call of a name that is not known yet, wait for the look that is due."""
    up = Growing()
    async with bridged({"up": up}) as bridge:
        ear = await client_of(bridge)
        up.tools.append(tool("late"))
        up.script["prompts/list"] = {"prompts": [{"name": "late"}]}
        up.script["resources/list"] = {"resources": [{"uri": "x://late", "name": "late"}]}
        up.script["prompts/get"], up.script["resources/read"] = {"messages": []}, {"contents": []}
        up.line.says(CHANGED.format(kind))
        one = {
            "tools": ("tools/call", {"name": "up__late"}),
            "prompts": ("prompts/get", {"name": "up__late"}),
            "resources": ("resources/read", {"uri": "x://late"}),
        }[kind]
        up.script["tools/call"] = LEGACY_SERVER["tools/call"]
        assert not is_error(await ear.ask(*one))
        assert len((await ear.ask(f"{kind}/list"))["result"][kind]) == (2 if kind == "tools" else 1)


@pytest.mark.usefixtures("no_gathering")
async def test_a_list_waits_for_the_look_that_is_due() -> None:
    up = Growing()
    async with bridged({"up": up}) as bridge:
        ear = await client_of(bridge)
        up.grow()
        assert await names(ear) == ["up__grow", "up__grown_1"]


async def test_nobody_waits_longer_than_a_moment_for_a_list_that_does_not_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_WAIT", 0.01)
    up = Growing()
    async with bridged({"up": up}) as bridge:
        ear = await client_of(bridge)
        up.script["tools/list"] = SILENCE
        assert not is_error(await ear.ask("tools/call", {"name": "up__grow"}))
        assert await names(ear) == ["up__grow"]
        assert is_error(await ear.ask("tools/call", {"name": "up__grown_1"}))


@pytest.mark.usefixtures("no_gathering")
@pytest.mark.parametrize("answer", [Refusal(-32603, "database is locked"), {"tools": 5}, {}])
async def test_a_look_that_fails_is_not_waited_for_again(answer: Any) -> None:
    up = Growing()
    async with bridged({"up": up}) as bridge:
        ear = await client_of(bridge)
        up.script["tools/list"] = answer
        assert not is_error(await ear.ask("tools/call", {"name": "up__grow"}))
        assert not bridge.pool.upstreams["up"].listings.relisting.is_due
        assert await names(ear) == ["up__grow"], "the last list stays"


@pytest.mark.usefixtures("no_gathering")
async def test_a_server_that_is_lost_meanwhile_keeps_nobody_waiting() -> None:
    up = Growing()
    async with bridged({"up": up}) as bridge:
        ear = await client_of(bridge)
        up.script["tools/list"] = SILENCE
        up.grow()
        listing = asyncio.ensure_future(names(ear))
        await up.hears("tools/list", times=2)
        up.script["tools/list"] = up.listed
        up.line.ends("exit code 3")
        assert "up__grow" in await listing


async def test_what_another_server_announces_delays_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAIT", 3600.0)
    busy, up = Growing(), ScriptedTransport(LEGACY_SERVER)
    async with bridged({"busy": busy, "up": up}) as bridge:
        ear = await client_of(bridge)
        busy.script["tools/list"] = SILENCE
        busy.grow()
        assert not is_error(await ear.ask("tools/call", {"name": "up__echo"}))


async def test_a_server_that_announces_changes_without_end_is_braked_and_nobody_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_WAIT", 3600.0)
    monkeypatch.setattr(module, "PACE", 3600.0)
    up = Growing()
    async with bridged({"up": up}) as bridge:
        ear = await client_of(bridge)
        for _ in range(BURST):
            up.grow()
            await names(ear)
        assert bridge.pool.upstreams["up"].braked == ""
        for _ in range(3):
            assert not is_error(await ear.ask("tools/call", {"name": "up__grow"}))
        assert len(await names(ear)) == BURST + 1, "as of the last look"
        assert len(up.asked("tools/list")) == BURST + 1
        assert bridge.status()["servers"][0]["braked"] == "list changes"


async def test_who_makes_changes_by_calls_has_each_of_them_four_times_as_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person has a server load one set of tools after another; it is no flood, but not without end either."""
    monkeypatch.setattr(module, "MAX_WAIT", 3600.0)
    monkeypatch.setattr(module, "PACE", 3600.0)
    up = Growing()
    async with bridged({"up": up}) as bridge:
        ear = await client_of(bridge)
        looks = round((BURST - 1) / CALL_COST)
        for number in range(looks):
            assert not is_error(await ear.ask("tools/call", {"name": "up__grow"}))
            assert f"up__grown_{number + 1}" in await names(ear)
            assert bridge.pool.upstreams["up"].braked == ""
        for _ in range(3):
            assert not is_error(await ear.ask("tools/call", {"name": "up__grow"}))
        assert bridge.pool.upstreams["up"].braked == "list changes"


def test_the_brake_lets_a_burst_through_and_then_one_look_at_a_time() -> None:
    brake = RelistBrake()
    for _ in range(BURST):
        assert brake.wait(100.0) == 0.0
        assert not brake.is_on(100.0)
        brake.looked(100.0, 0.01)
    assert brake.is_on(100.0)
    assert brake.wait(100.0) == PACE
    assert brake.wait(100.0 + PACE) == 0.0
    assert brake.is_on(100.0 + PACE), "one look more is no reason to trust it again"
    assert not brake.is_on(100.0 + PACE * BURST)


def test_a_look_that_takes_long_is_paid_for() -> None:
    brake = RelistBrake()
    for _ in range(BURST):
        brake.looked(0.0, 2.0)
    assert brake.wait(0.0) == 20.0
    brake.looked(0.0, 1000.0)
    assert 0 < brake.wait(0.0) <= 2 * LONGEST_PAUSE


@given(st.lists(st.tuples(st.floats(0, 3), st.floats(0, 1)), max_size=200))
def test_there_are_never_more_looks_than_earned(steps: list[tuple[float, float]]) -> None:
    brake, now, looks = RelistBrake(), 0.0, 0
    for pause, seconds in steps:
        now += pause
        if not brake.wait(now):
            brake.looked(now, seconds)
            looks += 1
    assert looks <= BURST + now / PACE + 1


async def test_cancelling_who_waits_leaves_the_look_to_the_others() -> None:
    up = Growing()
    async with bridged({"up": up}) as bridge:
        ear = await client_of(bridge)
        up.script["tools/list"] = SILENCE
        up.grow()
        first = asyncio.ensure_future(ear.ask("tools/list", id_=b"7"))
        second = asyncio.ensure_future(ear.ask("tools/list", id_=b"8"))
        asked = await up.hears("tools/list", times=2)
        first.cancel()
        await asyncio.wait([first])
        up.line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": json.loads(json.dumps(up.listed(None)))})
        with anyio.fail_after(30):
            assert len((await second)["result"]["tools"]) == 2
