"""The session with a server that is one client's alone is continued by the bridge that has the client next."""

import json
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.fleet_clients import HEADERS, Client, message
from support.redis_server import Server
from support.replicas import Fleet, Replica, fleet, needs_fleet, until

pytestmark = needs_fleet

SCRIPT = Path(__file__).parent.parent / "servers" / "http_upstream.py"


@pytest.fixture
def url() -> Generator[str]:
    """That of a legacy server which keeps notes for each session."""
    command = [sys.executable, "-ES", str(SCRIPT)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield process.stdout.readline().strip()
        process.kill()


@pytest.fixture
def pair(tmp_path: Path, url: str) -> Generator[Fleet]:
    redis = Server(tmp_path / "redis").start()
    servers = f'[servers.far]\nurl = "{url}"\nshare = "session"\n'
    try:
        with fleet(tmp_path, redis, size=2, servers=servers) as found:
            yield found
    finally:
        redis.kill()


@pytest.fixture
def http() -> Generator[httpx2.Client]:
    with httpx2.Client(trust_env=False, timeout=60) as found:
        yield found


def call(client: Client, at: Replica, tool: str, **arguments: str) -> Any:
    """What a tool of the server answers, which is JSON; it takes a moment until the next bridge has the client."""
    answers: list[httpx2.Response] = []

    def comes() -> bool:
        answers.append(client.post(at, message("tools/call", 1, name=f"far__{tool}", arguments=arguments)))
        return answers[-1].status_code == 200

    until(comes, "the bridge that is asked has the session")
    return json.loads(answers[-1].json()["result"]["content"][0]["text"])


def note(client: Client, at: Replica, words: str) -> list[str]:
    """The server's session, and all notes of it."""
    return call(client, at, "note", text=words)


def journal(client: Client, at: Replica) -> list[dict[str, Any]]:
    return call(client, at, "journal")


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_the_next_bridge_continues_it(pair: Fleet, http: httpx2.Client, end: str) -> None:
    first, second = pair.replicas
    client, other = Client(http).begin(first), Client(http).begin(second)
    session, *_ = note(client, first, "one")
    assert note(other, second, "of another client")[0] != session
    getattr(first, end)()
    assert note(client, second, "two") == [session, "one", "two"]
    assert {"method": "DELETE", "session": session} not in journal(client, second)
    assert session not in second.log.read_text("utf-8")


def test_one_that_the_server_has_forgotten_begins_anew(pair: Fleet, http: httpx2.Client) -> None:
    first, second = pair.replicas
    client, other = Client(http).begin(first), Client(http).begin(second)
    session, *_ = note(client, first, "one")
    first.kill()
    other.post(second, message("tools/call", 1, name="far__forget_sessions", arguments={}))
    found, *notes = note(client, second, "two")
    assert (found != session, notes) == (True, ["two"])
    assert note(client, second, "three") == [found, "two", "three"]


def test_it_ends_with_its_client(pair: Fleet, http: httpx2.Client) -> None:
    first, _ = pair.replicas
    client, other = Client(http).begin(first), Client(http).begin(first)
    session, *_ = note(client, first, "one")
    ended = http.delete(first.url, headers={**HEADERS, "mcp-session-id": client.session})
    assert ended.status_code == 204
    assert note(other, first, "two") != [session, "one", "two"]
    until(lambda: {"method": "DELETE", "session": session} in journal(other, first), "the server hears of it")
