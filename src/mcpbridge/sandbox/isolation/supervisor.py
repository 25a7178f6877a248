"""Watches one job from its start to the end of all its processes: streams, time and memory.

The three streams need no thread and no task. The tree of processes says when the job ends and how much memory it
holds, and ends them all.
"""

import asyncio
import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from mcpbridge.base.background_tasks import to_its_end
from mcpbridge.base.process.orphan_reaper_main import COOKIE_NAME
from mcpbridge.base.process.process import end_unowned, sweep, sweeper
from mcpbridge.sandbox.isolation.work_folder import Written
from mcpbridge.sandbox.job import Limits

_PIECE = 1 << 16


class CapturedOutput:
    """What arrives on a descriptor: the beginning is kept, all of it is read and counted."""

    def __init__(self, descriptor: int, most: int) -> None:
        """`most`: bytes to keep. The descriptor is closed at its end, or by `close`."""
        self._descriptor, self._most = descriptor, most
        self._data = bytearray()
        self.cut = 0
        """Bytes that were not kept."""
        self._over = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._read)

    @property
    def data(self) -> bytes:
        """What was kept."""
        return bytes(self._data)

    async def over(self) -> None:
        """Return when nobody can write to it any more."""
        await self._over.wait()

    def close(self) -> None:
        """Stop reading."""
        if not self._over.is_set():
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._over.set()

    def _read(self) -> None:
        try:
            piece = os.read(self._descriptor, _PIECE)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        room = max(0, self._most - len(self._data))
        self._data += piece[:room]
        self.cut += max(0, len(piece) - room)
        if not piece:
            self.close()


class InputFeeder:
    """What a job reads: written as fast as it takes it, then closed."""

    def __init__(self, descriptor: int, data: bytes) -> None:
        self._descriptor, self._rest, self._is_open = descriptor, memoryview(data), True
        self._loop = asyncio.get_running_loop()
        os.set_blocking(descriptor, False)
        self._loop.add_writer(descriptor, self._write)

    def close(self) -> None:
        """Whatever is left is not written."""
        if self._is_open:
            self._is_open = False
            self._loop.remove_writer(self._descriptor)
            with suppress(OSError):
                os.close(self._descriptor)

    def _write(self) -> None:
        try:
            self._rest = self._rest[os.write(self._descriptor, self._rest[:_PIECE]) :]
        except BlockingIOError:
            return
        except OSError:  # it reads no more
            self._rest = self._rest[:0]
        if not self._rest:
            self.close()


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
        if self._is_swept:
            await sweep(self._cookie)
        code = self._popen.poll()
        return -signal.SIGKILL if code is None else code

    def let_go(self) -> None:
        """Leave what is not gone to a thread: the end was cut short with the loop, or the system takes very long."""
        if self._popen.returncode is None:
            self._kill()
            end_unowned(self._popen, self._cookie, os.getpid())
        if self._first is not None:
            os.close(self._first)
            self._first = None

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


_EOF_WITHIN = 2.0
"""Seconds until streams are given up that somebody holds open although all is killed."""
_PID = re.compile(rb'"child-pid":\s*(\d+)')
_LONGEST_REPORT = 4096

_Ended = Literal["exit", "timeout", "memory", "disk"]


class Outcome(Struct, frozen=True):
    """What came of it; as `Ran`, without the tier."""

    ended: Literal["exit", "signal", "timeout", "memory", "disk"]
    code: int
    stdout: bytes
    stderr: bytes
    cut: tuple[int, int]
    seconds: float
    cookie: str
    """What the environment of all its processes carried."""
    files: Mapping[str, int] = {}


