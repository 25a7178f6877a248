"""What a bridge writes down of its sessions has a bound, beyond which they end with their bridge (issue 24)."""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mcpbridge.downstream.http.sessions import Session
from mcpbridge.fleet.records import FleetRecords, Member
from mcpbridge.fleet.sessions.written import WrittenSessions, who_uses
from mcpbridge.protocol.jsonrpc import decode_frame, encode
from mcpbridge.storage.settings import redis_address
from support.redis_server import Server, needs_redis

pytestmark = needs_redis
ME = "a" * 10


@dataclass
class Opened:
    """What is written of a session."""

    id: bytes
    client: Any = field(default_factory=lambda: SimpleNamespace(principal="ann"))
    identity: Any = None
    endpoint: tuple[str, ...] = ()


def session(id_: bytes) -> Session:
    return cast("Session", Opened(id_))


def beginning(size: int) -> bytes:
    return encode({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"padding": "x" * size}})


async def test_records_of_sessions_take_a_bounded_room(tmp_path: Path) -> None:
    redis = Server(tmp_path / "redis").start()
    records = FleetRecords(redis_address(redis.settings()), "p")
    written = WrittenSessions(records, ME, 600, lambda: None, room=10_000)
    sessions = [session(b"session %d" % number) for number in range(5)]
    who = who_uses("ann", session(b""))
    try:
        await records.beat(Member(ME, "127.0.0.1:1", "a", "1", "s", 0.0), 600)
        for one in sessions:
            await written.open(one, decode_frame(beginning(3000)))
        assert written.unwritten == set(), "nobody tries again every second"
        found = [await records.claim(one.id, ME, who) for one in sessions]
        assert [one is not None and bool(one.record) for one in found] == [True, True, True, False, False]
        assert list((await written.keep()).missing) == [sessions[3].id, sessions[4].id]
        await written.change(sessions[0], decode_frame(subscription("u" * 5000)))
        claim = await records.claim(sessions[0].id, ME, who)
        assert claim is not None
        assert b"uuu" not in claim.record, "its record stays as it was"
        written.forget(sessions[1].id)
        await written.write(sessions[3], is_new=True)
        assert list((await written.keep()).missing) == [sessions[4].id], "there is room again"
    finally:
        await records.close()
        redis.kill()


async def test_sessions_that_get_no_room_are_not_tried_every_second(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    redis = Server(tmp_path / "redis").start()
    records, missing = FleetRecords(redis_address(redis.settings()), "p"), list[bool]()
    written = WrittenSessions(records, ME, 600, lambda: missing.append(True), room=10_000)
    first, second, third = (session(b"session %d" % number) for number in range(3))
    try:
        await written.open(first, decode_frame(beginning(3000)))
        redis.kill()
        await written.change(first, decode_frame(subscription("u" * 100)))
        assert written.unwritten == {first.id}
        redis.start()
        await written.open(second, decode_frame(beginning(6000)))
        await written.change(first, decode_frame(subscription("u" * 5000)))
        assert written.unwritten == set(), "it stays as it was"
        for number in range(3):
            await written.open(third, decode_frame(beginning(3000)))
            await written.change(second, decode_frame(subscription(f"{number}")))
        assert capsys.readouterr().out.count("take all their room") == 1
        written.forget(first.id)
        assert len(missing) == 1
        await written.change(third, decode_frame(subscription("v")))
        assert len(missing) == 1, "it is this bridge's, which writes it down the first time"
        assert (await written.keep()).missing == []
    finally:
        await records.close()
        redis.kill()


def subscription(uri: str) -> bytes:
    return encode({"jsonrpc": "2.0", "id": 2, "method": "resources/subscribe", "params": {"uri": uri}})
