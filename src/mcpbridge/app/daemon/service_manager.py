"""What a service manager gives the daemon, and what the daemon tells it: systemd's protocols, which are small.

`take` removes all of it from the environment, so that servers do not believe they are meant.

What a service manager is told to start the daemon: systemd units and a launchd property list. Pure.
"""

import os
import plistlib
import socket
import time
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path

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


BUSY = 75
"""Exit code of a supervised daemon whose configuration another daemon serves: it is tried again later."""

_TRY_AGAIN = 15
"""Seconds."""
_END = 60
"""Seconds for the end in order; it takes less."""


@dataclass(frozen=True, slots=True)
class Service:
    """One daemon as a service of the user."""

    name: str
    config: Path
    program: Sequence[str]
    """How this program is started, without a subcommand."""
    path: str
    """`PATH` for the servers: a service manager has hardly any of what a shell has."""
    environment_file: Path
    """Variables for the configuration, one a line; it need not exist."""
    http: str = ""
    ends_when_idle: bool = False
    """Where the service manager keeps the socket and starts it again."""

    @property
    def command(self) -> list[str]:
        """The whole command line."""
        words = [*self.program, "daemon", "--config", str(self.config)]
        words += ["--http", self.http] if self.http else []
        return [*words, "--idle-exit"] if self.ends_when_idle else words


def systemd_service(service: Service) -> str:
    """A unit of the user's service manager.

    Nothing in it takes rights from the daemon: servers would inherit that, and whoever configured `docker`, `sudo` or a
    server that writes files means them to work.
    """
    also = f"Also={service.name}.socket\n" if service.ends_when_idle else ""
    return f"""\
# Written by `mcpbridge service install`; it writes it anew.
[Unit]
Description=mcpbridge: the MCP servers of {_text(str(service.config))}
StartLimitIntervalSec=0

[Service]
Type=notify
ExecStart={" ".join(map(_word, service.command))}
ExecReload=/bin/kill -HUP $MAINPID
WorkingDirectory={_text(str(service.config.parent))}
Environment={_quoted(f"PATH={service.path}")}
EnvironmentFile=-{_text(str(service.environment_file))}
# {BUSY}: a client has started a daemon of its own; this one takes over once that ends.
Restart=on-failure
RestartSec={_TRY_AGAIN}
TimeoutStartSec=120
TimeoutStopSec={_END}
# The daemon ends its servers itself; what it leaves behind is killed.
KillMode=mixed
# A server that takes too much memory does not take the others with it.
OOMPolicy=continue
# Memory holds tokens, which a core file would write to disk.
LimitCORE=0

[Install]
WantedBy=default.target
{also}"""


def systemd_socket(service: Service, socket: Path) -> str:
    """The unit that keeps the daemon's socket and starts it for the first client."""
    return f"""\
# Written by `mcpbridge service install --socket`; it writes it anew.
[Unit]
Description=mcpbridge: the socket of {_text(str(service.config))}

[Socket]
ListenStream={_text(str(socket))}
SocketMode=0600
DirectoryMode=0700
RemoveOnStop=yes

[Install]
WantedBy=sockets.target
"""


def launchd_plist(service: Service, log: Path, variables: Mapping[str, str]) -> bytes:
    """A property list of launchd, for the user's own agents."""
    return plistlib.dumps(
        {
            "Label": service.name,
            "ProgramArguments": service.command,
            "WorkingDirectory": str(service.config.parent),
            "EnvironmentVariables": {"PATH": service.path, DECLARED: "1", **variables},
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ThrottleInterval": _TRY_AGAIN,
            "ExitTimeOut": _END,
            "ProcessType": "Interactive",
            "StandardErrorPath": str(log),
        }
    )


def _text(value: str) -> str:
    """A value in which nothing is expanded (systemd.unit(5), specifiers)."""
    return value.replace("%", "%%")


def _word(value: str) -> str:
    """One word of a command line (systemd.service(5), command lines)."""
    return _quoted(value).replace("$", "$$")


def _quoted(value: str) -> str:
    escaped = _text(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
