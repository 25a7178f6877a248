"""Bridges behind a balancer act as one: any request to any of them (issue 24)."""

import asyncio
import json
import re
import ssl
import sys
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.types import ElicitResult
from msgspec import Raw

from mcpbridge.fleet.link.certificates import link_contexts
from mcpbridge.fleet.link.frames import Ask, Kind, frame, with_body
from mcpbridge.fleet.records import MOST_MESSAGES, note
from mcpbridge.protocol.jsonrpc import Frame
from support.fleet_clients import HEADERS, Client, message, read
from support.real_sign_in import local_server
from support.redis_server import Server
from support.replicas import KEY, OTHER_TOKEN, TOKEN, Fleet, fleet, needs_fleet, until

pytestmark = needs_fleet


@pytest.fixture
def http() -> Generator[httpx2.Client]:
    with httpx2.Client(trust_env=False, timeout=60) as found:
        yield found


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Generator[Fleet]:
    directory = tmp_path_factory.mktemp("fleet")
    redis = Server(directory / "redis").start()
    try:
        with fleet(directory, redis, servers=SERVERS) as found:
            yield found
    finally:
        redis.kill()


ASKING = Path(__file__).parents[1] / "servers" / "asking.py"
SERVERS = f'{local_server("rich")}[servers.asking]\ncommand = "{sys.executable}"\nargs = ["{ASKING}", "legacy"]\n'


def test_a_session_is_served_by_every_bridge(three: Fleet, http: httpx2.Client) -> None:
    client = Client(http).begin(three.replicas[0])
    for number, replica in enumerate(three.replicas * 2):
        answer = client.post(replica, message("tools/list", number + 2))
        assert answer.status_code == 200, answer.text
        assert [tool["name"] for tool in read(answer)["result"]["tools"]]
    assert client.http.delete(three.replicas[1].url, headers={**HEADERS, "mcp-session-id": client.session}).is_success
    assert client.post(three.replicas[2], message("tools/list")).status_code == 404
    assert client.post(three.replicas[0], message("tools/list")).status_code == 404


async def test_clients_work_behind_a_balancer_that_sends_each_request_elsewhere(three: Fleet) -> None:
    """Issue 24: 15 of 15 clients initialize, list, call and delete cleanly."""
    clean, deleted = 0, list[int]()
    headers = {"authorization": f"Bearer {TOKEN}"}

    async def note(answer: httpx2.Response) -> None:
        if answer.request.method == "DELETE":
            deleted.append(answer.status_code)

    async def one() -> None:
        nonlocal clean
        hooks = {"response": [note]}
        async with (
            httpx2.AsyncClient(headers=headers, trust_env=False, timeout=60, event_hooks=hooks) as http,
            streamable_http_client(three.url, http_client=http) as (reading, writing, *_),
            ClientSession(reading, writing) as session,
        ):
            await session.initialize()
            listed = await session.list_tools()
            echo = next(tool.name for tool in listed.tools if tool.name.endswith("echo"))
            result = await session.call_tool(echo, {"text": "x"})
            assert not result.is_error
        clean += 1

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            for _ in range(15):
                tasks.start_soon(one)
    assert clean == 15
    assert len(deleted) == 15
    assert set(deleted) <= {200, 204}


@pytest.fixture
def pair(tmp_path: Path) -> Generator[Fleet]:
    """Two bridges that a test may kill, with servers that ask and that count."""
    redis = Server(tmp_path / "redis").start()
    try:
        with fleet(tmp_path, redis, size=2, servers=SERVERS) as found:
            yield found
    finally:
        redis.kill()


