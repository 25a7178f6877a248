"""What a bridge keeps, and that it never stops because it cannot (issue 4)."""

from pathlib import Path

from mcpbridge.config.load import read
from mcpbridge.storage.call_log.reader import Filter, read_calls
from mcpbridge.storage.call_log.timeline import read_events
from mcpbridge.storage.settings import call_log_path, store_path
from support.harness import Place, python_server
from support.in_process_bridge import Ear, bridged
from support.upstreams.scripted_upstream import LEGACY_SERVER, ScriptedTransport

SERVERS = {"one": python_server("plain")}


async def test_files_that_cannot_be_used_are_named_and_the_bridge_serves_on(place: Place) -> None:
    damaged = place.folder / "damaged.db"
    damaged.write_bytes(b"this was a database once. " * 100)
    async with place.bridge(SERVERS, call_log={"enabled": True, "path": str(damaged)}) as client:
        await client.initialize()
        for number in range(3):
            assert (await client.call("one__echo", text=str(number))).text == str(number)
        assert client.command
        line = await client.command.logged("entries are missing from the call log")
    assert str(damaged) in line.string
    assert "not a database" in line.string
    assert damaged.read_bytes().startswith(b"this was")


async def test_a_bridge_opens_its_store_when_there_is_something_to_keep_and_closes_it(tmp_path: Path) -> None:
    path = tmp_path / "state" / "store.db"
    async with bridged({}, store={"path": str(path)}) as bridge:
        assert not path.parent.exists()
        handle = await bridge.store.put("result", b"kept", principal="ann", expires_in=60)
    assert [file.name for file in path.parent.iterdir()] == ["store.db"]
    async with bridged({}, store={"path": str(path)}) as bridge:
        assert await bridge.store.get("result", handle, principal="ann") == b"kept"


async def test_a_store_in_memory_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "state" / "store.db"
    async with bridged({}, store={"kind": "memory", "path": str(path)}) as bridge:
        handle = await bridge.store.put("result", b"kept", principal="ann", expires_in=60)
        assert await bridge.store.get("result", handle, principal="ann") == b"kept"
    assert not path.parent.exists()


async def test_every_way_in_is_logged(tmp_path: Path) -> None:
    path = tmp_path / "calls.db"
    scripts = {"one": ScriptedTransport({**LEGACY_SERVER, "tools/call": {"content": []}})}
    async with bridged(scripts, call_log={"enabled": True, "path": str(path)}) as bridge:
        tool = next(iter(bridge.catalog.snapshot.tools.values()))
        await bridge.request("tools/call", {"name": tool.wire, "arguments": {"a": 1}}, user="ann", run="run-1")
        ear = Ear(bridge.server)
        await ear.initialize()
        await ear.ask("tools/call", {"name": tool.wire, "arguments": {}})
    first, second = read_calls(path, Filter(), limit=10)
    assert first["tool"] == second["tool"] == tool.id
    assert (first["client"], first["principal"], first["run"]) == ("", "ann", "run-1")
    assert (second["client"], second.get("principal")) == ("ear", None)
    assert first["outcome"] == second["outcome"] == "ok"


async def test_approvals_are_written_down_though_calls_are_not(place: Place) -> None:
    how = {"one": {**SERVERS["one"], "permission": "require_approval"}}
    async with place.bridge(how, approval={"timeout": 0.05}, call_log={"enabled": False}) as client:
        await client.initialize()
        reply = await client.call("one__echo", text="x")
        assert reply.failed
    path = place.folder / ".local" / "state" / "mcpbridge" / "calls.db"
    events = read_events(path, Filter(tool="one/echo"), limit=10)
    assert events[0]["event"] == "asked"
    assert len(events) > 1
    assert read_calls(path, Filter(), limit=10) == []


def test_relative_paths_begin_where_the_configuration_is(tmp_path: Path) -> None:
    path = tmp_path / "servers.toml"
    path.write_text('[store]\npath = "kept/store.db"\n[call_log]\npath = "~/calls.db"\n')
    settings = read(path, {}).settings
    assert store_path(settings.store) == tmp_path / "kept" / "store.db"
    assert call_log_path(settings.call_log, settings.store) == Path.home() / "calls.db"
    path.write_text('[store]\npath = "kept/store.db"\n')
    settings = read(path, {}).settings
    assert call_log_path(settings.call_log, settings.store) == tmp_path / "kept" / "calls.db"
