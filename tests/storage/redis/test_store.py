"""What the store on a server promises beyond every `Store` (issue 24): real servers, crashed, paused and misused."""

import asyncio
import itertools
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import anyio
import pytest
import trustme

from mcpbridge.base.errors import ConfigError, StoreFailed
from mcpbridge.storage.open_store import LazyStore
from mcpbridge.storage.redis.store import RedisStore
from mcpbridge.storage.settings import StoreSettings, redis_address
from support.ports import free_port
from support.redis_server import PROGRAM, VALKEY, Server, needs_redis, needs_valkey

pytestmark = needs_redis
LARGE = os.urandom(3 * 1024**2 + 17)
"""What takes seven commands and cannot be compressed."""


@pytest.fixture(params=[pytest.param(PROGRAM, id="redis"), pytest.param(VALKEY, id="valkey", marks=needs_valkey)])
def start(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Server]]:
    """Starts servers, with options, and ends them."""
    servers: list[Server] = []

    def start(*options: str) -> Server:
        servers.append(Server(tmp_path_factory.mktemp("r"), *options, program=request.param))
        return servers[-1].start()

    yield start
    for server in servers:
        server.kill()


@pytest.fixture
async def pair(start: Callable[..., Server]) -> AsyncIterator[tuple[RedisStore, RedisStore, Server]]:
    """Two stores at one server."""
    server = start()
    one, two = server.store(), server.store()
    yield one, two, server
    await one.close()
    await two.close()


async def eventually(attempt: Callable[[], Awaitable[object]]) -> None:
    """Until it works."""
    with anyio.fail_after(60):
        while True:
            try:
                await attempt()
            except StoreFailed:
                await anyio.sleep(0.05)
            else:
                return


# -- shared


async def test_two_bridges_see_each_others_values(pair: tuple[RedisStore, RedisStore, Server]) -> None:
    one, two, _ = pair
    handle = await one.put("result", b"shared", principal="ann", expires_in=60, label=b"l")
    assert await two.get("result", handle, principal="ann") == b"shared"
    assert await two.entries("result", principal=None) == await one.entries("result", principal=None)
    taken = await asyncio.gather(*(s.take("result", handle, principal="ann") for s in (one, two) * 10))
    assert sorted(taken, key=bool) == [None] * 19 + [b"shared"]


async def test_numbers_of_many_bridges_add_up(pair: tuple[RedisStore, RedisStore, Server]) -> None:
    one, two, _ = pair
    await asyncio.gather(*(s.count("tokens", {("2999-01-01", "a"): [1, 2**60]}) for s in (one, two) * 10))
    assert await one.read_counts("tokens") == {("2999-01-01", "a"): [20, 20 * 2**60]}


async def test_large_values_travel_in_parts(pair: tuple[RedisStore, RedisStore, Server]) -> None:
    one, two, server = pair
    handle = await one.put("result", LARGE, principal="ann", expires_in=60)
    assert await two.get("result", handle, principal="ann") == LARGE
    assert int(server.cli("HLEN", f"mcpbridge:{{v1/result}}:v:ann/{handle}")) == 10 + 7
    assert await two.take("result", handle, principal="ann") == LARGE
    assert await one.take("result", handle, principal="ann") is None
    assert all(":v:" not in key and ":d:" not in key for key in server.cli("--scan").split())


async def test_a_large_value_that_is_replaced_while_it_is_read_is_one_of_both(
    pair: tuple[RedisStore, RedisStore, Server],
) -> None:
    one, two, _ = pair
    other = os.urandom(len(LARGE))
    await one.put("result", LARGE, principal="", expires_in=60, handle="h")

    async def replace() -> None:
        for body in (other, LARGE, other):
            await one.put("result", body, principal="", expires_in=60, handle="h")

    async def read() -> None:
        for _ in range(8):
            assert await two.get("result", "h", principal="") in (LARGE, other)

    await asyncio.gather(replace(), read())


