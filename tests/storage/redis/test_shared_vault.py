"""Accounts and tokens that bridges of one store have in common, on a real server (issue 24)."""

import random
import shutil
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from mcpbridge.base.errors import ConfigError, StoreFailed
from mcpbridge.config.schema import Settings
from mcpbridge.engine.user_accounts import open_secrets_of
from mcpbridge.storage.redis import shared_secrets, shared_vault
from mcpbridge.storage.redis.shared_secrets import Change, SharedRows, SharedSecrets
from mcpbridge.storage.redis.shared_vault import SharedVault
from mcpbridge.storage.settings import redis_address
from mcpbridge.storage.vault import Row
from mcpbridge.storage.vault_keys import vault_keys
from support.harness import eventually
from support.redis_server import Server, needs_redis

pytestmark = needs_redis

ALICE = Row("account", "alice", "up", "https://up.example/mcp", "https://as.example")
BOB = replace(ALICE, principal="bob")
KEY, OTHER_KEY = "the key of the vault of all", "another key of a vault"
SECRET = b"refresh-1234567890"


@pytest.fixture
def server(tmp_path: Path) -> Generator[Server]:
    found = Server(tmp_path / "redis", "--appendonly", "yes", "--appendfsync", "always").start()
    yield found
    found.kill()


class Bridges:
    """The vaults and secrets of bridges, each in a directory of its own."""

    def __init__(self, directory: Path, server: Server, stack: AsyncExitStack) -> None:
        self._directory, self._server, self._stack = directory, server, stack

    def _rows(self) -> SharedRows:
        return SharedRows(redis_address(self._server.settings()), "mcpbridge")

    def vault(self, name: str, key: str = KEY, *old: str) -> SharedVault:
        place = self._directory / name
        found = SharedVault(lambda: place, lambda directory: vault_keys(directory, key, old), self._rows())
        self._stack.push_async_callback(found.close)
        return found

    def secrets(self, key: str = KEY, *old: str) -> SharedSecrets:
        found = SharedSecrets(self._rows(), lambda: [key, *old])
        self._stack.push_async_callback(found.close)
        return found


@pytest.fixture
async def bridges(tmp_path: Path, server: Server) -> AsyncGenerator[Bridges]:
    async with AsyncExitStack() as stack:
        yield Bridges(tmp_path, server, stack)


async def newest(vault: SharedVault, row: Row) -> bytes | None:
    """What a bridge finds that takes the lock, as for a renewal."""
    async with vault.lock(row, "renew", 30):
        return await vault.load(row)


async def test_what_one_bridge_keeps_the_others_find(bridges: Bridges) -> None:
    one, two = bridges.vault("one"), bridges.vault("two")
    assert await two.load(ALICE) is None
    await one.save(ALICE, SECRET)
    assert await newest(two, ALICE) == SECRET
    assert await two.load(BOB) is None
    assert [row.principal for row in two.rows()] == ["alice"]
    await two.save(ALICE, b"renewed")
    assert await newest(one, ALICE) == b"renewed"
    assert await one.drop(ALICE)
    assert await newest(two, ALICE) is None
    assert two.rows() == []
    assert not await two.drop(ALICE)


async def test_a_bridge_that_takes_no_lock_learns_of_it_too(bridges: Bridges) -> None:
    one, two = bridges.vault("one"), bridges.vault("two")
    assert not two.has(ALICE)
    await two.follow()
    await one.save(ALICE, SECRET)

    async def has() -> bool:
        await two.follow()
        return two.has(ALICE)

    await eventually(has, lambda found: found)
    before = two.changed_at(ALICE)
    await one.save(ALICE, b"renewed")

    async def changed() -> int:
        await two.follow()
        return two.changed_at(ALICE)

    await eventually(changed, lambda at: at != before)


async def test_the_server_sees_nothing_that_could_be_used(bridges: Bridges, server: Server, tmp_path: Path) -> None:
    await bridges.vault("one").save(ALICE, SECRET)
    await bridges.secrets().save("oauth\nup\nhttps://up.example", SECRET)
    [log] = (tmp_path / "redis").rglob("*.incr.aof")
    assert b"alice" in log.read_bytes(), "the heads of rows can be read, as in files"
    assert SECRET not in log.read_bytes()
    assert b"up.example/mcp" in log.read_bytes()
    assert b"oauth" not in log.read_bytes()


async def test_with_another_key_nothing_opens_and_nothing_is_lost(bridges: Bridges) -> None:
    await bridges.vault("one").save(ALICE, SECRET)
    await bridges.secrets().save("a", SECRET)
    assert await bridges.vault("two", OTHER_KEY).load(ALICE) is None
    assert await bridges.secrets(OTHER_KEY).load("a") is None
    assert await bridges.vault("three", OTHER_KEY, KEY).load(ALICE) == SECRET
    assert await bridges.secrets(OTHER_KEY, KEY).load("a") == SECRET


