"""How long it takes to make a large result small: python -m benchmarks.result_speed [--rounds N]

Milliseconds, the fastest of some rounds: reading and previewing, the lossless forms, transforms by a worker that is
warm, and the CPU time of the bridge for a whole call of a server whose result is rows: read, kept and previewed. Sizes
are of texts made here: records as JSON, and a log.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio

from mcpbridge import Bridge

__all__ = ["main"]

_SIZES = {"30 KB": 30_000, "90 KB": 90_000, "1 MB": 1_000_000, "10 MB": 10_000_000}
_PAYLOADS = Path(__file__).with_name("programs") / "upstream_payloads.py"
_CALLS = 20
"""Of one round."""
_ROOM = 1860
"""Characters of a preview, in a budget of 2,000."""


def records(size: int) -> str:
    """Records as JSON, of about so many characters."""
    rows: list[dict[str, Any]] = []
    length = 0
    while length < size:
        rows.append(_record(len(rows)))
        length += 330
    return json.dumps(rows)


def _record(i: int) -> dict[str, Any]:
    person = i * 31 % 97
    login = f"user-{person * 7919 % 1000:03d}"
    user = {"login": login, "id": 7000 + person, "url": f"https://api.example.com/users/{login}", "admin": False}
    return {
        "number": 9000 - i,
        "url": f"https://api.example.com/issues/{9000 - i}",
        "title": f"Item {i * 2654435761 % 2**32:08x} of {i * 40503 % 977}",
        "state": "open" if i % 3 else "closed",
        "created_at": f"2026-{i % 12 + 1:02d}-{i % 28 + 1:02d}T{i % 24:02d}:{i * 7 % 60:02d}:00Z",
        "user": user,
        "labels": [{"name": name, "color": "ff0000"} for name in ("bug", "ui")[: i % 3]],
        "score": i * 37 % 1000 / 8,
    }


def log(size: int) -> str:
    """Lines of a log, of about so many characters."""
    lines: list[str] = []
    length = 0
    while length < size:
        i = len(lines)
        level = ("INFO", "INFO", "DEBUG", "WARN", "ERROR")[i * 7 % 5]
        day, hour, minute = i // 86400 % 28 + 1, i // 3600 % 24, i // 60 % 60
        at = f"2026-05-{day:02d}T{hour:02d}:{minute:02d}:{i % 60:02d}.{i * 37 % 1000:03d}Z"
        part, request = ("db", "http", "auth")[i % 3], i * 2654435761 % 2**32
        lines.append(f"{at} {level:5} [{part}] request {request:08x} took {i % 900}ms")
        length += len(lines[-1]) + 1
    return "\n".join(lines)


def measurements(rounds: int) -> Iterator[tuple[str, str, float]]:
    """What was done, with how much, and the milliseconds it took."""
    from mcpbridge.results.document import read
    from mcpbridge.results.lossless.encode import shortest
    from mcpbridge.results.preview.preview import preview

    for size, characters in list(_SIZES.items())[1:]:
        few = 1 if characters > 5_000_000 else rounds
        for kind, text in (("JSON", records(characters)), ("log", log(characters))):
            document = read(text)
            yield f"read, {kind}", size, _fastest(lambda text=text: read(text), few)
            yield f"read and preview, {kind}", size, _fastest(lambda text=text: preview(read(text), _ROOM), few)
            yield f"lossless that may fit, {kind}", size, _fastest(lambda d=document: shortest(d, _ROOM), few)
            yield f"lossless, {kind}", size, _fastest(lambda d=document: shortest(d), few)


def _fastest(do: Callable[[], object], rounds: int) -> float:
    best = float("inf")
    for _ in range(rounds):
        began = time.perf_counter()
        do()
        best = min(best, time.perf_counter() - began)
    return best * 1000


async def transforms(rounds: int) -> list[tuple[str, str, float]]:
    """The same for transforms by JavaScript; empty where there are none."""
    try:
        from mcpbridge.sandbox.javascript.engine import JavaScript
    except ImportError:
        return []
    found: list[tuple[str, str, float]] = []
    async with JavaScript() as engine:
        for size in ("30 KB", "1 MB"):
            value = records(_SIZES[size])

            async def evaluate(value: str = value) -> object:
                return await engine.evaluate("result.filter(r => r.state === 'open').length", value, binding="json")

            await evaluate()
            found.append(("transform, JavaScript", size, await _fastest_async(evaluate, rounds)))
    return found


async def calls(rounds: int) -> list[tuple[str, str, float]]:
    """The CPU time of a call, of all threads of the process in which the bridge runs."""
    size, best = "90 KB", float("inf")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "rows.payload").write_text(records(_SIZES[size]), encoding="utf-8")
        os.environ.update({name: f"{folder}/{name}" for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME")})
        server = {"command": sys.executable, "args": [str(_PAYLOADS), folder]}
        async with Bridge.open({"mcpServers": {"up": server}}) as bridge:
            for number in range(rounds + 1):
                began = time.process_time()
                for _ in range(_CALLS):
                    await bridge.call_tool("up__get_rows")
                if number:  # the first warms up
                    best = min(best, time.process_time() - began)
    return [("whole call, JSON, CPU", size, best / _CALLS * 1000)]


async def _fastest_async(do: Callable[[], Awaitable[object]], rounds: int) -> float:
    best = float("inf")
    for _ in range(rounds):
        began = time.perf_counter()
        await do()
        best = min(best, time.perf_counter() - began)
    return best * 1000


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.result_speed", description="Time the work on results.")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="of which the fastest counts (default: 5)")
    rounds: int = parser.parse_args(arguments).rounds
    print("| what | size | ms |\n|:---|---:|---:|")
    for what, size, took in measurements(rounds):
        print(f"| {what} | {size} | {took:,.1f} |", flush=True)
    for what, size, took in [*anyio.run(transforms, rounds), *anyio.run(calls, rounds)]:
        print(f"| {what} | {size} | {took:,.1f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
