"""What a service manager gives the daemon, and what the daemon reports to it: systemd's protocols, which are small.

`take` removes all of it from the environment, so that servers do not believe they are meant.
"""

import os
import socket
import time
from collections.abc import MutableMapping

from msgspec import Struct

DECLARED = "MCPBRIDGE_SUPERVISED"
"""The variable with which a service manager says that it started the daemon, where it gives no other sign."""

_FIRST_DESCRIPTOR = 3
"""sd_listen_fds(3): passed sockets begin here."""


class Supervision(Struct, frozen=True):
    """How this process is looked after; by nobody, if all is empty."""

    address: str = ""
    """The socket of systemd that takes notices."""
    sockets: tuple[int, ...] = ()
    """Listening sockets that were handed over (socket activation)."""
    journal: bool = False
    """Standard error is the journal."""
    declared: bool = False
    """Our own property list for launchd says so, which gives no other sign."""

    @property
    def is_supervised(self) -> bool:
        """A service manager started it."""
        return bool(self.address or self.sockets or self.journal or self.declared)

    def ready(self, status: str) -> None:
        """It serves, also again after `reloading`."""
        self._tell("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """It is busy with its configuration, or with starting anew in the same process."""
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """It ends in order."""
        self._tell("STOPPING=1")

    def _tell(self, *lines: str) -> None:
        if not self.address:
            return
        where = f"\0{self.address[1:]}" if self.address.startswith("@") else self.address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
                out.setblocking(False)  # noqa: FBT003 - its only parameter
                out.sendto("\n".join(lines).encode(), where)
        except OSError:  # it is a courtesy
            return


def take(environ: MutableMapping[str, str], *, pid: int, stderr: tuple[int, int]) -> Supervision:
    """Read what systemd put into the environment, and remove it there.

    `pid`: of this process, to which the sockets must have been handed. `stderr`: device and inode of standard error.
    """
    names = ("NOTIFY_SOCKET", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "JOURNAL_STREAM", DECLARED)
    found = {name: environ.pop(name, "") for name in names}
    count = int(found["LISTEN_FDS"]) if found["LISTEN_FDS"].isdecimal() else 0
    mine = found["LISTEN_PID"] == str(pid)
    sockets = tuple(range(_FIRST_DESCRIPTOR, _FIRST_DESCRIPTOR + count)) if mine else ()
    for descriptor in sockets:
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - its only parameter
    in_journal = found["JOURNAL_STREAM"] == f"{stderr[0]}:{stderr[1]}"
    return Supervision(found["NOTIFY_SOCKET"], sockets, in_journal, bool(found[DECLARED]))
