"""What lists of tools cost clients, and what slimming and routing saved (issue 20, Overview and Savings)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mcpbridge.app.admin.stats import savings_of
from mcpbridge.app.admin.token_costs import costs_document
from mcpbridge.base.errors import StoreFailed
from mcpbridge.catalog.listing.list_ledger import OTHER, ListLedger
from mcpbridge.catalog.slim.slim import visible
from mcpbridge.results.token_count import estimated_tokens_of
from mcpbridge.storage.memory_store import MemoryStore
from support.in_process_bridge import BridgeToScripts, Ear, bridged
from support.upstreams.scripted_upstream import LEGACY_SERVER, ScriptedTransport

LONG = {
    "type": "object",
    "properties": {f"field_{n}": {"type": "string", "description": "What it is, at length. " * 5} for n in range(8)},
}


def shop(count: int = 30) -> ScriptedTransport:
    tools = [
        {"name": f"tool_{n}", "description": f"Do thing {n} of many things. " * 4, "inputSchema": LONG}
        for n in range(count)
    ]
    return ScriptedTransport({**LEGACY_SERVER, "tools/list": {"tools": tools}, "tools/call": {"content": []}})


async def list_as(bridge: BridgeToScripts, times: int = 1) -> list[bytes]:
    """A client that is listed all pages of tools; the definitions that it got."""
    ear = Ear(bridge.server)
    await ear.initialize()
    for _ in range(times):
        answer = await ear.ask("tools/list", {})
    return [msgspec.json.encode(one) for one in answer["result"]["tools"]]


async def test_slimming_and_routing_are_told_apart(tmp_path: Path) -> None:
    """Each is what `mcpbridge tokens` says that its form costs, of the list that the client got."""
    sections: dict[str, Any] = {"expose": {"mode": "search", "slim": "slim"}}
    async with bridged({"up": shop()}, store={"path": str(tmp_path / "s.db")}, **sections) as bridge:
        listed = await list_as(bridge)
        saved = await savings_of(bridge.results.ledger, bridge.list_ledger)
        costs = costs_document(bridge.catalog.snapshot, "estimate")
        (row,) = saved["lists"]["rows"]
        assert (row["client"], row["lists"], row["counted"]) == ("ear", 1, False)
        assert row["sent"] == costs["total"]["sent"]
        assert row["slim"] == costs["total"]["slim"]
        assert row["listed"] == sum(estimated_tokens_of(visible(one)) for one in listed)
        assert saved["slimming"] == {"estimated": row["sent"] - row["slim"], "counted": 0}
        assert saved["routing"] == {"estimated": row["slim"] - row["listed"], "counted": 0}
        assert saved["slimming"]["estimated"] > 1000
        assert saved["routing"]["estimated"] > 1000
        by_server = (await savings_of(bridge.results.ledger, bridge.list_ledger, by=("server",)))["lists"]["rows"]
        assert {one["server"] for one in by_server} == {"up", "mcpbridge"}
        assert sum(one["listed"] for one in by_server) == row["listed"]


async def test_where_all_tools_are_listed_routing_saves_nothing(tmp_path: Path) -> None:
    """The bridge's own tools are listed besides: it is below 0 by these."""
    sections: dict[str, Any] = {"expose": {"mode": "all", "slim": "off"}}
    async with bridged({"up": shop(3)}, store={"path": str(tmp_path / "s.db")}, **sections) as bridge:
        await list_as(bridge)
        saved = await savings_of(bridge.results.ledger, bridge.list_ledger)
        assert saved["slimming"]["estimated"] == 0
        assert -1000 < saved["routing"]["estimated"] <= 0


async def test_a_list_counts_once_for_each_session(tmp_path: Path) -> None:
    async with bridged({"up": shop()}, store={"path": str(tmp_path / "s.db")}) as bridge:
        await list_as(bridge, times=3)
        await list_as(bridge)
        (account,) = await bridge.list_ledger.report()
        assert account.lists == 2


async def test_sums_survive_a_restart_and_are_those_of_one_configuration(tmp_path: Path) -> None:
    """Issue 20: savings survive a restart."""
    store = {"path": str(tmp_path / "s.db")}
    for _ in range(2):
        async with bridged({"up": shop()}, store=store) as bridge:
            await list_as(bridge)
    async with bridged({}, store=store) as bridge:
        (account,) = await bridge.list_ledger.report(by=("client",), config="")
        assert (account.key, account.lists) == (("ear",), 2)
        assert await bridge.list_ledger.report(config="/another/servers.toml") == []


async def test_counted_tokens_stand_apart_from_estimated_ones(tmp_path: Path) -> None:
    """Issue 20: estimated and counted told apart."""
    pytest.importorskip("bpe_openai")
    store = {"path": str(tmp_path / "s.db")}
    for tokenizer in ("estimate", "o200k"):
        results = {"strategy": "off", "tokenizer": tokenizer}
        async with bridged({"up": shop()}, store=store, results=results) as bridge:
            await list_as(bridge)
    async with bridged({}, store=store) as bridge:
        saved = await savings_of(bridge.results.ledger, bridge.list_ledger)
        estimated, counted = saved["lists"]["estimated"], saved["lists"]["counted"]
        assert (estimated["lists"], counted["lists"]) == (1, 1)
        assert 0.7 < estimated["sent"] / counted["sent"] < 1.4
        assert [row["counted"] for row in saved["lists"]["rows"]].count(True) == 1


async def test_a_store_that_fails_loses_no_sum() -> None:
    class Failing(MemoryStore):
        fails = True

        async def count(self, ledger: str, rows: Mapping[tuple[str, ...], Any]) -> None:
            if self.fails:
                raise StoreFailed("the disk is full")
            await super().count(ledger, rows)

    async with bridged({"up": shop(2)}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        exposed = bridge.tool_search.exposing.look(
            "", bridge.catalog.audience("ear", ""), bridge.tool_search.exposing.of("ear")
        )
        store = Failing()
        ledger = ListLedger(store)
        ledger.note("ear", exposed)
        (account,) = await ledger.report()
        assert account.lists == 1
        store.fails = False
        await ledger.flush()
        (account,) = await ListLedger(store).report()
        assert account.lists == 1


async def test_names_of_clients_are_bounded() -> None:
    """Clients name themselves."""
    async with bridged({"up": shop(1)}) as bridge:
        exposed = bridge.tool_search.exposing.look(
            "", bridge.catalog.audience("ear", ""), bridge.tool_search.exposing.of("ear")
        )
        ledger = ListLedger(MemoryStore())
        for number in range(1000):
            ledger.note(f"{number}\ud800" * 200, exposed)
        accounts = await ledger.report(by=("client",))
        assert len(accounts) == 201
        assert OTHER in {account.key[0] for account in accounts}
        assert max(len(account.key[0]) for account in accounts) <= 200
        assert sum(account.lists for account in accounts) == 1000
