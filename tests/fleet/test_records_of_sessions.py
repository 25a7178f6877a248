"""What the records of sessions say after an outage of their server, or a failover (issue 24)."""

from collections.abc import Generator
from pathlib import Path

import httpx2
import pytest

from fleet.test_streams import EVENTS, events_of
from support.fleet_clients import HEADERS, Client, message
from support.redis_server import Server
from support.replicas import Fleet, Replica, fleet, needs_fleet, until

pytestmark = needs_fleet


@pytest.fixture
def pair(tmp_path: Path) -> Generator[Fleet]:
    redis = Server(tmp_path / "redis", "--appendonly", "yes").start()
    try:
        with fleet(tmp_path, redis, size=2) as found:
            yield found
    finally:
        redis.kill()


@pytest.fixture
def http() -> Generator[httpx2.Client]:
    with httpx2.Client(trust_env=False, timeout=60) as found:
        yield found


def test_a_session_that_ended_while_the_records_were_away_does_not_come_back(pair: Fleet, http: httpx2.Client) -> None:
    first, second = pair.replicas
    client = Client(http).begin(first)
    pair.redis.kill()
    ended = http.delete(first.url, headers={**HEADERS, "mcp-session-id": client.session})
    assert ended.status_code == 204
    assert client.post(first, message("ping")).status_code == 404

    def is_unknown(at: Replica) -> bool:
        status = client.post(at, message("ping")).status_code
        assert status in (404, 503)
        return status == 404

    pair.redis.start()
    for replica in (second, first):
        until(lambda replica=replica: is_unknown(replica), "everybody knows that it has ended")
    [key] = pair.redis.cli("KEYS", "*{v1/#fleet}:s:*").split()
    until(lambda: pair.redis.cli("HGET", key, "owner") == "-", "so it is written down")
    assert client.post(first, message("ping")).status_code == 404


def test_a_bridge_keeps_a_session_whose_take_over_was_undone_by_a_failover(pair: Fleet, http: httpx2.Client) -> None:
    first, second = pair.replicas
    redis, client = pair.redis, Client(http).begin(first)
    [key] = redis.cli("KEYS", "*{v1/#fleet}:s:*").split()
    dead = redis.cli("HGET", key, "owner")
    redis.cli("COPY", key, f"{key}:before")
    first.kill()
    until(lambda: client.post(second, message("ping")).status_code == 200, "the session was taken over")
    owner = redis.cli("HGET", key, "owner")
    assert owner != dead
    call = message("tools/call", 7, name="rich__hold", arguments={"text": "to the end"})
    with http.stream("POST", second.url, json=call, headers={**EVENTS, "mcp-session-id": client.session}) as answer:
        events = events_of(answer.iter_lines())
        next(events)  # the call is under way
        [leases] = redis.cli("KEYS", "*{v1/#fleet}:leases").split()
        redis.cli("EVAL", "redis.call('COPY', KEYS[1], KEYS[2], 'REPLACE') redis.call('DEL', KEYS[3])",
                  "3", f"{key}:before", key, leases)  # what a failover does  # fmt: skip
        until(lambda: redis.cli("HGET", key, "owner") == owner, "it is put right")
        release = message("tools/call", 8, name="rich__release", arguments={})
        until(lambda: client.post(second, release).is_success, "the call ends")
        assert "result" in [one for _, one in events if one is not None][-1]
