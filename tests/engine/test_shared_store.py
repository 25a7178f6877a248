"""A bridge whose store is a server that several machines share (issue 24)."""

import subprocess
import sys
from pathlib import Path

import pytest

from mcpbridge.base.errors import ConfigError
from mcpbridge.library.bridge import Bridge
from support.redis_server import Server, needs_redis


@needs_redis
async def test_a_server_that_removes_values_by_itself_keeps_the_bridge_from_starting(tmp_path: Path) -> None:
    server = Server(tmp_path / "r", "--maxmemory-policy", "volatile-ttl").start()
    try:
        bridge = Bridge.open({"store": {"kind": "redis", "url": server.url}})
        with pytest.raises(ConfigError, match="CONFIG SET maxmemory-policy noeviction"):
            async with bridge:
                pass
        server.cli("CONFIG", "SET", "maxmemory-policy", "noeviction")
        async with Bridge.open({"store": {"kind": "redis", "url": server.url}}):
            pass
    finally:
        server.kill()


async def test_a_server_that_is_away_keeps_no_bridge_from_starting(tmp_path: Path) -> None:
    async with Bridge.open({"store": {"kind": "redis", "url": f"unix://{tmp_path}/none.sock"}}):
        pass


_LOADED = """
import asyncio, sys
from mcpbridge.library.bridge import Bridge
async def main():
    async with Bridge.open({}):
        pass
asyncio.run(main())
print([name for name in sys.modules if name.split(".")[0] in ("redis", "hiredis") or ".storage.redis" in name])
"""


def test_a_bridge_without_it_loads_none_of_it() -> None:
    found = subprocess.run([sys.executable, "-c", _LOADED], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip().splitlines()[-1] == "[]"
