"""Which functions one plain tools/call passes on its way: `python -m benchmarks.call_path`.

The way is the whole one: the client's frame comes in on standard input, the upstream's frame goes out to a process, its
answer comes in, the answer to the client goes out. The bridge is a real one with its default settings, in this process
and warm. It prints every entry into a function of the bridge, in order, with its file. A coroutine counts once, however
often it goes on. Functions of libraries do not count. The figures depend on the code alone, not on the machine: a
test holds the count (`tests/benchmarks/test_call_path.py`).
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import mcpbridge
from mcpbridge.config.schema import Settings
from mcpbridge.downstream.stdio import serve_stdio
from mcpbridge.library.bridge import Bridge

__all__ = ["Entry", "main", "trace_call"]

_PACKAGE = str(Path(mcpbridge.__file__).parent)

_WARM = 20
"""Calls before the one that is counted: plans are compiled, counters and caches filled."""

_UPSTREAM = """
import json, sys
TOOL = {"name": "echo", "description": "Return the text.", "inputSchema": {
    "type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}}
for line in sys.stdin:
    asked = json.loads(line)
    method, params = asked.get("method"), asked.get("params", {})
    if "id" not in asked:
        continue
    answer = {"jsonrpc": "2.0", "id": asked["id"]}
    if method == "initialize":
        answer["result"] = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                            "serverInfo": {"name": "stub", "version": "1"}}
    elif method == "tools/list":
        answer["result"] = {"tools": [TOOL]}
    elif method == "tools/call":
        answer["result"] = {"content": [{"type": "text", "text": params["arguments"]["text"]}]}
    elif method == "ping":
        answer["result"] = {}
    else:
        answer["error"] = {"code": -32601, "message": "Method not found"}
    print(json.dumps(answer), flush=True)
"""


class Entry(NamedTuple):
    """One entry into a function of the bridge."""

    path: str
    """The file, below the package."""
    function: str
    """The function's qualified name."""


async def trace_call() -> list[Entry]:
    """The entries of one plain call, in order."""
    settings = Settings.model_validate({"servers": {"up": {"command": sys.executable, "args": ["-c", _UPSTREAM]}}})
    async with asyncio.timeout(60), Bridge(settings) as bridge, _client(bridge) as ask:
        if not await bridge.settled(30):
            raise RuntimeError("the upstream did not start")
        for _ in range(_WARM):
            await ask("tools/call", {"name": "up__echo", "arguments": {"text": "warm"}})
        entries: list[Entry] = []
        resumed = set[FrameType]()

        def profile(frame: FrameType, event: str, _: Any) -> None:
            code = frame.f_code
            if event != "call" or not code.co_filename.startswith(_PACKAGE) or frame in resumed:
                return
            if code.co_flags & _SUSPENDS:
                resumed.add(frame)  # it goes on later; that is no further entry
            entries.append(Entry(code.co_filename[len(_PACKAGE) + 1 :], _name(code)))

        sys.setprofile(profile)
        try:
            answer = await ask("tools/call", {"name": "up__echo", "arguments": {"text": "hello"}})
        finally:
            sys.setprofile(None)
        if answer["result"]["content"][0]["text"] != "hello":
            raise RuntimeError(f"the call failed: {answer}")
        return entries


_SUSPENDS = 0x20 | 0x80 | 0x200
"""CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR."""


def _name(code: CodeType) -> str:
    return code.co_qualname if sys.version_info >= (3, 11) else code.co_name


_Ask = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


@asynccontextmanager
async def _client(bridge: Bridge) -> AsyncIterator[_Ask]:
    """A client on pipes that has initialized. It calls nothing of the bridge."""
    into_read, into_write = os.pipe()
    out_read, out_write = os.pipe()
    serving = asyncio.create_task(serve_stdio(bridge.server, in_fd=into_read, out_fd=out_write))
    loop = asyncio.get_running_loop()
    output = asyncio.StreamReader()
    reading, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(output), os.fdopen(out_read, "rb"))
    number = 0

    def send(message: dict[str, Any]) -> None:
        os.write(into_write, json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
        nonlocal number
        number += 1
        send({"id": number, "method": method, "params": params})
        while True:
            answer: dict[str, Any] = json.loads(await output.readline())
            if answer.get("id") == number:
                return answer

    try:
        about = {"name": "call_path", "version": "1"}
        await ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": about})
        send({"method": "notifications/initialized"})
        yield ask
    finally:
        os.close(into_write)
        await serving
        reading.close()
        os.close(into_read)
        os.close(out_write)


def main() -> None:
    """Print the way of a call."""
    entries = asyncio.run(trace_call())
    for number, entry in enumerate(entries, 1):
        print(f"{number:3}  {entry.path:45} {entry.function}")
    print(f"{len(entries)} entries in {len({entry.path for entry in entries})} files")


if __name__ == "__main__":
    main()
