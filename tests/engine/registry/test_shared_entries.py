"""What bridges of one store have added at run time, when the store loses its data (issue 24)."""

from collections.abc import Generator
from pathlib import Path

import pytest

from mcpbridge.engine.registry.format import Entry, StoredEntries
from support.redis_server import Server, needs_redis

pytestmark = needs_redis

FAR, NEAR = [
    Entry("servers", name, table={"url": "http://127.0.0.1:9/mcp"}, is_stored=True) for name in ("far", "near")
]


@pytest.fixture
def redis(tmp_path: Path) -> Generator[Server]:
    found = Server(tmp_path / "redis").start()
    yield found
    found.kill()


async def test_what_was_taken_out_after_a_loss_is_not_restored_by_whoever_notices_the_loss_later(redis: Server) -> None:
    stores = [redis.store(), redis.store()]
    one, two = [StoredEntries(store, lambda: "config:/x.toml") for store in stores]
    try:
        for entries in (one, two):
            assert not await entries.restore([])
        await one.change(None, FAR)
        redis.cli("FLUSHALL")
        assert await one.restore([FAR])
        assert len(await two.all()) == 1
        await one.change(FAR, None)
        assert await two.restore([FAR, NEAR]), "the second one alone knew of another"
        [kept] = await one.all()
        assert b"near" in kept
        assert not await one.restore([NEAR])
        await one.change(None, FAR)
        assert len(await two.all()) == 2, "what was taken out can be added again"
    finally:
        for store in stores:
            await store.close()
