"""What one bridge announces reaches the others, however much there is and whatever they make of it (issue 24)."""

import asyncio
from pathlib import Path

import anyio

from mcpbridge.base.background_tasks import OwnedTasks
from mcpbridge.fleet.announcements import ANNOUNCE, Announcements
from mcpbridge.fleet.link.certificates import link_contexts
from mcpbridge.fleet.link.connections import Links
from mcpbridge.fleet.link.frames import Ask
from mcpbridge.fleet.link.serving import LinkServer, Served
from mcpbridge.fleet.members import Members
from mcpbridge.fleet.records import FleetRecords, Member
from mcpbridge.storage.settings import redis_address
from support.ports import free_port
from support.redis_server import Server, needs_redis

pytestmark = needs_redis
KEY = "the key of the fleet of these tests"
ME, OTHER = "aaaaaaaaaa", "bbbbbbbbbb"


async def test_people_who_were_put_out_are_known_to_a_bridge_that_missed_very_much(tmp_path: Path) -> None:
    redis, port = Server(tmp_path / "redis").start(), free_port()
    records, tasks, links = (
        FleetRecords(redis_address(redis.settings()), "p"),
        OwnedTasks(),
        Links(link_contexts(KEY, ME)),
    )
    members = Members(records, member(ME, 1))
    other = Members(records, member(OTHER, port))
    heard, wanted = set[str](), {f"put-out/{number}" for number in range(5)}
    all_heard = asyncio.Event()

    def hears(topic: str) -> None:
        heard.add(topic)
        if wanted <= heard:
            all_heard.set()
        if topic == "broken":
            raise ValueError(topic)

    announcements = Announcements(members, links, tasks)
    hearing = Announcements(other, links, tasks)
    hearing.on_heard = hears

    async def answer(served: Served) -> None:
        hearing.serve(served)

    try:
        with anyio.fail_after(120):
            async with tasks.running():
                await other.look()
                tasks.spawn(other.keep_lease())
                announcements.announce("broken")
                for number in range(1200):
                    announcements.announce(f"lists/{number}")
                for topic in sorted(wanted):
                    announcements.announce(topic, is_vital=True)
                while len(tasks.under_way()) > 2:  # the lease, and what is said again and again
                    await anyio.sleep(0.01)
                async with LinkServer(link_contexts(KEY, OTHER), answer).running("127.0.0.1", port):
                    await all_heard.wait()
                    stream = await links.ask(OTHER, f"127.0.0.1:{port}", Ask(ANNOUNCE, "broken", b"", [], "", 0), b"")
                    reply, _, _ = await stream.head()
                    assert reply.status == 204, "it failed here, so announcing it again is of no use"
                    stream.close()
                    links.close()
        assert len(heard) < 1200
    finally:
        await records.close()
        redis.kill()


async def test_a_bridge_that_could_not_renew_its_lease_hears_what_was_announced_meanwhile(tmp_path: Path) -> None:
    """Before it was missed, and while it was none: who was put out, and what has changed."""
    redis, port = Server(tmp_path / "redis").start(), free_port()
    records, tasks = FleetRecords(redis_address(redis.settings()), "p"), OwnedTasks()
    links = Links(link_contexts(KEY, ME))
    members, other = Members(records, member(ME, 1)), Members(records, member(OTHER, port))
    announcements, hearing = Announcements(members, links, tasks), Announcements(other, links, tasks)
    heard, all_heard, back = list[str](), asyncio.Event(), list[bool]()
    other.on_back = lambda: back.append(True)

    def hears(topic: str) -> None:
        heard.append(topic)
        if len(heard) == 4:
            all_heard.set()

    hearing.on_heard = hears

    async def answer(served: Served) -> None:
        hearing.serve(served)

    try:
        with anyio.fail_after(120):
            async with tasks.running():
                await members.look()
                (key,) = redis.cli("KEYS", "*:settling").split()
                redis.cli("DEL", key)  # what time does
                tasks.spawn(members.keep_lease())
                await other.look()
                announcements.announce("put-out/ann", is_vital=True)
                announcements.announce("lists/one")
                while members.find(OTHER) is None:
                    await anyio.sleep(0.01)
                await records.leave(OTHER)  # as when its lease ends
                while members.find(OTHER) is not None:
                    await anyio.sleep(0.01)
                announcements.announce("put-out/bob", is_vital=True)
                announcements.announce("lists/two")
                await anyio.wait_all_tasks_blocked()
                async with LinkServer(link_contexts(KEY, OTHER), answer).running("127.0.0.1", port):
                    await other.look()
                    await all_heard.wait()
                    links.close()
        assert sorted(heard) == ["lists/one", "lists/two", "put-out/ann", "put-out/bob"]
        assert back == [True], "it knows that it was none"
    finally:
        await records.close()
        redis.kill()


def member(id_: str, port: int) -> Member:
    return Member(id_, f"127.0.0.1:{port}", id_, "1", "", 0.0)