async def test_keys_of_a_kind_lie_in_one_slot_and_values_expire_by_the_servers_clock(
    pair: tuple[RedisStore, RedisStore, Server],
) -> None:
    one, _, server = pair
    await one.put("a kind}{", b"v", principal="a/b", expires_in=50, handle="h:%")
    keys = [key for key in server.cli("--scan").splitlines() if "#store" not in key]
    assert len({key.partition("}")[0] for key in keys}) == 1
    (value,) = [key for key in keys if ":v:" in key]
    assert value == "mcpbridge:{v1/a%20kind%7D%7B}:v:a%2Fb/h%3A%25"
    assert 0 < int(server.cli("PTTL", value)) <= 50_000
    (entry,) = await one.entries("a kind}{", principal="a/b")
    seconds = int(server.cli("TIME").split()[0])
    assert abs(entry.created - seconds) < 60
    await one.put("a kind}{", b"v", principal="", expires_in=0.05)
    with anyio.fail_after(60):
        while len(await one.entries("a kind}{", principal=None)) > 1:
            await anyio.sleep(0.01)


async def test_another_prefix_is_another_store(start: Callable[..., Server]) -> None:
    server = start()
    one, two = server.store(), server.store(prefix="other")
    await one.put("result", b"v", principal="", expires_in=60, handle="h")
    assert await two.get("result", "h", principal="") is None
    for store in (one, two):
        await store.close()


async def test_a_key_encrypts_what_the_server_has(start: Callable[..., Server]) -> None:
    server = start("--appendonly", "yes", "--appendfsync", "always")
    sealed, same, other = (server.store(key=key * 16) for key in ("a1", "a1", "b2"))
    await sealed.put("result", b"very secret", principal="ann", expires_in=60, handle="h", label=b"secret label")
    assert await same.get("result", "h", principal="ann") == b"very secret"
    assert (await same.entries("result", principal="ann"))[0].label == b"secret label"
    assert await other.get("result", "h", principal="ann") is None
    assert await other.take("result", "h", principal="ann") is None
    assert await other.entries("result", principal="ann") == []
    assert await other.put_if_absent("result", b"mine", principal="ann", expires_in=60, handle="h") == b"mine"
    files = b"".join(file.read_bytes() for file in server.directory.rglob("*") if file.is_file())
    assert b"secret" not in files
    assert b"result" in files
    for store in (sealed, same, other):
        await store.close()


TAKE_ALL = """
import sys, json, asyncio
from mcpbridge.storage.redis.store import RedisStore
from mcpbridge.storage.settings import StoreSettings, redis_address

async def main():
    store = RedisStore(redis_address(StoreSettings(kind="redis", url=sys.argv[1])))
    await store.check()
    print("ready", flush=True)
    sys.stdin.readline()
    taken = [n for n in range(200) if await store.take("grant", f"g{n}", principal="ann") is not None]
    await store.close()
    print(json.dumps(taken))

asyncio.run(main())
"""


async def test_of_two_processes_that_take_at_once_exactly_one_gets_it(
    pair: tuple[RedisStore, RedisStore, Server],
) -> None:
    store, _, server = pair
    for number in range(200):
        await store.put("grant", b"v", principal="ann", expires_in=600, handle=f"g{number}")
    pipe = asyncio.subprocess.PIPE
    with anyio.fail_after(60):
        processes = [
            await asyncio.create_subprocess_exec(sys.executable, "-c", TAKE_ALL, server.url, stdin=pipe, stdout=pipe)
            for _ in range(2)
        ]
        for process in processes:
            assert process.stdout
            assert await process.stdout.readline() == b"ready\n"
        for process in processes:
            assert process.stdin
            process.stdin.write(b"go\n")
        outs = [(await process.communicate())[0] for process in processes]
    assert sorted(number for out in outs for number in json.loads(out)) == list(range(200))


# -- failures


