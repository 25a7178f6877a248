"""A store behind Sentinels, and on a cluster: real servers, killed and moved (issue 24)."""

import asyncio
import socket
from collections.abc import Generator
from contextlib import ExitStack, suppress
from pathlib import Path

import anyio
import pytest

from mcpbridge.base.errors import ConfigError, StoreFailed
from mcpbridge.fleet.records import Claim, FleetRecords, Member
from mcpbridge.storage.redis.nodes import SLOTS, NodeOfSentinels, NodesOfCluster
from mcpbridge.storage.redis.nodes import Node as Address
from mcpbridge.storage.redis.store import RedisStore
from mcpbridge.storage.settings import StoreSettings, redis_address
from support.harness import eventually
from support.ports import free_port
from support.redis_groups import Cluster, Group, Node, Sentinels, retried
from support.redis_server import needs_redis

pytestmark = needs_redis


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[Cluster]:
    found = Cluster(tmp_path_factory.mktemp("cluster"))
    yield found
    found.end()


@pytest.fixture(scope="module")
def sentinels(tmp_path_factory: pytest.TempPathFactory) -> Generator[Sentinels]:
    found = Sentinels(tmp_path_factory.mktemp("sentinels"))
    yield found
    found.end()


def silent_places(stack: ExitStack, count: int) -> list[str]:
    """Addresses where nobody answers, though connections can be made: as of machines that hang.

    As text they come before those of the groups.
    """
    found: list[str] = []
    for port in range(10_000, 11_000):
        if len(found) < count:
            with suppress(OSError):
                stack.enter_context(socket.create_server(("127.0.0.1", port), backlog=64))
                found.append(f"127.0.0.1:{port}")
    return found


def with_first(url: str, places: list[str]) -> StoreSettings:
    """The same address, with these places before its own."""
    scheme, _, rest = url.partition("://")
    return StoreSettings(kind="redis", url=f"{scheme}://{','.join([*places, rest])}")


def idle(store: RedisStore) -> int:
    """Its connections that wait for use."""
    return int(repr(store).partition(" idle")[0].rpartition(" ")[2])


async def take_once(store: RedisStore, handle: str) -> None:
    """Take a grant, which a replica has by then that it is gone."""

    async def attempt() -> bytes | None:
        await store.put("grant", b"once", principal="ann", expires_in=600, handle=handle)
        return await store.take("grant", handle, principal="ann")

    assert await retried(attempt) == b"once"


async def works(store: RedisStore) -> bool:
    """A value can be written and read."""
    try:
        handle = await store.put("probe", b"there", principal="", expires_in=600)
        return await store.get("probe", handle, principal="") == b"there"
    except StoreFailed:
        return False


async def test_behind_sentinels_the_store_follows_a_failover_and_no_approval_comes_back(tmp_path: Path) -> None:
    group = Sentinels(tmp_path)
    store = group.store()
    try:
        await store.check()
        kept = await store.put("result", b"kept", principal="ann", expires_in=600)
        group.master.until_replicated()
        for number in range(20):
            await take_once(store, f"g{number}")
        group.master.kill()  # at once: what no replica has is lost
        await eventually(lambda: works(store), bool, 120)
        assert await store.get("result", kept, principal="ann") == b"kept"
        for number in range(20):
            assert await store.take("grant", f"g{number}", principal="ann") is None
    finally:
        await store.close()
        group.end()


async def test_what_no_replica_has_is_not_taken(tmp_path: Path) -> None:
    group = Sentinels(tmp_path)
    store = group.store()
    try:
        await store.put("grant", b"once", principal="ann", expires_in=600, handle="g")
        group.master.until_replicated()
        group.replica.kill()
        with pytest.raises(StoreFailed, match="a failover could undo it"):
            await store.take("grant", "g", principal="ann")
    finally:
        await store.close()
        group.end()


async def test_who_takes_a_session_of_a_fleet_has_it_when_a_replica_knows_that(sentinels: Sentinels) -> None:
    records, master = FleetRecords(redis_address(sentinels.settings()), "fleet-tests"), sentinels.master

    def waits() -> int:
        found = [line for line in master.cli("INFO", "commandstats").splitlines() if line.startswith("cmdstat_wait:")]
        return int(found[0].partition("calls=")[2].partition(",")[0]) if found else 0

    assert await records.write(b"session", "a" * 10, b"who", b"record", 600, is_new=True)
    before = waits()
    asked: list[str] = []

    async def claim() -> Claim | None:
        asked.append("claim")
        return await records.claim(b"session", "b" * 10, b"who")

    async def end() -> None:
        asked.append("end")
        await records.end({b"session": 1}, "b" * 10)

    assert await retried(claim) is not None
    await retried(end)
    assert waits() == before + len(asked)
    await records.close()


