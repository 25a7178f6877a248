"""What the kernel says: of one process, without its children, and of the machine. Linux only."""

import ctypes
import os
import time

__all__ = ["adopt_orphans", "cpu_seconds", "foreign_seconds", "memory_mib", "reap_orphans"]

_PR_SET_CHILD_SUBREAPER = 36


def cpu_seconds(pid: int) -> float:
    """CPU time that all threads of the process have used, user and system, to the nanosecond."""
    return time.clock_gettime((~pid << 3) | 2)  # the kernel's name for the CPU clock of another process


def memory_mib(pid: int) -> dict[str, float]:
    """Resident memory now (`rss`), and its fair share where pages are shared with other processes (`pss`)."""
    found: dict[str, float] = {}
    with open(f"/proc/{pid}/smaps_rollup") as lines:
        for line in lines:
            key, _, value = line.partition(":")
            if key in ("Rss", "Pss"):
                found[key.lower()] = int(value.split()[0]) / 1024
    return found


def foreign_seconds() -> float:
    """CPU time that the machine has spent on anything but this process and those it has waited for, all cores together.

    Only differences mean something. Time stolen by other machines on the same host counts.
    """
    with open("/proc/stat") as lines:
        user, nice, system, _idle, _waiting, irq, softirq, steal, *_ = map(int, next(lines).split()[1:])
    busy = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    own = os.times()
    return busy - own.user - own.system - own.children_user - own.children_system


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, so that their CPU time is counted as ours."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def reap_orphans(seconds: float = 2) -> None:
    """Wait for all children that are left, for so long at most. Not while a `Popen` still waits for one."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        try:
            ended, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not ended:
            time.sleep(0.01)
