"""Ends servers over their `memory_limit`: measures how much memory a server holds, with all that it started.

Servers with a limit are measured every few seconds; those that are due at the same moment share one look at /proc.
Memory that several processes share counts once where the system reports it (PSS). That costs more, so it is asked only
of a server that seems to be over its limit, or when somebody wants to know (`memory_of`).
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from weakref import WeakKeyDictionary

from mcpbridge.base.process import orphan_reaper_main as guard
from mcpbridge.base.process.process import ServerProcess, sweeper
from mcpbridge.base.units import show_bytes

LOOK_SECONDS = 5.0
"""Seconds between two looks."""
LOOKS_IN_A_ROW = 2
"""So many looks in a row must find more than the limit: a short peak harms nobody."""


async def exceeded(process: ServerProcess, limit: int) -> str:
    """Wait until the server holds more than `limit` bytes for some time; returns a sentence with the number.

    Cancelling is safe: only the measuring ends.
    """
    loop, found, times = asyncio.get_running_loop(), 0, 0
    while times < LOOKS_IN_A_ROW:
        await asyncio.sleep(LOOK_SECONDS - loop.time() % LOOK_SECONDS)  # all at the same moment
        found = await _looks.setdefault(loop, _Looks()).held(process, limit)
        times = times + 1 if found > limit else 0
    return f"it used {show_bytes(_rounded(found))} of memory; its `memory_limit` is {show_bytes(limit)}"


async def memory_of(process: ServerProcess) -> int | None:
    """Bytes that a server holds now, with all that it started; None where the system does not say.

    Several that are asked about side by side are measured together. Cancelling is safe.
    """
    look = _looks.setdefault(asyncio.get_running_loop(), _Looks())
    return await look.held(process, 0) or None  # of all that is more than nothing the exact number is told


class _Looks:
    """The looks of one event loop."""

    def __init__(self) -> None:
        self._asked: dict[str, tuple[int, int]] = {}
        self._look: asyncio.Task[dict[str, int]] | None = None

    async def held(self, process: ServerProcess, limit: int) -> int:
        """Bytes that it holds; exact only beyond the limit."""
        self._asked[process.cookie] = process.pid, limit
        if self._look is None:
            self._look = asyncio.ensure_future(self._take())
        return (await asyncio.shield(self._look)).get(process.cookie, 0)

    async def _take(self) -> dict[str, int]:
        await asyncio.sleep(0)  # let the others join
        asked, self._asked, self._look = self._asked, {}, None
        return await asyncio.get_running_loop().run_in_executor(sweeper, _measured, asked)


_looks: WeakKeyDictionary[asyncio.AbstractEventLoop, _Looks] = WeakKeyDictionary()


def _measured(asked: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """By cookie, bytes in memory. `asked`: the process id and the limit of each."""
    if not sys.platform.startswith("linux"):
        return {cookie: _of_group(pid) for cookie, (pid, _) in asked.items()}
    processes: dict[str, list[int]] = {cookie: [] for cookie in asked}
    for pid, cookie in guard.carriers(set(asked)).items():
        processes[cookie].append(pid)
    held = {cookie: sum(map(_resident, pids)) for cookie, pids in processes.items()}
    for cookie, (_, limit) in asked.items():
        if held[cookie] > limit:
            held[cookie] = sum(map(_share, processes[cookie]))
    return held


def _resident(pid: int) -> int:
    """Bytes of a process that are in memory, with what it shares; 0 when it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _share(pid: int) -> int:
    """The same, of what it shares only its part."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return _resident(pid)


def _of_group(group: int) -> int:
    """Bytes of a process group, where there is no /proc."""
    try:
        table = subprocess.run(["ps", "-A", "-o", "pgid=,rss="], capture_output=True, timeout=LOOK_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError):
        return 0
    rows = (row.split() for row in table.stdout.decode("ascii", "replace").splitlines())
    return sum(int(row[1]) * 1024 for row in rows if len(row) == 2 and row[0] == str(group) and row[1].isdigit())


def _rounded(size: int) -> int:
    """To whole MiB: nobody wants more of it."""
    return round(size / 1024**2) * 1024**2