async def test_what_was_kept_survives_a_crash_with_aof(start: Callable[..., Server]) -> None:
    server = start("--appendonly", "yes", "--appendfsync", "always")
    store = server.store()
    handles = [await store.put("result", b"%d" % n, principal="", expires_in=600) for n in range(50)]
    large = await store.put("result", LARGE, principal="", expires_in=600)
    await store.take("result", handles[0], principal="")
    server.kill()
    with pytest.raises(StoreFailed, match=r"unix://.*cannot be reached"):
        await store.get("result", handles[1], principal="")
    server.start()
    await eventually(lambda: store.get("result", handles[1], principal=""))
    assert await store.get("result", handles[0], principal="") is None
    for number, handle in enumerate(handles[1:], 1):
        assert await store.get("result", handle, principal="") == b"%d" % number
    assert await store.get("result", large, principal="") == LARGE
    await store.close()


async def test_a_server_that_hangs_fails_calls_soon_and_heals(start: Callable[..., Server]) -> None:
    """Issue 24: a slow server is a breaker, not a queue."""
    server = start()
    store = server.store(seconds=0.5)
    await store.put("result", b"v", principal="", expires_in=600, handle="h")
    server.signal(signal.SIGSTOP)
    try:
        with anyio.fail_after(30):  # 200 calls of half a second each, sixteen at a time, would be no failure in time
            for _ in range(3):
                with pytest.raises(StoreFailed, match="did not answer within"):
                    await store.get("result", "h", principal="")
            outcomes = await asyncio.gather(
                *(store.get("result", "h", principal="") for _ in range(1000)), return_exceptions=True
            )
        assert all(isinstance(outcome, StoreFailed) for outcome in outcomes)
        assert sum("does not answer" in str(outcome) for outcome in outcomes) >= 990
        assert "failing" in repr(store)
    finally:
        server.signal(signal.SIGCONT)
    await eventually(lambda: store.get("result", "h", principal=""))
    assert await store.get("result", "h", principal="") == b"v"
    assert "working" in repr(store)
    await store.close()


async def test_replies_never_reach_another_call_when_calls_are_cancelled(
    pair: tuple[RedisStore, RedisStore, Server],
) -> None:
    """The known fault of clients that put a connection back whose reply is still to come."""
    store = pair[2].store(seconds=60)  # on a machine under load nothing else is to end a call
    names = [f"h{number}" for number in range(20)]
    for name in names:
        await store.put("result", name.encode(), principal="", expires_in=600, handle=name)
    cancelled = 0

    async def read(name: str, turns: int) -> None:
        nonlocal cancelled
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(cancel_after, scope, turns)
                assert await store.get("result", name, principal="") == name.encode()
                group.cancel_scope.cancel()
        cancelled += scope.cancelled_caught

    async def cancel_after(scope: anyio.CancelScope, turns: int) -> None:
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()
        scope.cancel()

    with anyio.fail_after(120):
        for turns in itertools.cycle(range(40)):  # how many of them come too late depends on the machine
            await asyncio.gather(*(read(name, turns) for name in names))
            found = await asyncio.gather(*(store.get("result", name, principal="") for name in names))
            assert found == [name.encode() for name in names]
            if turns == 39 and cancelled >= 100:
                break
    assert "failing" not in repr(store)
    await store.close()


async def test_a_cancelled_write_leaves_no_draft(pair: tuple[RedisStore, RedisStore, Server]) -> None:
    store, _, server = pair
    for turns in range(1, 60, 3):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:

                async def cancel(scope: anyio.CancelScope = scope, turns: int = turns) -> None:
                    for _ in range(turns):
                        await anyio.lowlevel.checkpoint()
                    scope.cancel()

                group.start_soon(cancel)
                await store.put("result", LARGE, principal="", expires_in=600, handle="h")
    assert [key for key in server.cli("--scan").split() if ":d:" in key] == []
    assert await store.get("result", "h", principal="") in (LARGE, None)


async def test_a_full_server_says_so_and_is_not_taken_for_dead(start: Callable[..., Server]) -> None:
    server = start("--maxmemory", "4mb")
    store = server.store()

    async def fill() -> None:
        for _ in range(20):
            await store.put("result", os.urandom(400_000), principal="", expires_in=600, label=b"l")

    with pytest.raises(StoreFailed, match="memory is full"):
        await fill()
    kept = await store.entries("result", principal="")
    assert len(kept) > 2
    assert await store.get("result", kept[0].handle, principal="", renew=9000)
    assert await store.take("result", kept[0].handle, principal="")
    assert await store.drop("result", kept[1].handle, principal="")
    assert await store.drop("result", kept[2].handle, principal="")
    await store.put("result", os.urandom(400_000), principal="", expires_in=600)  # there is room again
    await store.close()


