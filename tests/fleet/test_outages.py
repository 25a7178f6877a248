"""After the Redis server was away, no bridge of a fleet takes another for dead that is about to come back."""

import secrets
import signal
from collections.abc import AsyncGenerator, Generator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from mcpbridge.base.background_tasks import OwnedTasks
from mcpbridge.base.errors import StoreFailed
from mcpbridge.fleet.members import Members
from mcpbridge.fleet.records import FleetRecords, Member
from mcpbridge.storage.redis.connections import Connections
from mcpbridge.storage.settings import redis_address
from support.redis_server import Server, needs_redis

pytestmark = needs_redis
A, B, C = (Member(letter * 10, "127.0.0.1:1", letter, "1", "s", 0.0) for letter in "abc")


@pytest.fixture
def redis(tmp_path: Path) -> Generator[Server]:
    found = Server(tmp_path / "redis").start()
    yield found
    found.kill()


@pytest.fixture
async def records(redis: Server) -> AsyncGenerator[FleetRecords]:
    found = FleetRecords(redis_address(redis.settings()), f"fleet-{secrets.token_hex(4)}")
    yield found
    await found.close()


def settle(redis: Server) -> None:
    """What time does."""
    (key,) = redis.cli("KEYS", "*:settling").split()
    redis.cli("DEL", key)


async def only(records: FleetRecords, *members: str) -> None:
    """Wait until nobody else has a lease."""
    with anyio.fail_after(60):
        while sorted(await records.members()) != sorted(members):
            await anyio.sleep(0.01)


async def test_the_first_member_back_takes_nobody_for_dead(records: FleetRecords, redis: Server) -> None:
    for member in (A, B):
        await records.beat(member, 0.2)
    settle(redis)
    assert await records.write(b"session", B.id, b"who", b"record", 600, is_new=True)
    await only(records)  # as after a time in which nobody could beat
    beat = await records.beat(A, 30)
    assert not beat.held
    assert sorted(beat.members) == [A.id, B.id]
    claim = await records.claim(b"session", A.id, b"who")
    assert claim is not None
    assert claim.owner == "", "its owner may be about to come back"
    assert await records.claim(b"session", A.id, b"another") is None
    await records.beat(B, 30)
    claim = await records.claim(b"session", A.id, b"who")
    assert claim is not None
    assert claim.owner == B.id


async def test_a_member_that_does_not_come_back_is_none_in_the_end(records: FleetRecords, redis: Server) -> None:
    for member in (A, B):
        await records.beat(member, 0.2)
    assert await records.write(b"session", B.id, b"who", b"record", 600, is_new=True)
    await only(records)
    await records.beat(A, 30)
    settle(redis)
    assert list((await records.beat(A, 30)).members) == [A.id]
    claim = await records.claim(b"session", A.id, b"who")
    assert claim is not None
    assert (claim.owner, claim.record) == (A.id, b"record")


async def test_a_member_that_dies_while_others_beat_is_none_at_once(records: FleetRecords, redis: Server) -> None:
    await records.beat(A, 30)
    settle(redis)
    await records.beat(B, 0.2)
    await only(records, A.id)
    beat = await records.beat(A, 30)
    assert not beat.is_settling
    assert list(beat.members) == [A.id]


async def test_members_are_known_though_the_server_lost_its_data(records: FleetRecords, redis: Server) -> None:
    gone, lapsed = list[str](), list[bool]()
    first, second = Members(records, A), Members(records, B)
    first.on_gone, first.on_lapsed = gone.append, lambda: lapsed.append(True)
    for members in (first, second, first):
        await members.look()
    redis.kill()
    await first.look()
    assert first.problem
    redis.start()
    await first.look()
    assert lapsed == [True]
    assert first.find(B.id) is not None, "it may be about to come back"
    claim = await records.claim(b"session of whoever is not back", A.id, b"who")
    assert claim is not None
    assert claim.owner == ""
    assert await records.claim(b"session of the first", A.id, b"who", is_own=True) is None
    await second.look()
    await second.leave()
    await first.look()
    await first.look()
    assert gone == [], "until it is over, a member that was not seen again is one"
    settle(redis)
    await first.look()
    assert gone == [B.id]


async def test_a_member_that_is_back_leaves_in_order(records: FleetRecords, redis: Server) -> None:
    first, second = Members(records, A), Members(records, B)
    for members in (first, second, first):
        await members.look()
    redis.kill()
    redis.start()
    for members in (first, second, first):
        await members.look()
    await second.leave()
    await first.look()
    assert first.find(B.id) is None


