"""A change at one bridge of a fleet is known at all (issue 24)."""

import json
import signal
import sys
import time
from collections.abc import Generator
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.fleet_clients import HEADERS, Client, message, read
from support.redis_server import Server
from support.replicas import Fleet, Replica, fleet, needs_fleet, until

pytestmark = needs_fleet

CHANGING = Path(__file__).parents[1] / "servers" / "changing.py"
CHIEF = "the-token-of-whoever-administers-the-fleet"
ADMIN = f'[[http.tokens]]\nname = "chief"\nadmin = true\nsha256 = "{sha256(CHIEF.encode()).hexdigest()}"\n'
FAR = {"url": "http://127.0.0.1:9/mcp"}


@pytest.fixture
def http() -> Generator[httpx2.Client]:
    with httpx2.Client(trust_env=False, timeout=60) as found:
        yield found


def shown(*tools: str) -> str:
    """What the server lists from now on."""
    listed = [{"name": name, "inputSchema": {"type": "object"}} for name in ("announce", *tools)]
    return json.dumps({"tools": listed, "identity": {"name": "changing", "version": "1"}})


@pytest.fixture
def pair(tmp_path: Path) -> Generator[Fleet]:
    """Two bridges, each with a process of its own of a server that shows what a file says."""
    file = tmp_path / "shown.json"
    file.write_text(shown("first"), "utf-8")
    servers = f'[servers.changing]\ncommand = "{sys.executable}"\nargs = ["{CHANGING}", "{file}"]\n'
    redis = Server(tmp_path / "redis").start()
    try:
        with fleet(tmp_path, redis, size=2, servers=servers, more=ADMIN) as found:
            yield found
    finally:
        redis.kill()


def listed(client: Client, replica: Replica) -> list[str]:
    return [tool["name"] for tool in read(client.post(replica, message("tools/list", 9)))["result"]["tools"]]


def test_a_list_that_changed_at_one_bridge_is_read_again_at_all(
    pair: Fleet, http: httpx2.Client, tmp_path: Path
) -> None:
    """The server announced it to one of them alone, and clients of all are notified."""
    first, second = pair.replicas
    here, there = Client(http).begin(first), Client(http).begin(second)
    until(lambda: "changing__first" in listed(there, second), "the server is ready")
    until(lambda: "changing__first" in listed(here, first), "the server is ready")
    headers = {**HEADERS, "mcp-session-id": there.session}
    with http.stream("GET", second.url, headers=headers) as stream:
        assert stream.status_code == 200
        (tmp_path / "shown.json").write_text(shown("first", "second"), "utf-8")
        here.post(first, message("tools/call", 3, name="changing__announce", arguments={}))
        end = time.monotonic() + 90
        for line in stream.iter_lines():  # a line comes at least as often as the stream is kept alive
            if "notifications/tools/list_changed" in line:
                break
            assert time.monotonic() < end, "clients of the other bridge are not notified"
    assert "changing__second" in listed(there, second)
    assert "changing__second" in listed(here, first)


def servers_at(replica: Replica, http: httpx2.Client) -> dict[str, Any]:
    found = http.get(f"{replica.root}/api/servers", headers={"authorization": f"Bearer {CHIEF}"}).json()
    return {server["name"]: server for server in found["servers"]}


def test_servers_that_come_and_go_at_one_bridge_do_so_at_all(pair: Fleet, http: httpx2.Client) -> None:
    """Also at one that joins later, and at one that was away."""
    first, second = pair.replicas
    chief = {"authorization": f"Bearer {CHIEF}"}
    added = http.post(f"{first.root}/api/servers", json={"name": "far", **FAR}, headers=chief)
    assert added.is_success, added.text
    until(lambda: "far" in servers_at(second, http), "the other bridge has it")
    third = pair.add().start()
    until(lambda: "far" in servers_at(third, http), "so has one that came later")
    assert http.delete(f"{second.root}/api/servers/far", headers=chief).is_success
    for replica in (first, third):
        until(lambda replica=replica: "far" not in servers_at(replica, http), "it is gone everywhere")


def added(replica: Replica, http: httpx2.Client, name: str) -> httpx2.Response:
    """What a bridge says to one more server."""
    chief = {"authorization": f"Bearer {CHIEF}"}
    return http.post(f"{replica.root}/api/servers", json={"name": name, **FAR}, headers=chief)


@pytest.mark.parametrize("keeps", [True, False], ids=["kept", "data lost"])
def test_servers_added_at_run_time_outlast_an_outage_of_the_store(
    tmp_path: Path, http: httpx2.Client, keeps: bool
) -> None:
    """What cannot be kept for the fleet is refused. A bridge that starts meanwhile knows the rest as soon as it can."""
    options = ("--appendonly", "yes", "--appendfsync", "always") if keeps else ()
    redis = Server(tmp_path / "redis", *options).start()
    try:
        with fleet(tmp_path, redis, size=2, more=ADMIN) as found:
            first, second = found.replicas
            assert added(first, http, "far").is_success
            until(lambda: "far" in servers_at(second, http), "the other bridge has it")
            redis.kill()
            refused = added(first, http, "other")
            assert refused.status_code == 503, refused.text
            assert "look before you repeat it" in refused.text
            chief = {"authorization": f"Bearer {CHIEF}"}
            assert http.delete(f"{second.root}/api/servers/far", headers=chief).status_code == 503
            third = found.add().start()
            assert "far" not in servers_at(third, http)
            for replica in (first, second):
                until(lambda replica=replica: "cannot be reached" in replica.log.read_text("utf-8"), "it is noticed")
                assert set(servers_at(replica, http)) == {"rich", "far"}
            redis.start()
            until(lambda: "far" in servers_at(third, http), "it is known where it could not be read before")
            # A bridge tries a server that was away again after some seconds. Who repeats may find it added.
            until(lambda: added(second, http, "late").status_code in (201, 409), "the store answers this bridge again")
            for replica in found.replicas:
                until(lambda replica=replica: "late" in servers_at(replica, http), "all hear of one another again")
                assert set(servers_at(replica, http)) == {"rich", "far", "late"}
    finally:
        redis.kill()


def test_a_bridge_that_was_no_member_for_a_while_knows_what_changed_meanwhile(pair: Fleet, http: httpx2.Client) -> None:
    """Though the bridge that announced it is gone by then."""
    first, second = pair.replicas
    until(lambda: first.name in second.command("fleet", "members").stdout, "they know one another")
    second.signal(signal.SIGSTOP)
    until(lambda: second.name not in first.command("fleet", "members").stdout, "its lease has ended")
    assert added(first, http, "far").is_success
    first.kill()
    second.signal(signal.SIGCONT)
    until(lambda: "far" in servers_at(second, http), "it has looked for itself")


def test_bridges_with_different_configurations_are_flagged(pair: Fleet) -> None:
    """When they join, and when one of them is edited while it runs."""
    first, second = pair.replicas
    words = "bridges of the fleet have different configurations"
    assert words not in second.log.read_text("utf-8")
    text = first.config.read_text("utf-8")
    first.config.write_text(text + '[servers.only-here]\nurl = "http://127.0.0.1:9/mcp"\ndisabled = true\n', "utf-8")
    until(lambda: words in second.log.read_text("utf-8"), "the other bridge warns")
    first.config.write_text(text, "utf-8")
    until(lambda: "have one configuration again" in second.log.read_text("utf-8"), "and says when it is over")
