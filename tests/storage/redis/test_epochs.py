"""What one bridge writes to a server makes stale what others have cached, also after an outage (issue 24)."""

from pathlib import Path

import anyio
import pytest

from mcpbridge.storage.redis.epochs import SharedEpochs
from mcpbridge.storage.settings import redis_address
from support.harness import eventually
from support.redis_server import Server, needs_redis

pytestmark = [needs_redis, pytest.mark.anyio]


async def test_a_write_during_an_outage_is_known_to_all_afterwards_though_its_bridge_caches_nothing(
    tmp_path: Path,
) -> None:
    redis = Server(tmp_path, "--appendonly", "yes", "--appendfsync", "always").start()
    address = redis_address(redis.settings())
    one, other = SharedEpochs(address, "p"), SharedEpochs(address, "p")
    try:
        with anyio.fail_after(120):
            async with one.running(), other.running():
                before = await other.current("x")
                assert before is not None
                redis.kill()
                await one.changed("x")
                assert await other.current("x") is None
                redis.start()
                await eventually(lambda: other.current("x"), lambda now: now not in (None, before), 60)
    finally:
        redis.kill()
