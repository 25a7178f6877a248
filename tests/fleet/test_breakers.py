"""What one bridge finds out about a server makes the others careful (issue 24: breaker states gossiped)."""

import http.server
import json
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.redis_server import Server
from support.replicas import TOKEN, Replica, fleet, needs_fleet, until

pytestmark = needs_fleet
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
}


class Failing(http.server.BaseHTTPRequestHandler):
    """Lists a tool, and fails each call of it, while `is_well` is not set."""

    is_well = False
    calls = 0

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method, kind = message.get("method"), type(self)
        result: dict[str, Any] = {}
        if method == "initialize":
            result = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "failing", "version": "1"},
            }
        elif method == "tools/list":
            result = {"tools": [{"name": "work", "inputSchema": {"type": "object"}}]}
        elif method == "tools/call":
            kind.calls += 1
            if not kind.is_well:
                self.answer(500, b"")
                return
            result = {"content": [{"type": "text", "text": "done"}]}
        elif method == "server/discover":
            self.answer(400, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no session"}}')
            return
        if "id" not in message:
            self.answer(202, b"")
            return
        self.answer(200, json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode())

    def do_GET(self) -> None:
        self.answer(405, b"")

    def do_DELETE(self) -> None:
        self.answer(200, b"")

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002


@pytest.fixture
def redis(tmp_path: Path) -> Generator[Server]:
    server = Server(tmp_path / "redis").start()
    yield server
    server.kill()


def call(replica: Replica) -> str:
    """The name of the error, or nothing."""
    params = {"name": "web__work", "arguments": {}, "_meta": META}
    headers = {
        "authorization": f"Bearer {TOKEN}",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "web__work",
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    answer = httpx2.post(replica.url, json=body, headers=headers, trust_env=False, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()["result"].get("_meta", {}).get("mcpbridge/error", "")


def test_a_breaker_that_opens_on_one_bridge_makes_another_one_careful(tmp_path: Path, redis: Server) -> None:
    """With three failures to bear, the second bridge stops after one; an answer makes all as it was."""

    class Web(Failing):
        pass

    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Web)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    servers = (
        f'[servers.web]\nurl = "http://127.0.0.1:{web.server_port}/mcp"\n'
        '[servers.web.breaker]\nfailures = 3\nopen = "10min"\nmax_open = "10min"\n'
    )
    try:
        with fleet(tmp_path, redis, size=3, servers=servers) as found:
            first, second, third = found.replicas
            for replica in found.replicas:
                until(lambda replica=replica: call(replica) == "UpstreamHttpError", "it is listed")
            for _ in range(2):
                call(first)
            assert call(first) == "UpstreamResting"
            for replica in (second, third):
                until(lambda replica=replica: "gets no answers of a server" in replica.log.read_text("utf-8"), "heard")
            before = Web.calls
            assert call(second) == "UpstreamHttpError"
            assert call(second) == "UpstreamResting"
            assert Web.calls == before + 1
            Web.is_well = True
            assert call(third) == ""
            Web.is_well = False
            assert call(third) == "UpstreamHttpError"
            assert call(third) == "UpstreamHttpError", "it bears as many as ever"
    finally:
        web.shutdown()
        web.server_close()
