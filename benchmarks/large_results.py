"""How long other servers' calls wait while one server's large result passes: `python -m benchmarks.large_results [MB]`.

A real bridge in this process, two servers as processes. One answers with a result of so many megabytes (50 unless
said); meanwhile the other is called again and again, one call at a time, by another client. Printed are its usual call,
its worst call during the large result, and how long the large one took. The loop's longest standstill is what the worst
call shows. A client that has asked for the large result itself waits longer: its own pipe is full of that meanwhile.
"""

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from mcpbridge.config.schema import Settings
from mcpbridge.downstream.stdio import serve_stdio
from mcpbridge.library.bridge import Bridge

__all__ = ["main", "measured"]

_UPSTREAM = """
import json, sys
LARGE = json.dumps({"content": [{"type": "text", "text": "0123456789abcdef " * (int(sys.argv[1]) << 16)}]})
for line in sys.stdin:
    asked = json.loads(line)
    method, params = asked.get("method"), asked.get("params", {})
    if "id" not in asked:
        continue
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
    sys.stdout.write('{"jsonrpc":"2.0","id":%s,"result":%s}\\n' % (json.dumps(asked["id"]), result))
    sys.stdout.flush()
"""

Message = dict[str, Any]
Call = Callable[[str], Awaitable[int]]
"""Calls a tool by name; returns the bytes of the answer."""


async def measured(megabytes: int, **sections: Any) -> dict[str, float]:
    """Milliseconds: `usual` (median) and `worst` of the small calls meanwhile, and `large`, the large one itself."""
    server = {"command": sys.executable, "args": ["-c", _UPSTREAM, str(megabytes)]}
    settings = Settings.model_validate({"servers": {"big": server, "other": server}, **sections})
    async with Bridge(settings) as bridge, _client(bridge) as call, _client(bridge) as call_large:
        assert await bridge.settled(60)
        for _ in range(20):
            await call("other__small")
        usual = [await _timed(call, "other__small") for _ in range(200)]
        large = asyncio.create_task(_timed(call_large, "big__large"))
        during: list[float] = []
        while not large.done():
            during.append(await _timed(call, "other__small"))
        return {"usual": statistics.median(usual), "worst": max(during), "large": await large}


async def _timed(call: Call, name: str) -> float:
    began = time.perf_counter()
    await call(name)
    return (time.perf_counter() - began) * 1000


@asynccontextmanager
async def _client(bridge: Bridge) -> AsyncGenerator[Call]:
    """A client on pipes in the same process. It looks at the ids of answers alone, so that it costs the loop little."""
    into_read, into_write = os.pipe()
    out_read, out_write = os.pipe()
    loop = asyncio.get_running_loop()
    waiting: dict[bytes, asyncio.Future[int]] = {}
    parts: list[bytes] = []
    numbers = iter(range(1, 1 << 30))

    def arrived() -> None:
        *lines, rest = os.read(out_read, 1 << 20).split(b"\n")
        for line in lines:
            parts.append(line)
            id_ = parts[0][:60].split(b'"id":', 1)[1].split(b",", 1)[0]
            waiting.pop(id_).set_result(sum(map(len, parts)))
            parts.clear()
        if rest:
            parts.append(rest)

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
    """Measure, with results passed whole and with the default settings, and print."""
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    for what, sections in (("passed whole", {"results": {"strategy": "off"}}), ("default settings", {})):
        got = asyncio.run(measured(megabytes, **sections))
        print(
            f"{megabytes} MB, {what}: usual call {got['usual']:.2f} ms, worst {got['worst']:.0f} ms meanwhile; "
            f"the large one {got['large']:.0f} ms"
        )


if __name__ == "__main__":
    main()