async def test_a_cluster_is_used_by_whoever_knows_one_of_its_nodes(cluster: Cluster) -> None:
    store = RedisStore(
        redis_address(StoreSettings(kind="redis", url=f"redis+cluster://127.0.0.1:{cluster.nodes[2].port}"))
    )
    handles = {kind: await store.put(kind, kind.encode(), principal="ann", expires_in=600) for kind in "abcdefgh"}
    other = cluster.store()
    for kind, handle in handles.items():
        assert await other.get(kind, handle, principal="ann") == kind.encode()
    used = {cluster.owner(f"mcpbridge:{{v1/{kind}}}:order").port for kind in handles}
    assert len(used) > 1, "all of it is on one node"
    await other.count("tokens", {("2026-11-30", "ann"): [3]})
    await store.count("tokens", {("2026-11-30", "ann"): [4]})
    assert (await other.read_counts("tokens"))["2026-11-30", "ann"] == [7]
    await store.close()
    await other.close()


async def test_a_slot_that_moves_is_followed(cluster: Cluster) -> None:
    store = cluster.store()
    handle = await store.put("moving", b"before", principal="ann", expires_in=600)
    key = "mcpbridge:{v1/moving}:order"
    slot, source = cluster.nodes[0].cli("CLUSTER", "KEYSLOT", key), cluster.owner(key)
    await asyncio.gather(*(store.get("moving", handle, principal="ann") for _ in range(10)))
    before = idle(store)
    target = next(node for node in cluster.nodes if node is not source)
    source_id, target_id = source.cli("CLUSTER", "MYID"), target.cli("CLUSTER", "MYID")
    target.cli("CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
    source.cli("CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)
    names = source.cli("CLUSTER", "GETKEYSINSLOT", slot, "100").split()
    source.cli("MIGRATE", "127.0.0.1", str(target.port), "", "0", "30000", "KEYS", *names)
    assert await store.get("moving", handle, principal="ann") == b"before"  # while it is on its way: ASK
    for node in (target, source, *cluster.nodes):
        node.cli("CLUSTER", "SETSLOT", slot, "NODE", target_id)
    assert await store.get("moving", handle, principal="ann") == b"before"  # MOVED
    assert idle(store) < before - 5, "connections to where nothing is any more are closed"
    assert await store.take("moving", handle, principal="ann") == b"before"
    await store.close()


async def test_a_cluster_continues_after_one_of_its_servers_died_and_no_approval_comes_back(tmp_path: Path) -> None:
    group = Cluster(tmp_path, has_replicas=True)
    store = group.store()
    try:
        handle = await store.put("result", b"kept", principal="ann", expires_in=600)
        owner = group.owner("mcpbridge:{v1/grant}:order")
        await take_once(store, "g")
        owner.kill()  # at once: what no replica has is lost

        async def grant() -> bytes | str | None:
            try:
                return await store.take("grant", "g", principal="ann")
            except StoreFailed as error:
                return str(error)

        assert await eventually(grant, lambda found: not isinstance(found, str), 120) is None
        assert await store.get("result", handle, principal="ann") == b"kept"
    finally:
        await store.close()
        group.end()


async def test_sessions_of_a_fleet_are_kept_on_a_cluster(cluster: Cluster) -> None:
    records = FleetRecords(redis_address(cluster.settings()), "fleet-tests")
    me = Member("a" * 10, "127.0.0.1:1", "one", "1", "s", 0.0)
    await records.beat(me, 30)
    assert list(await records.members()) == [me.id]
    assert await records.write(b"session", me.id, b"who", b"record", 600, is_new=True)
    other = await records.claim(b"session", "b" * 10, b"who")
    assert other is not None
    assert other.owner == me.id
    await records.leave(me.id)
    taken = await records.claim(b"session", "b" * 10, b"who")
    assert taken is not None
    assert (taken.owner, taken.record) == ("b" * 10, b"record")
    assert await records.is_first_use(b"seal", 60)
    assert not await records.is_first_use(b"seal", 60)
    await records.close()


async def test_who_names_the_wrong_kind_of_server_learns_the_right_address(cluster: Cluster) -> None:
    store = RedisStore(redis_address(StoreSettings(kind="redis", url=f"redis://127.0.0.1:{cluster.nodes[0].port}/0")))
    with pytest.raises(ConfigError, match=r"(?s)runs as cluster.*redis\+cluster://"):
        await store.check()
    await store.close()


async def test_sentinels_that_are_away_are_named(tmp_path: Path) -> None:
    group: Group = Group()
    group.url = "redis+sentinel://127.0.0.1:1,127.0.0.1:2/ours"
    store = group.store()
    with pytest.raises(StoreFailed, match="no Sentinel names a server of 'ours'"):
        await store.put("result", b"x", principal="", expires_in=600)
    await store.close()


async def test_a_replica_that_came_later_counts_as_one_that_may_take_over(tmp_path: Path) -> None:
    """Also while the cluster does not name it to clients, as long as it has said nothing, and while it is down."""
    group = Cluster(tmp_path)
    store = group.store()
    try:
        for number in range(3):
            await store.put("grant", b"once", principal="ann", expires_in=600, handle=f"g{number}")
        assert await store.take("grant", "g0", principal="ann") == b"once", "there are no replicas"
        owner = group.owner("mcpbridge:{v1/grant}:order")
        replica = group.add_replica(tmp_path, owner)
        await take_once(store, "g1")
        replica.hang()
        with pytest.raises(StoreFailed, match="no replica has what was written"):
            await store.take("grant", "g2", principal="ann")
    finally:
        await store.close()
        group.end()


@pytest.mark.parametrize("kind", ["cluster", "sentinels"])
async def test_those_that_do_not_answer_keep_nobody_from_those_that_do(
    kind: str, request: pytest.FixtureRequest
) -> None:
    """However many of the configured ones were replaced: a command asks the next one without waiting for its time."""
    group: Group = request.getfixturevalue(kind)
    with ExitStack() as stack:
        store = RedisStore(redis_address(with_first(group.url, silent_places(stack, 8))))
        try:
            # A busy machine may need more than one attempt, but whoever failed is not asked first again.
            await eventually(lambda: works(store), bool, 30)
        finally:
            await store.close()


async def test_a_sentinel_that_is_cut_off_from_the_others_is_asked_after_them(
    sentinels: Sentinels, tmp_path: Path
) -> None:
    """It answers, and names a server that nobody else uses any more, and that hangs."""
    former_port, port = free_port(), free_port()
    former = Node(tmp_path, former_port).start()
    file = tmp_path / "sentinel.conf"
    file.write_text(
        f"port {port}\nbind 127.0.0.1\ndir {tmp_path}\nsentinel monitor ours 127.0.0.1 {former_port} 2\n"
        "sentinel down-after-milliseconds ours 600000\n",
        "utf-8",
    )
    alone = Node(tmp_path, port, "--sentinel").start(str(file))
    store = RedisStore(redis_address(with_first(sentinels.url, [f"127.0.0.1:{port}"])))
    try:
        assert await works(store), "both can be used"
        assert former.cli("DBSIZE") != "0", "the first one was asked"
        former.hang()
        await eventually(lambda: works(store), bool, 60)
    finally:
        await store.close()
        alone.kill()
        former.kill()


async def test_nodes_that_have_left_a_cluster_are_not_asked_any_more() -> None:
    """As where each start of a container brings another address: the list does not grow."""
    generation, asked = 0, list[Address]()

    async def ask(node: Address, command: tuple[str | bytes | int, ...]) -> object:
        asked.append(node)
        now = [Address("10.0.0.1", 7000 + generation), Address("10.0.0.2", 7000 + generation)]
        if node not in (now[0], now[1], Address("first", 7000)):
            raise StoreFailed("is gone")
        if command == ("CLUSTER", "NODES"):
            return b""
        half = SLOTS // 2
        return [
            [number * half, (number + 1) * half - 1, [one.host.encode(), one.port, b""]]
            for number, one in enumerate(now)
        ]

    nodes = NodesOfCluster(redis_address(StoreSettings(kind="redis", url="redis+cluster://first:7000")), ask)
    for generation in range(5):
        assert (await nodes.of("")).port == 7000 + generation
        nodes.forget()
    asked.clear()
    nodes.forget()
    await nodes.of("")
    assert {node.port for node in asked} <= {7000, 7003, 7004}


SENTINELS = redis_address(StoreSettings(kind="redis", url="redis+sentinel://first:1,second:2/ours"))
NAMED = [b"flags", b"master", b"ip", b"10.0.0.1", b"port", b"6379", b"num-slaves", b"1", b"num-other-sentinels", b"1"]


async def test_a_look_for_the_master_that_was_cancelled_fails_nobody_who_waited_for_it() -> None:
    is_silent, asked = True, anyio.Event()

    async def ask(node: Address, command: tuple[str | bytes | int, ...]) -> object:
        asked.set()
        if is_silent:
            await anyio.sleep_forever()
        return NAMED

    nodes, found = NodeOfSentinels(SENTINELS, ask), list[Address]()

    async def look() -> None:
        found.append(await nodes.of("key"))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            first = asyncio.create_task(look())
            await asked.wait()
            tasks.start_soon(look)
            await anyio.wait_all_tasks_blocked()
            is_silent = False
            first.cancel()
    assert found == [Address("10.0.0.1", 6379, 1)]


@pytest.mark.parametrize("reply", [None, 1, [], [b"flags", b"master"], [*NAMED[:5], b"none", *NAMED[6:]]])
async def test_an_odd_reply_of_a_sentinel_counts_as_none(reply: object) -> None:
    async def ask(node: Address, command: tuple[str | bytes | int, ...]) -> object:
        return NAMED if node.host == "second" and is_well else reply

    nodes, is_well = NodeOfSentinels(SENTINELS, ask), False
    with pytest.raises(StoreFailed, match=r"no Sentinel names a server of 'ours' .* gave an odd reply"):
        await nodes.of("key")
    assert not await nodes.is_alone("key")
    is_well = True
    assert await nodes.of("key") == Address("10.0.0.1", 6379, 1)
