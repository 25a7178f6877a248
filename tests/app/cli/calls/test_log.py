"""`mcpbridge log`, on what real bridges wrote (issue 4, Observation)."""

import asyncio
import json
import os
import pty
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from mcpbridge.storage.call_log.format import CallRecord
from mcpbridge.storage.call_log.log import CallLog
from mcpbridge.storage.settings import CallLogSettings
from support.harness import Place, eventually, python_server

SERVERS = {"one": python_server("plain")}
ON = {"enabled": True}
OFF = {"enabled": False}


def file_of(place: Place) -> Path:
    return place.folder / ".local" / "state" / "mcpbridge" / "calls.db"


async def log_of(place: Place, *args: str) -> list[dict[str, Any]]:
    finished = await place.run("log", "--config", str(place.folder / "servers.toml"), "--json", *args)
    assert finished.code == 0, finished.err
    return [json.loads(line) for line in finished.out.splitlines()]


def are_both_over(calls: list[dict[str, Any]]) -> bool:
    return len(calls) == 2 and all(call["outcome"] != "running" for call in calls)


async def test_calls_through_a_bridge_are_shown_while_it_runs_and_afterwards(place: Place) -> None:
    async with place.bridge(SERVERS, call_log=ON) as client:
        await client.initialize()
        await client.call("one__echo", text="a text that is nobody's business")
        await client.call("one__raw_result", raw='{"content":[],"isError":true}')
        calls = await eventually(lambda: log_of(place), are_both_over, within=60)
    assert await log_of(place) == calls
    echo, failed = calls
    assert (echo["tool"], echo["server"], echo["method"], echo["outcome"]) == ("one/echo", "one", "tools/call", "ok")
    assert echo["arguments"]["size"] > 30
    assert echo["client"]
    assert 0 < echo["seconds"] < 60
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", echo["at"])
    assert (failed["tool"], failed["outcome"]) == ("one/raw_result", "tool_error")
    assert b"nobody's business" not in file_of(place).read_bytes()
    assert file_of(place).stat().st_mode & 0o777 == 0o600
    finished = await place.run("log", "--config", str(place.folder / "servers.toml"))
    assert [line.split()[2] for line in finished.out.splitlines()[1:]] == ["one/echo", "one/raw_result"]


async def test_content_is_shown_where_it_was_kept(place: Place) -> None:
    how = {"one": {**SERVERS["one"], "log_content": True}}
    async with place.bridge(how, call_log=ON) as client:
        await client.initialize()
        await client.call("one__echo", text="to be kept")
    [call] = await log_of(place, "--content")
    assert json.loads(call["arguments"]["content"]) == {"text": "to be kept"}
    assert "to be kept" in call["result"]["content"]
    [call] = await log_of(place)
    assert "content" not in call["arguments"]
    finished = await place.run("log", "--config", str(place.folder / "servers.toml"), "--content")
    assert '    arguments: {"text": "to be kept"}' in finished.out.replace('":"', '": "')


async def test_a_bridge_that_shall_not_log_makes_no_file(place: Place) -> None:
    async with place.bridge(SERVERS, call_log=OFF) as client:
        await client.initialize()
        await client.call("one__echo", text="x")
    assert not file_of(place).exists()
    assert {path.name for path in file_of(place).parent.glob("*")} <= {"pins"}, "what the server showed first"
    finished = await place.run("log", "--config", str(place.folder / "servers.toml"))
    assert finished.code == 4
    assert finished.out == ""
    assert str(file_of(place)) in finished.err
    assert "[call_log]\n    enabled = true" in finished.err
    finished = await place.run("log", "--config", str(place.folder / "servers.toml"), "--json")
    assert json.loads(finished.err)["error"]["code"] == 4


async def test_nothing_logged_yet_is_no_error(place: Place) -> None:
    config = str(place.config(SERVERS, call_log=ON))
    finished = await place.run("log", "--config", config)
    assert (finished.code, finished.out) == (0, "")
    assert "nothing was logged yet" in finished.err


def record(number: int = 1, **changes: Any) -> CallRecord:
    told: dict[str, Any] = {
        "at": 1_800_000_000.0 + number,
        "seconds": 0.0123,
        "method": "tools/call",
        "server": "one",
        "tool": "one/echo",
        "client": "ear",
        "principal": "",
        "session": "s",
        "run": "",
        "outcome": "ok",
        "error": "",
        "arguments": b'{"text":"x"}',
        "result": b"y" * 3000,
        **changes,
    }
    return CallRecord(**told)


