"""A stream that broke is continued at another bridge, as far as anything is known of it (issue 24)."""

import asyncio
import json
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest

from mcpbridge.base.background_tasks import OwnedTasks
from mcpbridge.base.errors import StoreFailed
from mcpbridge.fleet.records import FleetRecords
from mcpbridge.fleet.sessions.streams import StreamRecords
from mcpbridge.protocol.jsonrpc import decode_frame
from mcpbridge.storage.settings import redis_address
from support.fleet_clients import HEADERS, Client, message
from support.redis_server import Server
from support.replicas import Fleet, fleet, needs_fleet, until

pytestmark = needs_fleet

EVENTS = {**HEADERS, "accept": "text/event-stream, application/json", "mcp-protocol-version": "2025-11-25"}
"""Of a client that would rather have a stream, which it can resume."""


@pytest.fixture
def pair(tmp_path: Path) -> Generator[Fleet]:
    redis = Server(tmp_path / "redis").start()
    try:
        with fleet(tmp_path, redis, size=2) as found:
            yield found
    finally:
        redis.kill()


@pytest.fixture
def http() -> Generator[httpx2.Client]:
    with httpx2.Client(trust_env=False, timeout=60) as found:
        yield found


def events_of(lines: Iterator[str]) -> Iterator[tuple[str, Any]]:
    """The id of each event, and its message; None: it has none."""
    id_, data = "", ""
    for line in lines:
        if line.startswith("id: "):
            id_ = line[4:]
        elif line.startswith("data:"):
            data = line[5:].strip()
        elif not line and id_:
            yield id_, json.loads(data) if data else None
            id_, data = "", ""


def begin_and_leave(http: httpx2.Client, url: str, session: str, call: dict[str, Any]) -> str:
    """Make a call, and leave as soon as its stream can be resumed; the id to resume it from."""
    with http.stream("POST", url, json=call, headers={**EVENTS, "mcp-session-id": session}) as answer:
        assert answer.status_code == 200
        return next(events_of(answer.iter_lines()))[0]


def read_all(http: httpx2.Client, url: str, session: str) -> list[tuple[str, Any]]:
    """A call, and all events of its stream."""
    call = message("tools/call", 7, name="rich__work", arguments={"steps": 2}, _meta={"progressToken": "p"})
    with http.stream("POST", url, json=call, headers={**EVENTS, "mcp-session-id": session}) as answer:
        assert answer.status_code == 200
        return list(events_of(answer.iter_lines()))


def resume(http: httpx2.Client, pair: Fleet, session: str, last: str) -> list[Any]:
    """What the second bridge has of the stream, once it has the session."""
    url = pair.replicas[1].url
    headers = {**EVENTS, "mcp-session-id": session}
    ask = message("ping", 99)
    until(lambda: http.post(url, json=ask, headers=headers).status_code == 200, "the session was taken over")
    with http.stream("GET", url, headers={**headers, "last-event-id": last}) as answer:
        assert answer.status_code == 200
        return [one for _, one in events_of(answer.iter_lines()) if one is not None]


def records(redis: Server) -> list[str]:
    """What is written down of streams: an answer stays for 30 s, and the record of a call under way for longer."""
    left = [int(redis.cli("PTTL", key)) for key in redis.cli("KEYS", "*{v1/#fleet}:e:*").split()]
    return sorted("answer" if one <= 30_000 else "call" for one in left)


def test_an_answer_that_came_while_its_client_was_away_is_there_when_its_bridge_died(
    pair: Fleet, http: httpx2.Client
) -> None:
    first = pair.replicas[0]
    client = Client(http).begin(first)
    call = message("tools/call", 7, name="rich__hold", arguments={"text": "to the end"})
    last = begin_and_leave(http, first.url, client.session, call)
    until(lambda: records(pair.redis) == ["call"], "the stream has a record")
    until(
        lambda: client.post(first, message("tools/call", 8, name="rich__release", arguments={})).is_success, "it ends"
    )
    until(lambda: records(pair.redis) == ["answer"], "the answer is kept")
    first.kill()
    [answer] = resume(http, pair, client.session, last)
    assert answer["id"] == 7
    assert "result" in answer


