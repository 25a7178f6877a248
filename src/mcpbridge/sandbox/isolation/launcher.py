"""The launcher as a sandbox of its own, no sandbox at all, and what both share with bubblewrap.

The program that is started, and what it gives up, is `launcher_main.py`.
"""

import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import MAGIC_NUMBER, cache_from_source
from itertools import count
from pathlib import Path
from typing import Any

from mcpbridge.sandbox.isolation import launcher_main as launcher
from mcpbridge.sandbox.isolation.readable_files import (
    DEVICES,
    interpreter,
    interpreter_places,
    outermost,
    system_places,
)
from mcpbridge.sandbox.isolation.seccomp import Filtering, filter_of, is_supported
from mcpbridge.sandbox.isolation.tier import Identity, Start, identity_for
from mcpbridge.sandbox.job import Access

OPEN_FILES = 1024
"""Descriptors of one process."""

_ANY_VERSION = 99


class Launcher:
    """Landlock, seccomp and limits, by a program of the standard library: works unprivileged and in containers."""

    name = "launcher"
    has_processes_of_its_own = False

    def __init__(self, version: int = _ANY_VERSION) -> None:
        """`version`: use no more of Landlock than it had then."""
        self._most = version

    @property
    def version(self) -> int:
        """Of Landlock, as far as it is used; 0: there is none."""
        return min(self._most, launcher.landlock_version())

    def lacks(self) -> tuple[str, str] | None:
        """See `Tier`."""
        if not sys.platform.startswith("linux"):
            return "it needs Linux", "Run the bridge on Linux, or in a Linux container."
        if not is_supported(platform.machine()):
            return f"system calls of {platform.machine()} are not known", "Use x86-64 or aarch64."
        if not self.version:
            return (
                "this kernel has no Landlock",
                "Use a kernel from 5.13 on with Landlock switched on (lsm=landlock,…).",
            )
        return None

    def who(self, access: Access, folder_parent: str, home: str = "") -> Identity:
        """See `Tier`."""
        granted = (*access.read_only, *access.read_write)
        return identity_for([*reads(access), folder_parent], [*access.read_write], granted, home)

    def command(self, start: Start) -> list[str]:
        """See `Tier`."""
        return [*launched(self.orders(start)), *start.argv]

    def orders(self, start: Start) -> dict[str, Any]:
        """What the launcher is to do."""
        who, version = start.identity, self.version
        filtering = Filtering(
            network=start.access.network,
            may_fork=start.may_fork,
            own_signals_only=version < 6 and who.uid is None,
            owns_files=who.uid is None,
            guards_truncation=version < 3,
            keeps_processors=start.limits.cpus > 0,
        )
        return {
            "ways": who.ways,
            "uid": who.uid,
            "powerless": who.is_root,
            "parent": os.getpid(),
            "lifeline": start.lifeline if start.may_fork else None,
            "reaper": True,
            "cwd": start.cwd,
            "files": {
                "read": reads(start.access),
                "write": writes(start),
                "network": start.access.network,
                "version": version,
            },
            "limits": limits_to_set(start, already=_processes_of_user(start)),
            "processors": processors_for(start),
            "filter": filter_of(platform.machine(), filtering),
            "late": dict(start.late),
        }

    def fingerprint(self) -> Sequence[str]:
        """See `Tier`."""
        return (*_file_print(launcher_file()), str(self.version))


class NoSandbox:
    """No sandbox: the program runs as any other of the user. Only what limits can do is done."""

    name = "off"
    has_processes_of_its_own = False

    def lacks(self) -> tuple[str, str] | None:
        """Nothing: it needs nothing."""
        return None

    def who(self, access: Access, folder_parent: str, home: str = "") -> Identity:
        """The user of the bridge."""
        return Identity()

    def command(self, start: Start) -> list[str]:
        """See `Tier`."""
        if sys.platform == "win32":
            return list(start.argv)
        limits = limits_to_set(start, already=None)
        orders = {"parent": os.getpid(), "lifeline": start.lifeline, "cwd": start.cwd, "reaper": True}
        orders |= {"limits": limits, "processors": processors_for(start), "late": dict(start.late)}
        if not sys.platform.startswith("linux"):
            orders |= {"parent": 0, "reaper": False}
        return [*launched(orders), *start.argv]

    def fingerprint(self) -> Sequence[str]:
        """Nothing is asked of it."""
        return ()