async def test_whoever_took_a_session_has_it_though_a_failover_undid_that(records: FleetRecords, redis: Server) -> None:
    """Nobody else had it meanwhile: whoever takes it counts on from what the record says."""
    for name in (b"taken", b"ended", b"taken from both"):
        assert await records.write(name, A.id, b"who", b"record", 600, is_new=True)
    before = {key: f"{key}:before" for key in redis.cli("KEYS", "*:s:*").split()}
    for key, copy in before.items():
        redis.cli("COPY", key, copy)
    for name in (b"taken", b"ended", b"taken from both"):
        claim = await records.claim(name, B.id, b"who")
        assert claim is not None
        assert (claim.owner, claim.moves) == (B.id, 1)
    for key, copy in before.items():
        redis.cli("COPY", copy, key, "REPLACE")
    other = await records.claim(b"taken from both", C.id, b"who")
    assert other is not None
    assert (other.owner, other.moves) == (C.id, 1)
    await records.end({b"ended": 1}, B.id)
    assert not await records.write(b"ended", B.id, b"who", b"record", 600, is_new=False, moves=1)
    kept = await records.keep(dict.fromkeys([b"taken", b"ended", b"taken from both"], 1), B.id, 600)
    assert (kept.undone, kept.lost) == ([b"taken"], [b"ended", b"taken from both"])
    kept = await records.keep({b"taken": 0}, A.id, 600)
    assert (kept.undone, kept.lost) == ([], [b"taken"])


async def test_a_bridge_that_was_paused_does_not_write_down_what_another_one_ended(records: FleetRecords) -> None:
    await records.beat(A, 30)
    for name in (b"ended", b"kept"):
        assert await records.write(name, A.id, b"who", b"record", 600, is_new=True)
    await records.end({b"ended": 0}, A.id)
    kept = await records.keep(dict.fromkeys([b"ended", b"kept", b"never written"], 0), B.id, 600)
    assert (kept.lost, kept.missing) == ([b"ended", b"kept"], [b"never written"])
    kept = await records.keep({b"ended": 0, b"kept": 0}, A.id, 600)
    assert (kept.lost, kept.missing) == ([b"ended"], [])
    assert not await records.write(b"ended", A.id, b"who", b"record", 600, is_new=True)
    assert await records.claim(b"ended", B.id, b"who") is None


async def test_who_cannot_be_reached_is_not_waited_for_while_the_server_hangs(
    records: FleetRecords, redis: Server
) -> None:
    first, second, tasks = Members(records, A), Members(records, B), OwnedTasks()
    for members in (first, second, first):
        await members.look()
    async with tasks.running():
        redis.signal(signal.SIGSTOP)
        try:
            assert await first.is_still(B.id, tasks)
            assert first.failures == 0, "it is known before the records fail"
        finally:
            redis.signal(signal.SIGCONT)
        await second.leave()
        assert not await first.is_still(B.id, tasks)


async def test_members_that_do_not_exist_cost_few_looks(records: FleetRecords, redis: Server) -> None:
    def beats() -> int:
        (line,) = (one for one in redis.cli("INFO", "commandstats").splitlines() if one.startswith("cmdstat_evalsha:"))
        return int(line.partition("calls=")[2].partition(",")[0])

    first, second = Members(records, A), Members(records, B)
    await first.look()
    before = beats()
    async with anyio.create_task_group() as tasks:
        for number in range(100):
            tasks.start_soon(first.get, f"{number:010}")
    assert beats() - before <= 2
    await second.look()
    assert await first.get(B.id) is not None, "whoever has just joined is found"


async def test_a_lease_is_renewed_after_an_error_that_nobody_thought_of(records: FleetRecords) -> None:
    members, others, tasks = Members(records, A), Members(records, B), OwnedTasks()
    await others.look()
    await members.look()
    calls, is_done = list[str](), anyio.Event()

    def fails(id_: str) -> None:
        calls.append(id_)
        raise RuntimeError("an error that nobody thought of")

    members.on_gone, members.on_lapsed = fails, is_done.set
    await others.leave()
    async with tasks.running():
        tasks.spawn(members.keep_lease())
        with anyio.fail_after(60):
            while not calls:
                await anyio.sleep(0.01)
            await records.leave(A.id)
            await is_done.wait()
    assert calls == [B.id]


async def test_a_connection_that_was_closed_underneath_is_a_failure_of_the_store(records: FleetRecords) -> None:
    """As uvloop reports it."""
    await records.beat(A, 30)

    async def work(_: object) -> None:
        raise RuntimeError("unable to perform operation on <UnixTransport closed=True>; the handler is closed")

    with pytest.raises(StoreFailed):
        await records._server._bounded(work, "")  # pyright: ignore[reportPrivateUsage]
    await records.beat(A, 30)


async def test_a_lease_is_renewed_while_many_commands_wait_for_a_replica(
    records: FleetRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_waiting, is_there = anyio.Event(), anyio.Event()

    async def is_done(_: object, connection: object, node: object, key: str, until: str) -> bool:
        if until != "written":
            is_waiting.set()
            with anyio.CancelScope(shield=True):  # however long the replica needs
                await is_there.wait()
        return True

    async def ends(number: int) -> None:
        with suppress(StoreFailed):
            await records.end({b"%d" % number: 0}, A.id)

    await records.beat(A, 30)
    monkeypatch.setattr(Connections, "_is_done", is_done)
    async with anyio.create_task_group() as tasks:
        for number in range(40):
            tasks.start_soon(ends, number)
        with anyio.fail_after(60):
            await is_waiting.wait()
        try:
            assert (await records.beat(A, 30)).held
        finally:
            is_there.set()
