"""What open pages of the console cost calls: `python -m benchmarks.open_pages [PAGES] [SECONDS]`.

A real daemon with a stdio server, and a client that calls one tool, one call after another, through `mcpbridge serve`.
Rounds without and with so many pages open (50 unless said) take turns, of so many seconds each (3). A page holds the
event stream and asks for its part when it hears of a change, at the pace of `console.js`; half of them are the
overview, half the list of calls. They are in a process of their own, as browsers are. Printed are median and p95 of the
calls without and with pages, and the medians of the rounds' ratios. Takes about a minute.
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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2

from benchmarks.clients import Batch, StdioClient, handshake
from benchmarks.subjects import Upstream

__all__ = ["main"]

_ROUNDS = 6
_PACE = {"parts/overview": 1.0, "calls/list": 2.0}
"""By the part that a page asks for, seconds between two times (`PACE` of `console.js`)."""
_CALL = {"name": "one__echo", "arguments": {"text": "x"}}


async def _browse(start: str, cookie: str, count: int) -> None:
    """So many pages are open, until somebody ends this process."""
    name, _, value = cookie.partition("=")
    parts = list(_PACE)
    ready = asyncio.Semaphore(0)

    async def page(part: str) -> None:
        async with (
            httpx2.AsyncClient(cookies={name: value}, timeout=60) as browser,
            browser.stream("GET", f"{start}/events") as events,
        ):
            asked = asyncio.Event()

            async def follow() -> None:
                while True:
                    await asked.wait()
                    asked.clear()
                    answer = await browser.get(f"{start}/{part}")
                    answer.raise_for_status()
                    ready.release()
                    await asyncio.sleep(_PACE[part])

            following = asyncio.create_task(follow())
            try:
                async for line in events.aiter_lines():
                    if line.startswith("data:"):
                        asked.set()
            finally:
                following.cancel()

    pages = [asyncio.create_task(page(parts[number % len(parts)])) for number in range(count)]

    async def say_ready() -> None:
        for _ in range(count):
            await ready.acquire()
        print("ready", flush=True)

    await asyncio.gather(say_ready(), *pages)


@contextmanager
def _pages(start: str, cookie: str, count: int) -> Iterator[None]:
    """So many pages are open meanwhile, each of which has asked for its part once."""
    command = [sys.executable, "-m", "benchmarks.open_pages", "--browse", start, cookie, str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("the pages could not be opened")
            yield
        finally:
            process.terminate()


@contextmanager
def _daemon(folder: Path) -> Iterator[tuple[str, str, StdioClient]]:
    """The console's address, a cookie for it, and a client of the daemon."""
    config = folder / "servers.toml"
    command, *args = Upstream.stdio("one").argv
    config.write_text(f"[servers.one]\ncommand = {command!r}\nargs = {list(args)!r}\n")
    env = {**os.environ, "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder)}
    program = [sys.executable, "-m", "mcpbridge"]
    answer = subprocess.run(
        [*program, "ui", "--json", "--config", str(config)], env=env, capture_output=True, check=True
    )
    link = json.loads(answer.stdout)["url"]
    try:
        with httpx2.Client() as browser:
            browser.get(link)
            (cookie,) = [f"{name}={value}" for name, value in browser.cookies.items()]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "bufsize": 0}
        with subprocess.Popen([*program, "serve", "--config", str(config)], env=env, **pipes) as process:  # type: ignore[call-overload]
            client = StdioClient(process)
            try:
                handshake(client)
                while _CALL["name"] not in {tool["name"] for tool in client.request("tools/list", {})["tools"]}:
                    time.sleep(0.05)
                yield link.partition("/enter")[0], cookie, client
            finally:
                with suppress(OSError):
                    client.close()
                process.terminate()
    finally:
        subprocess.run([*program, "down", "--all"], env=env, capture_output=True, check=False)


def _measure(folder: Path, count: int, seconds: float) -> None:
    alone: list[Batch] = []
    beside: list[Batch] = []
    with _daemon(folder) as (start, cookie, client):

        def calls() -> Batch:
            return client.load("tools/call", _CALL, marker=b'"x"', in_flight=1, seconds=seconds)

        calls()
        for _ in range(_ROUNDS):
            alone.append(calls())
            with _pages(start, cookie, count):
                beside.append(calls())
    for name, batches in (("no page open", alone), (f"{count} pages open", beside)):
        shown = [f"{title} {_median(batches, share):7.0f} µs" for title, share in _SHARES.items()]
        print(f"{name:>16}: {'   '.join(shown)}   {sum(one.calls for one in batches)} calls")
    ratios = [f"{title} {_ratio(alone, beside, share):.2f}" for title, share in _SHARES.items()]
    print(f"{'ratio':>16}: {'   '.join(ratios)}")


_SHARES = {"median": 0.5, "p95": 0.95}


def _median(batches: list[Batch], share: float) -> float:
    return statistics.median(one.microseconds(share) for one in batches)


def _ratio(alone: list[Batch], beside: list[Batch], share: float) -> float:
    pairs = zip(alone, beside, strict=True)
    return statistics.median(two.microseconds(share) / one.microseconds(share) for one, two in pairs)


def main() -> None:
    """Measure once, or be the pages of a measurement."""
    if sys.argv[1:2] == ["--browse"]:
        with suppress(KeyboardInterrupt):
            asyncio.run(_browse(sys.argv[2], sys.argv[3], int(sys.argv[4])))
        return
    count, seconds = (float(sys.argv[at]) if len(sys.argv) > at else number for at, number in ((1, 50), (2, 3)))
    folder = Path(tempfile.gettempdir()) / f"mcpb-{secrets.token_hex(4)}"
    folder.mkdir(mode=0o700)
    try:
        _measure(folder, int(count), seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
