"""What the bridges of a fleet have counted and recorded is shown together, and of each by itself (issue 24)."""

import json
import signal
from collections.abc import Generator
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2
import pytest

from fleet.test_fleet_call_log import RECORDING, call, name_of
from fleet.test_fleet_sessions import SERVERS
from support.json_output import check
from support.redis_server import Server
from support.replicas import OTHER_TOKEN, TOKEN, Fleet, Replica, fleet, needs_fleet, until

pytestmark = needs_fleet

ADMIN = "the token of who looks at the figures"
MORE = f'[[http.tokens]]\nname = "boss"\nadmin = true\nsha256 = "{sha256(ADMIN.encode()).hexdigest()}"\n{RECORDING}'


@pytest.fixture
def pair(tmp_path: Path) -> Generator[Fleet]:
    redis = Server(tmp_path / "redis").start()
    try:
        with fleet(tmp_path, redis, size=2, servers=SERVERS, more=MORE) as found:
            yield found
    finally:
        redis.kill()


def document(replica: Replica, *words: str) -> dict[str, Any]:
    done = replica.command(*words, "--json", "--config", str(replica.config))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    check(found)
    return found


def usage(replica: Replica, *words: str) -> dict[str, Any]:
    return document(replica, "usage", *words)


def api(replica: Replica, token: str, query: str = "") -> dict[str, Any]:
    headers = {"authorization": f"Bearer {token}"}
    answer = httpx2.get(f"{replica.root}/api/usage{query}", headers=headers, trust_env=False, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def calls_by_bridge(found: dict[str, Any]) -> dict[str, int]:
    return {one["bridge"]: one["calls"] for one in found["bridges"]}


def test_usage_and_stats_are_of_all_bridges_and_of_each(pair: Fleet) -> None:
    first, second = pair.replicas
    echo = name_of(first, "echo")
    for replica, times in ((first, 3), (second, 4)):
        for _ in range(times):
            call(replica, echo, "hello")
    for replica in (first, second):
        until(lambda at=replica: calls_by_bridge(usage(at)) == {"r1": 3, "r2": 4}, f"{replica.name} has all")
        found = usage(replica, "--by", "tool")
        [row] = found["rows"]
        assert (row["calls"], found["total"]["calls"], found["missing"]) == (7, 7, [])
        each = found["bridges"]
        for name in ("tokens_in", "tokens_out", "failures", "refused"):
            assert abs(row[name] - sum(one[name] for one in each)) <= 1, (name, row, each)
        assert row["seconds"] == pytest.approx(sum(one["seconds"] for one in each), abs=0.01)
    assert usage(first, "--bridge", "r2")["total"]["calls"] == 4
    assert calls_by_bridge(usage(first, "--bridge", "r2")) == {"r2": 4}
    own = usage(second, "--here")
    assert (own["total"]["calls"], "bridges" in own) == (4, False)
    shown = first.command("usage", "--config", str(first.config)).stdout.splitlines()
    assert [line.split()[0] for line in shown if line.strip()] == ["User", "tester", "Bridge", "r1", "r2"]
    assert first.command("usage", "--bridge", "r9", "--config", str(first.config)).returncode == 2
    assert first.command("usage", "--bridge", "r2", "--here", "--config", str(first.config)).returncode == 2

    counted = document(first, "stats")
    of_each = {one["bridge"]: one["tools"] for one in counted["bridges"]}
    [whole], [here], [there] = (
        [row for row in rows if row["tool"].endswith("/echo")]
        for rows in (counted["together"], of_each["r1"], of_each["r2"])
    )
    assert (here["calls"], there["calls"], whole["calls"]) == (3, 4, 7)
    assert whole["outcomes"] == {"ok": 7}
    assert whole["bytes_out"] == here["bytes_out"] + there["bytes_out"]
    low, high = sorted((here["latency"]["p95"], there["latency"]["p95"]))
    assert low <= whole["latency"]["p95"] <= high, "percentiles come from the histograms of both"
    assert [one["bridge"] for one in document(first, "stats", "--bridge", "r2")["bridges"]] == ["r2"]
    assert len(document(first, "stats", "--here")["bridges"]) == 1
    printed = first.command("stats", "--config", str(first.config)).stdout
    assert [line for line in printed.splitlines() if "bridge" in line] == [
        "2 bridges together",
        "bridge r1",
        "bridge r2",
    ]


def test_a_user_gets_no_more_of_all_bridges_than_of_one(pair: Fleet) -> None:
    first, second = pair.replicas
    call(first, name_of(first, "echo"), "mine")
    call(second, name_of(second, "echo"), "mine as well")
    until(lambda: api(first, ADMIN)["total"]["calls"] == 2, "both are recorded")
    assert calls_by_bridge(api(first, TOKEN)) == {"r1": 1, "r2": 1}
    others = api(first, OTHER_TOKEN, "?by=user,tool&user=*")
    assert (others["rows"], others["total"]["calls"], calls_by_bridge(others)) == ([], 0, {"r1": 0, "r2": 0})
    assert api(first, ADMIN, "?here=true")["total"]["calls"] == 1
    assert api(first, ADMIN, "?bridge=r2")["total"]["calls"] == 1


def test_a_bridge_that_is_gone_is_named_and_the_others_are_shown(pair: Fleet) -> None:
    first, second = pair.replicas
    for replica in pair.replicas:
        call(replica, name_of(replica, "echo"), "hello")
    until(lambda: usage(first)["total"]["calls"] == 2, "both are recorded")
    second.signal(signal.SIGSTOP)
    silent = first.command("usage", "--config", str(first.config))
    assert "bridge r2 did not answer: its figures are missing" in silent.stderr, silent.stderr
    second.kill()

    def is_named() -> bool:
        found = usage(first)
        return [one["bridge"] for one in found["missing"]] == ["r2"] and "left" in found["missing"][0]["reason"]

    until(is_named, "it is named when its lease has ended, too")
    found = usage(first)
    assert (found["total"]["calls"], calls_by_bridge(found)) == (1, {"r1": 1})
    counted = document(first, "stats")
    assert [one["bridge"] for one in counted["missing"]] == ["r2"]
    assert [one["bridge"] for one in counted["bridges"] if "error" in one] == ["r2"]
    asked = first.command("stats", "--bridge", "r2", "--config", str(first.config))
    assert "bridge r2 did not answer" in asked.stderr
    second.start()
    until(lambda: usage(first)["total"]["calls"] == 2, "what it recorded is there again")
    assert usage(first)["missing"] == []


def test_bridges_that_write_one_file_count_what_is_in_it_once(tmp_path: Path) -> None:
    redis = Server(tmp_path / "redis").start()
    try:
        shared = f'[call_log]\nenabled = true\npath = "{tmp_path}/calls.db"\n'
        with fleet(tmp_path, redis, size=2, servers=SERVERS, more=shared) as found:
            first = found.replicas[0]
            for replica in found.replicas:
                call(replica, name_of(replica, "echo"), "hello")
            until(lambda: calls_by_bridge(usage(first)) == {"r1, r2": 2}, "both are recorded, and count once")
            listed = first.command("log", "--json", "--config", str(first.config)).stdout.splitlines()
            assert [json.loads(line)["bridge"] for line in listed] == ["r1, r2"] * 2
    finally:
        redis.kill()
