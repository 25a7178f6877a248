"""What large results cost and saved: nothing counted is lost or counted twice (issue 5)."""

import asyncio
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from mcpbridge.base.errors import StoreFailed
from mcpbridge.results import token_ledger as module
from mcpbridge.results.token_ledger import OTHER, Account, TokenLedger
from mcpbridge.storage.memory_store import MemoryStore
from mcpbridge.storage.open_store import LazyStore
from mcpbridge.storage.settings import StoreSettings
from mcpbridge.storage.sqlite.store import SqliteStore

DAY = 86400


class Clock:
    """Time that passes when a test says so; it begins at 2027-01-15, 08:00 UTC."""

    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def count(ledger: TokenLedger, tool: str = "git/log", client: str = "ear", *, came: int = 100, shown: int = 10) -> None:
    line = ledger.line(tool.partition("/")[0], tool, client)
    line.calls += 1
    line.rewritten += 1
    line.came += came
    line.sent += shown
    line.stored += came


async def test_what_is_counted_is_told_before_and_after_it_is_written(tmp_path: Path, clock: Clock) -> None:
    store = SqliteStore(tmp_path / "a.db", clock=clock)
    ledger = TokenLedger(store, clock=clock)
    count(ledger)
    count(ledger)
    ledger.line("git", "git/log", "ear").recalled += 30
    expected = [Account(("git/log",), 2, 2, 200, 20, 200, 30)]
    assert await ledger.report() == expected
    await ledger.flush()
    assert await ledger.report() == expected
    await ledger.flush()
    assert await TokenLedger(store, clock=clock).report() == expected
    assert expected[0].saved == 150
    assert expected[0].percent == 75
    assert Account(()).percent == 0
    await store.close()


async def test_a_line_that_is_held_over_a_flush_goes_on(clock: Clock) -> None:
    """A call counts before and after its result is rewritten."""
    ledger = TokenLedger(MemoryStore(clock=clock), clock=clock)
    line = ledger.line("git", "git/log", "ear")
    for _ in range(3):
        line.calls += 1
        await ledger.flush()
        assert ledger.line("git", "git/log", "ear") is line
    assert [account.calls for account in await ledger.report()] == [3]


async def test_accounts_are_told_apart_by_what_is_asked(clock: Clock) -> None:
    ledger = TokenLedger(MemoryStore(clock=clock), clock=clock)
    count(ledger, "git/log", "ear")
    count(ledger, "git/show", "ear", came=1000)
    count(ledger, "k8s/pods", "mouth", came=500)
    await ledger.flush()
    clock.now += DAY
    count(ledger, "git/log", "mouth", came=50)

    async def keys(*by: Any, days: int = 7) -> list[tuple[str, ...]]:
        return [account.key for account in await ledger.report(days=days, by=by)]

    assert await keys("tool") == [("git/show",), ("k8s/pods",), ("git/log",)]  # what saved most comes first
    assert await keys("server") == [("git",), ("k8s",)]
    assert await keys("client") == [("ear",), ("mouth",)]
    assert await keys("client", "server") == [("ear", "git"), ("mouth", "k8s"), ("mouth", "git")]
    assert await keys("day") == [("2027-01-15",), ("2027-01-16",)]
    assert (await keys("tool", "day"))[-1] == ("git/log", "2027-01-16")
    assert await keys() == [()]
    assert await keys("day", days=1) == [("2027-01-16",)]
    assert (await ledger.report(by=()))[0].came == 1650
    assert len(await keys("day", days=10**9)) == 2


async def test_what_was_counted_before_midnight_stays_there(clock: Clock) -> None:
    ledger = TokenLedger(MemoryStore(clock=clock), clock=clock)
    clock.now = 1_800_000_000 // DAY * DAY + DAY - 1
    count(ledger, came=100)
    clock.now += 1
    count(ledger, came=7)
    by_day = {account.key: account.came for account in await ledger.report(by=["day"])}
    assert by_day == {("2027-01-15",): 100, ("2027-01-16",): 7}
    clock.now -= 2 * DAY  # clocks are set back, too
    count(ledger, came=1)
    assert sum(account.came for account in await ledger.report(by=["day"])) == 107 + 1