async def test_rows_of_all_bridges_are_sealed_with_the_new_key(bridges: Bridges) -> None:
    await bridges.vault("one").save(ALICE, SECRET)
    await bridges.vault("two").save(BOB, b"of bob")
    assert await bridges.vault("three", OTHER_KEY, KEY).rotate_all() == (2, 0)
    four = bridges.vault("four", OTHER_KEY)
    assert [await four.load(row) for row in (ALICE, BOB)] == [SECRET, b"of bob"]


async def test_one_at_a_time_has_a_lock(bridges: Bridges) -> None:
    one, two, other = bridges.vault("one"), bridges.vault("two"), bridges.secrets()
    async with one.lock(ALICE, "renew", 30):
        with pytest.raises(TimeoutError):
            async with two.lock(ALICE, "renew", 0.2):
                raise AssertionError("both have it")
        async with two.lock(BOB, "renew", 30), two.lock(ALICE, "set", 30), other.lock("renew", 30):
            pass
    async with two.lock(ALICE, "renew", 30):
        pass


async def test_a_lock_ends_by_itself_when_its_holder_dies(bridges: Bridges, server: Server) -> None:
    async with bridges.secrets().lock("renew", 30):
        [key] = server.cli("KEYS", "*:lock:*").split()
        assert 0 < int(server.cli("PTTL", key)) <= 15_000
        server.cli("DEL", key)  # as if the time were over, since the holder was stopped
        async with bridges.secrets().lock("renew", 30):
            [taken] = server.cli("GET", key).split()
            mine = taken
    assert server.cli("GET", key).split() == []
    assert mine


async def test_who_lost_a_lock_does_not_free_that_of_another(bridges: Bridges, server: Server) -> None:
    async with AsyncExitStack() as second:
        async with bridges.secrets().lock("renew", 30):
            [key] = server.cli("KEYS", "*:lock:*").split()
            server.cli("DEL", key)
            await second.enter_async_context(bridges.secrets().lock("renew", 30))
        assert server.cli("EXISTS", key).split()[-1] == "1"


async def test_whoever_lost_a_lock_to_another_bridge_is_stopped(
    bridges: Bridges, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_secrets, "_LOCK_SECONDS", 3.0)

    async def lose() -> None:
        async with bridges.vault("one").lock(ALICE, "renew", 30):
            [key] = server.cli("KEYS", "*:lock:*").split()
            server.cli("SET", key, "another")  # as if this one had been stopped for a while
            await anyio.sleep_forever()

    with (
        anyio.fail_after(60),
        pytest.raises(StoreFailed, match=r"a lock .* ended while it was held here: another bridge got it"),
    ):
        await lose()
    [key] = server.cli("KEYS", "*:lock:*").split()
    assert server.cli("GET", key) == "another"


