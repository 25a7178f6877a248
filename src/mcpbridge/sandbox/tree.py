"""The processes of one job: when it ends, how much memory they hold, and the end of them all."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from mcpbridge.wire.process import sweep, sweeper

__all__ = ["Tree"]

GONE_WITHIN = 5.0
"""Seconds that the system gets to end what was killed."""
LOOK_SECONDS = 0.1
"""Seconds between two looks at the memory."""


class Tree:
    """A process that leads a group, and whatever it started."""

    def __init__(self, popen: subprocess.Popen[bytes], *, cookie: str, is_swept: bool) -> None:
        """`cookie`: what the environment of all of them carries. `is_swept`: some may have left the group."""
        self._popen, self._cookie, self._is_swept = popen, cookie, is_swept
        self._first: int | None = None

    def has_first(self, pid: int) -> None:
        """`pid` is the first process of a process name space: all of it ends with this one."""
        if self._first is None:
            with suppress(OSError):  # it is gone already
                self._first = os.pidfd_open(pid)

    def pids(self) -> Iterator[int]:
        """All of them that run."""
        return _descendants(self._popen.pid)

    async def exited(self) -> None:
        """Return when the leader has ended. It stays in the process table, so that its number is nobody else's."""
        if not hasattr(os, "pidfd_open"):
            await asyncio.to_thread(self._popen.wait)
            return
        descriptor = os.pidfd_open(self._popen.pid)
        try:
            await _readable(descriptor)
        finally:
            os.close(descriptor)

    async def exceeds(self, limit: int) -> None:
        """Return as soon as all of them together hold more bytes than `limit`."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if await loop.run_in_executor(sweeper, self._holds_more, limit):
                return

    async def end(self) -> int:
        """Kill all that is left; return the exit code when it is gone, or when the system takes very long over that."""
        self._kill()
        with suppress(TimeoutError):
            async with asyncio.timeout(GONE_WITHIN):
                await self.exited()
                self._kill()  # of those that were being started meanwhile
                self._popen.poll()
                if self._first is not None:
                    await _readable(self._first)
                else:
                    while self._has_group():  # noqa: ASYNC110 - nobody tells when the child of a child is gone
                        await asyncio.sleep(0.005)
        if self._first is not None:
            os.close(self._first)
            self._first = None
        if self._is_swept:
            await sweep(self._cookie)
        code = self._popen.poll()
        return -signal.SIGKILL if code is None else code

    def _kill(self) -> None:
        if sys.platform == "win32":
            self._popen.kill()
            return
        if self._first is not None:
            with suppress(OSError):
                signal.pidfd_send_signal(self._first, signal.SIGKILL)
        with suppress(OSError):
            os.killpg(self._popen.pid, signal.SIGKILL)

    def _has_group(self) -> bool:
        """Whether a process of the group still runs. Dead ones are for the system's first process to wait for."""
        if sys.platform == "win32":
            return False
        try:
            with suppress(ChildProcessError):  # in a container we may be that first process
                os.waitpid(-self._popen.pid, os.WNOHANG)
            os.killpg(self._popen.pid, 0)
        except OSError:
            return False
        return self._popen.pid in _running_groups()

    def _holds_more(self, limit: int) -> bool:
        pids = list(self.pids())
        return sum(map(_resident, pids)) > limit and sum(map(_share, pids)) > limit


async def _readable(descriptor: int) -> None:
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)


def _running_groups() -> set[int]:
    """The groups of all processes that are not merely unburied."""
    groups: set[int] = set()
    for name in os.listdir("/proc") if Path("/proc/self").exists() else ():  # noqa: PTH208 - ten times as fast
        if name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                fields = Path(f"/proc/{name}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
                if fields[0] not in "ZX":
                    groups.add(int(fields[2]))
    return groups


def _descendants(root: int) -> Iterator[int]:
    """The process and all below it. Complete: orphans go to the first process of the name space, or to the reaper."""
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        yield pid
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - as above
                with suppress(OSError, ValueError):
                    waiting += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text("ascii").split())


def _resident(pid: int) -> int:
    """Bytes that a process has in memory, with all that it shares."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _share(pid: int) -> int:
    """The same, of what it shares only its part."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text("ascii", "replace").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return _resident(pid)