async def test_it_is_written_now_and_then_and_at_the_end(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.db"
    store = LazyStore(StoreSettings(path=str(path)), clock=clock)
    ledger = TokenLedger(store, clock=clock)
    async with ledger.running():
        pass
    assert not path.exists()  # nothing was counted
    monkeypatch.setattr(module, "_FLUSH", 0.01)
    async with ledger.running():
        count(ledger)
        with anyio.fail_after(10):
            while not await store.read_counts("results"):
                await anyio.sleep(0.01)
        count(ledger)
    [numbers] = (await store.read_counts("results")).values()
    assert numbers == [2, 2, 200, 20, 200, 0]
    await store.close()


async def test_what_was_counted_is_written_although_the_end_is_a_cancellation(clock: Clock) -> None:
    store = MemoryStore(clock=clock)
    ledger = TokenLedger(store, clock=clock)
    with anyio.CancelScope() as scope:
        async with ledger.running():
            count(ledger)
            scope.cancel()
            await anyio.sleep_forever()
    assert len(await store.read_counts("results")) == 1


async def test_a_line_that_is_held_over_the_change_of_day_still_counts(clock: Clock) -> None:
    """Review of issue 5: a call takes its line, is written down, and midnight comes before its result."""
    ledger = TokenLedger(MemoryStore(clock=clock), clock=clock)
    line = ledger.line("git", "git/log", "ear")
    line.calls += 1
    await ledger.flush()
    clock.now += DAY
    assert ledger.line("git", "git/show", "ear") is not line
    line.came += 70
    assert [account.came for account in await ledger.report(days=1, by=())] == [70]
    assert ledger.line("git", "git/log", "ear") is line
    line.came += 7
    await ledger.flush()
    assert [account.came for account in await ledger.report(days=1, by=())] == [77]


class Counting(MemoryStore):
    """Tells how many rows it gets at a time; the third time its disk is full."""

    sizes: Sequence[int] = ()

    async def count(self, ledger: str, rows: Mapping[tuple[str, ...], Sequence[int]]) -> None:
        self.sizes = [*self.sizes, len(rows)]
        if len(self.sizes) == 3:
            raise StoreFailed("the disk is full")
        await super().count(ledger, rows)


async def test_many_rows_are_written_in_parts_and_none_twice(clock: Clock) -> None:
    store = Counting(clock=clock)
    ledger = TokenLedger(store, clock=clock)
    for number in range(1200):
        count(ledger, f"git/{number}")
    await ledger.flush()
    assert store.sizes == [500, 500, 200]
    await ledger.flush()
    assert store.sizes == [500, 500, 200, 200]
    assert [account.calls for account in await ledger.report(by=())] == [1200]
    assert len(await store.read_counts("results")) == 1200


class Failing(MemoryStore):
    """Cannot be written as long as a test says so."""

    fails = True

    async def count(self, ledger: str, rows: Mapping[tuple[str, ...], Sequence[int]]) -> None:
        if self.fails:
            raise StoreFailed("the disk is full")
        await super().count(ledger, rows)


async def test_what_cannot_be_written_is_written_later_and_told_once(clock: Clock) -> None:
    store = Failing(clock=clock)
    ledger = TokenLedger(store, clock=clock)
    with capture_logs() as logs:
        for _ in range(3):
            count(ledger)
            await ledger.flush()
    assert [line["log_level"] for line in logs] == ["warning"]
    assert [account.calls for account in await ledger.report()] == [3]
    store.fails = False
    await ledger.flush()
    [numbers] = (await store.read_counts("results")).values()
    assert numbers[0] == 3


class Hanging(MemoryStore):
    """Its disk never answers."""

    async def count(self, ledger: str, rows: Mapping[tuple[str, ...], Sequence[int]]) -> None:
        await anyio.sleep_forever()


async def test_a_disk_that_hangs_does_not_keep_the_bridge(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WRITING", 0.05)
    ledger = TokenLedger(Hanging(clock=clock), clock=clock)
    with anyio.fail_after(10):
        async with ledger.running():
            count(ledger)
    assert [account.calls for account in await ledger.report()] == [1]


async def test_what_takes_longer_to_write_than_anybody_waits_counts_once(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else holds the file for a while. The thread that writes goes on, whoever waits for it."""
    store = SqliteStore(tmp_path / "a.db", clock=clock)
    ledger = TokenLedger(store, clock=clock)
    count(ledger)
    await ledger.flush()
    other = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr(module, "_WRITING", 0.05)
    count(ledger)
    await ledger.flush()
    other.execute("ROLLBACK")
    other.close()
    count(ledger)
    assert [account.calls for account in await ledger.report()] == [3]
    monkeypatch.setattr(module, "_WRITING", 60)
    await ledger.flush()
    assert [account.calls for account in await ledger.report()] == [3]
    assert [account.calls for account in await TokenLedger(store, clock=clock).report()] == [3]
    await store.close()


async def test_clients_and_tools_without_end_take_no_room_without_end(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_CLIENTS", 5)
    monkeypatch.setattr(module, "_MOST_TOOLS", 8)
    ledger = TokenLedger(MemoryStore(clock=clock), clock=clock)
    for number in range(50):
        count(ledger, client=f"client {number}")
        count(ledger, f"git/tool {number}", "client 0")
    clients = {account.key[0]: account.calls for account in await ledger.report(by=["client"])}
    assert len(clients) == 6
    assert clients[OTHER] == 45
    tools = {account.key[0]: account.calls for account in await ledger.report(by=["tool"])}
    assert len(tools) == 9
    assert sum(tools.values()) == 100
    clock.now += DAY
    count(ledger, client="client 49")
    assert ("client 49",) in {account.key for account in await ledger.report(days=1, by=["client"])}


async def test_lines_are_bounded_too(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_LINES", 10)
    ledger = TokenLedger(MemoryStore(clock=clock), clock=clock)
    for number in range(100):
        count(ledger, f"git/{number % 9}", f"client {number}")
    accounts = await ledger.report(by=["tool", "client"])
    assert len(accounts) == 11
    assert sum(account.calls for account in accounts) == 100


async def test_any_name_can_be_written(tmp_path: Path, clock: Clock) -> None:
    store = SqliteStore(tmp_path / "a.db", clock=clock)
    ledger = TokenLedger(store, clock=clock)
    for name in ("a\ud800b", "x" * 100_000, "nul\0", '"[', ""):
        count(ledger, name, name)
    await ledger.flush()
    keys = {account.key[0] for account in await ledger.report(by=["client"])}
    assert keys == {"a?b", "x" * 200, "nul\0", '"[', ""}
    await store.close()


BRIDGE = """
import asyncio, sys
from mcpbridge.results import token_ledger as module
from mcpbridge.storage.sqlite import database as sqlite_file
from mcpbridge.storage.open_store import LazyStore
from mcpbridge.storage.settings import StoreSettings

module._WRITING = sqlite_file.BUSY_SECONDS = 60  # either may be stopped for a while with the file in its hands
clock = lambda: 1_800_000_000.0

async def main():
    store = LazyStore(StoreSettings(path=sys.argv[1]), clock=clock)
    ledger = module.TokenLedger(store, clock=clock)
    async with ledger.running():
        for number in range(100):
            line = ledger.line("git", f"git/{number % 2}", "ear")
            line.calls += 1
            line.came += 10
            await ledger.flush()
    await store.close()

asyncio.run(main())
"""


async def test_several_bridges_add_up(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "a.db"
    with anyio.fail_after(60):
        bridges = [await asyncio.create_subprocess_exec(sys.executable, "-c", BRIDGE, str(path)) for _ in range(2)]
        assert [await bridge.wait() for bridge in bridges] == [0, 0]
    store = SqliteStore(path, clock=clock)
    accounts = await TokenLedger(store, clock=clock).report()
    assert [(account.key, account.calls, account.came) for account in accounts] == [
        (("git/0",), 100, 1000),
        (("git/1",), 100, 1000),
    ]
    await store.close()
