"""The texts that have a service manager start the daemon: systemd units, and a property list for launchd. Pure."""

import plistlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mcpbridge.app.daemon.service_manager import DECLARED
from mcpbridge.app.exit_codes import BUSY

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
