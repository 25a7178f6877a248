"""What the bridges of a fleet have recorded is read by way of any of them (issue 24)."""

import json
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from fleet.test_fleet_sessions import SERVERS
from support.fleet_clients import HEADERS, Client, message, modern, read
from support.json_output import check
from support.real_sign_in import home_at
from support.redis_server import Server
from support.replicas import Fleet, Replica, fleet, needs_fleet, until

pytestmark = needs_fleet

RECORDING = "[call_log]\nenabled = true\n[calls]\nlog_content = true\n"


@pytest.fixture
def pair(tmp_path: Path) -> Generator[Fleet]:
    redis = Server(tmp_path / "redis").start()
    try:
        with fleet(tmp_path, redis, size=2, servers=SERVERS, more=RECORDING) as found:
            yield found
    finally:
        redis.kill()


def run(replica: Replica, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "mcpbridge", "log", *arguments, "--config", str(replica.config)]
    environment = home_at(replica.directory)
    return subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=120)


def rows(replica: Replica, *arguments: str) -> list[dict[str, Any]]:
    done = run(replica, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    for row in found:
        check(row)
    return found


def texts(found: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Where each call was made, and what its `text` was."""
    return [(row["bridge"], json.loads(row["arguments"]["content"])["text"]) for row in found]


def name_of(replica: Replica, ending: str) -> str:
    tools = read(modern(replica, "tools/list", {}, {}))["result"]["tools"]
    return next(tool["name"] for tool in tools if tool["name"].endswith(ending))


def call(replica: Replica, echo: str, text: str) -> None:
    answer = modern(replica, "tools/call", {"name": echo, "arguments": {"text": text}}, {})
    assert text[:50] in answer.text, answer.text


def test_calls_of_all_bridges_are_listed_at_each_with_the_bridge_that_made_them(pair: Fleet) -> None:
    first, second = pair.replicas
    echo = name_of(first, "echo")
    for replica, text in ((first, "one"), (second, "two"), (first, "three")):
        call(replica, echo, text)
    expected = [("r1", "one"), ("r2", "two"), ("r1", "three")]
    for replica in (first, second):
        until(lambda at=replica: texts(rows(at, "--content")) == expected, f"all is listed at {replica.name}")
    assert texts(rows(first, "--content", "-n", "1")) == [("r1", "three")], "the newest of all"
    assert texts(rows(first, "--content", "--bridge", "r2")) == [("r2", "two")]
    own = rows(first, "--content", "--here")
    assert [json.loads(row["arguments"]["content"])["text"] for row in own] == ["one", "three"]
    assert run(first).stdout.split()[0] == "Bridge"
    [listed] = rows(first, "--bridge", "r2")
    [whole] = rows(first, listed["uid"])
    assert (whole["bridge"], whole["stages"] != []) == ("r2", True)
    assert run(first, "--bridge", "r9").returncode == 2
    assert rows(first, "--outcome", "refused") == []
    assert {row["bridge"] for row in rows(first, "--events")} == {"r1", "r2"}


def test_more_than_one_frame_of_rows_comes_whole(pair: Fleet) -> None:
    first, second = pair.replicas
    echo, letters = name_of(first, "echo"), 60_000
    for number in range(8):
        call(second, echo, f"{number}" * letters)
    wanted = [("r2", f"{number}" * letters) for number in range(8)]
    until(lambda: texts(rows(first, "--content")) == wanted, "all of it comes")


def test_a_bridge_that_does_not_answer_is_named_and_one_that_was_killed_has_interrupted_calls(pair: Fleet) -> None:
    first, second = pair.replicas
    call(first, name_of(first, "echo"), "here")
    play = name_of(second, "play")
    with httpx2.Client(trust_env=False, timeout=60) as http:
        client = Client(http).begin(second)
        progress = {"method": "notifications/progress", "params": {"progressToken": "$token", "progress": 1}}
        steps = [{"send": {"jsonrpc": "2.0", **progress}}, {"await": ["never"]}]
        asked = message("tools/call", 7, name=play, arguments={"steps": steps}, _meta={"progressToken": "mine"})
        headers = {**HEADERS, "mcp-session-id": client.session}
        with http.stream("POST", second.url, json=asked, headers=headers) as answer:
            assert next(line for line in answer.iter_lines() if "progress" in line)
            until(lambda: [row["bridge"] for row in rows(first, "--outcome", "running")] == ["r2"], "it is under way")
            second.signal(signal.SIGSTOP)
            silent = run(first)
            assert "what the bridge r2 has recorded is missing here" in silent.stderr, silent.stderr
            assert "r1" in silent.stdout
            second.kill()
    second.start()

    def interrupted() -> list[str]:
        return [row["bridge"] for row in rows(first, "--outcome", "interrupted")]

    until(lambda: interrupted() == ["r2"], "whoever looks learns that the call was interrupted")


def test_who_follows_sees_each_call_once_though_a_bridge_starts_anew(pair: Fleet, tmp_path: Path) -> None:
    """It has another id then, and the same file. What it recorded before somebody began to look is no news."""
    first, second = pair.replicas
    call(second, name_of(second, "echo"), "long ago")
    until(lambda: texts(rows(first, "--content")) == [("r2", "long ago")], "it is recorded")
    second.stop()
    output = tmp_path / "followed"
    arguments = ["log", "--follow", "--json", "--content", "-n", "1", "--config", str(first.config)]

    def seen() -> list[tuple[str, str]]:
        return texts([json.loads(line) for line in output.read_text("utf-8").splitlines(keepends=True) if "\n" in line])

    with output.open("wb") as file:
        command = subprocess.Popen(
            [sys.executable, "-m", "mcpbridge", *arguments],
            env=home_at(first.directory),
            stdout=file,
            stderr=subprocess.DEVNULL,
        )
    try:
        call(first, name_of(first, "echo"), "here")
        until(lambda: seen() == [("r1", "here")], "it is followed")
        expected = [("r1", "here")]
        for text in ("one", "two"):
            second.start()
            call(second, name_of(second, "echo"), text)
            expected.append(("r2", text))
            until(lambda: len(seen()) >= len(expected), f"{text!r} is followed")
            assert seen() == expected
            second.stop()
    finally:
        command.terminate()
        command.wait(60)
