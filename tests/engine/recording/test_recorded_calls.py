"""What is recorded of calls on plain defaults, by how the bridge runs, and what never is (issue 20, Recording)."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcpbridge import Bridge, tool
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.pipeline.hooks.call import HookCall, before
from mcpbridge.pipeline.observability import recorder
from mcpbridge.storage.call_log.budget import Budget
from mcpbridge.storage.call_log.reader import Filter, Row, read_call, read_calls
from mcpbridge.storage.call_log.timeline import read_events, read_minutes
from mcpbridge.storage.settings import RunMode
from support.in_process_bridge import BridgeToScripts, Ear, bridged
from support.upstreams.scripted_upstream import LEGACY_SERVER, Refusal, Script, ScriptedTransport

SCHEMA = {"type": "object", "properties": {"count": {"type": "integer"}, "text": {"type": "string"}}}
TYPED: Script = {**LEGACY_SERVER, "tools/list": {"tools": [{"name": "echo", "inputSchema": SCHEMA}]}}


@pytest.fixture
def store(tmp_path: Path) -> dict[str, str]:
    return {"path": str(tmp_path / "store.db")}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "calls.db"


def calls_in(path: Path) -> Sequence[Row]:
    return read_calls(path, Filter(), limit=10_000, content=True)


async def call(bridge: BridgeToScripts, arguments: Any, **client: Any) -> dict[str, Any]:
    ear = Ear(bridge.server)
    for name, value in client.items():
        setattr(ear.client, name, value)
    await ear.initialize()
    answer = await ear.ask("tools/call", {"name": "old__echo", "arguments": arguments})
    ear.leave()
    return answer


async def test_the_bridge_of_a_user_keeps_what_was_asked_what_was_sent_and_what_came(
    path: Path, store: dict[str, str]
) -> None:
    async with bridged({"old": ScriptedTransport(TYPED)}, mode="own", store=store) as bridge:
        await call(bridge, {"count": "5", "text": "right"})
    [row] = calls_in(path)
    assert json.loads(row["asked"]["content"]) == {"count": "5", "text": "right"}
    assert json.loads(row["arguments"]["content"]) == {"count": 5, "text": "right"}
    assert "done" in row["result"]["content"]
    assert (row["outcome"], row["revision"], row["client"]) == ("ok", "2025-11-25", "ear")
    assert row["original"]["size"] < row["result"]["size"], "what was mended is told in the result"
    whole = read_call(path, row["uid"])
    assert whole is not None
    names = [name for name, _, _ in whole["stages"]]
    assert names == ["shorten the result", "check arguments", "server"]
    assert all(0 <= began <= ended <= 60_000 for _, began, ended in whole["stages"])


async def test_right_arguments_are_kept_once(path: Path, store: dict[str, str]) -> None:
    async with bridged({"old": ScriptedTransport(TYPED)}, mode="own", store=store) as bridge:
        await call(bridge, {"count": 5})
    [row] = calls_in(path)
    assert "asked" not in row
    assert "original" not in row


async def test_arguments_that_came_as_text_or_within_another_call_are_kept_as_they_came(
    path: Path, store: dict[str, str]
) -> None:
    async with bridged({"old": ScriptedTransport(TYPED)}, mode="own", store=store) as bridge:
        await call(bridge, '{"count": 7}')
    [row] = calls_in(path)
    assert json.loads(json.loads(row["asked"]["content"])) == {"count": 7}
    assert json.loads(row["arguments"]["content"]) == {"count": 7}


MODES: Sequence[tuple[RunMode, dict[str, Any], str]] = [
    ("own", {}, "content"),
    ("served", {}, "sizes"),
    ("embedded", {}, "nothing"),
    ("own", {"call_log": {"enabled": False}}, "nothing"),
    ("served", {"call_log": {"enabled": False}}, "nothing"),
    ("embedded", {"call_log": {"enabled": True}}, "sizes"),
    ("own", {"call_log": {"enabled": True}}, "sizes"),
    ("own", {"call_log": {"enabled": True}, "calls": {"log_content": True}}, "content"),
    ("served", {"calls": {"log_content": True}}, "content"),
    ("own", {"calls": {"log_content": False}}, "sizes"),
    ("own", {"store": {"key": "a secret of 16 or more"}}, "sizes"),
]


@pytest.mark.parametrize(("mode", "sections", "kept"), MODES, ids=map(str, MODES))
async def test_what_is_kept_follows_from_the_settings_else_from_whom_the_bridge_serves(
    mode: RunMode, sections: dict[str, Any], kept: str, path: Path, store: dict[str, str]
) -> None:
    sections = {**sections, "store": {**store, **sections.get("store", {})}}
    async with bridged({"old": ScriptedTransport(LEGACY_SERVER)}, mode=mode, **sections) as bridge:
        await call(bridge, {"text": "a private text"})
        await asyncio.sleep(0)
    if kept == "nothing":
        assert not path.exists()
        return
    [row] = calls_in(path)
    assert row["arguments"]["size"] > 10
    assert ("content" in row["arguments"], "content" in row["result"]) == (kept == "content",) * 2
    files = list(path.parent.glob("calls.db*"))
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in files)
    assert any(b"a private text" in file.read_bytes() for file in files) == (kept == "content")


async def test_nothing_is_recorded_where_nothing_is_to_survive(tmp_path: Path) -> None:
    log = {"path": str(tmp_path / "calls.db")}
    transports = {"old": ScriptedTransport(LEGACY_SERVER)}
    async with bridged(transports, mode="own", store={"kind": "memory"}, call_log=log) as bridge:
        await call(bridge, {})
    assert not (tmp_path / "calls.db").exists()


async def test_of_users_with_a_token_of_their_own_no_content_is_kept(path: Path, store: dict[str, str]) -> None:
    async with bridged({"old": ScriptedTransport(LEGACY_SERVER)}, mode="own", store=store) as bridge:
        await call(bridge, {"text": "of ann"}, principal="ann")
        await call(bridge, {"text": "of the user"})
    first, second = calls_in(path)
    assert (first["principal"], "content" in first["arguments"]) == ("ann", False)
    assert "content" in second["arguments"]


async def test_secrets_reach_no_file(path: Path, store: dict[str, str]) -> None:
    """Whether they are known, or look like one: in arguments as sent and as mended, in results, errors and names."""
    known, key = "correct horse battery", "ghp_" + "a1B2" * 9
    script: Script = {**TYPED, "tools/call": {"content": [{"type": "text", "text": f"{known} and {key}"}]}}
    transport = ScriptedTransport(script)
    redact = Redactor([known])
    async with bridged({"old": transport}, mode="own", store=store, redact=redact) as bridge:
        await call(bridge, {"count": "1", "text": f"{known}, {key}", "password": "hunter2hunter2"})
        transport.script["tools/call"] = Refusal(-32050, f"{known} {key}")
        await call(bridge, {"text": known})
        await call(bridge, {"text": "x"}, name=known)
    assert len(calls_in(path)) == 3
    for file in path.parent.glob("calls.db*"):
        data = file.read_bytes()
        for secret in (known, key, "hunter2hunter2"):
            assert secret.encode() not in data, (file.name, secret)


async def test_failures_and_refusals_are_recorded_with_their_cause(path: Path, store: dict[str, str]) -> None:
    transport = ScriptedTransport(TYPED)
    async with bridged({"old": transport}, mode="own", store=store) as bridge:
        await call(bridge, {"count": "many"})
        transport.script["tools/call"] = Refusal(-32050, "not today")
        await call(bridge, {"count": 1})
        transport.script["tools/call"] = {"content": [], "isError": True}
        await call(bridge, {"count": 2})
    assert [(row["outcome"], row["error"]) for row in calls_in(path)] == [
        *(("refused", "ArgumentsRefused"), ("failed", "-32050"), ("tool_error", "tool_error")),
    ]


async def test_calls_that_others_make_know_the_call_around_them(tmp_path: Path) -> None:
    """A tool of the program and a hook each make another call."""

    @tool
    async def inner(text: str) -> str:
        return text

    @tool
    async def outer() -> str:
        return (await bridge.call_tool("inner", {"text": "from outer"})).text

    @before(tools="outer")
    async def look(call: HookCall) -> None:
        del call
        await bridge.call_tool("inner", {"text": "from the hook"})

    config = {"store": {"path": str(tmp_path / "store.db")}, "call_log": {"enabled": True}}
    async with Bridge.open(config, tools=[inner, outer], hooks=[look], remember=False) as bridge:
        with anyio.fail_after(60):
            assert (await bridge.call_tool("outer")).text == "from outer"
    rows = calls_in(tmp_path / "calls.db")
    around = next(row for row in rows if row["tool"].endswith("outer"))
    below = [row for row in rows if row["tool"].endswith("inner")]
    assert [row["parent"] for row in below] == [around["uid"]] * 2
    whole = read_call(tmp_path / "calls.db", around["uid"])
    assert whole is not None
    assert [child["uid"] for child in whole["children"]] == [row["uid"] for row in below]


async def test_what_was_counted_in_each_minute_outlives_the_bridge(path: Path, store: dict[str, str]) -> None:
    for _ in range(2):
        async with bridged({"old": ScriptedTransport(LEGACY_SERVER)}, mode="own", store=store) as bridge:
            await call(bridge, {})
            await call(bridge, {})
    minutes = read_minutes(path, 0, by=("tool",))
    assert sum(row["calls"] for row in minutes) == 4
    assert {row["tool"] for row in minutes} == {"old/echo"}
    assert sum(sum(row["buckets"]) for row in minutes) == 4


async def test_a_flood_is_recorded_in_part_and_the_rest_is_told_in_numbers(
    path: Path, store: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise of the budget: what costs too much is only counted, and failures are recorded all the same."""
    monkeypatch.setattr(recorder, "Budget", lambda: Budget(lambda: 0.0, lambda: 0.0))  # no time passes
    count, at_once = 1000, 50
    async with bridged({"old": ScriptedTransport(TYPED)}, mode="own", store=store) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        params = {"name": "old__echo", "arguments": {"count": 1}}
        for _ in range(count // at_once):
            async with asyncio.TaskGroup() as tasks:
                for number in range(at_once):
                    tasks.create_task(ear.ask("tools/call", params, b"%d" % (number + 1)))
        await ear.ask("tools/call", {"name": "old__echo", "arguments": {"count": "many"}})
    rows = calls_in(path)
    assert at_once < len(rows) < count / 4
    assert [row["outcome"] for row in rows].count("refused") == 1
    unrecorded = sum(event["facts"]["calls"] for event in read_events(path, Filter(), limit=99, kinds=["calls."]))
    assert len(rows) + unrecorded == count + 1
    assert sum(row["calls"] for row in read_minutes(path, 0)) == count + 1