async def test_whoever_was_stopped_for_longer_than_a_lock_lasts_does_not_take_it_again(
    bridges: Bridges, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another bridge may have had it meanwhile, and have used up what was read under it."""
    monkeypatch.setattr(shared_secrets, "_LOCK_SECONDS", 3.0)

    async def be_stopped() -> None:
        async with bridges.vault("one").lock(ALICE, "renew", 30):
            server.cli("DEL", *server.cli("KEYS", "*:lock:*").split())
            monkeypatch.setattr(shared_secrets, "monotonic", lambda: time.monotonic() + 3)
            await anyio.sleep_forever()

    with anyio.fail_after(60), pytest.raises(StoreFailed, match="another bridge may have had it"):
        await be_stopped()
    assert server.cli("KEYS", "*:lock:*") == ""


async def test_a_lock_that_a_failover_has_undone_is_taken_again(
    bridges: Bridges, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_secrets, "_LOCK_SECONDS", 9.0)
    async with bridges.vault("one").lock(ALICE, "renew", 30):
        [key] = server.cli("KEYS", "*:lock:*").split()
        before = server.cli("GET", key)
        server.cli("DEL", key)
        with anyio.fail_after(60):
            while server.cli("GET", key) != before:
                await anyio.sleep(0.02)
    assert server.cli("EXISTS", key) == "0"


async def test_whoever_gives_up_waiting_for_a_lock_leaves_none(bridges: Bridges, server: Server) -> None:
    """It may have been given while nobody waited for the answer any more."""
    tokens = bridges.secrets()
    for number in range(60):
        with anyio.move_on_after(random.random() / 300):
            async with tokens.lock(f"renew {number}", 30):
                await anyio.sleep(random.random() / 300)
    assert server.cli("KEYS", "*:lock:*") == ""


async def test_a_row_that_the_server_has_lost_is_written_again_by_whoever_has_it(
    bridges: Bridges, server: Server
) -> None:
    """As in a failover: a refresh token that was used must not come back."""
    one, two = bridges.vault("one"), bridges.vault("two")
    await one.save(ALICE, b"first")
    await one.save(BOB, b"of bob")
    keys = [f"mcpbridge:{{v1/#accounts}}:{part}" for part in ("rows", "changes", "seq")]
    for key in keys:
        server.cli("COPY", key, f"{key}:before", "REPLACE")
    assert await newest(two, ALICE) == b"first"
    await one.save(ALICE, b"rotated")
    await one.drop(BOB)
    for key in keys:
        server.cli("COPY", f"{key}:before", key, "REPLACE")
    await bridges.vault("three").save(replace(ALICE, principal="carol"), b"of carol")  # so that numbers grow again
    await one.settle()
    assert await newest(two, ALICE) == b"rotated"
    assert await newest(two, BOB) is None
    await two.save(ALICE, b"rotated again")
    assert await newest(one, ALICE) == b"rotated again"


async def test_while_the_server_is_away_the_copy_answers_and_nothing_is_locked(
    bridges: Bridges, server: Server
) -> None:
    one, two = bridges.vault("one"), bridges.vault("two")
    tokens = bridges.secrets()
    await one.save(ALICE, SECRET)
    await tokens.save("a", SECRET)
    assert await newest(two, ALICE) == SECRET
    server.kill()
    assert await two.load(ALICE) == SECRET
    assert await tokens.load("a") == SECRET
    with pytest.raises(StoreFailed):
        async with two.lock(ALICE, "renew", 30):
            raise AssertionError("whether another has it is not known")
    with pytest.raises(ConfigError, match="cannot be stored"):
        await tokens.save("b", SECRET)
    await one.save(BOB, b"of bob")
    assert await one.drop(ALICE)
    with pytest.raises(StoreFailed):
        await one.settle()
    with pytest.raises(ConfigError, match="cannot be stored"):
        await bridges.vault("new").save(BOB, b"without the salt of all")
    server.start()

    async def is_settled() -> bool:
        try:
            await one.settle()
        except StoreFailed:  # it is tried again in a moment
            return False
        return True

    await eventually(is_settled, lambda found: found)

    async def found_by_two() -> list[bytes | None]:
        try:
            return [await newest(two, row) for row in (ALICE, BOB)]
        except StoreFailed:
            return []

    assert await eventually(found_by_two, bool) == [None, b"of bob"]


async def test_what_the_server_has_counts_where_it_lost_something(bridges: Bridges, server: Server) -> None:
    one = bridges.vault("one")
    await one.save(ALICE, SECRET)
    await one.save(BOB, b"of bob")
    server.cli("FLUSHALL")
    two = bridges.vault("two")
    assert await two.load(BOB) is None
    await two.save(BOB, b"newer")
    assert await newest(one, BOB) == b"newer"
    assert await one.load(ALICE) is None


async def test_a_copy_from_before_a_start_is_compared(bridges: Bridges, tmp_path: Path) -> None:
    await bridges.vault("one").save(ALICE, SECRET)
    await bridges.vault("one").save(BOB, b"of bob")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    await bridges.vault("one").drop(BOB)
    two = bridges.vault("two")
    assert await two.load(ALICE) == SECRET
    assert await two.load(BOB) is None
    assert [row.principal for row in two.rows()] == ["alice"]


async def test_many_bridges_renew_one_token_once_at_a_time(bridges: Bridges) -> None:
    """As with one refresh token that must not be used twice: each finds what the one before has kept."""
    vaults = [bridges.vault(f"v{number}") for number in range(6)]
    await vaults[0].save(ALICE, b"0")

    async def renew(vault: SharedVault) -> None:
        for _ in range(5):
            async with vault.lock(ALICE, "renew", 60):
                before = await vault.load(ALICE)
                assert before is not None
                await vault.save(ALICE, str(int(before) + 1).encode())

    async with anyio.create_task_group() as group:
        for vault in vaults:
            group.start_soon(renew, vault)
    assert await newest(vaults[3], ALICE) == b"30"


async def test_a_page_of_changes_is_followed_by_the_next(bridges: Bridges) -> None:
    one = bridges.vault("one")
    rows = [replace(ALICE, principal=f"user-{number}") for number in range(450)]
    for row in rows:
        await one.save(row, row.principal.encode())
    two = bridges.vault("two")
    assert await two.load(rows[449]) == b"user-449"
    assert len(two.rows()) == 450


async def test_what_is_saved_is_what_all_have_whatever_is_fetched_meanwhile(bridges: Bridges) -> None:
    """A look at what others changed, while a row is written here, sends nothing old in its place."""
    one, two = bridges.vault("one"), bridges.vault("two")
    await one.save(ALICE, b"0")

    async def look() -> None:
        for _ in range(60):
            async with one.lock(BOB, "renew", 60):  # fetches
                await anyio.sleep(0)

    async with anyio.create_task_group() as group:
        group.start_soon(look)
        for number in range(1, 40):
            await one.save(ALICE, str(number).encode())
            assert await newest(two, ALICE) == str(number).encode()
            assert await one.load(ALICE) == str(number).encode()


async def test_what_was_changed_while_the_server_was_away_survives_a_restart(bridges: Bridges, server: Server) -> None:
    one = bridges.vault("one")
    await one.save(ALICE, SECRET)
    server.kill()
    await one.save(BOB, b"of bob")
    assert await one.drop(ALICE)
    server.start()
    again = bridges.vault("one")  # another process

    async def settled() -> bool:
        try:
            return await newest(again, BOB) == b"of bob"
        except StoreFailed:
            return False

    await eventually(settled, bool)
    two = bridges.vault("two")
    assert await newest(two, ALICE) is None
    assert await newest(two, BOB) == b"of bob"


async def test_with_a_key_that_could_not_be_read_nothing_is_opened_or_kept(bridges: Bridges, server: Server) -> None:
    """A reference to a secret that was not fetched is text that everybody can read: nothing is sealed with it."""
    accounts = {"key": "${cmd:a-command-that-failed}"}
    settings = Settings.model_validate({"store": server.settings().model_dump(), "accounts": accounts})
    unread = open_secrets_of(lambda: settings)
    try:
        await bridges.secrets().save("a", SECRET)
        with pytest.raises(ConfigError, match="could not be read"):
            await unread.load("a")
        with pytest.raises(ConfigError, match="could not be read"):
            await unread.save("b", SECRET)
        assert await bridges.secrets().load("b") is None
    finally:
        await unread.close()


def changes_at(vault: SharedVault) -> list[tuple[str, bool]]:
    """What a vault says that other bridges changed: whose row, and whether it is there."""
    found: list[tuple[str, bool]] = []
    vault.changed_elsewhere = lambda row, is_there: found.append((row.principal, is_there))
    return found


async def test_an_account_that_is_gone_is_noticed_where_the_server_takes_no_changes(
    bridges: Bridges, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its memory is full, so that what was changed here cannot be sent after what others changed was read."""
    one, two = bridges.vault("one"), bridges.vault("two")
    await one.save(ALICE, SECRET)
    await two.settle()
    changes = changes_at(two)
    monkeypatch.setattr(shared_vault, "FOLLOW_SECONDS", 1000.0)
    await one.drop(ALICE)
    server.cli("CONFIG", "SET", "maxmemory", "1")
    await two.save(BOB, b"of bob")
    assert changes == []
    with pytest.raises(StoreFailed, match="memory is full"):
        await two.settle()
    assert changes == [("alice", False)]


class HalfReadRows(SharedRows):
    """The server fails while its changes are read."""

    pages = -1
    """How many can be read; -1: all."""

    async def changes(self, after: int, newest: tuple[str, int]) -> tuple[Sequence[Change], bytes, bool]:
        if self.pages == 0:
            self.server.epoch += 1
            raise StoreFailed("does not answer")
        self.pages -= 1
        return await super().changes(after, newest)


async def test_accounts_that_were_half_read_are_noticed_once(bridges: Bridges, server: Server, tmp_path: Path) -> None:
    one, rows = bridges.vault("one"), HalfReadRows(redis_address(server.settings()), "mcpbridge")
    two = SharedVault(lambda: tmp_path / "two", lambda directory: vault_keys(directory, KEY, ()), rows)
    try:
        await two.settle()
        changes = changes_at(two)
        await one.save(ALICE, SECRET)
        rows.pages = 1
        with pytest.raises(StoreFailed):
            await two.settle()
        rows.pages = -1
        await two.settle()
        await two.settle()
        assert changes == [("alice", True)]
    finally:
        await two.close()


async def test_an_account_that_a_command_of_the_machine_stored_after_an_outage_is_noticed(
    bridges: Bridges, server: Server
) -> None:
    """They share the files, so that nothing in them is new to the bridge."""
    bridge, command = bridges.vault("one"), bridges.vault("one")
    await bridge.settle()
    changes = changes_at(bridge)
    server.kill()
    with pytest.raises(StoreFailed):
        await bridge.settle()
    server.start()
    await command.save(ALICE, SECRET)

    async def is_settled() -> bool:
        try:
            await bridge.settle()
        except StoreFailed:  # it is tried again in a moment
            return False
        return True

    await eventually(is_settled, bool)
    assert changes == [("alice", True)]