async def write(place: Place, *records: CallRecord) -> None:
    log = CallLog(lambda: file_of(place), CallLogSettings(), clock=lambda: 1_800_000_000.0)
    for one in records:
        log.append(one)
    await log.close()


@pytest.fixture
async def config(place: Place) -> str:
    await write(
        place,
        record(1),
        record(2, tool="one/drop", outcome="refused", error="NotPermitted", result=b"", facts={"risk": "high"}),
        record(3, server="two", tool="two/\x1b[31mecho", client="\x1b]0;x\x07", principal="ann", seconds=75),
        record(4, method="resources/read", tool="memo://one"),
    )
    return str(place.config(SERVERS, call_log=ON))


async def test_json_has_nothing_that_rewrites_a_terminal_and_means_the_same(place: Place) -> None:
    name = "\x9b31m\x7f\u202eear é"
    await write(place, record(1, client=name))
    finished = await place.run("log", "--json", "--config", str(place.config(SERVERS, call_log=ON)))
    assert json.loads(finished.out)["client"] == name
    assert not {"\x9b", "\x7f", "\u202e"} & set(finished.out)
    assert "é" in finished.out


async def test_calls_are_lines_of_a_table(place: Place, config: str) -> None:
    place.env["TZ"] = "UTC"
    finished = await place.run("log", "--config", config)
    titles, *lines = finished.out.splitlines()
    assert titles.split()[:4] == ["Time", "Tool", "Client", "Outcome"]
    assert re.fullmatch(
        r"2027-01-15 08:00:01  one/echo +ear +ok +12ms  +12 B [0-9a-f]{8} +2\.9 KiB [0-9a-f]{8} +1", lines[0]
    )
    assert re.search(r"one/drop .* refused +12ms  .* -  +2 +NotPermitted; risk=high$", lines[1])
    assert "(ann)" in lines[2]
    assert "75s" in lines[2]
    assert "\x1b" not in finished.out  # what clients and servers call themselves cannot rewrite a terminal
    assert "resources/read memo://one" in lines[3]


async def test_what_is_shown_can_be_narrowed(place: Place, config: str) -> None:
    """Each alone is tested where the file is read (`tests/storage/call_log/test_log.py`)."""
    options = ["--tool", "*drop", "--server", "one", "--client", "e*", "--principal", "", "--outcome", "refused"]
    assert [call["id"] for call in await log_of(place, *options, "--since", "2027-01-15T08:00:02+00:00")] == [2]
    assert [call["id"] for call in await log_of(place, "-n", "2")] == [3, 4]


async def test_a_span_of_time_reaches_back_from_now(place: Place, config: str) -> None:
    import time

    log = CallLog(lambda: file_of(place), CallLogSettings())
    log.append(record(at=time.time() - 7200))
    log.append(record(at=time.time() - 60))
    await log.close()
    within = [call["id"] for call in await log_of(place, "--since", "1h")]
    assert 6 in within
    assert 5 not in within


@pytest.mark.parametrize("options", [["--since", "soonish"], ["--events", "--outcome", "ok"]])
async def test_wrong_options_are_usage_errors(place: Place, config: str, options: list[str]) -> None:
    assert (await place.run("log", "--config", config, *options)).code == 2


async def test_a_filter_that_fits_nothing_says_so(place: Place, config: str) -> None:
    finished = await place.run("log", "--config", config, "--tool", "none")
    assert (finished.code, finished.out) == (0, "")
    assert "no recorded call matches" in finished.err


async def test_older_calls_are_shown_though_none_are_logged_now(place: Place, config: str) -> None:
    quiet = str(place.config(SERVERS, call_log=OFF))
    finished = await place.run("log", "--config", quiet)
    assert len(finished.out.splitlines()) == 1 + 4
    assert len((await place.run("log", "--config", quiet, "--no-header")).out.splitlines()) == 4
    assert "not logged now" in finished.err


async def test_a_damaged_file_is_named(place: Place, config: str) -> None:
    file_of(place).write_bytes(b"this was a database once. " * 100)
    finished = await place.run("log", "--config", config)
    assert finished.code == 4
    assert f"{file_of(place)}: file is not a database" in finished.err