def test_of_a_call_that_had_no_answer_yet_the_outcome_is_unknown(pair: Fleet, http: httpx2.Client) -> None:
    first = pair.replicas[0]
    client = Client(http).begin(first)
    call = message("tools/call", 7, name="rich__hold", arguments={"text": "for ever"})
    last = begin_and_leave(http, first.url, client.session, call)
    until(lambda: records(pair.redis) == ["call"], "the stream has a record")
    first.kill()
    [answer] = resume(http, pair, client.session, last)
    assert answer["id"] == 7
    assert answer["error"]["message"].startswith("outcome unknown")


def test_an_answer_is_there_when_its_bridge_died_though_all_of_it_was_written_to_its_client(
    pair: Fleet, http: httpx2.Client
) -> None:
    """Nobody knows what a client has read of a connection that broke."""
    first, second = pair.replicas
    client = Client(http).begin(first)
    found = read_all(http, first.url, client.session)
    assert found[-1][1]["id"] == 7
    assert records(pair.redis) == ["answer"], "it was written down before it was sent"
    first.kill()
    [answer] = resume(http, pair, client.session, found[0][0])
    assert answer == found[-1][1]
    headers = {**EVENTS, "mcp-session-id": client.session, "last-event-id": found[-1][0]}
    assert http.get(second.url, headers=headers).status_code == 204, "whoever has it is to stop asking"


def test_a_client_that_resumes_a_stream_that_nobody_knows_learns_it_at_once(pair: Fleet, http: httpx2.Client) -> None:
    first, second = pair.replicas
    client = Client(http).begin(first)
    last, _ = read_all(http, first.url, client.session)[0]
    assert records(pair.redis) == ["answer"]
    for key in pair.redis.cli("KEYS", "*{v1/#fleet}:e:*").split():
        pair.redis.cli("DEL", key)  # as time does
    first.kill()
    headers = {**EVENTS, "mcp-session-id": client.session}
    ask = message("ping", 99)
    until(lambda: http.post(second.url, json=ask, headers=headers).status_code == 200, "the session was taken over")
    answer = http.get(second.url, headers={**headers, "last-event-id": last})
    assert answer.status_code == 400
    assert "Outcome unknown" in answer.text
    channel = last.partition(".")[0] + ".0-3"
    with http.stream("GET", second.url, headers={**headers, "last-event-id": channel}) as answer:
        assert answer.status_code == 200, "it continues with what nobody asked for"


def test_answers_are_sent_while_the_records_are_away_and_written_down_when_they_are_back(
    pair: Fleet, http: httpx2.Client
) -> None:
    first = pair.replicas[0]
    client = Client(http).begin(first)
    listed = message("tools/list", 2)
    until(lambda: "rich__work" in client.post(first, listed).text, "the server is up")
    pair.redis.kill()
    found = read_all(http, first.url, client.session)
    assert found[-1][1]["id"] == 7
    pair.redis.start()
    until(lambda: records(pair.redis) == ["answer"], "it is written down")
    first.kill()
    [answer] = resume(http, pair, client.session, found[0][0])
    assert answer == found[-1][1]


def test_events_of_two_bridges_are_never_taken_for_one_another(pair: Fleet, http: httpx2.Client) -> None:
    ids = set[str]()
    for replica in pair.replicas:
        client = Client(http).begin(replica)
        call = message("tools/call", 7, name="rich__work", arguments={"steps": 2}, _meta={"progressToken": "p"})
        headers = {**EVENTS, "mcp-session-id": client.session}
        with http.stream("POST", replica.url, json=call, headers=headers) as answer:
            ids |= {id_ for id_, _ in events_of(answer.iter_lines())}
    assert len({id_.partition(".")[0] for id_ in ids}) == 2


def test_nothing_is_kept_of_the_streams_of_a_session_that_has_ended(pair: Fleet, http: httpx2.Client) -> None:
    first = pair.replicas[0]
    client, other = Client(http).begin(first), Client(http).begin(first)
    for one, number in ((client, 7), (other, 8)):
        call = message("tools/call", number, name="rich__hold", arguments={"text": f"for ever {number}"})
        begin_and_leave(http, first.url, one.session, call)
    until(lambda: records(pair.redis) == ["call", "call"], "the streams have records")
    ended = http.delete(first.url, headers={**HEADERS, "mcp-session-id": client.session})
    assert ended.status_code == 204
    until(lambda: records(pair.redis) == ["call"], "nothing is kept of them")


