"""Limits that several bridges count together, as clients meet them (issue 24)."""

import signal
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from mcpbridge.app.admin.usage import kept_quotas
from support.in_process_bridge import BridgeToScripts, Ear, bridged
from support.people import ear_of, office, person
from support.redis_server import Server, needs_redis

pytestmark = [needs_redis, pytest.mark.anyio]

CALL: dict[str, Any] = {"name": "files__get_file", "arguments": {}}
ANN, BOB = (person(name, groups=["eng"]) for name in ("ann", "bob"))


@asynccontextmanager
async def three_bridges(folder: Path, **sections: Any) -> AsyncGenerator[tuple[list[BridgeToScripts], Server]]:
    server = Server(folder / "redis").start()
    try:
        async with AsyncExitStack() as stack:
            found = [
                await stack.enter_async_context(
                    bridged(
                        {"files": office("files", "get_file")},
                        servers={"files": {"trusted": True}},
                        store={"kind": "redis", "url": server.url},
                        **sections,
                    )
                )
                for _ in range(3)
            ]
            yield found, server
    finally:
        server.kill()


async def outcome(ear: Ear) -> str:
    """What became of a call: the name of an error, or nothing."""
    answer = await ear.ask("tools/call", CALL)
    return answer.get("result", {}).get("_meta", {}).get("mcpbridge/error", "")


async def outcomes(ears: list[Ear], times: int) -> list[str]:
    return [await outcome(ears[number % len(ears)]) for number in range(times)]


async def test_the_rate_of_a_server_is_that_of_all_bridges(tmp_path: Path) -> None:
    roles = [{"name": "all", "groups": "eng", "servers": "files"}]
    async with three_bridges(tmp_path, calls={"rate_limit": "5/day"}, roles=roles) as (bridges, _):
        ears = [await ear_of(bridge.server, ANN) for bridge in bridges]
        assert await outcomes(ears, 5) == [""] * 5
        assert await outcomes(ears, 3) == ["RateLimited"] * 3
        assert await outcome(await ear_of(bridges[0].server, BOB)) == "", "that of each client is its own"


async def test_a_quota_is_that_of_all_bridges_and_nobody_uses_more_while_it_cannot_be_counted(tmp_path: Path) -> None:
    """A call whose place at the server is in doubt was refused, and counts all the same: nobody ever has more."""
    roles = [{"name": "all", "groups": "eng", "servers": "files", "quota": "9 calls per day"}]
    async with three_bridges(tmp_path, roles=roles) as (bridges, server):
        ears = [await ear_of(bridge.server, ANN) for bridge in bridges]
        assert await outcomes(ears, 2) == [""] * 2
        server.signal(signal.SIGSTOP)
        assert await outcomes(ears, 3) == ["LimitUnavailable"] * 3
        server.signal(signal.SIGCONT)
        made = 2
        with anyio.fail_after(60):
            while (last := await outcome(ears[made % 3])) in ("", "LimitUnavailable"):
                made += last == ""
                await anyio.sleep(0.02)
        assert last == "QuotaSpent"
        assert 6 <= made <= 9
        assert await outcomes(ears, 3) == ["QuotaSpent"] * 3
        for bridge in bridges:
            assert [row[3] for row in await bridge.used_quotas(time.time())] == [9]


async def test_the_budget_of_a_conversation_is_one_wherever_its_calls_arrive(tmp_path: Path) -> None:
    async with three_bridges(tmp_path, calls={"max_calls": 4}) as (bridges, server):
        ears = [Ear(bridge.server) for bridge in bridges]
        for ear in ears:
            await ear.initialize()
            ear.client.session.name = "one conversation"  # as HTTP names it
        assert await outcomes(ears, 4) == [""] * 4
        assert await outcomes(ears, 3) == ["BudgetSpent"] * 3
        other = Ear(bridges[0].server)
        await other.initialize()
        assert await outcome(other) == ""
        server.signal(signal.SIGSTOP)
        assert await outcome(other) == "LimitUnavailable"
        server.signal(signal.SIGCONT)


async def test_commands_show_the_quotas_that_bridges_share(tmp_path: Path) -> None:
    roles = [{"name": "all", "groups": "eng", "servers": "files", "quota": "9 calls per day"}]
    async with three_bridges(tmp_path, roles=roles) as (bridges, _):
        assert await outcomes([await ear_of(bridge.server, ANN) for bridge in bridges], 3) == [""] * 3
        used = await anyio.to_thread.run_sync(kept_quotas, bridges[0].settings.store, time.time())
        assert [row[3] for row in used] == [3]