async def test_what_comes_is_followed_until_the_reader_has_enough(place: Place) -> None:
    config = str(place.config(SERVERS, call_log=ON))
    async with place.started("log", "--config", config, "--follow", "--json") as command:
        assert command.process.stdout
        await write(place, record(1))
        assert await line_of(command.process.stdout) == 1
        await write(place, record(2), record(3))
        assert [await line_of(command.process.stdout) for _ in range(2)] == [2, 3]
        command.process.terminate()
        async with asyncio.timeout(60):
            assert await command.process.wait() == 143
        command.process._transport.close()  # pyright: ignore


async def line_of(stream: asyncio.StreamReader) -> int:
    async with asyncio.timeout(60):
        return json.loads(await stream.readline())["id"]


async def test_what_became_of_approvals_is_shown_apart(place: Place, config: str) -> None:
    log = CallLog(lambda: file_of(place), CallLogSettings())
    about = {"tool": "one/drop", "client": "ear", "principal": "ann", "arguments": b"{}"}
    log.append_event("asked", {**about, "who": "client", "detail": "destructive"})
    log.append_event("granted", {**about, "tool": "two/drop", "who": "terminal", "detail": "once"})
    await log.close()
    asked, granted = await log_of(place, "--events")
    assert (asked["event"], asked["who"], asked["tool"]) == ("asked", "client", "one/drop")
    assert await log_of(place, "--events", "--server", "two", "--principal", "ann") == [granted]
    finished = await place.run("log", "--config", config, "--events")
    assert re.search(r"asked +one/drop +client +ear \(ann\) +[0-9a-f]{8} +destructive", finished.out)


async def test_on_a_terminal_it_is_a_table_with_titles(place: Place, config: str) -> None:
    outside, inside = pty.openpty()
    place.env["COLUMNS"] = "160"
    process = await place.start("log", "--config", config, terminal=inside)
    os.close(inside)
    shown = b""
    async with asyncio.timeout(60):
        await process.wait()
    while b"memo://one" not in shown:
        shown += os.read(outside, 65536)
    os.close(outside)
    text = shown.decode()
    assert "Outcome" in text
    assert "Arguments" in text
    assert "one/echo" in text


async def test_on_plain_defaults_the_bridge_of_a_user_keeps_calls_with_their_content(place: Place) -> None:
    """Issue 20, Recording."""
    async with place.bridge(SERVERS) as client:
        await client.initialize()
        await client.call("one__echo", text="to be looked at later", password="hunter2hunter2")
        [call] = await eventually(lambda: log_of(place, "--content"), lambda calls: len(calls) == 1, within=60)
    assert json.loads(call["arguments"]["content"])["text"] == "to be looked at later"
    assert "to be looked at later" in call["result"]["content"]
    assert all(file.stat().st_mode & 0o077 == 0 for file in file_of(place).parent.glob("calls.db*"))
    assert all(b"hunter2" not in file.read_bytes() for file in file_of(place).parent.glob("calls.db*"))


async def test_one_call_is_shown_whole(place: Place, config: str) -> None:
    """What was asked, what came of it on the way, and what it made itself."""
    outer = record(10, uid=16 << 20, tool="mcpbridge/run_code", server="mcpbridge")
    inner = record(
        11,
        uid=17 << 20,
        parent=outer.uid,
        keeps_content=True,
        asked=b'{"text": 5}',
        stages=[("server", 0.001, 0.012), ("check arguments", 0.0005, 0.0121)],
        original_size=90_000,
        original_tokens=28_000,
        facts={"kept": "r-abc"},
    )
    outer, inner = (replace(one, at=(one.uid >> 12) / 1e6) for one in (outer, inner))
    await write(place, inner, outer)
    shown = await place.run("log", f"{inner.uid:016x}", "--config", config)
    lines = shown.out.splitlines()
    assert "one/echo" in lines[0]
    assert f"    parent: {outer.uid:016x}" in lines
    assert '    as sent: {"text": 5}' in lines
    assert '    arguments: {"text":"x"}' in lines
    assert any("28,000 tokens" in line and "mcpbridge results show r-abc" in line for line in lines)
    assert [line.split()[-1] for line in lines if " ms " in line] == ["arguments", "server"]
    shown = await place.run("log", f"{outer.uid:016x}", "--config", config)
    assert [line for line in shown.out.splitlines() if line.startswith("    ") and "one/echo" in line]
    whole = json.loads((await place.run("log", f"{outer.uid:016x}", "--json", "--config", config)).out)
    assert [child["uid"] for child in whole["children"]] == [f"{inner.uid:016x}"]
    absent = await place.run("log", "f" * 16, "--config", config)
    assert (absent.code, absent.out) == (5, "")
    assert "there is no call" in absent.err
