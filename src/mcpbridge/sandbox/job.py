"""What a sandbox is asked to run and what came of it: values, and the protocol of whoever runs them.

Also which files a job left in its work folder, and how its end is worded for the caller.
"""

import os
import signal
import stat
from collections.abc import Mapping
from typing import Literal, Protocol

from msgspec import Struct

from mcpbridge.base.units import show_bytes, show_seconds


class Limits(Struct, frozen=True):
    """How much a job may use. The defaults are those of `[sandbox]`, which takes them from here."""

    timeout: float = 30
    """Seconds, waiting included; then all its processes are killed."""
    memory: int = 256_000_000
    """Bytes that all its processes may hold together."""
    pids: int = 64
    """Processes and threads at a time; 1: it may start none."""
    file_size: int = 64 << 20
    """Bytes of the largest file that it may write."""
    disk: int = 512 << 20
    """Bytes that all files in its work folder may take together."""
    entries: int = 50_000
    """Files and directories in there."""
    output: int = 1 << 20
    """Bytes of each of its two streams that are kept; more is read and counted, not kept."""
    cpus: int = 0
    """Processors that it may use at a time; 0: all of the bridge's."""


class Access(Struct, frozen=True):
    """What a job may reach besides the programs and libraries of the system and its own work folder."""

    network: bool = False
    """Any address, this machine's own included."""
    read_only: tuple[str, ...] = ()
    """Absolute paths of files and directories that it may read."""
    read_write: tuple[str, ...] = ()
    """The same, that it may also change."""


DEFAULT_LIMITS, NO_ACCESS = Limits(), Access()


class Job(Struct, frozen=True):
    """One program to run."""

    argv: tuple[str, ...]
    """The program (looked up in PATH, unless it has a slash) and its arguments. No shell reads them."""
    env: Mapping[str, str] = {}
    """Variables beside PATH, HOME (the work folder), LANG and TMPDIR; nothing else of ours gets in."""
    cwd: str = ""
    """Where it works, which must be in what it may read; empty: a private work folder that is removed afterwards."""
    stdin: bytes = b""
    files: Mapping[str, bytes] = {}
    """Files by plain name that are in the work folder at the beginning."""
    limits: Limits = DEFAULT_LIMITS
    access: Access = NO_ACCESS


class JobResult(Struct, frozen=True):
    """What came of a job."""

    ended: Literal["exit", "signal", "timeout", "memory", "disk"]
    """By itself, by a signal of its own, or killed because its time, memory or place for files was up."""
    code: int
    """Its exit code; of a signal, the signal's number."""
    stdout: bytes
    stderr: bytes
    cut: tuple[int, int]
    """Bytes of the two streams that were not kept."""
    seconds: float
    tier: str
    """Which sandbox it ran in: `bubblewrap`, `launcher`, `off`, …"""
    files: Mapping[str, int] = {}
    """Bytes of each file in its work folder at the end, by path; the folder is gone."""


class Runner(Protocol):
    """Runs jobs where they can do no harm."""

    async def run(self, job: Job) -> JobResult:
        """Run a job to its end. Cancelled, all its processes are killed before this returns.

        Raises:
            ToolInactive: there is no sandbox here that keeps every promise; names the missing one and the fix.
        """
        ...

    @property
    def is_off(self) -> bool:
        """The user switched it off: jobs run as any program of the user. Results say so."""
        ...


MOST = 1000
"""Files that are reported, and directories that are searched."""


def files_left(folder: str) -> dict[str, int]:
    """Bytes of each regular file, by its path within the folder. Links are not followed."""
    found: dict[str, int] = {}
    waiting = [""]
    for _ in range(MOST):
        if not waiting or len(found) >= MOST:
            break
        inside = waiting.pop()
        try:
            with os.scandir(os.path.join(folder, inside)) as entries:  # noqa: PTH118 - text
                for entry in entries:
                    path, mode = f"{inside}{entry.name}", entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(mode.st_mode):
                        waiting.append(f"{path}/")
                    elif stat.S_ISREG(mode.st_mode) and len(found) < MOST:
                        found[path.encode("utf-8", "replace").decode()] = mode.st_size
        except OSError:
            continue
    return found


SANDBOX = "mcpbridge/sandbox"
"""In `_meta` of results: which sandbox it ran in, or `off`."""

_LONGEST_CHARACTER = 4
"""Bytes of a character in UTF-8."""


def describe_end(ran: JobResult, limits: Limits) -> str:
    """One line, empty when it ended by itself with exit code 0."""
    if ran.ended == "timeout":
        return f"stopped after {show_seconds(limits.timeout)}: it had no more time"
    if ran.ended == "memory":
        return f"stopped: it needed more than {show_bytes(limits.memory)} of memory"
    if ran.ended == "disk":
        most = f"{show_bytes(limits.disk)}, or {limits.entries:,} files"
        return f"stopped: it wrote more to its work folder than it may (at most {most})"
    if ran.ended == "signal":
        return f"ended by {_signal(ran.code)}"
    return f"exit code {ran.code}" if ran.code else ""


def decoded(data: bytes, *, is_cut: bool) -> str:
    """Output as text; what is no UTF-8 is replaced, and of a character that is cut in half nothing is left."""
    if is_cut:
        for back in range(1, min(_LONGEST_CHARACTER, len(data) + 1)):
            byte = data[-back]
            if byte >= 0xC0:  # the first byte of a character of several
                length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
                data = data[:-back] if length > back else data
                break
            if byte < 0x80:
                break
    return data.decode("utf-8", "replace")


def describe_cut(stream: str, size: int, cut: int) -> str:
    """That an output is longer than what is shown; empty when it is not. Sizes in bytes."""
    if not cut:
        return ""
    return f"[{stream} had {size + cut:,} bytes: the first {size:,} are shown, {cut:,} were cut]"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
