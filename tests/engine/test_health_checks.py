"""Whether servers, tools and single tools work: looked at on demand, and by themselves every so often (issue 8)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mcpbridge.base.errors import UnknownName
from mcpbridge.base.log import Logger
from mcpbridge.config.schema import Settings
from mcpbridge.engine.health_checks import Checkup, PeriodicCheck
from mcpbridge.library.bridge import Bridge
from support.harness import eventually, python_server
from support.registry_bridge import FILE, REMOTE, registering
from support.virtual_time import pass_time


async def test_everything_by_any_of_its_names(tmp_path: Path) -> None:
    text = FILE + "[builtin]\nenable = ['file-read']\n[tools.root]\nfunction = 'math:sqrt'\n"
    async with registering(tmp_path, text) as at:
        looking = at.bridge.health_checks
        await at.bridge.startup.settled()
        for name, kind, ok, detail in (
            ("clock", "server", True, "it answers"),
            ("clock/echo", "tool", True, "server clock"),
            ("clock__echo", "tool", True, "server clock"),
            ("root", "backend", True, ""),
            ("tools/root", "tool", True, "backend root"),
            ("rates", "backend", False, "127.0.0.1"),
            ("tools/rates", "tool", False, "127.0.0.1"),
            ("file-read", "builtin", False, "roots"),
            ("builtin/file-read", "builtin", False, "roots"),
            ("mcpbridge/recall", "tool", True, "answered by the bridge"),
        ):
            found = await looking.check(name)
            assert (found.kind, found.ok) == (kind, ok), found
            assert detail in found.detail
            assert found.at.endswith("+00:00")
        assert [one.name for one in looking.checkups()] == ["clock", "file-read", "rates", "root"]
        for name in ("clok", "", "x" * 1000, "clock/nothing", "builtin/nothing"):
            with pytest.raises(UnknownName):
                await looking.check(name)
        with pytest.raises(UnknownName, match="clok") as wrong:
            await looking.check("clok")
        assert "clock" in wrong.value.full_message()


async def test_a_look_at_all_leaves_those_alone_that_rest_and_forgets_those_that_went(tmp_path: Path) -> None:
    async with registering(tmp_path) as at:
        looking = at.bridge.health_checks
        await at.bridge.registry.put("servers", "more", REMOTE)
        assert await at.bridge.settled(30)
        found = {one.name: one.ok for one in await looking.check_all()}
        assert found == {"clock": True, "far": True, "more": True, "rates": False, "today": True}
        changed = [fields for _, event, fields in at.logged if event == "health changed"]
        assert [fields["name"] for fields in changed] == ["rates"], "the first look tells of what does not work"
        await at.bridge.registry.remove("servers", "more")
        assert "more" not in {one.name for one in looking.checkups()}
        assert "more" not in {one["name"] for one in at.bridge.status()["health"]}


@asynccontextmanager
async def one_server(*, idle_stop: float) -> AsyncIterator[tuple[Bridge, Callable[[], Awaitable[str]]]]:
    """A bridge of the server `one`, once it is settled, and what tells the state of that server."""
    plain: dict[str, Any] = python_server("plain", idle_stop=idle_stop)
    async with Bridge(Settings.model_validate({"servers": {"one": plain}})) as bridge:
        assert await bridge.settled(30)

        async def state() -> str:
            return bridge.pool.upstreams["one"].status.state

        yield bridge, state


async def test_a_server_that_rests_is_started_for_a_look_that_is_asked_for() -> None:
    async with one_server(idle_stop=0.05) as (bridge, state):
        await eventually(state, lambda found: found == "idle")
        [resting] = await bridge.health_checks.check_all()
        assert (resting.ok, "rests" in resting.detail) == (True, True)
        assert (await bridge.health_checks.check("one")).ok


async def test_a_look_does_not_keep_a_server_from_being_stopped_as_idle() -> None:
    async with one_server(idle_stop=3000) as (bridge, state):
        await eventually(state, lambda found: found == "ready")
        assert (await bridge.health_checks.check("one")).ok  # so what looks after it has begun
        pass_time(2900)
        [found] = await bridge.health_checks.check_all()
        assert found.detail.startswith("it answers")
        assert bridge.pool.upstreams["one"].session is not None
        pass_time(200)
        await eventually(state, lambda found: found == "idle")


async def test_what_works_no_more_is_found_out_and_the_change_is_logged() -> None:
    logged: list[tuple[str, dict[str, Any]]] = []
    Logger.sink = lambda level, event, fields: logged.append((event, fields))
    settings = Settings.model_validate({"servers": {"dead": {"url": "http://127.0.0.1:9/mcp"}}})
    async with Bridge(settings) as bridge:
        await bridge.settled(30)
        found = await bridge.health_checks.check("dead")
        assert not found.ok
        assert "127.0.0.1" in found.detail
        bridge.health_checks.last["dead"] = Checkup("dead", "server", ok=True, detail="", seconds=0.0, at="")
        await bridge.health_checks.check("dead")
    assert [fields["name"] for event, fields in logged if event == "health changed"] == ["dead", "dead"]


async def test_it_is_looked_at_every_so_often_while_that_is_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with registering(tmp_path, FILE + "[health]\nevery = 0.01\n") as at:

        async def known() -> set[str]:
            return {one.name for one in at.bridge.health_checks.checkups()}

        everything = {"clock", "far", "rates", "today"}
        assert await eventually(known, lambda found: found == everything) == everything
        at.path.write_text(at.text.replace("every = 0.01", "every = 0"))
        assert (await at.reloading.reload())["ok"]

        async def kinds() -> dict[str, int]:
            return at.bridge.leases.statistics()["kinds"]

        assert "health" not in await eventually(kinds, lambda found: "health" not in found)
        looks = list[float]()

        async def look() -> None:
            looks.append(asyncio.get_running_loop().time())

        monkeypatch.setattr(at.bridge.health_checks, "check_all", look)
        for _ in range(3):  # the timer of another look would be due
            pass_time(5)
            for _ in range(10):
                await asyncio.sleep(0)
        assert looks == []
        at.path.write_text(at.text.replace("every = 0", "every = 0.01"))
        assert (await at.reloading.reload())["ok"]

        async def looked() -> bool:
            return len(looks) > 2

        assert await eventually(looked, bool), "it is looked at again once that is configured again"


async def test_a_look_that_fails_is_not_the_last() -> None:
    looks = 0
    third = asyncio.Event()

    class Failing:
        async def check_all(self) -> None:
            nonlocal looks
            looks += 1
            if looks == 3:
                third.set()
            raise RuntimeError("oh")

    Logger.sink = lambda level, event, fields: None
    async with asyncio.timeout(10), PeriodicCheck(Failing(), 0.001).running():  # pyright: ignore[reportArgumentType]
        await third.wait()
