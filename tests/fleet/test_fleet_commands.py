"""`mcpbridge fleet`, `/api/fleet`, and how a bridge is taken out of its fleet (issue 24)."""

import json
import signal
import subprocess
import sys
from collections.abc import Generator
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_text

from fleet.test_fleet_sessions import SERVERS, names
from support.fleet_clients import HEADERS, INITIALIZE, Client, message
from support.json_output import check
from support.real_sign_in import home_at, local_server
from support.redis_server import Server
from support.replicas import Fleet, Replica, fleet, needs_fleet, until

pytestmark = needs_fleet

ADMIN = "the token of who administers"


@pytest.fixture
def http() -> Generator[httpx2.Client]:
    with httpx2.Client(trust_env=False, timeout=60) as found:
        yield found


@pytest.fixture
def pair(tmp_path: Path) -> Generator[Fleet]:
    redis = Server(tmp_path / "redis").start()
    try:
        with fleet(tmp_path, redis, size=2, servers=SERVERS) as found:
            yield found
    finally:
        redis.kill()


def run(replica: Replica, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command on the machine of a bridge."""
    command = [sys.executable, "-m", "mcpbridge", *arguments]
    return subprocess.run(
        command, check=False, env=home_at(replica.directory), capture_output=True, text=True, timeout=90
    )


def document(replica: Replica, *arguments: str) -> dict[str, Any]:
    done = run(replica, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    check(found)
    return found


def numbers(text: str) -> dict[str, float]:
    """The samples of a fleet: name, and the first label's value."""
    found = [sample for family in parse_text(text) for sample in family.samples if "_fleet_" in sample.name]
    return {" ".join([one.name, *map(str, [*one.labels.values()][-1:])]): one.value for one in found} | {
        f"{one.name} {one.labels['replica']}": one.value for one in found if "replica" in one.labels
    }


def readiness(http: httpx2.Client, replica: Replica) -> tuple[int, str]:
    answer = http.get(f"{replica.root}/healthz/ready")
    return answer.status_code, answer.json()["status"]


def test_the_members_and_how_they_are(pair: Fleet, http: httpx2.Client) -> None:
    first, second = pair.replicas
    until(lambda: len(document(first, "fleet", "members")["members"]) == 2, "they know one another")
    listed = document(second, "fleet", "members")["members"]
    assert [one["name"] for one in listed] == ["r1", "r2"]
    assert [one["is_this"] for one in listed] == [False, True]
    assert [one["address"] for one in listed] == [f"127.0.0.1:{one.link}" for one in pair.replicas]
    assert not any(one["draining"] for one in listed)
    assert all(one["same_settings"] for one in listed)
    client = Client(http).begin(first)
    names(client.post(second, message("tools/list", 2)))
    found = document(first, "fleet", "status")
    rows = {row["name"]: row for row in found["members"]}
    assert rows["r1"]["sessions"] == 1
    assert rows["r2"]["forwarded"]["answered"] == 1
    assert rows["r2"]["links"] == [rows["r1"]["id"]]
    assert all(row["has_lease"] and not row["store"] and not row["unreachable"] for row in rows.values())
    assert found["together"]["sessions"] == 1
    assert found["together"]["forwarded"]["answered"] == 1
    shown = run(second, "fleet", "status")
    assert "together: 2 bridges, 1 session" in shown.stdout
    assert "this one" in shown.stdout
    assert "one of 2 bridges" in run(first, "status").stdout
    second.stop()
    second.config.write_text(second.config.read_text("utf-8") + "[observe]\nmax_tools = 7\n", "utf-8")
    second.start()
    assert [one["same_settings"] for one in document(first, "fleet", "members")["members"]] == [True, False]
    assert "another configuration" in run(first, "fleet", "members").stdout
    assert document(first, "status")["bridges"][0]["fleet"]["name"] == "r1"


def test_a_bridge_that_is_drained_hands_its_sessions_on_and_stays(pair: Fleet, http: httpx2.Client) -> None:
    """Issue 24: readiness off, sessions handed over, nothing lost; and back again."""
    first, second = pair.replicas
    client = Client(http).begin(first)
    listed = names(client.post(first, message("tools/list", 2)))
    assert readiness(http, first) == (200, "ready")
    with http.stream("GET", first.url, headers={**HEADERS, "mcp-session-id": client.session}) as events:
        assert events.status_code == 200
        done = document(second, "fleet", "drain", "r1")
        assert done["is_empty"], done
        assert list(events.iter_lines()) is not None  # the stream ends in good order, as the session moves
    assert readiness(http, first) == (503, "draining")
    assert http.get(f"{first.root}/readyz", headers=HEADERS).status_code == 503
    assert http.get(f"{first.root}/healthz").status_code == 200
    # What comes all the same goes to the other one: requests of the session that it had, and new ones.
    assert names(client.post(first, message("tools/list", 3))) == listed
    fresh = Client(http).begin(first)
    rows = {row["name"]: row for row in document(first, "fleet", "status")["members"]}
    assert (rows["r1"]["sessions"], rows["r2"]["sessions"]) == (0, 2)
    assert rows["r1"]["draining"]
    assert rows["r2"]["taken_over"] == 1
    assert rows["r1"]["handed_on"] == 1
    assert names(fresh.post(second, message("tools/list", 2))) == listed
    undone = document(second, "fleet", "drain", "r1", "--undo")
    assert not undone["draining"]
    assert readiness(http, first) == (200, "ready")
    assert names(client.post(first, message("tools/list", 4))) == listed
    assert document(first, "fleet", "drain")["name"] == "r1"  # without a name: the one of this machine
    assert readiness(http, second) == (200, "ready")


def test_a_drained_bridge_keeps_a_session_until_its_call_has_ended(pair: Fleet, http: httpx2.Client) -> None:
    first, second = pair.replicas
    client = Client(http).begin(first)
    play = next(name for name in names(client.post(first, message("tools/list", 2))) if name.endswith("play"))
    progress = {"method": "notifications/progress", "params": {"progressToken": "$token", "progress": 1}}
    steps = [{"send": {"jsonrpc": "2.0", **progress}}, {"await": ["never"]}]
    call = message("tools/call", 7, name=play, arguments={"steps": steps}, _meta={"progressToken": "mine"})
    headers = {**HEADERS, "mcp-session-id": client.session}
    with http.stream("POST", first.url, json=call, headers=headers) as answer:
        lines = (line for line in answer.iter_lines() if line.startswith("data:") and line[5:].strip())
        assert "progress" in next(lines)
        late = run(first, "fleet", "drain", "--wait", "0.5")
        assert late.returncode == 7, late.stdout
        assert "still has sessions or calls" in late.stderr
        with httpx2.Client(trust_env=False, timeout=60) as other:
            cancelled = message("notifications/cancelled", None, requestId=7)
            assert other.post(second.url, json=cancelled, headers=headers).status_code == 202
        assert '"id":7' in next(lines)
    assert document(first, "fleet", "drain")["is_empty"]
    assert names(client.post(second, message("tools/list", 8)))


def test_a_drained_bridge_keeps_a_session_whose_call_has_outlived_its_connection(
    pair: Fleet, http: httpx2.Client
) -> None:
    first, second = pair.replicas
    client = Client(http).begin(first)
    play = next(name for name in names(client.post(first, message("tools/list", 2))) if name.endswith("play"))
    progress = {"method": "notifications/progress", "params": {"progressToken": "$token", "progress": 1}}
    steps = [{"send": {"jsonrpc": "2.0", **progress}}, {"await": ["never"]}]
    call = message("tools/call", 7, name=play, arguments={"steps": steps}, _meta={"progressToken": "mine"})
    headers = {**HEADERS, "mcp-session-id": client.session}
    with (
        httpx2.Client(trust_env=False, timeout=60) as lost,
        lost.stream("POST", first.url, json=call, headers=headers) as answer,
    ):
        assert next(line for line in answer.iter_lines() if "progress" in line)
    late = run(first, "fleet", "drain", "--wait", "0.5")
    assert late.returncode == 7, late.stdout
    assert own(first)["sessions"] == 1
    assert own(first)["calls"] == 1
    assert client.post(second, message("notifications/cancelled", None, requestId=7)).status_code == 202
    assert document(first, "fleet", "drain")["is_empty"]


def test_a_bridge_is_not_drained_while_it_passes_on_an_answer(pair: Fleet, http: httpx2.Client) -> None:
    first, second = pair.replicas
    client = Client(http).begin(first)
    play = next(name for name in names(client.post(second, message("tools/list", 2))) if name.endswith("play"))
    progress = {"method": "notifications/progress", "params": {"progressToken": "$token", "progress": 1}}
    steps = [{"send": {"jsonrpc": "2.0", **progress}}, {"await": ["never"]}]
    call = message("tools/call", 7, name=play, arguments={"steps": steps}, _meta={"progressToken": "mine"})
    headers = {**HEADERS, "mcp-session-id": client.session}
    with http.stream("POST", second.url, json=call, headers=headers) as answer:
        lines = (line for line in answer.iter_lines() if line.startswith("data:") and line[5:].strip())
        assert "progress" in next(lines)
        late = run(second, "fleet", "drain", "--wait", "0.5")
        assert late.returncode == 7, late.stdout
        status = document(first, "fleet", "status")
        rows = {row["name"]: (row["calls"], row["passing_on"]) for row in status["members"]}
        assert rows == {"r1": (1, 0), "r2": (0, 1)}, "a call counts where it is answered"
        assert (status["together"]["calls"], status["together"]["passing_on"]) == (1, 1)
        with httpx2.Client(trust_env=False, timeout=60) as other:
            cancelled = message("notifications/cancelled", None, requestId=7)
            assert other.post(first.url, json=cancelled, headers=headers).status_code == 202
        assert '"id":7' in next(lines)
    assert document(second, "fleet", "drain")["is_empty"]


def own(replica: Replica) -> dict[str, Any]:
    """How a bridge is."""
    return next(row for row in document(replica, "fleet", "status")["members"] if row["is_this"])


def test_what_is_wrong_is_said(pair: Fleet) -> None:
    first, second = pair.replicas
    unknown = run(first, "fleet", "drain", "r9")
    assert unknown.returncode == 2
    assert "no bridge of the fleet is called 'r9'; there are r1" in unknown.stderr
    second.signal(signal.SIGSTOP)  # its lease still lives for a moment
    try:
        silent = run(first, "fleet", "drain", "r2", "--wait", "0")
        assert silent.returncode in (2, 4), silent.stdout  # 2: its lease has ended meanwhile
        assert "r2" in silent.stderr
    finally:
        second.signal(signal.SIGCONT)
    pair.redis.kill()
    until(lambda: "cannot be reached" in run(first, "fleet", "members").stderr, "it says that the records are away")
    away = document(first, "fleet", "status")
    assert away["problem"]
    assert away["members"][0]["store"]
    pair.redis.start()
    until(lambda: not document(first, "fleet", "status")["problem"], "it heals")
    first.stop()
    gone = run(first, "fleet", "members")
    assert gone.returncode == 4
    assert "no bridge is running on this machine" in gone.stderr


def test_a_bridge_without_a_fleet(tmp_path: Path) -> None:
    alone = Replica(tmp_path, "alone", f"[http]\n{local_server('rich')}")
    command = [sys.executable, "-m", "mcpbridge", "serve", "--http", f"127.0.0.1:{alone.port}", "--no-auth"]
    process = subprocess.Popen([*command, "--config", str(alone.config)], env=home_at(alone.directory))
    try:
        until(lambda: httpx2.get(f"{alone.root}/healthz", trust_env=False).status_code == 200, "it serves")
        found = run(alone, "fleet", "status")
        assert found.returncode == 2
        assert "belongs to a fleet" in found.stderr
        assert "[fleet]" in found.stderr
        assert httpx2.get(f"{alone.root}/healthz/ready", trust_env=False).json()["status"] in ("ready", "starting")
    finally:
        process.kill()
        process.wait(30)


def test_administrators_see_and_drain_over_http(tmp_path: Path, http: httpx2.Client) -> None:
    redis = Server(tmp_path / "redis").start()
    try:
        digest = sha256(ADMIN.encode()).hexdigest()
        more = f'[[http.tokens]]\nname = "admin"\nadmin = true\nsha256 = "{digest}"\n'
        with fleet(tmp_path, redis, size=2, more=more) as found:
            first, second = found.replicas
            token = {"authorization": f"Bearer {ADMIN}"}
            assert http.get(f"{first.root}/api/fleet", headers=HEADERS).status_code == 403
            shown = http.get(f"{first.root}/api/fleet", headers=token).json()
            assert {row["name"] for row in shown["members"]} == {"r1", "r2"}
            ask = f"{first.root}/api/fleet/drain"
            assert http.post(ask, headers=token, json={"name": "r9"}).status_code == 404
            assert http.post(ask, headers=token, json={"name": 1}).status_code == 400
            assert http.post(ask, headers=token, json={"name": "r2"}).json()["draining"] is True
            assert readiness(http, second) == (503, "draining")
            assert http.post(second.url, json=INITIALIZE, headers=HEADERS).status_code == 200
            with httpx2.Client(trust_env=False, timeout=60, follow_redirects=True) as browser:
                browser.post(f"{first.root}/console/enter", data={"token": ADMIN}, headers={"origin": first.root})
                page = browser.get(f"{first.root}/console/").text
            assert "Bridges of the fleet" in page
            assert page.count(">draining<") == 1
            assert "r1 <small>this one</small>" in page
            own = numbers(http.get(f"{first.root}/metrics", headers=token).text)
            assert own["mcpbridge_fleet_members"] == 2
            assert own["mcpbridge_fleet_draining_members"] == 1
            assert own["mcpbridge_fleet_lease_held"] == 1
            assert own["mcpbridge_fleet_draining"] == 0
            assert own["mcpbridge_fleet_sessions"] == 1, "the one that was opened at the other bridge"
            other = numbers(http.get(f"{second.root}/metrics", headers=token).text)
            assert other["mcpbridge_fleet_draining"] == 1
            assert other["mcpbridge_fleet_forwarded_requests_total answered"] == 1
            assert other["mcpbridge_fleet_info r2"] == 1
            assert http.post(ask, headers=token, json={"name": "r2", "undo": True}).json()["draining"] is False
            assert readiness(http, second) == (200, "ready")
    finally:
        redis.kill()
