"""What programs that call tools cost, and what hostile ones do: python -m benchmarks.code_mode [--attacks FILE]

Milliseconds, the fastest of some rounds. `FILE` has hostile programs under `python`, by name. Needs the extra `code`.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from msgspec import Raw

from mcpbridge.sandbox.python.program import ProgramClock, ProgramLimits, ProgramResult, Programs, Value, why_none

__all__ = ["main"]

_LIMITS = ProgramLimits(seconds=1, memory=64 << 20, calls=500, parallel=20)
_ROWS = json.dumps([{"id": n, "name": f"row {n}", "amount": n * 1.5} for n in range(2000)]).encode()
_CALLS = 200
_TASKS = {
    "a sum, no call": "sum(range(100))",
    "one call": "(await echo(x=1))['x']",
    f"{_CALLS} calls, one after the other": f"for n in range({_CALLS}):\n    await echo(n=n)",
    "20 calls of 50 ms side by side": "import asyncio\nlen(await asyncio.gather(*[slow() for _ in range(20)]))",
    "2,000 rows of JSON, summed": "sum(row['amount'] for row in await rows())",
}


class _Tools:
    def has(self, name: str) -> bool:
        return name in ("echo", "slow", "rows")

    async def call(self, name: str, arguments: Raw, positional: int) -> Value:
        if name == "slow":
            await asyncio.sleep(0.05)
        return Value(_ROWS if name == "rows" else arguments)


async def _run(programs: Programs, code: str, limits: ProgramLimits = _LIMITS) -> ProgramResult:
    watch = ProgramClock(computing=limits.seconds + 2, altogether=10)
    return await programs.run(code, _Tools(), limits=limits, watch=watch)


async def _timed(action: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await action()
    return (time.perf_counter() - began) * 1000


async def _cold(programs: Programs) -> None:
    await _run(programs, "1")


async def _prepared(programs: Programs) -> None:
    """Wait until a process is ready, as it is between two programs of a model."""
    while programs._ready is None:
        await asyncio.sleep(0.01)


def _resident(pid: int) -> float:
    """MB of a process and its children, each page counted where it is mapped."""
    pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6 + sum(_resident(int(child)) for child in children)


async def _speed(rounds: int) -> None:
    cold: list[float] = []
    for _ in range(rounds):
        programs = Programs()
        cold.append(await _timed(lambda: _cold(programs)))  # noqa: B023 - awaited at once
        await programs.close()
    print(f"{'the first program, nothing ready':40} {min(cold):9.2f} ms")
    programs = Programs()
    await _cold(programs)
    for name, code in _TASKS.items():
        took: list[float] = []
        for _ in range(rounds):
            await _prepared(programs)
            took.append(await _timed(lambda: _checked(programs, code)))  # noqa: B023 - awaited at once
        print(f"{name:40} {min(took):9.2f} ms")
    await _prepared(programs)
    if sys.platform == "linux" and programs._ready is not None:
        print(f"{'memory of the process that is ready':40} {_resident(programs._ready.pid):9.1f} MB")
    await programs.close()


async def _checked(programs: Programs, code: str) -> None:
    ended = await _run(programs, code)
    if ended.error:
        raise RuntimeError(ended.error)


async def _attacked(file: Path) -> int:
    """How many were not contained."""
    attacks: dict[str, str] = json.loads(file.read_text("utf-8"))["python"]
    programs, bad = Programs(), 0
    for name, code in attacks.items():
        began = time.perf_counter()
        ended = await _run(programs, f"result = []\n{code}")
        took = (time.perf_counter() - began) * 1000
        is_contained = len(ended.text) < 500 and (await _run(programs, "1 + 1")).text == "2"
        bad += not is_contained
        outcome = ended.error.strip().rpartition("\n")[2] or f"gave {ended.text}"
        print(f"{name:16} {took:7.0f} ms  {'contained' if is_contained else 'NOT CONTAINED'}: {outcome[:100]}")
    await programs.close()
    return bad


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0, or 1 where an attack did more than end its program."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.code_mode", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--attacks", type=Path)
    options = parser.parse_args(arguments)
    if missing := why_none():
        print(missing, file=sys.stderr)
        return 2
    asyncio.run(_speed(options.rounds))
    return 1 if options.attacks and asyncio.run(_attacked(options.attacks)) else 0


if __name__ == "__main__":
    sys.exit(main())
