"""A stream that broke is continued at another bridge, as far as anything is known of it (issue 24)."""

import asyncio
import json
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mcpbridge.base.background_tasks import OwnedTasks
from mcpbridge.fleet.records import FleetRecords
from mcpbridge.fleet.sessions.streams import StreamRecords
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


def resume(http: httpx2.Client, pair: Fleet, session: str, last: str) -> list[Any]:
    """What the second bridge has of the stream, once it has the session."""
    url = pair.replicas[1].url
    headers = {**EVENTS, "mcp-session-id": session}
    ask = message("ping", 99)
    until(lambda: http.post(url, json=ask, headers=headers).status_code == 200, "the session was taken over")
    with http.stream("GET", url, headers={**headers, "last-event-id": last}) as answer:
        assert answer.status_code == 200
        return [one for _, one in events_of(answer.iter_lines()) if one is not None]


def records(pair: Fleet) -> list[str]:
    """What is written down of streams."""
    keys = pair.redis.cli("KEYS", "*{v1/#fleet}:e:*").split()
    return [value for key in keys for value in pair.redis.cli("HVALS", key).splitlines()]


def test_an_answer_that_came_while_its_client_was_away_is_there_when_its_bridge_died(
    pair: Fleet, http: httpx2.Client
) -> None:
    first = pair.replicas[0]
    client = Client(http).begin(first)
    call = message("tools/call", 7, name="rich__hold", arguments={"text": "to the end"})
    last = begin_and_leave(http, first.url, client.session, call)
    until(lambda: records(pair) == ["?7"], "the stream has a record")
    until(
        lambda: client.post(first, message("tools/call", 8, name="rich__release", arguments={})).is_success, "it ends"
    )
    until(lambda: any(one.startswith("=") for one in records(pair)), "the answer is kept")
    first.kill()
    [answer] = resume(http, pair, client.session, last)
    assert answer["id"] == 7
    assert "result" in answer


def test_of_a_call_that_had_no_answer_yet_the_outcome_is_unknown(pair: Fleet, http: httpx2.Client) -> None:
    first = pair.replicas[0]
    client = Client(http).begin(first)
    call = message("tools/call", 7, name="rich__hold", arguments={"text": "for ever"})
    last = begin_and_leave(http, first.url, client.session, call)
    until(lambda: records(pair) == ["?7"], "the stream has a record")
    first.kill()
    [answer] = resume(http, pair, client.session, last)
    assert answer["id"] == 7
    assert answer["error"]["message"].startswith("outcome unknown")


def test_a_stream_that_was_read_to_its_end_leaves_no_record(pair: Fleet, http: httpx2.Client) -> None:
    first = pair.replicas[0]
    client = Client(http).begin(first)
    call = message("tools/call", 7, name="rich__work", arguments={"steps": 2}, _meta={"progressToken": "p"})
    with http.stream("POST", first.url, json=call, headers={**EVENTS, "mcp-session-id": client.session}) as answer:
        found = [one for _, one in events_of(answer.iter_lines()) if one is not None]
    assert found[-1]["id"] == 7
    until(lambda: records(pair) == [], "nothing is kept of it")


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
    until(lambda: sorted(records(pair)) == ["?7", "?8"], "the streams have records")
    ended = http.delete(first.url, headers={**HEADERS, "mcp-session-id": client.session})
    assert ended.status_code == 204
    until(lambda: records(pair) == ["?8"], "nothing is kept of them")


async def test_the_answers_that_are_kept_of_one_session_take_no_more_room_than_they_may(tmp_path: Path) -> None:
    redis, tasks = Server(tmp_path / "redis").start(), OwnedTasks()
    kept = FleetRecords(redis_address(redis.settings()), "streams")
    try:
        async with asyncio.timeout(120), tasks.running():
            streams = StreamRecords(kept, tasks, 60)
            names = [b"%d" % number for number in range(30)]
            for name in names:
                streams.opened(b"session", name, name)
                streams.ended(b"session", name, name, b"x" * 900_000)
            await asyncio.wait(tasks.under_way())
            found = [name for name in names if await streams.answer(b"session", name)]
            assert found == names[-9:], "the newest"
            streams.session_ended(b"session", is_over=True)
            streams.ended(b"session", b"30", b"30", b"late")
            await asyncio.wait(tasks.under_way())
            assert redis.cli("KEYS", "*").split() == []
    finally:
        await kept.close()
        redis.kill()
