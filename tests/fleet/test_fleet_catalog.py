"""What the servers of a fleet offer: the same bytes from each bridge, and from one that has just begun (issue 24)."""

import json
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.redis_server import Server
from support.replicas import TOKEN, Replica, fleet, needs_fleet, until

pytestmark = needs_fleet

HEADERS = {
    "authorization": f"Bearer {TOKEN}",
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
}
PROGRAM = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
if os.path.exists(sys.argv[2]):
    time.sleep(3600)  # as one that does not start
from rich import Rich
Rich().run()
"""
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
}


@pytest.fixture
def redis(tmp_path: Path) -> Generator[Server]:
    server = Server(tmp_path / "redis").start()
    yield server
    server.kill()


def ask(replica: Replica, method: str, **params: Any) -> bytes:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
    headers = {**HEADERS, "mcp-protocol-version": "2026-07-28", "mcp-method": method}
    answer = httpx2.post(replica.url, json=body, headers=headers, trust_env=False, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.content


def names(listed: bytes) -> list[str]:
    return [tool["name"] for tool in json.loads(listed)["result"]["tools"]]


def test_all_bridges_show_the_same_bytes_and_one_that_starts_what_the_others_know(
    tmp_path: Path, redis: Server
) -> None:
    """The servers of the third bridge do not start: it lists what the fleet knows of them all the same."""
    stuck, program = tmp_path / "stuck", tmp_path / "program.py"
    program.write_text(PROGRAM, "utf-8")
    arguments = json.dumps([str(program), str(Path(__file__).parents[1] / "servers"), str(stuck)])
    servers = f'[servers.one]\ncommand = "{sys.executable}"\nargs = {arguments}\n'
    with fleet(tmp_path, redis, size=2, servers=servers) as found:
        first, second = found.replicas
        until(lambda: len(names(ask(first, "tools/list"))) > 0, "the first has listed")
        listed = ask(first, "tools/list")
        until(lambda: ask(second, "tools/list") == listed, "the second shows the same bytes")
        until(lambda: "fleet-catalog" in redis.cli("--scan"), "it is written down for the others")
        stuck.touch()
        third = found.add().start()
        assert ask(third, "tools/list") == listed
        for method in ("prompts/list", "resources/list", "resources/templates/list"):
            assert len({ask(one, method) for one in found.replicas}) == 1, method
