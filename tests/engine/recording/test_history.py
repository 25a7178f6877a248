"""The timeline: what happens beside calls, and that a server that comes and goes does not fill it (issue 20)."""

from pathlib import Path
from typing import Any

import pytest

from mcpbridge.core.events import EventBus
from mcpbridge.engine.history import MOST_A_MINUTE, History
from mcpbridge.pipeline.observability.metrics import Metrics
from mcpbridge.pipeline.observability.recorder import Recorder
from mcpbridge.storage.call_log.log import CallLog
from mcpbridge.storage.call_log.reader import Filter, Row
from mcpbridge.storage.call_log.timeline import read_events, read_session, read_sessions
from mcpbridge.storage.settings import CallLogSettings, Recorded
from support.harness import eventually
from support.in_process_bridge import Ear, bridged
from support.upstreams.scripted_upstream import LEGACY_SERVER, Script, ScriptedTransport


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "calls.db"


def events_in(path: Path, *kinds: str) -> list[Row]:
    return read_events(path, Filter(), limit=1000, kinds=kinds)


async def test_a_session_is_told_from_its_first_word_to_its_end(path: Path, tmp_path: Path) -> None:
    store = {"path": str(tmp_path / "s.db")}
    async with bridged({"old": ScriptedTransport(LEGACY_SERVER)}, mode="own", store=store) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        await ear.ask("tools/list", {})
        await ear.ask("tools/list", {})
        await ear.ask("tools/call", {"name": "old__echo", "arguments": {}})
        id_ = ear.client.session.id
        bridge.server.close(ear.client, "its client left")
        modern = Ear(bridge.server)
        await modern.ask_modern("tools/list", {}, **{"io.modelcontextprotocol/clientInfo": {"name": "new"}})
    session = read_session(path, id_)
    assert session is not None
    assert (session["client"], session["version"], session["revision"]) == ("ear", "1", "2025-11-25")
    assert (session["calls"], session["errors"], session["why"]) == (1, 0, "its client left")
    assert session["tools"] == len((await _listed(tmp_path))["tools"])
    assert len(events_in(path, "session.listed")) == 1, "the second list was the same"
    assert [row["session"] for row in read_sessions(path, client="ear")] == [id_]


async def _listed(folder: Path) -> Any:
    store = {"path": str(folder / "other.db")}
    async with bridged({"old": ScriptedTransport(LEGACY_SERVER)}, store=store) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        return (await ear.ask("tools/list", {}))["result"]


async def test_servers_and_their_lists_are_on_the_timeline(path: Path, tmp_path: Path) -> None:
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("a", "b", "c")]
    script: Script = {**LEGACY_SERVER, "tools/list": {"tools": tools[:2]}}
    transport = ScriptedTransport(script)
    async with bridged({"old": transport}, mode="own", store={"path": str(tmp_path / "s.db")}) as bridge:
        transport.script["tools/list"] = {"tools": tools[1:]}
        transport.lines[-1].says("notifications/tools/list_changed")

        async def names() -> set[str]:
            return {ref.name for ref in bridge.catalog.flush().tools.values()}

        await eventually(names, lambda found: found == {"b", "c"})
    assert [event["event"] for event in events_in(path, "bridge.")] == ["bridge.started", "bridge.stopped"]
    [ready] = events_in(path, "server.ready")
    assert ready["server"] == "old"
    [changed] = events_in(path, "server.list_changed")
    assert changed["facts"] == {"tools": {"added": 1, "removed": 1}}
    assert events_in(path)[-1]["event"] == "bridge.stopped", "what its end does to servers is not told"


async def test_a_change_of_the_configuration_is_told(path: Path, tmp_path: Path) -> None:
    transports = {"old": ScriptedTransport(LEGACY_SERVER), "more": ScriptedTransport(LEGACY_SERVER)}
    async with bridged(transports, mode="own", store={"path": str(tmp_path / "s.db")}) as bridge:
        fewer = {"old": bridge.settings.servers["old"]}
        await bridge.reload(bridge.settings.model_copy(update={"servers": fewer}))
    [reloaded] = events_in(path, "config.reloaded")
    assert reloaded["facts"] == {"removed": ["more"]}


async def test_what_happens_all_the_time_is_told_so_often_and_no_more(path: Path) -> None:
    log, events = CallLog(lambda: path, CallLogSettings()), EventBus()
    now = 600.0
    history = History(
        log, Recorder(log, events, Recorded("history", content=True)), Metrics(), events, clock=lambda: now
    )
    for _ in range(1000):
        history.note("server.failed", {"server": "flapping"})
    history.note("server.ready", {"server": "calm"})
    now = 660.0
    history.note("server.failed", {"server": "flapping"})
    await log.close()
    told = events_in(path)
    of_one = [event for event in told if event.get("server") == "flapping"]
    assert [event["event"] for event in of_one].count("server.failed") == MOST_A_MINUTE + 1
    [suppressed] = events_in(path, "events.suppressed")
    assert suppressed["server"] == "flapping"
    assert [event["event"] for event in told if event.get("server") == "calm"] == ["server.ready"]


async def test_sources_without_end_are_bounded_too(path: Path) -> None:
    """Clients name themselves."""
    log, events = CallLog(lambda: path, CallLogSettings()), EventBus()
    recorder = Recorder(log, events, Recorded("history", content=True))
    history = History(log, recorder, Metrics(), events, clock=lambda: 600.0)
    for number in range(5000):
        history.note("session.began", {"client": f"client {number}", "session": f"{number}"})
    await log.close()
    assert len(events_in(path)) == 1000


async def test_where_nothing_is_recorded_nothing_is_told(path: Path, tmp_path: Path) -> None:
    off = {"enabled": False}
    transports = {"old": ScriptedTransport(LEGACY_SERVER)}
    async with bridged(transports, mode="own", store={"path": str(tmp_path / "s.db")}, call_log=off) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        ear.leave()
    assert not path.exists()
