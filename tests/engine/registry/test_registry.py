"""Servers and tools that come, change and go while the bridge runs (issue 8, "Registry")."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from mcpbridge.base.errors import ConfigError, StoreFailed, UnknownName
from mcpbridge.config.schema import Settings
from mcpbridge.engine.registry.http_rules import RegistryProblem
from mcpbridge.engine.wiring.tools import ProgramTool
from mcpbridge.library.bridge import Bridge
from mcpbridge.tools.python.function import FunctionBackend
from mcpbridge.tools.python.settings import FunctionSettings
from support.front_clients import open_front
from support.harness import eventually
from support.in_process_bridge import Ear
from support.registry_bridge import FILE, REMOTE, WEATHER, World, registering


async def states(at: World) -> dict[str, str]:
    return {server["name"]: server["state"] for server in at.bridge.status()["servers"]}


# -- what comes and goes


async def test_servers_and_tools_come_and_go_and_nothing_else_is_disturbed(tmp_path: Path) -> None:
    async with registering(tmp_path) as at:
        registry, clock = at.bridge.registry, at.bridge.pool.upstreams["clock"]
        assert (await registry.put("servers", "more", REMOTE)).added == ("more",)
        assert (await registry.put("tools", "weather", WEATHER)).sections == ("tools",)
        assert await at.bridge.settled(30)
        assert {"more__echo", "weather"} <= set(await at.listed())
        assert (await registry.put("tools", "weather", {**WEATHER, "tags": ["rain"]}, may_replace=True)).sections
        assert at.names("tag:rain") == ["tools/weather"]
        await registry.switch("tools", "weather", on=False)
        await registry.switch("servers", "more", on=False, tool="echo")
        assert {"more__echo", "weather"}.isdisjoint(await at.listed())
        await registry.switch("tools", "weather", on=True)
        assert "weather" in await at.listed()
        assert (await registry.remove("servers", "more")).removed == ("more",)
        await registry.remove("tools", "weather")
        assert registry.entries == {}
        assert at.bridge.pool.upstreams["clock"] is clock
        assert at.text.startswith(FILE), "the file is as it was"


async def test_what_the_file_has_is_taken_out_and_switched_until_the_end(tmp_path: Path) -> None:
    async with registering(tmp_path) as at:
        registry = at.bridge.registry
        await registry.remove("servers", "clock")
        await registry.switch("tools", "rates", on=False)
        await registry.switch("servers", "far", on=False, tool="echo")
        assert await at.listed() == ["recall", "today"]
        assert [(one["name"], one["said"]) for one in registry.status()] == [
            ("clock", "removed"),
            ("far", "switched"),
            ("rates", "switched"),
        ]
        await registry.switch("servers", "far", on=True, tool="echo")
        await registry.switch("tools", "rates", on=True)
        assert list(registry.entries) == [("servers", "clock")], "what the file says anyway is not said again"
        await registry.switch("servers", "clock", on=True)
        assert registry.entries == {}, "what was taken out is put back"
        assert await at.bridge.settled(30)
        assert "clock__echo" in await at.listed()
        await registry.remove("servers", "clock")
        assert registry.owner("servers", "clock") == ("servers", "clock", "")
        await registry.put("servers", "clock", {"command": "another"})
    async with registering(tmp_path) as at:
        assert "clock__echo" in await at.listed(), "nothing of that was kept"


async def test_there_is_one_of_each_name(tmp_path: Path) -> None:
    async with registering(tmp_path, FILE.replace("# mine", 'packs = ["nowhere.birds:pack"]')) as at:
        registry = at.bridge.registry
        for section, name in [("servers", "clock"), ("tools", "rates"), ("servers", "rates"), ("tools", "clock")]:
            with pytest.raises(RegistryProblem) as problem:
                await registry.put(section, name, {"url": "https://x.example"})
            assert problem.value.code == "exists"
        with pytest.raises(RegistryProblem, match="there is a pack 'birds'"):
            await registry.put("servers", "birds", REMOTE)
        with pytest.raises(RegistryProblem, match="did you mean 'clock'"):
            await registry.remove("servers", "clok")
        with pytest.raises(RegistryProblem, match="no tool 'nothing'"):
            await registry.switch("tools", "nothing", on=True)


@pytest.mark.parametrize(
    "name", ["mcpbridge", "tools", "builtin", "../x", "a b", "", "-x", "ü", "x" * 200, "a/b", "a\n"]
)
async def test_a_name_that_is_none_changes_nothing(tmp_path: Path, name: str) -> None:
    async with registering(tmp_path, "") as at:
        before = at.bridge.settings
        for section, table in (("servers", REMOTE), ("tools", WEATHER)):
            with pytest.raises((ConfigError, RegistryProblem)):
                await at.bridge.registry.put(section, name, table)
            with pytest.raises((ConfigError, RegistryProblem)):
                await at.bridge.registry.put(section, name, table, keep="file")
        assert at.bridge.settings is before


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({}, "command"),
        ({"url": "https://x.example", "timeout": 1}, "unknown key"),
        ({"url": "ftp://x.example"}, "URL"),
        ({"url": "https://x.example", "call_timeout": -1}, "call_timeout"),
        ({"url": "https://x.example", "headers": {"X-Key": "hidden-value\n"}}, "X-Key"),
        ({"url": {1, 2}}, "url"),
        ({"url": "\ud800"}, "no JSON"),
    ],
)
async def test_a_table_that_is_wrong_changes_nothing(tmp_path: Path, table: Any, told: str) -> None:
    async with registering(tmp_path) as at:
        before = at.bridge.settings
        with pytest.raises((ConfigError, RegistryProblem)) as wrong:
            await at.bridge.registry.put("servers", "more", table, keep=True)
        assert told in str(wrong.value)
        assert "hidden-value" not in str(wrong.value)
        assert at.bridge.settings is before
        assert at.bridge.registry.entries == {}


async def test_a_server_that_cannot_be_started_is_there_and_its_state_says_why(tmp_path: Path) -> None:
    async with registering(tmp_path, broken=frozenset({"gone"})) as at:
        assert (await at.bridge.registry.put("servers", "gone", {"url": "http://127.0.0.1:9/mcp"})).added == ("gone",)
        now = await eventually(lambda: states(at), lambda found: found["gone"] not in ("starting", "new"))
        assert now["gone"] in ("retrying", "failed")
        assert "clock__echo" in await at.listed()


async def test_what_was_set_of_a_tool_that_the_file_runs_is_variables_too(tmp_path: Path) -> None:
    async with registering(tmp_path) as at:
        at.bridge.registry._environ = {"PLACE": "Ulm"}  # pyright: ignore[reportPrivateUsage] - nobody's real one
        await at.bridge.registry.put("tools", "weather", {**WEATHER, "headers": {"X-Key": "${PLACE}-is-secret"}})
        assert at.bridge.settings.tools["weather"].headers == {"X-Key": "Ulm-is-secret"}
        [entry] = at.bridge.registry.entries.values()
        assert entry.table is not None
        assert entry.table["headers"] == {"X-Key": "${PLACE}-is-secret"}


# -- kept


async def test_what_is_kept_is_back_before_the_first_list_is_answered(tmp_path: Path) -> None:
    async with registering(tmp_path) as at:
        registry = at.bridge.registry
        await registry.put("servers", "more", REMOTE, keep=True, by="api:chief")
        await registry.put("tools", "weather", WEATHER, keep=True)
        await registry.put("tools", "fleeting", WEATHER)
        await registry.remove("servers", "far", keep=True)
        await registry.switch("tools", "today", on=False, keep=True)
    async with registering(tmp_path, settle=False) as at:
        assert await at.listed() == ["clock__echo", "recall", "more__echo", "rates", "weather"]
        [added] = [one for one in at.bridge.status()["added"] if one["name"] == "more"]
        assert (added["by"], added["kept"], added["said"]) == ("api:chief", True, "added")
        await at.bridge.registry.remove("servers", "more")
        await at.bridge.registry.remove("tools", "weather")
    async with registering(tmp_path) as at:
        assert await at.listed() == ["clock__echo", "recall", "rates"]


async def test_bridges_with_other_files_share_the_store_and_nothing_of_this(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "servers.toml").write_text('[store]\npath = "../store.db"\n')
    async with registering(tmp_path / "one") as at:
        await at.bridge.registry.put("tools", "weather", WEATHER, keep=True)
        async with registering(tmp_path / "two") as other:
            assert "weather" not in await other.listed()


async def test_a_bridge_of_one_server_gets_no_others_that_were_kept(tmp_path: Path) -> None:
    async with registering(tmp_path) as at:
        await at.bridge.registry.put("servers", "more", REMOTE, keep=True)
        await at.bridge.registry.switch("servers", "far", on=False, tool="echo", keep=True)
    async with registering(tmp_path, is_whole=False) as at:
        assert await at.listed() == ["clock__echo", "recall", "rates", "today"]


@pytest.mark.parametrize(
    ("section", "table"),
    [
        ("servers", {"command": "sh"}),
        ("tools", {"command": ["sh"]}),
        ("tools", {"function": "os:system"}),
        ("servers", {**REMOTE, "headers": {"X": "${HOME}"}}),
    ],
)
async def test_what_runs_or_reads_here_is_never_kept_in_a_store(tmp_path: Path, section: Any, table: Any) -> None:
    """Others may be able to write to the store, and what comes out of it takes effect unasked."""
    async with registering(tmp_path) as at:
        with pytest.raises(RegistryProblem, match="write it to the file"):
            await at.bridge.registry.put(section, "more", table, keep=True)
        assert at.bridge.registry.entries == {}
        await at.bridge.registry.put(section, "more", table)


async def test_entries_of_the_store_that_somebody_else_wrote_run_nothing(tmp_path: Path) -> None:
    hostile: list[dict[str, Any]] = [
        {"section": "servers", "name": "evil", "table": {"command": "sh"}},
        {"section": "servers", "name": "clock", "table": REMOTE},
        {"section": "servers", "name": "asleep", "disabled": False},
        {"section": "tools", "name": "leak", "table": {**WEATHER, "headers": {"X": "${file:/etc/passwd}"}}},
        {"section": "nonsense", "name": "x"},
        {"section": "tools", "name": "mcpbridge", "table": WEATHER},
        {"section": "tools", "name": "clock", "table": WEATHER},
    ]
    async with registering(tmp_path) as at:
        owner = f"config:{at.path}"
        for number, entry in enumerate([*hostile, {"section": "tools", "name": "good", "table": WEATHER}]):
            body = json.dumps(entry).encode()
            await at.bridge.store.put("registry", body, principal=owner, expires_in=99, handle=str(number))
        await at.bridge.store.put("registry", b"\xff", principal=owner, expires_in=99, handle="x")
    async with registering(tmp_path) as at:
        assert sorted(at.bridge.settings.servers) == ["asleep", "clock", "far"]
        assert at.bridge.settings.servers["clock"].command == "clockwork"
        assert at.bridge.settings.servers["asleep"].disabled
        assert list(at.bridge.registry.entries) == [("tools", "good")]
        left_out = [event for _, event, _ in at.logged if "is left out" in event]
        assert len(left_out) == len(hostile) + 1


async def test_what_of_it_cannot_take_effect_costs_the_others_nothing(tmp_path: Path) -> None:
    twice = [
        {"section": "servers", "name": "twice", "table": REMOTE},
        {"section": "tools", "name": "twice", "table": WEATHER},
    ]
    taken = {"section": "tools", "name": "mine", "table": WEATHER}
    async with registering(tmp_path) as at:
        for number, entry in enumerate([*twice, taken, {"section": "tools", "name": "good", "table": WEATHER}]):
            body = json.dumps(entry).encode()
            await at.bridge.store.put(
                "registry", body, principal=f"config:{at.path}", expires_in=99, handle=str(number)
            )
    given = FunctionSettings(function="operator:neg")
    tools = {"mine": ProgramTool(FunctionBackend("mine", given), given)}
    async with registering(tmp_path, tools=tools) as at:
        assert list(at.bridge.registry.entries) == [("tools", "good")]
        assert "good" in await at.listed()
        assert "mine" in await at.listed()
        left_out = [fields.get("name") for _, event, fields in at.logged if "is left out" in event]
        assert left_out == ["mine"]


async def test_without_a_store_nothing_is_kept_and_nothing_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any, **__: Any) -> Any:
        raise StoreFailed("the store does not answer")

    async with registering(tmp_path) as at:
        for name in ("put", "drop", "entries"):
            monkeypatch.setattr(at.bridge.store, name, fail)
        before = at.bridge.settings
        with pytest.raises(StoreFailed):
            await at.bridge.registry.put("tools", "weather", WEATHER, keep=True)
        assert at.bridge.settings is before
        await at.bridge.registry.put("tools", "weather", WEATHER)
        assert "weather" in await at.listed()
        await at.bridge.registry.load()
        assert sum("cannot be read" in event for _, event, _ in at.logged) == 1, "not each time that it is tried"


# -- in the file


async def test_what_is_written_to_the_file_leaves_the_rest_of_it_as_it_is(tmp_path: Path) -> None:
    async with registering(tmp_path) as at:
        registry, before = at.bridge.registry, at.text
        await registry.put("tools", "weather", WEATHER, keep=True)
        table = {**WEATHER, "headers": {"X-Key": "${SKY_KEY:-none-at-all}"}}
        assert await registry.put("tools", "weather", table, may_replace=True, keep="file")
        assert registry.entries == {}, "what lay over it is gone"
        assert '"${SKY_KEY:-none-at-all}"' in at.text
        assert at.bridge.settings.tools["weather"].headers == {"X-Key": "none-at-all"}
        assert at.text.startswith(before.partition("[tools.rates]")[0])
        assert await at.reloading.reload() == {"ok": True}, "the bridge has it all"
        await registry.switch("tools", "weather", on=False, keep="file")
        assert "disabled = true" in at.text.partition("weather")[2]
        assert at.bridge.settings.tools["weather"].disabled
        await registry.remove("tools", "weather", keep="file")
        assert at.text.strip() == before.strip()
        await registry.remove("servers", "far", keep="file")
        assert "far" not in at.bridge.settings.servers
    assert list(Path(os.environ["XDG_STATE_HOME"]).rglob("backups/change-servers.toml.*")), "with a copy of what it was"
    async with registering(tmp_path) as at:
        assert await at.listed() == ["clock__echo", "recall", "rates", "today"]


async def test_a_file_that_cannot_be_written_stays_and_nothing_changes(tmp_path: Path) -> None:
    async with registering(tmp_path) as at:
        registry, before = at.bridge.registry, at.bridge.settings
        await registry.put("tools", "weather", WEATHER)
        with pytest.raises(RegistryProblem, match="is not in the configuration file"):
            await registry.switch("tools", "weather", on=False, keep="file")
        await registry.remove("tools", "weather")
        at.path.write_text(f"{at.text}\n[broken\n")
        for change in (
            registry.put("tools", "weather", WEATHER, keep="file"),
            registry.remove("servers", "far", keep="file"),
        ):
            with pytest.raises(ConfigError, match="TOML"):
                await change
        assert at.text.endswith("[broken\n")
        assert at.bridge.settings == before


async def test_a_json_file_of_another_program_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {}}')
    for source, told in ((str(path), "another program"), (None, "no configuration file")):
        async with Bridge(Settings(source=source)) as bridge:
            with pytest.raises((ConfigError, RegistryProblem), match=told):
                await bridge.registry.put("tools", "weather", WEATHER, keep="file")
            assert "weather" not in bridge.settings.tools
    assert path.read_text() == '{"mcpServers": {}}'


async def test_what_cannot_take_effect_is_taken_back_out_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with registering(tmp_path) as at:
        before = at.text

        async def refuse(*_: Any) -> Any:
            assert "weather" in at.text
            raise ConfigError("not here")

        monkeypatch.setattr(at.bridge.registry, "_apply", refuse)
        with pytest.raises(ConfigError, match="not here"):
            await at.bridge.registry.put("tools", "weather", WEATHER, keep="file")
        assert at.text == before
        at.path.write_text("weather")
        with pytest.raises(ConfigError, match="not here"):
            await at.bridge.registry.put("tools", "weather", WEATHER, keep=True)
        assert await at.bridge.store.entries("registry", principal=f"config:{at.path}") == []


# -- at once


async def test_two_at_once_of_which_one_gets_the_name(tmp_path: Path) -> None:
    async with registering(tmp_path) as at:
        puts = [at.bridge.registry.put("tools", "weather", {**WEATHER, "tags": [str(n)]}) for n in range(2)]
        first, second = await asyncio.gather(*puts, return_exceptions=True)
        assert isinstance(second, RegistryProblem)
        assert not isinstance(first, BaseException)
        assert at.names("tag:0") == ["tools/weather"]


async def test_many_changes_during_reloads_are_all_there_at_the_end(tmp_path: Path) -> None:
    async with registering(tmp_path) as at:
        registry = at.bridge.registry

        async def reload(number: int) -> None:
            at.path.write_text(f"{FILE}\n[store]\npath = 'store.db'\n[calls]\nbatch = {number}\n")
            assert (await at.reloading.reload())["ok"]

        puts = [registry.put("tools", f"w{n}", WEATHER) for n in range(8)]
        await asyncio.gather(*(work for n, put in enumerate(puts) for work in (put, reload(n + 1))))
        assert len(at.names("tag:sky")) == 8
        assert at.bridge.settings.calls.batch in range(1, 9)


async def test_an_edit_of_the_file_keeps_what_lies_over_it(tmp_path: Path) -> None:
    async with registering(tmp_path) as at:
        await at.bridge.registry.put("tools", "weather", WEATHER)
        at.path.write_text(f'{at.text}\n[servers.weather]\ncommand = "weatherman"\n')
        assert (await at.reloading.reload())["added"] == ["weather"], "the file has the last word about its own names"
        assert "weather" not in at.bridge.settings.tools
        [standing] = at.bridge.registry.status()
        assert standing["hidden"]
        at.path.write_text(at.text.partition("[servers.weather]")[0])
        assert (await at.reloading.reload())["ok"]
        assert "weather" in at.bridge.settings.tools


async def test_what_the_file_comes_to_run_is_not_replaced_by_what_came_over_http(tmp_path: Path) -> None:
    async with registering(tmp_path) as at:
        before = at.text
        for by in ("api:chief", "library"):
            await at.bridge.registry.put("tools", "weather", WEATHER, by=by, may_replace=True)
            at.path.write_text(f'{before}\n[tools.weather]\ncommand = ["weatherman"]\n')
            assert (await at.reloading.reload())["ok"]
            is_file = at.bridge.settings.tools["weather"].tags == []
            assert is_file == (by == "api:chief"), "programs of the user may replace what they run"
            assert at.bridge.registry.status()[0].get("hidden", False) == is_file
            at.path.write_text(before)
            assert (await at.reloading.reload())["ok"]
            assert at.bridge.settings.tools["weather"].tags == ["sky"]


async def test_a_change_goes_on_when_who_asked_is_gone(tmp_path: Path) -> None:
    async with registering(tmp_path) as at:
        asking = asyncio.create_task(at.bridge.registry.put("tools", "weather", WEATHER, keep=True))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
        await at.bridge.registry.put("tools", "after", WEATHER)
        assert {"weather", "after"} <= set(await at.listed())


# -- announced


async def test_every_change_is_told_to_connected_clients(tmp_path: Path) -> None:
    async with registering(tmp_path) as at:
        ear = Ear(at.bridge.server)
        await ear.initialize()
        registry = at.bridge.registry
        heard = 0

        async def tells() -> None:
            nonlocal heard
            heard += 1
            await ear.hears("notifications/tools/list_changed", heard)

        await registry.put("tools", "weather", WEATHER)
        await tells()
        await registry.switch("tools", "weather", on=False)
        await tells()
        await registry.switch("tools", "weather", on=True)
        await tells()
        await registry.remove("tools", "weather")
        await tells()
        await registry.put("servers", "more", REMOTE)
        await tells()
        backend = FunctionBackend("add", FunctionSettings(function="operator:add"))
        await at.bridge.set_backend("add", ProgramTool(backend, FunctionSettings(function="operator:add")))
        await tells()
        await at.bridge.set_backend("add", None)
        await tells()
        ear.leave()


@pytest.mark.parametrize("kind", ["stdio", "http"])
async def test_a_real_client_is_told_and_lists_anew(tmp_path: Path, kind: str) -> None:
    async with registering(tmp_path) as at, open_front(kind, at.bridge, tmp_path) as front:
        await front.client.initialize()
        assert "weather" not in await front.client.tools()
        if kind == "http":
            async with front.client.listening():
                await at.bridge.registry.put("tools", "weather", WEATHER)
                await front.client.notice("notifications/tools/list_changed")
        else:
            await at.bridge.registry.put("tools", "weather", WEATHER)
            await front.client.notice("notifications/tools/list_changed")
        assert "weather" in await front.client.tools()


# -- management commands


async def test_a_backend_does_its_management_commands(tmp_path: Path) -> None:
    (tmp_path / "shelf_of_registry.py").write_text(
        "class Shelf:\n"
        "    def execute(self, book: str) -> str:\n        return book\n"
        "    def execute_command(self, name, data):\n"
        "        if name != 'reindex':\n            raise ValueError('no such thing')\n"
        "        return {'books': data.get('books', 0)}\n"
    )
    async with registering(tmp_path, FILE + '[tools.shelf]\nexecutor_class = "shelf_of_registry.Shelf"\n') as at:
        assert await at.bridge.command("shelf", "reindex", {"books": 3}) == {"books": 3}
        for name, command in (("shelf", "burn"), ("rates", "reindex"), ("nobody", "reindex")):
            with pytest.raises(Exception, match=r"burn|reindex|nobody"):
                await at.bridge.command(name, command)
        with pytest.raises(UnknownName, match="nobody"):
            await at.bridge.command("nobody", "reindex")