def names(answer: httpx2.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [tool["name"] for tool in read(answer)["result"]["tools"]]


def test_the_sessions_of_a_bridge_that_was_killed_live_on(pair: Fleet, http: httpx2.Client) -> None:
    """Issue 24: kill one, nothing is lost: whoever gets a request takes the session over."""
    first, second = pair.replicas
    client = Client(http).begin(first)
    level = client.post(first, message("logging/setLevel", 7, level="error"))
    assert level.status_code == 200, level.text
    listed = names(client.post(second, message("tools/list", 8)))
    first.kill()
    # While the lease of the first one lives, a request says that it was not sent; then the second one has the session.
    refused = client.post(second, message("tools/list", 9))
    assert refused.status_code in (200, 503), refused.text
    if refused.status_code == 503:
        assert "not sent" in refused.text
        assert refused.headers["retry-after"]
    until(lambda: client.post(second, message("tools/list", 10)).status_code == 200, "the session was taken over")
    assert names(client.post(second, message("tools/list", 11))) == listed
    echo = next(name for name in listed if name.endswith("echo"))
    called = client.post(second, message("tools/call", 12, name=echo, arguments={"text": "still here"}))
    assert "still here" in called.text
    stream = {**HEADERS, "mcp-session-id": client.session, "last-event-id": "of-the-former-one.0-3"}
    with http.stream("GET", second.url, headers=stream) as events:
        assert events.status_code == 200, "the stream begins anew"


def test_a_call_whose_bridge_dies_has_an_unknown_outcome(pair: Fleet, http: httpx2.Client) -> None:
    """Issue 24: what may have reached a lost bridge is not made again; its client learns that nobody knows."""
    first, second = pair.replicas
    client = Client(http).begin(first)
    play = next(name for name in names(client.post(second, message("tools/list", 2))) if name.endswith("play"))
    progress = {
        "jsonrpc": "2.0",
        "method": "notifications/progress",
        "params": {"progressToken": "$token", "progress": 1},
    }
    steps = [{"send": progress}, {"await": ["never"]}]
    call = message("tools/call", 7, name=play, arguments={"steps": steps}, _meta={"progressToken": "mine"})
    headers = {**HEADERS, "mcp-session-id": client.session}
    with http.stream("POST", second.url, json=call, headers=headers) as answer:
        assert answer.status_code == 200
        messages = (
            json.loads(line[5:]) for line in answer.iter_lines() if line.startswith("data:") and line[5:].strip()
        )
        assert next(messages)["params"]["progressToken"] == "mine"
        first.kill()
        last = next(messages)
    assert last["id"] == 7
    assert last["error"]["message"].startswith("outcome unknown")


def test_a_session_moves_on_when_its_bridge_stops(pair: Fleet, http: httpx2.Client) -> None:
    """A rolling restart: no client sees an error, and a new bridge with the same address is another one."""
    first, second = pair.replicas
    client = Client(http).begin(first)
    listed = names(client.post(second, message("tools/list", 2)))
    first.stop()
    assert names(client.post(second, message("tools/list", 3))) == listed
    first.start()
    second.stop()
    assert names(client.post(first, message("tools/list", 4))) == listed


def test_subscriptions_are_written_down_by_what_they_are_to(pair: Fleet, http: httpx2.Client) -> None:
    """Not what was refused; whatever else a request carries; members of a batch as well."""
    first, _ = pair.replicas
    client = Client(http)
    client.session = client.post(
        first, message("initialize", protocolVersion="2025-03-26", capabilities={}, clientInfo=CLIENT)
    ).headers["mcp-session-id"]
    subscribe, uri = "resources/subscribe", "memo://one"
    batch = [message("notifications/initialized", None), message(subscribe, 3, uri=uri)]
    answer = http.post(first.url, json=batch, headers={**HEADERS, "mcp-session-id": client.session})
    assert ["result" in one for one in answer.json()] == [True]
    assert subscriptions(pair) == {"notifications/initialized", f"{subscribe} {uri}"}
    again = client.post(first, message(subscribe, 4, uri=uri, _meta={"progressToken": "a"}))
    assert "result" in read(again), again.text
    assert "error" in read(client.post(first, message(subscribe, 6, uri="no://such")))
    assert subscriptions(pair) == {"notifications/initialized", f"{subscribe} {uri}"}
    client.post(first, message("resources/unsubscribe", 7, uri=uri, _meta={"progressToken": "b"}))
    assert subscriptions(pair) == {"notifications/initialized"}


def subscriptions(fleet: Fleet) -> set[str]:
    """The names of what is written down of the one session, beside what opened it."""
    (key,) = [
        one for one in fleet.redis.cli("KEYS", "*:s:*").splitlines() if fleet.redis.cli("HEXISTS", one, "record") == "1"
    ]
    return {*json.loads(fleet.redis.cli("HGET", key, "record"))["messages"]} - {"initialize"}


CLIENT = {"name": "raw", "version": "1"}


def test_a_session_has_a_limit_of_what_is_written_down() -> None:
    messages: dict[str, Raw] = {}
    for number in range(MOST_MESSAGES + 10):
        params = Raw(json.dumps({"uri": f"x://{number}"}).encode())
        note(messages, Frame(id=Raw(b"1"), method="resources/subscribe", params=params))
    assert len(messages) == MOST_MESSAGES


def test_nobody_else_gets_a_session(pair: Fleet, http: httpx2.Client) -> None:
    """To whoever did not open it a session does not exist, whether its bridge lives or is gone."""
    first, second = pair.replicas
    client = Client(http).begin(first)
    other = {"authorization": f"Bearer {OTHER_TOKEN}"}
    assert client.post(second, message("tools/list"), **other).status_code == 404
    first.kill()
    assert client.post(second, message("tools/list"), **other).status_code in (404, 503)
    until(lambda: client.post(second, message("tools/list"), **other).status_code == 404, "it does not exist")
    until(lambda: client.post(second, message("tools/list", 3)).status_code == 200, "its own client has it")
    assert client.post(second, message("tools/list"), **other).status_code == 404
    made_up = Client(http)
    for session in (f"{'0' * 32}-{'f' * 10}", client.session[:-10] + "f" * 10, "x", "-" * 12):
        made_up.session = session
        assert made_up.post(second, message("tools/list")).status_code == 404


def test_a_session_that_another_version_wrote_down_is_left_to_that_version(pair: Fleet, http: httpx2.Client) -> None:
    """Issue 24: record formats are versioned, and refused clearly otherwise."""
    first, second = pair.replicas
    client = Client(http).begin(first)
    first.kill()
    (key,) = [
        one for one in pair.redis.cli("KEYS", "*:s:*").splitlines() if pair.redis.cli("HEXISTS", one, "record") == "1"
    ]
    record = json.loads(pair.redis.cli("HGET", key, "record"))
    pair.redis.cli("HSET", key, "record", json.dumps({**record, "format": 2}))
    begin = key.partition(":s:")[0]
    other = {"id": "f" * 10, "address": "127.0.0.1:1", "name": "new", "version": "99.0", "settings": "", "since": 1.0}
    pair.redis.cli("HSET", f"{begin}:members", "f" * 10, json.dumps(other))
    pair.redis.cli("ZADD", f"{begin}:leases", "9999999999999", "f" * 10)
    until(lambda: "another version" in client.post(second, message("tools/list")).text, "it is refused clearly")
    refused = client.post(second, message("tools/list"))
    assert refused.status_code == 503
    assert refused.json()["error"]["message"].startswith("not sent")
    assert pair.redis.cli("HGET", key, "owner") == "", "a bridge of that version can have it"
    pair.redis.cli("ZREM", f"{begin}:leases", "f" * 10)
    pair.redis.cli("HDEL", f"{begin}:members", "f" * 10)
    # Nobody is left who could read it: the client opens another session.
    until(lambda: client.post(second, message("tools/list")).status_code == 404, "it does not exist")


def test_answers_of_any_size_come_whole_by_way_of_another_bridge(three: Fleet, http: httpx2.Client) -> None:
    first, second = three.replicas[:2]
    client = Client(http).begin(first)
    echo = next(name for name in names(client.post(first, message("tools/list", 2))) if name.endswith("echo"))
    for number, size in enumerate((0, 1000, 100_000, 300_000, 1_100_000), 3):
        text = " ".join(map(str, range(size // 5)))
        call = message("tools/call", number, name=echo, arguments={"text": text})
        here, there = (read(client.post(replica, call))["result"]["content"][0]["text"] for replica in (first, second))
        handle = re.compile(r"\bh[a-z2-7]{12,}")  # each result that is kept has one of its own
        assert handle.sub("", here) == handle.sub("", there), size
        assert size > 1000 or text in here


async def test_a_question_finds_its_client_and_the_answer_its_call(three: Fleet) -> None:
    """The question leaves by the bridge that the call came to; the answer comes to another one."""
    asked = 0

    async def answer(*_: Any) -> ElicitResult:
        nonlocal asked
        asked += 1
        return ElicitResult(action="accept", content={"name": f"Ann {asked}"})

    form = {"type": "object", "properties": {"name": {"type": "string"}}}
    question = {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": form}}
    with anyio.fail_after(120):
        async with (
            httpx2.AsyncClient(headers={"authorization": f"Bearer {TOKEN}"}, trust_env=False, timeout=60) as http,
            streamable_http_client(three.url, http_client=http) as (reading, writing, *_),
            ClientSession(reading, writing, elicitation_callback=answer) as session,
        ):
            await session.initialize()
            listed = await session.list_tools()
            play = next(tool.name for tool in listed.tools if tool.name.endswith("play"))
            for number in range(1, 5):
                steps = [{"send": {"jsonrpc": "2.0", "id": f"q{number}", **question}}, {"await": [f"q{number}"]}]
                result = await session.call_tool(play, {"steps": steps})
                assert not result.is_error, result
                assert f"Ann {number}" in str(result)


def test_without_the_shared_records_sessions_of_bridges_that_live_go_on(pair: Fleet, http: httpx2.Client) -> None:
    """Issue 24: Valkey gone: calls that need nothing shared go on, others say so clearly, everything heals."""
    first, second = pair.replicas
    client = Client(http).begin(first)
    pair.redis.kill()
    assert names(client.post(first, message("tools/list", 2)))
    assert names(client.post(second, message("tools/list", 3)))
    first.kill()
    gone = client.post(second, message("tools/list", 4))
    assert gone.status_code == 503
    assert "not sent" in gone.text
    pair.redis.start()
    until(lambda: client.post(second, message("tools/list", 5)).status_code in (200, 404), "it heals")
    assert names(Client(http).begin(second).post(second, message("tools/list", 6)))


def test_sessions_are_written_down_again_when_the_records_are_back(pair: Fleet, http: httpx2.Client) -> None:
    """Those that were opened while the server was away, and all of them if it lost its data."""
    first, second = pair.replicas
    clients = [Client(http).begin(first)]
    pair.redis.kill()
    clients.append(Client(http).begin(first))
    pair.redis.start()  # it has kept nothing

    def are_written() -> bool:
        keys = pair.redis.cli("KEYS", "*:s:*").splitlines()
        return sum("initialized" in pair.redis.cli("HGET", key, "record") for key in keys) == 2

    until(are_written, "both are written down")
    assert all(names(client.post(first, message("tools/list", 2))) for client in clients), "neither has ended"
    first.kill()
    for client in clients:
        until(lambda: client.post(second, message("tools/list", 3)).status_code == 200, "another bridge has it")  # noqa: B023


async def test_only_bridges_with_the_key_of_the_fleet_get_in(three: Fleet) -> None:
    """Whoever has no certificate of the fleet's is shut out before a request of theirs is read."""
    for key, gets_in in ((KEY, True), ("another key than the one of the fleet", False)):
        context = link_contexts(key, "0123456789").connecting
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with anyio.fail_after(60):
            reading, writing = await asyncio.open_connection("127.0.0.1", three.replicas[0].link, ssl=context)
            headers = [(b"mcp-session-id", b"x")]
            writing.write(frame(Kind.ASK, 1, with_body(Ask("POST", "/mcp", b"", headers, "", 0), b"")))
            answer = b""
            with suppress(ssl.SSLError, ConnectionError):
                answer = await reading.read(1000)
            writing.close()
        assert (b"401" in answer or b"token" in answer) is gets_in
