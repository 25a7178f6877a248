"""A browser stays with one bridge of a fleet by a cookie, which anybody can make up."""

from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from mcpbridge.downstream.http.body_deadline import Deadline
from mcpbridge.downstream.http.exchange import Exchange, Receive, Scope, Send
from mcpbridge.downstream.http.routes import serve_page
from mcpbridge.fleet.counts import FleetCounts
from mcpbridge.fleet.forwarding import Forwarding
from mcpbridge.fleet.link.certificates import link_contexts
from mcpbridge.fleet.link.connections import Links
from mcpbridge.fleet.members import Members
from mcpbridge.fleet.records import FleetRecords, Member
from mcpbridge.fleet.sessions.sessions import FleetSessions
from mcpbridge.storage.settings import redis_address
from support.redis_server import Server, needs_redis

pytestmark = needs_redis


async def test_no_body_is_read_for_a_bridge_that_does_not_exist(tmp_path: Path) -> None:
    redis = Server(tmp_path / "redis").start()
    records = FleetRecords(redis_address(redis.settings()), "visits")
    members = Members(records, Member("a" * 10, "127.0.0.1:1", "a", "1", "s", 0.0))
    counts = FleetCounts()
    forwarding = Forwarding(Links(link_contexts("a key of these tests", "a" * 10)), counts)
    elsewhere = FleetSessions(records, members, forwarding, counts, idle=60, max_body=1000, keep=30)
    answers: list[MutableMapping[str, Any]] = []

    async def app(_: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 401, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def receive() -> MutableMapping[str, Any]:
        raise AssertionError("the application has not asked for it")

    async def send(message: MutableMapping[str, Any]) -> None:
        answers.append(message)

    headers = [(b"cookie", b"mcpbridge-at=aaaabbbbcc"), (b"content-length", b"1000000")]
    scope = {"type": "http", "method": "POST", "path": "/console", "headers": headers}
    try:
        await serve_page(app, Exchange(scope, receive, send), elsewhere, 10_000_000, Deadline(60))
        assert [one.get("status") for one in answers] == [401, None]
    finally:
        await records.close()
        redis.kill()
