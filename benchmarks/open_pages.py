"""What open pages of the console cost calls: `python -m benchmarks.open_pages [PAGES] [CALLS]`.

A real daemon with a stdio server, and a client that calls one tool, one call after another, through `mcpbridge serve`.
Rounds without and with so many pages open (50 unless said) take turns. A page holds the event stream and asks for its
part at each change, as the browser's does, at most every two seconds. Printed are median and p95 of both, and their
ratio.
"""

import asyncio
import json
import os
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2

__all__ = ["main"]

_ROUNDS = 4
_PART_EVERY = 2.0
_UPSTREAM = Path(__file__).with_name("programs") / "upstream_stdio.py"


class _Client:
    """An MCP client over `mcpbridge serve`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process, self._id = process, 0

    async def request(self, method: str, **params: object) -> Any:
        self._id += 1
        assert self._process.stdin
        assert self._process.stdout
        message = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": params}
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        while True:
            answer = json.loads(await self._process.stdout.readline())
            if answer.get("id") == self._id:
                return answer

    async def calls(self, tool: str, count: int) -> list[float]:
        """Seconds that each of so many calls took."""
        took: list[float] = []
        for _ in range(count):
            began = time.perf_counter()
            await self.request("tools/call", name=tool, arguments={"text": "x"})
            took.append(time.perf_counter() - began)
        return took


@asynccontextmanager
async def _pages(cookies: httpx2.Cookies, start: str, count: int) -> AsyncGenerator[None]:
    """So many pages are open meanwhile."""

    async def page() -> None:
        async with (
            httpx2.AsyncClient(cookies=cookies, timeout=60) as browser,
            browser.stream("GET", f"{start}/events") as events,
        ):
            last = 0.0
            async for line in events.aiter_lines():
                if line.startswith("data:") and time.monotonic() - last > _PART_EVERY:
                    last = time.monotonic()
                    await browser.get(f"{start}/parts/overview")

    tasks = [asyncio.create_task(page()) for _ in range(count)]
    await asyncio.sleep(2)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _measured(folder: Path, count: int, calls: int) -> None:
    config = folder / "servers.toml"
    command = [sys.executable, str(_UPSTREAM)]
    config.write_text(f"[servers.one]\ncommand = {json.dumps(command[0])}\nargs = {json.dumps(command[1:])}\n")
    env = {**os.environ, "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder)}
    program = [sys.executable, "-m", "mcpbridge"]
    told = subprocess.run([*program, "ui", "--json", "--config", str(config)], env=env, capture_output=True, check=True)
    link = json.loads(told.stdout)["url"]
    start = link.partition("/enter")[0]
    async with httpx2.AsyncClient() as browser:
        await browser.get(link)
        cookies = browser.cookies
    process = await asyncio.create_subprocess_exec(
        *program, "serve", "--config", str(config), env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        client = _Client(process)
        info = {"name": "bench", "version": "1"}
        await client.request("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=info)
        listed = await client.request("tools/list")
        tool = next(one["name"] for one in listed["result"]["tools"] if one["name"].startswith("one__"))
        await client.calls(tool, 200)
        alone: list[float] = []
        beside: list[float] = []
        for _ in range(_ROUNDS):
            alone += await client.calls(tool, calls)
            async with _pages(cookies, start, count):
                beside += await client.calls(tool, calls)
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
        subprocess.run([*program, "down", "--all"], env=env, capture_output=True, check=False)
    for name, took in (("no page open", alone), (f"{count} pages open", beside)):
        p95 = statistics.quantiles(took, n=20)[-1]
        print(f"{name:>16}: median {statistics.median(took) * 1e6:7.0f} µs   p95 {p95 * 1e6:7.0f} µs")
    print(f"{'ratio':>16}: median {statistics.median(beside) / statistics.median(alone):.2f}")


def main() -> None:
    """Measure once."""
    count, calls = (int(sys.argv[at]) if len(sys.argv) > at else number for at, number in ((1, 50), (2, 2000)))
    folder = Path(tempfile.gettempdir()) / f"mcpb-{secrets.token_hex(4)}"
    folder.mkdir(mode=0o700)
    try:
        asyncio.run(_measured(folder, count, calls))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
