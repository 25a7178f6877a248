"""How long other servers' calls wait while one server's large result passes: `python -m benchmarks.large_results [MB]`.

A real bridge in this process, two servers as processes. One answers with a result of so many megabytes (50 unless
said), over stdio or HTTP; meanwhile the other is called again and again, one call at a time, by another client. Printed
are its usual call, its worst call during the large result, and how long the large one took, each as the median of some
runs. The loop's longest standstill is what the worst call shows. A client that has asked for the large result itself
waits longer: its own pipe is full of that meanwhile.

A busy machine delays calls by itself. So each run has its own comparison: the worst call of as long a while in which
nothing large passes. What a busy machine changes least is the longest step: the most time of the processor that the
loop's thread took in one turn of one task, while the large result passed.
"""

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from mcpbridge.config.schema import Settings
from mcpbridge.downstream.stdio import serve_stdio
from mcpbridge.library.bridge import Bridge

__all__ = ["main", "measured"]

_STUB = """
import json, sys
LARGE = json.dumps({"content": [{"type": "text", "text": "0123456789abcdef " * (int(sys.argv[1]) << 16)}]})
def answer(asked):
    method, params = asked.get("method"), asked.get("params", {})
    if method == "initialize":
        result = json.dumps({"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                             "serverInfo": {"name": "stub", "version": "1"}})
    elif method == "tools/list":
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("large", "small")]
        result = json.dumps({"tools": tools})
    elif method == "tools/call":
        result = LARGE if params["name"] == "large" else '{"content":[{"type":"text","text":"ok"}]}'
    else:
        result = "{}"
    return '{"jsonrpc":"2.0","id":%s,"result":%s}' % (json.dumps(asked["id"]), result)
"""
_STDIO = """
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        sys.stdout.write(answer(asked) + chr(10))
        sys.stdout.flush()
"""
_HTTP = """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *args):
        pass
    def reply(self, status, kind="", body=b""):
        self.send_response(status)
        if kind:
            self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        self.reply(405)
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "id" not in asked:
            self.reply(202)
        elif sys.argv[2] == "json":
            self.reply(200, "application/json", answer(asked).encode())
        else:
            self.reply(200, "text/event-stream", b"data: %b" % answer(asked).encode() + bytes([10, 10]))
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""

_RUNS = 5
"""Each in a loop and with servers of its own."""

Message = dict[str, Any]
Call = Callable[[str], Awaitable[int]]
"""Calls a tool by name; returns the bytes of the answer."""


async def measured(megabytes: int, transport: str = "stdio", **sections: Any) -> dict[str, float]:
    """Milliseconds: `usual` (median) and `worst` of the small calls meanwhile; `large`, the large one itself; `quiet`,
    the worst small call of as long a while without one; `step`, the longest step of the loop while it passes.

    `transport`: of the server with the large result: `stdio`, `json` or `events` (both over HTTP).
    """
    small = {"command": sys.executable, "args": ["-c", _STUB + _STDIO, "0"]}
    async with _large_server(megabytes, transport) as server:
        settings = Settings.model_validate({"servers": {"big": server, "other": small}, **sections})
        async with Bridge(settings) as bridge, _client(bridge) as call, _client(bridge) as call_large:
            assert await bridge.settled(60)
            for _ in range(20):
                await call("other__small")
            usual = [await _timed(call, "other__small") for _ in range(200)]
            during: list[float] = []
            with _steps() as steps:
                large = asyncio.create_task(_timed(call_large, "big__large"))
                while not large.done():
                    during.append(await _timed(call, "other__small"))
            quiet: list[float] = []
            while sum(quiet) < large.result():
                quiet.append(await _timed(call, "other__small"))
            return {
                "usual": statistics.median(usual),
                "worst": max(during),
                "large": large.result(),
                "quiet": max(quiet),
                "step": max(steps) * 1000,
            }


@contextmanager
def _steps() -> Generator[list[float]]:
    """Seconds of the processor that each step of the loop takes meanwhile."""
    took: list[float] = []
    run = asyncio.Handle._run

    def timed(self: asyncio.Handle) -> None:
        began = time.thread_time()
        run(self)
        took.append(time.thread_time() - began)

    asyncio.Handle._run = timed
    try:
        yield took
    finally:
        asyncio.Handle._run = run


@asynccontextmanager
async def _large_server(megabytes: int, transport: str) -> AsyncGenerator[Message]:
    """The server with the large result, as the configuration names it."""
    if transport == "stdio":
        yield {"command": sys.executable, "args": ["-c", _STUB + _STDIO, str(megabytes)]}
        return
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _STUB + _HTTP, str(megabytes), transport, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        yield {"url": f"http://127.0.0.1:{int(await process.stdout.readline())}/mcp"}
    finally:
        process.kill()
        await process.wait()


async def _timed(call: Call, name: str) -> float:
    began = time.perf_counter()
    await call(name)
    return (time.perf_counter() - began) * 1000


@asynccontextmanager
async def _client(bridge: Bridge) -> AsyncGenerator[Call]:
    """A client on pipes in the same process. It keeps the ids of answers alone, so that it costs the loop little."""
    into_read, into_write = os.pipe()
    out_read, out_write = os.pipe()
    loop = asyncio.get_running_loop()
    waiting: dict[bytes, asyncio.Future[int]] = {}
    head, size = b"", 0
    numbers = iter(range(1, 1 << 30))

    def arrived() -> None:
        nonlocal head, size
        *lines, rest = os.read(out_read, 1 << 16).split(b"\n")
        for line in lines:
            id_ = (head + line[:60]).split(b'"id":', 1)[1].split(b",", 1)[0]
            waiting.pop(id_).set_result(size + len(line))
            head, size = b"", 0
        head, size = (head + rest)[:60], size + len(rest)

    def ask(method: str, params: Message) -> asyncio.Future[int]:
        number = next(numbers)
        answer = waiting[b"%d" % number] = loop.create_future()
        line = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        os.write(into_write, line.encode() + b"\n")
        return answer

    async def call(name: str) -> int:
        return await ask("tools/call", {"name": name, "arguments": {}})

    serving = asyncio.create_task(serve_stdio(bridge.server, in_fd=into_read, out_fd=out_write))
    loop.add_reader(out_read, arrived)
    client = {"name": "large_results", "version": "1"}
    await ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client})
    try:
        yield call
    finally:
        loop.remove_reader(out_read)
        serving.cancel()
        await asyncio.wait([serving])
        for descriptor in (into_read, into_write, out_read, out_write):
            os.close(descriptor)


def main() -> None:
    """Measure, with results passed whole and with the default settings, over each transport, and print medians."""
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    for transport in ("stdio", "json", "events"):
        for what, sections in (("passed whole", {"results": {"strategy": "off"}}), ("default settings", {})):
            runs = [asyncio.run(measured(megabytes, transport, **sections)) for _ in range(_RUNS)]
            got = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
            print(
                f"{megabytes} MB, {transport}, {what}: usual call {got['usual']:.2f} ms, worst {got['worst']:.0f} ms "
                f"meanwhile, {got['quiet']:.0f} ms without it; longest step {got['step']:.1f} ms of CPU; the large one "
                f"{got['large']:.0f} ms"
            )


if __name__ == "__main__":
    main()
