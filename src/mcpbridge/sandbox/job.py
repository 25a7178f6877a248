"""What a sandbox is asked to run, and what came of it: values, and the promise of whoever runs them."""

from collections.abc import Mapping
from typing import Literal, Protocol

from msgspec import Struct

__all__ = ["DEFAULT_LIMITS", "NO_ACCESS", "Access", "Job", "Limits", "Ran", "Runner"]


class Limits(Struct, frozen=True):
    """How much a job may use."""

    timeout: float = 30.0
    """Seconds, waiting included; then all its processes are killed."""
    memory: int = 256 << 20
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
    """Files by plain name that stand in the work folder at the beginning."""
    limits: Limits = DEFAULT_LIMITS
    access: Access = NO_ACCESS


class Ran(Struct, frozen=True):
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

    async def run(self, job: Job) -> Ran:
        """Run a job to its end. Cancelled, all its processes are killed before this returns.

        Raises:
            ToolInactive: there is no sandbox here that keeps every promise; names the missing one and the fix.
        """
        ...

    @property
    def is_off(self) -> bool:
        """The user switched it off: jobs run as any program of the user. Results say so."""
        ...
