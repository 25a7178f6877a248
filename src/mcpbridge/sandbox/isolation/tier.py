"""What a sandbox is (`Tier`): it turns a program into the command that runs it there; and as which user it runs.

Whether a sandbox keeps what it promises is not for it to say: `self_test.py` finds that out.

Limits on the number of processes do not hold for root, and root owns the machine's files. So where the bridge runs as
root, each job gets a user of its own, which owns nothing but its work folder. What this user cannot get to because of a
directory on the way (an interpreter below `/root`) is mounted so that he can. Where that cannot be done, or he could
not use a path that the job was promised, the job stays root without any privilege, and may start no processes.
"""

import os
import secrets
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from mcpbridge.sandbox.job import Access, Limits

_CHOWN, _DAC_OVERRIDE, _KILL, _SETGID, _SETUID, _SYS_ADMIN = 0, 1, 5, 6, 7, 21
_TO_CHANGE_USER = (_CHOWN, _DAC_OVERRIDE, _KILL, _SETGID, _SETUID)
_LOWEST, _HIGHEST = 0x70000000, 0x7FFFFFF0
"""User ids beyond those that accounts, dynamic users and containers are given."""


class Identity(Struct, frozen=True):
    """Who a job is."""

    uid: int | None = None
    """The user, and group, of its own; None: that of the bridge."""
    is_root: bool = False
    """It stays root, without privileges: no limit on processes holds for it."""
    ways: dict[str, list[str]] = {}
    """Directories that others may not enter, and what must be reachable in each."""


def identity_for(reading: Iterable[str], writing: Iterable[str], granted: Iterable[str], home: str = "") -> Identity:
    """Who may do this. `granted`: those of the paths that the user of the bridge allowed; they must be usable.

    `home`: a directory that is its own; whoever owned it before is the one again.
    """
    if sys.platform == "win32" or os.geteuid() != 0:
        return Identity()
    rights, pool = _capabilities(), _user_ids()
    if not pool or not all(rights >> number & 1 for number in _TO_CHANGE_USER):
        return Identity(is_root=True)
    written = set(writing)
    if not all(_is_usable(path, change=path in written) for path in granted):
        return Identity(is_root=True)
    ways: dict[str, list[str]] = {}
    for path in {*reading, *written, *([home] if home else ())}:
        if blocked := _first_blocked(path):
            ways.setdefault(blocked, []).append(path)
    if ways and not rights >> _SYS_ADMIN & 1:
        return Identity(is_root=True)
    owner = os.stat(home).st_uid if home else 0  # noqa: PTH116 - as above
    uid = owner if owner in pool else pool.start + secrets.randbelow(len(pool))
    return Identity(uid=uid, ways={key: sorted(ways[key]) for key in ways})


def _is_usable(path: str, *, change: bool) -> bool:
    """By somebody who is neither its owner nor in its group."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - a text comes in, and a `Path` is of no use
    except OSError:
        return False
    wanted = 0o4 | (0o2 if change else 0) | (0o1 if Path(path).is_dir() else 0)
    return mode & wanted == wanted


def _first_blocked(path: str) -> str:
    """The outermost directory on the way that others may not enter; empty: there is none."""
    for parent in reversed(Path(path).parents):
        try:
            if not parent.stat().st_mode & 0o1:
                return str(parent)
        except OSError:
            return ""
    return ""


@cache
def _capabilities() -> int:
    try:
        lines = Path("/proc/self/status").read_text("ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")), 0)


@cache
def _user_ids() -> range:
    """Those that exist here and belong to nobody."""
    try:
        rows = [row.split() for row in Path("/proc/self/uid_map").read_text("ascii").splitlines()]
    except OSError:
        return range(0)
    top = max((int(first) + int(length) for first, _, length in rows), default=0)
    if top > _HIGHEST:
        return range(_LOWEST, _HIGHEST)
    return range(max(1000, min(top, 65534) - 4096), min(top, 65534)) if top > 10_000 else range(0)


class OwnNetwork(Struct, frozen=True):
    """A network that holds nothing but sockets of the bridge, for a program of which not all is to be reached.

    Their descriptors are sent to the bridge: the proxy, the resolver, and one for each port, in this order.
    """

    control: int
    """A descriptor of a Unix socket that they are sent through."""
    proxy: int
    """The port of the proxy, at 127.0.0.1."""
    ports: tuple[int, ...]
    """Ports that are listened at, at every address."""
    addresses: tuple[str, ...] = ()
    """IPv4 networks, as `ADDRESS/BITS`, of which every address is its own, beside those of the loopback."""
    files: Mapping[str, str] = {}
    """Files that are there instead of the system's, and where they are outside."""


class Start(Struct, frozen=True):
    """A program, and all that is known of how it is to run."""

    argv: tuple[str, ...]
    """The program as an absolute path, and its arguments."""
    cwd: str
    folder: str
    """Its private folder, which it may write."""
    limits: Limits
    access: Access
    identity: Identity
    may_fork: bool = True
    home: str = ""
    """A directory of its own that is kept, which it may write; empty: there is none."""
    own_network: OwnNetwork | None = None
    """The network it has; None: the one of the machine, or none, as `access` says."""
    late: Mapping[str, str] = {}
    """Variables that only the program itself is given: they would change how what starts it is loaded."""
    lifeline: int | None = None
    """A descriptor whose other end closes when the bridge is gone."""
    information: int | None = None
    """A descriptor that gets the process id of the sandbox's first process, as JSON."""


class Tier(Protocol):
    """One sandbox."""

    @property
    def name(self) -> str:
        """What status and results call it."""
        ...

    @property
    def has_processes_of_its_own(self) -> bool:
        """It has a process name space: whatever is left in it ends with its first process."""
        ...

    def lacks(self) -> tuple[str, str] | None:
        """What it cannot be tried without, and what to do about that; None if it can be tried."""
        ...

    def who(self, access: Access, folder_parent: str, home: str = "") -> Identity:
        """As whom a job with this access runs. `home`: a directory of its own that is kept."""
        ...

    def command(self, start: Start) -> list[str]:
        """What to execute, in a session of its own and with the environment of the program."""
        ...

    def fingerprint(self) -> Sequence[str]:
        """What, if it changes, makes the result of the self-test out of date."""
        ...