class Descriptors:
    """Two pipes between a job and us: one that closes when we are gone, one on which the sandbox says who it is."""

    def __init__(self) -> None:
        self.lifeline, self._ours = os.pipe()
        self._reports, self.information = os.pipe()
        os.set_blocking(self._reports, False)

    def passed(self) -> tuple[int, ...]:
        """What the job inherits."""
        return () if sys.platform == "win32" else (self.lifeline, self.information)

    def started(self) -> None:
        """Close what the job has now."""
        os.close(self.lifeline)
        os.close(self.information)
        self.lifeline = self.information = -1

    async def first_process(self) -> int:
        """The process id of the sandbox's first process; 0 if it closes its end and never says."""
        loop, report = asyncio.get_running_loop(), b""
        while len(report) < _LONGEST_REPORT:
            ready = asyncio.Event()
            loop.add_reader(self._reports, ready.set)
            try:
                await ready.wait()
            finally:
                loop.remove_reader(self._reports)
            piece = os.read(self._reports, _LONGEST_REPORT)
            report += piece
            if found := _PID.search(report):
                return int(found[1])
            if not piece:
                break
        return 0

    def close(self) -> None:
        """Close all that is still open here."""
        for descriptor in (self.lifeline, self.information, self._ours, self._reports):
            if descriptor >= 0:
                os.close(descriptor)
        self.lifeline = self.information = self._ours = self._reports = -1


async def supervise(
    command: Sequence[str],
    env: Mapping[str, str],
    stdin: bytes,
    folder: str,
    limits: Limits,
    pipes: Descriptors,
    *,
    has_first: bool,
    is_swept: bool,
) -> Outcome:
    """Run the command. Cancelled, all its processes are killed before this returns.

    `folder`: its work folder, which may not become too large. `has_first`: a sandbox with processes of its own, which
    reports the id of the first. `is_swept`: processes may leave the group, and are looked for by their environment at
    the end.

    Raises:
        OSError: it could not be started.
    """
    loop, cookie = asyncio.get_running_loop(), secrets.token_hex(16)
    began = loop.time()
    popen = subprocess.Popen(  # noqa: ASYNC220 - on this thread: children end with the one that began them
        command,
        stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        cwd=None if sys.platform == "win32" else "/",
        env={**env, COOKIE_NAME: cookie},
        start_new_session=True,
        pass_fds=pipes.passed(),
    )
    tree = Tree(popen, cookie=cookie, is_swept=is_swept)
    kept = list[CapturedOutput]()
    fed: InputFeeder | None = None
    ended: _Ended = "exit"
    try:
        pipes.started()
        kept += [CapturedOutput(_own(pipe), limits.output) for pipe in (popen.stdout, popen.stderr)]
        fed = InputFeeder(_own(popen.stdin), stdin) if stdin else None
        ended = await _first_of(tree, Written(folder, limits, tree.pids), pipes if has_first else None, limits)
    finally:
        try:
            code = await to_its_end(_end(tree, kept))
        finally:
            tree.let_go()
            for stream in (*kept, *([fed] if fed is not None else ())):
                stream.close()
    return Outcome(
        ended="signal" if ended == "exit" and code < 0 else ended,
        code=abs(code),
        stdout=kept[0].data,
        stderr=kept[1].data,
        cut=(kept[0].cut, kept[1].cut),
        seconds=loop.time() - began,
        cookie=cookie,
    )


def _own(pipe: Any) -> int:
    """The descriptor of a pipe, which is ours to close from now on."""
    descriptor = os.dup(pipe.fileno())
    pipe.close()
    return descriptor


async def _first_of(tree: Tree, written: Written, pipes: Descriptors | None, limits: Limits) -> _Ended:
    """What ended it."""
    exit_, memory = asyncio.ensure_future(tree.exited()), asyncio.ensure_future(tree.exceeds(limits.memory))
    disk = asyncio.ensure_future(written.exceeds())
    others = [asyncio.ensure_future(_know_first(tree, pipes))] if pipes else []
    try:
        done, _ = await asyncio.wait({exit_, memory, disk}, timeout=limits.timeout, return_when=asyncio.FIRST_COMPLETED)
        if exit_ in done and others:
            await others[0]  # said, or never: whoever would say it has ended
        return "exit" if exit_ in done else "memory" if memory in done else "disk" if disk in done else "timeout"
    finally:
        for task in (exit_, memory, disk, *others):
            task.cancel()
        await to_its_end(_over(exit_, memory, disk, *others))


async def _over(*tasks: Awaitable[Any]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


async def _know_first(tree: Tree, pipes: Descriptors) -> None:
    if pid := await pipes.first_process():
        tree.has_first(pid)


async def _end(tree: Tree, outputs: Sequence[CapturedOutput]) -> int:
    code = await tree.end()
    with suppress(TimeoutError):
        async with asyncio.timeout(_EOF_WITHIN):
            for stream in outputs:
                await stream.over()
    return code