def reads(access: Access) -> list[str]:
    """All that a job may read but not change."""
    return [*outermost((*system_places(network=access.network), *interpreter_places())), *access.read_only]


def writes(start: Start) -> list[str]:
    """All that it may change as well."""
    return [
        *(device for device in DEVICES if Path(device).exists()),
        start.folder,
        *filter(None, [start.home]),
        *start.access.read_write,
    ]


def limits_to_set(start: Start, *, already: int | None) -> dict[str, int]:
    """Limits of the kernel. `already`: processes that count against the limit beside the program; None: no such limit.

    Memory is limited as what can be written to (RLIMIT_DATA): engines that reserve much more addresses than they use
    run under it, and exceeding it is an error in the program, not its end.
    """
    limits = {"DATA": start.limits.memory, "FSIZE": start.limits.file_size, "CORE": 0, "NOFILE": OPEN_FILES}
    if already is not None and start.may_fork:
        limits["NPROC"] = start.limits.pids + already
    return limits


_turns = count()
"""So that not all programs are on the same processors."""


def processors_for(start: Start) -> list[int]:
    """Those that a program may use; empty: all."""
    wanted = start.limits.cpus
    if not wanted or not hasattr(os, "sched_getaffinity"):
        return []
    there = sorted(os.sched_getaffinity(0))
    if wanted >= len(there):
        return []
    first = next(_turns) * wanted
    return sorted(there[(first + place) % len(there)] for place in range(wanted))


def launched(orders: Mapping[str, Any]) -> list[str]:
    """The launcher with these orders; the command follows."""
    given = {key: value for key, value in orders.items() if value not in (None, False, {}, 0, [])}
    # Not msgspec: names of files need not be Unicode, and as JSON in ASCII they go through a command line.
    return [interpreter(), "-I", "-S", launcher_file(), json.dumps(given, separators=(",", ":"))]


@cache
def launcher_file() -> str:
    """Compiled, where Python keeps it so and it is of this source: that saves a fifth of the time."""
    source = Path(launcher.__file__)
    compiled = Path(cache_from_source(str(source)))
    try:
        found, header = source.stat(), compiled.read_bytes()[:16]
    except OSError:
        return str(source)
    # PEP 552: the magic number, flags (0: by time and size), time and size of the source
    facts = (0, int(found.st_mtime) & 0xFFFFFFFF, found.st_size & 0xFFFFFFFF)
    current = MAGIC_NUMBER + b"".join(fact.to_bytes(4, "little") for fact in facts)
    return str(compiled if header == current else source)


def _file_print(path: str) -> tuple[str, ...]:
    try:
        found = Path(path).stat()
    except OSError:
        return (path,)
    return path, str(found.st_size), str(found.st_mtime_ns)


def _processes_of_user(start: Start) -> int | None:
    """Processes and threads that the kernel counts for the user of the job already."""
    if start.identity.uid is not None:
        return 1  # who watches over it
    if start.identity.is_root or sys.platform == "win32":
        return None
    own, found = os.getuid(), 1
    for name in os.listdir("/proc"):  # noqa: PTH208 - ten times as fast
        if name.isdigit():
            try:
                if os.stat(f"/proc/{name}").st_uid == own:  # noqa: PTH116 - for each process there is: a `Path` costs more than the rest
                    fields = Path(f"/proc/{name}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
                    found += int(fields[17])
            except (OSError, ValueError, IndexError):
                continue
    return found
