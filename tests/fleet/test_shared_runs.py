"""Equal calls that come to several bridges of a fleet at the same time run once (issue 24)."""

import http.server
import json
import threading
from collections import Counter
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.fleet_clients import modern, read
from support.redis_server import Server
from support.replicas import OTHER_TOKEN, TOKEN, Fleet, Replica, fleet, needs_fleet, until

pytestmark = needs_fleet


class Upstream:
    """A server over HTTP that all bridges use. Calls of `get_held` wait until the test lets them end."""

    def __init__(self) -> None:
        self.calls = Counter[str]()
        """Those of `get_held`, by what they are of."""
        self.may_end: dict[str, threading.Event] = {}
        self.failures: dict[str, dict[str, Any]] = {}
        """What the first call of something comes to, in place of a result."""
        upstream, self._lock = self, threading.Lock()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                message = json.loads(self.rfile.read(int(self.headers["content-length"])))
                status, answer = upstream.answer(message)
                body = json.dumps({"jsonrpc": "2.0", "id": message.get("id"), **answer}).encode() if answer else b""
                with suppress(OSError):  # a bridge that was killed
                    self.send_response(status)
                    self.send_header("content-type", "application/json")
                    self.send_header("content-length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def do_GET(self) -> None:
                self.send_error(405)

            def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 - named so by the base class

        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        self.config = (
            f'[servers.web]\nurl = "http://127.0.0.1:{self._http.server_port}/mcp"\n'
            '[servers.web.tool]\nget_held.cache = "10min"\n'
        )

    def answer(self, message: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        match message.get("method"):
            case "initialize":
                info = {"name": "web", "version": "1"}
                return 200, {
                    "result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
                }
            case "tools/list":
                tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("get_held", "set_mark")]
                return 200, {"result": {"tools": tools}}
            case "tools/call" if message["params"]["name"] == "get_held":
                return 200, self._held(message["params"]["arguments"]["of"])
            case "server/discover":
                return 400, {"error": {"code": -32600, "message": "no session"}}
            case _:
                return (200, {"result": {"content": []}}) if "id" in message else (202, {})

    def _held(self, of: str) -> dict[str, Any]:
        with self._lock:
            self.calls[of] += 1
            number = self.calls[of]
        assert self.end_of(of).wait(120)
        failure = self.failures.pop(of, None)
        return failure or {"result": {"content": [{"type": "text", "text": f"{of} {number}"}]}}

    def end_of(self, of: str) -> threading.Event:
        return self.may_end.setdefault(of, threading.Event())

    def close(self) -> None:
        for event in self.may_end.values():
            event.set()
        self._http.shutdown()
        self._http.server_close()


class Setup:
    """A fleet, its upstream, and clients that call side by side."""

    def __init__(self, fleet: Fleet, upstream: Upstream, threads: ThreadPoolExecutor) -> None:
        self.fleet, self.upstream, self._threads = fleet, upstream, threads

    def call(self, where: Replica | Fleet, of: str, *, token: str = TOKEN) -> "Future[str]":
        """Call `get_held`; the text of the result."""

        def ask() -> str:
            arguments = {"name": "web__get_held", "arguments": {"of": of}}
            return text_of(modern(where, "tools/call", arguments, {}, token=token))

        return self._threads.submit(ask)

    def lead(self, where: Replica, of: str, *, token: str = TOKEN) -> "Future[str]":
        """A call that has reached the server."""
        before = self.upstream.calls[of]
        found = self.call(where, of, token=token)
        self.reaches(of, before + 1)
        return found

    def wait(self, where: Replica, of: str) -> "Future[str]":
        """A call that waits for another bridge."""
        before = self.wanted()
        found = self.call(where, of)
        until(lambda: self.wanted() == before + 1 or found.done(), "it waits")
        assert not found.done(), found.result()
        return found

    def reaches(self, of: str, calls: int) -> None:
        until(lambda: self.upstream.calls[of] >= calls, "the server is called")
        assert self.upstream.calls[of] == calls

    def wanted(self) -> int:
        """How many bridges have waited for the runs that last."""
        redis = self.fleet.redis
        return sum(int(redis.cli("HGET", key, "wanted") or 0) for key in redis.cli("KEYS", "*:run:*").split())


def text_of(answer: httpx2.Response) -> str:
    assert answer.status_code == 200, answer.text
    found = read(answer)
    if "error" in found:
        return found["error"]["message"]
    return ("error: " if found["result"].get("isError") else "") + found["result"]["content"][0]["text"]


def running(directory: Path) -> Generator[Setup]:
    redis, upstream = Server(directory / "redis").start(), Upstream()
    try:
        with (
            ThreadPoolExecutor(32) as threads,
            fleet(directory, redis, servers=upstream.config) as found,
        ):
            for replica in found.replicas:
                until(lambda replica=replica: "set_mark" in modern(replica, "tools/list", {}, {}).text, "it is listed")
            try:
                yield Setup(found, upstream, threads)
            finally:
                upstream.close()  # or the threads would wait for its answers
    finally:
        redis.kill()


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Generator[Setup]:
    """Three bridges that no test harms."""
    yield from running(tmp_path_factory.mktemp("fleet"))


@pytest.fixture
def own(tmp_path: Path) -> Generator[Setup]:
    """Three bridges for one test."""
    yield from running(tmp_path)


def test_equal_calls_through_the_balancer_run_once(three: Setup) -> None:
    calls = [three.call(three.fleet, "all") for _ in range(15)]
    while len(calls) < 23:  # for a moment the balancer leaves out a bridge that is slow to say that it is ready
        with suppress(AssertionError):
            until(lambda: three.wanted() == 2, "two bridges wait for the third", 10)
            break
        calls.append(three.call(three.fleet, "all"))
    assert three.wanted() == 2
    three.upstream.end_of("all").set()
    assert [call.result(120) for call in calls] == ["all 1"] * len(calls)
    assert three.upstream.calls["all"] == 1
    answers = [three.call(replica, "all").result(120) for replica in three.fleet.replicas]
    assert answers == ["all 1"] * 3, "each has kept it"
    assert three.upstream.calls["all"] == 1


@pytest.mark.parametrize(
    "failure",
    [
        {"result": {"content": [{"type": "text", "text": "no"}], "isError": True}},
        {"error": {"code": -32000, "message": "no"}},
    ],
    ids=["a result that is an error", "an error"],
)
def test_a_failure_is_for_those_who_called_there_and_one_of_the_others_is_next(
    three: Setup, failure: dict[str, Any]
) -> None:
    of = f"failing {'error' in failure}"
    three.upstream.failures[of] = failure
    first, second, third = three.fleet.replicas
    leader = three.lead(first, of)
    others = [three.wait(replica, of) for replica in (second, third)]
    three.upstream.end_of(of).set()
    assert "no" in leader.result(120)
    assert [call.result(120) for call in others] == [f"{of} 2"] * 2
    assert three.upstream.calls[of] == 2


def test_what_was_read_before_a_write_is_for_nobody_who_calls_after_it(three: Setup) -> None:
    first, second, third = three.fleet.replicas
    leader = three.lead(first, "written")
    waiter = three.wait(second, "written")
    assert modern(third, "tools/call", {"name": "web__set_mark", "arguments": {}}, {}).status_code == 200
    later = three.call(second, "written")
    three.reaches("written", 2)
    three.upstream.end_of("written").set()
    assert [call.result(120) for call in (leader, waiter, later)] == ["written 1", "written 1", "written 2"]
    for replica in (first, second):
        assert three.call(replica, "written").result(120) != "written 1", "and nobody has kept it"


def test_nobody_gets_what_another_person_called_for(three: Setup) -> None:
    first, second, _ = three.fleet.replicas
    one = three.lead(first, "personal")
    other = three.lead(second, "personal", token=OTHER_TOKEN)
    three.upstream.end_of("personal").set()
    assert [one.result(120), other.result(120)] == ["personal 1", "personal 2"]


def test_a_bridge_that_is_killed_is_followed_by_one_of_those_that_wait(own: Setup) -> None:
    first, second, third = own.fleet.replicas
    leader = own.lead(first, "killed")
    others = [own.wait(replica, "killed") for replica in (second, third)]
    first.kill()
    with pytest.raises(httpx2.HTTPError):
        leader.result(120)
    own.reaches("killed", 2)
    until(lambda: own.wanted() == 1, "the other one waits for it")
    own.upstream.end_of("killed").set()
    assert [call.result(120) for call in others] == ["killed 2"] * 2
    assert own.upstream.calls["killed"] == 2


def test_whoever_waits_calls_the_server_itself_when_redis_has_gone(own: Setup) -> None:
    first, second, third = own.fleet.replicas
    leader = own.lead(first, "away")
    waiter = own.wait(second, "away")
    own.fleet.redis.kill()
    own.reaches("away", 2)
    another = own.lead(third, "away")
    own.upstream.end_of("away").set()
    assert sorted(call.result(120) for call in (leader, waiter, another)) == ["away 1", "away 2", "away 3"]