# -- set up wrong


async def test_a_server_that_removes_values_by_itself_is_refused_at_start(start: Callable[..., Server]) -> None:
    server = start("--maxmemory-policy", "allkeys-lru")
    store = LazyStore(server.settings())
    with pytest.raises(ConfigError, match=r"(?s)allkeys-lru.*redis-cli CONFIG SET maxmemory-policy noeviction"):
        await store.check()
    server.cli("CONFIG", "SET", "maxmemory-policy", "noeviction")
    await store.check()
    await store.close()


async def test_wrong_passwords_and_missing_rights_are_named_without_the_password(
    start: Callable[..., Server],
) -> None:
    server = start()
    server.cli("ACL", "SETUSER", "ann", "on", ">s3cret", "~mcpbridge:*", "+@all", "-@dangerous", "+info")
    server.cli("ACL", "SETUSER", "bob", "on", ">s3cret", "+@all")
    server.cli("CONFIG", "SET", "requirepass", "x9")
    for options, what in (
        ({}, "wants a password"),
        ({"password": "wr0ng"}, "refuses the user or the password"),
        ({"username": "ann", "password": "wr0ng"}, "refuses the user or the password"),
        ({"username": "bob", "password": "s3cret"}, "lacks a right"),
    ):
        store = RedisStore(redis_address(server.settings(**options)))
        with pytest.raises(StoreFailed, match=what) as failed:
            await store.put("result", b"v", principal="", expires_in=60)
        assert "wr0ng" not in str(failed.value) + repr(store)
        assert "s3cret" not in str(failed.value) + repr(store)
        await store.close()
    store = RedisStore(redis_address(server.settings(username="ann", password="s3cret")))
    handle = await store.put("result", b"v", principal="", expires_in=60)
    assert await store.take("result", handle, principal="") == b"v"
    await store.close()


async def test_a_bridge_keeps_values_to_itself_while_the_server_is_away_but_no_shared_secret(
    start: Callable[..., Server],
) -> None:
    """What must be the same for all bridges fails: each would make one of its own."""
    server = start()
    store = LazyStore(server.settings())
    await store.put("approval", b"v", principal="", expires_in=60, handle="a")
    server.kill()
    assert await store.take("approval", "a", principal="") is None
    handle = await store.put("result", b"v", principal="", expires_in=60)
    assert await store.get("result", handle, principal="") == b"v"
    assert store.problems()
    with pytest.raises(StoreFailed):
        await store.put_if_absent("secret", b"v", principal="", expires_in=60, handle="s")
    await store.check()  # a server that is away keeps no bridge from starting
    await store.close()


async def test_tls_is_checked(tmp_path: Path) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    certificate = authority.issue_cert("localhost")
    certificate.private_key_pem.write_to_path(tmp_path / "key")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert")
    authority.cert_pem.write_to_path(tmp_path / "ca")
    stranger.cert_pem.write_to_path(tmp_path / "stranger")
    files = ("--tls-cert-file", str(tmp_path / "cert"), "--tls-key-file", str(tmp_path / "key"))
    port = free_port()
    tls = ("--tls-port", str(port), "--tls-auth-clients", "no", "--tls-ca-cert-file", str(tmp_path / "ca"))
    server = Server(tmp_path / "r", *files, *tls).start()
    try:

        def store(ca: str) -> RedisStore:
            settings = {"kind": "redis", "url": f"rediss://localhost:{port}", "tls": {"ca": str(tmp_path / ca)}}
            return RedisStore(redis_address(StoreSettings.model_validate(settings)))

        good, bad = store("ca"), store("stranger")
        assert await good.put("result", b"v", principal="", expires_in=60, handle="h") == "h"
        with pytest.raises(StoreFailed, match="TLS failed"):
            await bad.get("result", "h", principal="")
        await good.close()
        await bad.close()
    finally:
        server.kill()
