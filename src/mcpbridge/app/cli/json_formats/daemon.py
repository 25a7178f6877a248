"""Documents about daemons and services: what was started and stopped, and what the log has."""

from typing import Any, NotRequired, TypedDict

from mcpbridge.app.cli.json_formats.shared import BridgeAnswer, ConfigProblem


class Client(TypedDict):
    """A client that is connected to a daemon on stdio."""

    name: str
    """What it calls itself; empty before it has said so."""
    pid: int
    """The process of its `mcpbridge serve`."""
    cwd: str
    """The directory that it was started in."""
    project: str
    """The project that it works in; empty: none."""
    server: str
    """The one server that it asked for; empty: all."""
    profile: str
    """The profile that it asked for; empty: none."""
    running: int
    """Calls that are under way."""
    connected_s: float
    """Seconds since it connected."""


class Snapshots(TypedDict):
    """The answers that are kept on disk for clients of this configuration."""

    kinds: int
    """Kinds of clients that there are answers for."""
    bytes: int
    """Size of the files."""
    written_s: float | None
    """Seconds since one was written last; null: none was."""
    used_s: float | None
    """Seconds since a client was answered from one; null: none was, since they were written."""


class Daemon(TypedDict):
    """What a daemon says of itself."""

    config: str
    """The configuration file."""
    instance: str
    """Another one after each restart."""
    program: str
    """The Python that it runs on."""
    socket: str
    """The socket that clients connect to."""
    log: str
    """Its log file; `journal`: the systemd journal; empty: standard error."""
    is_supervised: bool
    """Whether a service manager has started it."""
    http: str
    """The URL at which it serves HTTP; empty: it does not."""
    http_error: str
    """Why it does not, although it should; else empty."""
    token_file: str
    """The file with the token that HTTP clients send; empty: there is none."""
    idle_exit_s: float | None
    """Seconds without a client after which it ends; null: it stays."""
    idle_s: float | None
    """Seconds without a client so far; null: there are clients."""
    snapshot: Snapshots | None
    """What is kept for clients that come before the next daemon has started; null: that is off."""
    clients: list[Client]
    """Clients on stdio that are connected."""


class Started(Daemon):
    """The daemon that serves now."""

    pid: int
    """Its process."""
    started: bool
    """Whether this command has started a new process."""
    what: str
    """`started`, `runs already` or `started anew`."""


class Down(TypedDict):
    """The daemons that were stopped."""

    stopped: list[int]
    """Their processes."""


class Changed(TypedDict):
    """What a reload changed. What is empty is left out."""

    added: NotRequired[list[str]]
    """Servers that are new."""
    removed: NotRequired[list[str]]
    """Servers that are gone."""
    replaced: NotRequired[list[str]]
    """Servers that were started anew."""
    kept: NotRequired[list[str]]
    """Servers that run on with new settings."""
    sections: NotRequired[list[str]]
    """Other sections in which something changed."""


class ChangedBefore(Changed):
    """What the last reload changed that changed anything."""

    at: str
    """When, as an ISO time."""


class Reloaded(BridgeAnswer, Changed):
    """What one bridge made of the configuration. One that does not answer has `error` and `code`."""

    config: NotRequired[str]
    """The configuration file."""
    ok: NotRequired[bool]
    """Whether the file is in effect now."""
    needs_restart: NotRequired[list[str]]
    """Keys that take effect after a restart."""
    warnings: NotRequired[list[str]]
    """What was left out or assumed."""
    before: NotRequired[ChangedBefore]
    """If nothing changed: what did so before, and when."""
    config_error: NotRequired[ConfigProblem]
    """If it is not in effect: why."""


class Reload(TypedDict):
    """What the bridges made of the configuration."""

    bridges: list[Reloaded]
    """Each bridge that runs with it."""


class LogLine(TypedDict):
    """A line of the daemon's log. Each event has fields of its own besides these."""

    timestamp: NotRequired[str]
    """When, as an ISO time."""
    level: NotRequired[str]
    """`debug`, `info`, `warning`, `error` or `critical`."""
    event: str
    """What happened. Of a line that is no event, such as one of a crash, this is all there is."""
    logger: NotRequired[str]
    """The part of the bridge that logs it."""


class Console(TypedDict):
    """The console of a bridge, which is not opened with `--json`."""

    pid: int
    """The process of the bridge."""
    url: str
    """A link that works once, and for a minute."""


class ServiceInstall(TypedDict):
    """A service that was installed."""

    name: str
    """Its name."""
    dry_run: bool
    """Whether nothing was done."""
    files: list[str]
    """Files that were written."""
    commands: list[list[str]]
    """Commands that start the service."""
    started: bool
    """Whether they ran. If not, run them where the service manager can be reached."""
    ended: list[int]
    """Processes of daemons that the service takes the place of."""


class ServiceUninstall(TypedDict):
    """A service that was removed."""

    name: str
    """Its name."""
    dry_run: bool
    """Whether nothing was done."""
    files: list[str]
    """Files that were removed."""


class ServiceStatus(TypedDict):
    """How a service is."""

    name: str
    """Its name."""
    files: list[str]
    """Files that are there; empty: it is not installed (exit code 4)."""
    state: str
    """What the service manager says of it; empty: it cannot be reached."""
    supervised_daemons: list[int]
    """Processes of daemons that a service manager has started."""


class TriedOut(TypedDict):
    """Whether a server or tool that was added works."""

    ok: bool
    """Whether it works."""
    detail: str
    """What it offers, or why it does not work."""


class ConfigChange(TypedDict):
    """What a change of the configuration came to."""

    config: str
    """The file."""
    changed: bool
    """Whether its text changes."""
    written: bool
    """Whether that was written; false with `--dry-run`."""
    bridges: list[Reloaded]
    """What running bridges made of it."""
    check: NotRequired[TriedOut]
    """Of `add`: whether what was added works. Not there with `--no-check`, or if it is switched off."""


class Demo(TypedDict):
    """A run of the demo."""

    holds: bool
    """Whether every scene holds."""
    failure: NotRequired[str]
    """Why one does not."""
    scenes: list[dict[str, Any]]
    """Each scene: its `title`, whether it `holds`, its `seconds`, and what it `says`."""
    tokens: dict[str, Any]
    """Tokens `without` and `with` the bridge, in all and for each of the `items`, and how they were `counted`."""
    price_per_million: float
    """Dollars for a million tokens."""
    facts: dict[str, int]
    """Other numbers of the run."""
