"""Limits of a fleet hold whichever bridge a call comes to, and whoever has the session by then (issue 24)."""

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.fleet_clients import modern, read
from support.redis_server import Server
from support.replicas import OTHER_TOKEN, TOKEN, Replica, fleet, needs_fleet, until

pytestmark = needs_fleet
HEADERS = {
    "authorization": f"Bearer {TOKEN}",
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
}


@pytest.fixture
def redis(tmp_path: Path) -> Generator[Server]:
    server = Server(tmp_path / "redis").start()
    yield server
    server.kill()


class User:
    """A client with a session."""

    def __init__(self, http: httpx2.Client, url: str) -> None:
        self.http, self.session = http, ""
        info = {"name": "raw", "version": "1"}
        answer = self.ask(url, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=info)
        assert answer.status_code == 200, answer.text
        self.session = answer.headers["mcp-session-id"]
        self.ask(url, "notifications/initialized", id_=None)

    def ask(self, url: str, method: str, *, id_: int | None = 1, **params: Any) -> httpx2.Response:
        body: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
        if id_ is not None:
            body["id"] = id_
        session = {"mcp-session-id": self.session} if self.session else {}
        return self.http.post(url, json=body, headers={**HEADERS, **session})

    def call(self, url: str) -> str:
        """What became of a call: the name of an error, or nothing; of one that was not sent, its status."""
        answer = self.ask(url, "tools/call", name="rich__echo", arguments={"text": "x"})
        if answer.status_code != 200:
            return str(answer.status_code)
        text = answer.text
        if answer.headers["content-type"].startswith("text/event-stream"):
            text = [line[5:] for line in text.splitlines() if line.startswith("data:") and line[5:].strip()][-1]
        return json.loads(text)["result"].get("_meta", {}).get("mcpbridge/error", "")


def test_a_rate_through_the_balancer_and_a_budget_beyond_the_death_of_a_bridge(tmp_path: Path, redis: Server) -> None:
    limits = '[calls]\nmax_calls = 6\nrate_limit = "40/day"\n'
    with (
        fleet(tmp_path, redis, more=limits) as found,
        httpx2.Client(trust_env=False, timeout=60) as http,
    ):
        first, second, third = found.replicas
        user = User(http, first.url)
        until(lambda: "echo" in user.ask(second.url, "tools/list").text, "its server is listed")
        assert [user.call(one.url) for one in (first, second, third, second)] == [""] * 4
        first.kill()
        until(lambda: user.ask(second.url, "tools/list").status_code == 200, "the session was taken over")
        assert [user.call(third.url), user.call(second.url)] == ["", ""]
        assert [user.call(second.url), user.call(third.url)] == ["BudgetSpent"] * 2
        # The rate is that of the user, in whatever session: 34 calls are left.
        passed = 0
        for _ in range(12):
            other = User(http, found.url)
            outcomes = [other.call(found.url) for _ in range(6)]
            assert set(outcomes) <= {"", "RateLimited"}, outcomes
            passed += outcomes.count("")
        assert passed == 34


def test_a_run_of_calls_is_as_long_whatever_bridges_they_come_to(tmp_path: Path, redis: Server) -> None:
    """`calls.max_chain`: of a session whose bridge dies, and of a client without one."""
    limits = '[calls]\nmax_chain = 4\nchain_pause = "1 h"\n'
    with (
        fleet(tmp_path, redis, size=2, more=limits) as found,
        httpx2.Client(trust_env=False, timeout=60) as http,
    ):
        first, second = found.replicas
        user = User(http, first.url)
        until(lambda: "echo" in user.ask(second.url, "tools/list").text, "its server is listed")
        assert [user.call(one.url) for one in (first, second, first)] == [""] * 3

        def call(replica: Replica) -> str:
            run = {"name": "rich__echo", "arguments": {"text": "x"}}
            result = read(modern(replica, "tools/call", run, {}, token=OTHER_TOKEN))["result"]
            return result.get("_meta", {}).get("mcpbridge/error", "")

        until(lambda: call(second) != "", "there are as many as may be, though its server had to start")
        assert call(first) == "BudgetSpent", "the other one counts the same"
        first.kill()
        until(lambda: user.ask(second.url, "tools/list").status_code == 200, "the session was taken over")
        assert [user.call(second.url) for _ in range(2)] == ["", "BudgetSpent"]