async def test_the_answers_that_are_kept_take_no_more_room_than_they_may(tmp_path: Path) -> None:
    redis, tasks = Server(tmp_path / "redis").start(), OwnedTasks()
    kept = FleetRecords(redis_address(redis.settings()), "streams")
    request = decode_frame(b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}')
    try:
        async with asyncio.timeout(120), tasks.running():
            streams = StreamRecords(kept, tasks, open_for=60, kept_for=30)

            async def answered(session: bytes, number: int) -> bytes:
                name = b"a.%d" % number
                streams.opened(session, name, request)
                await streams.answered(session, name, request, b"x" * 900_000, 2)
                return name

            async def found(session: bytes, names: list[bytes]) -> list[bytes]:
                while under_way := tasks.under_way():
                    await asyncio.wait(under_way)
                return [name for name in names if await streams.answer(session, name)]

            names = [await answered(b"first", number) for number in range(30)]
            assert await found(b"first", names) == names[-9:], "the newest of one session"
            for session in range(10):
                for number in range(9):
                    await answered(b"%d" % session, number)
            assert await found(b"first", names) == [], "those of others are newer"
            assert len(records(redis)) == 74, "64 MiB"
            await streams.answered(b"9", b"a.9", request, b"x" * 2_000_000, 2)
            assert b"too large" in (await streams.answer(b"9", b"a.9") or (0, b""))[1]
            for session in range(10):
                streams.session_ended(b"%d" % session, is_over=True)
            await streams.answered(b"0", b"a.30", request, b"late", 2)
            assert await found(b"0", [b"a.30"]) == []
            assert redis.cli("KEYS", "*").split() == []
    finally:
        await kept.close()
        redis.kill()


async def test_what_the_server_has_of_an_answer_says_nothing(tmp_path: Path) -> None:
    redis, tasks = Server(tmp_path / "redis").start(), OwnedTasks()
    kept = FleetRecords(redis_address(redis.settings()), "streams")
    request = decode_frame(b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}')
    try:
        async with asyncio.timeout(120), tasks.running():
            streams = StreamRecords(kept, tasks, open_for=60, kept_for=30)
            streams.opened(b"session", b"a.1", request)
            await streams.answered(b"session", b"a.1", request, b'"of a person"', 2)
            assert await streams.answer(b"session", b"a.1") == (2, b'"of a person"')
            [key] = redis.cli("KEYS", "*:e:*").split()
            assert "of a person" not in redis.cli("--no-raw", "GET", key)
            redis.cli("APPEND", key, "x")
            assert await streams.answer(b"session", b"a.1") is None, "it was changed there"
    finally:
        await kept.close()
        redis.kill()


class AwayRecords:
    """Records whose server is away at first."""

    def __init__(self) -> None:
        self.is_away, self.attempts, self.written = True, list[bytes](), dict[bytes, bytes]()

    async def keep_stream(self, _: bytes, name: bytes, record: bytes, __: float) -> None:
        self.attempts.append(record)
        if self.is_away:
            raise StoreFailed("away")
        self.written[name] = record

    async def stream(self, _: bytes, name: bytes) -> bytes:
        return self.written.get(name, b"")

    async def drop_streams(self, _: bytes, names: list[bytes]) -> None:
        if self.is_away:
            raise StoreFailed("away")


async def test_while_the_records_are_away_one_task_tries_again_for_all() -> None:
    records, tasks = AwayRecords(), OwnedTasks()
    request = decode_frame(b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}')
    names = [b"a.%d" % number for number in range(50)]
    async with asyncio.timeout(120), tasks.running():
        streams = StreamRecords(cast("FleetRecords", records), tasks, open_for=60, kept_for=600)

        async def answered(session: bytes, name: bytes) -> None:
            streams.opened(session, name, request)
            await asyncio.sleep(0)  # a turn of its own
            await streams.answered(session, name, request, b"answer of " + name, 2)

        for name in names:
            await answered(b"session", name)
        await answered(b"over", b"b.1")
        streams.opened(b"session", b"a.open", request)
        streams.session_ended(b"over", is_over=True)
        tried = len(records.attempts) + 1
        while len(records.attempts) < tried + 3:
            await asyncio.sleep(0.01)
        assert len(tasks.under_way()) == 1
        assert len(set(records.attempts)) == tried, "what is tried again was sealed once"
        records.is_away = False
        while tasks.under_way():
            await asyncio.sleep(0.01)
        assert records.written.keys() == {*names, b"a.open"}
        for name in names:
            assert await streams.answer(b"session", name) == (2, b"answer of " + name)
        tried = len(records.attempts)
        await answered(b"session", b"a.later")
        assert len(records.attempts) == tried + 2
