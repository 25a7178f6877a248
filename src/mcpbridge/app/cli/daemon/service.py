"""`mcpbridge service`: let the system start the daemon, at login or for the first client."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import click

from mcpbridge.app.cli.config.config_path import config_path, load_trusted
from mcpbridge.app.cli.failures import fail
from mcpbridge.app.cli.options import as_json_option, config_option
from mcpbridge.app.cli.output import note, print_json, visible
from mcpbridge.app.cli.running_bridges import daemons, end_and_wait, log_of
from mcpbridge.app.daemon.service_units import Service, launchd_plist, systemd_service, systemd_socket
from mcpbridge.app.exit_codes import OK, UNREACHABLE, USAGE
from mcpbridge.app.stdio_proxy.daemon_lock import socket_path
from mcpbridge.base.directories import config_directory, daemon_key, runtime_directory
from mcpbridge.config.files.write_file import replace_file

_ON_MAC = sys.platform == "darwin"
_NAME = "mcpbridge"
_name_option = click.option(
    "--name", default=_NAME, metavar="NAME", help=f"Name of the service (default: {_NAME}), for several of them."
)
_dry_option = click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")


@dataclass(frozen=True, slots=True)
class _Plan:
    """Files of a service, and what the service manager is told once they are there, or before they go."""

    files: dict[Path, bytes]
    enable: list[list[str]]
    disable: list[list[str]]
    after_removal: list[list[str]]


@click.group("service")
def service_command() -> None:
    """Make the system start the daemon: as a systemd unit of the user, or as a launchd agent on macOS.

    This is optional: `mcpbridge serve` starts a daemon when one is needed. A service is for a daemon that runs from the
    login on, for instance for HTTP clients.

    \u0008
    Examples:
      mcpbridge service install --http 127.0.0.1:8808
      mcpbridge service status
    """


@service_command.command("install")
@config_option
@_name_option
@click.option("--http", default="", metavar="HOST:PORT", help="Serve HTTP as well, there instead of at `daemon.http`.")
@click.option("--socket", is_flag=True, help="Start it for the first client instead of at login (systemd).")
@click.option("--print", "prints", is_flag=True, help="Print the files instead of writing them.")
@_dry_option
@as_json_option
def install(
    *, config: str | None, name: str, http: str, socket: bool, prints: bool, dry_run: bool, as_json: bool
) -> int:
    """Write the files of the service, and start it.

    Variables that the configuration names are read from the file `environment` beside the user's servers.toml
    (`NAME=value`, one on each line), and from the environment of clients that connect. Exit code 2: the configuration
    is wrong.

    \u0008
    Examples:
      mcpbridge service install
      mcpbridge service install --http 127.0.0.1:8808 --dry-run
    """
    path = config_path(config)
    load_trusted(config, fetches=False)
    if socket and _ON_MAC:
        raise click.UsageError("--socket is for systemd.")
    if prints and as_json:
        raise click.UsageError("--print and --json exclude each other.")
    plan = _plan(path, name, http, is_activated=socket)
    if prints:
        for file, content in plan.files.items():
            print(f"# {file}\n{content.decode()}")
        return OK
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        ended, is_started = _install(path, plan, dry_run=dry_run)
    if as_json:
        done = {"dry_run": dry_run, "files": list(map(str, plan.files)), "commands": plan.enable}
        print_json("service-install/1", {"name": name, **done, "started": is_started, "ended": ended})
    return OK


def _install(path: Path, plan: _Plan, *, dry_run: bool) -> tuple[list[int], bool]:
    """Write the files and start the service. Returns the daemons that end for it, and whether it was started."""
    for file, content in plan.files.items():
        _say(f"write {file}", dry_run)
        if not dry_run:
            before = file.read_bytes() if file.is_file() else None
            replace_file(file, before, content, private=True)  # a property list has the variables
    ending = [one for one in daemons(path) if not (one.daemon or {}).get("is_supervised")]
    for one in ending:
        _say(f"let the daemon that runs end (process {one.pid}); its clients continue with the new one", dry_run)
        if not dry_run:
            end_and_wait(one, "yield")
    is_started = not dry_run and _run_all(plan.enable)
    if not is_started:
        if not dry_run:
            note("the files are written; run these where the service manager can be reached:")
        _print_commands(plan.enable)
    return [one.pid for one in ending], is_started


@service_command.command("uninstall")
@_name_option
@_dry_option
@as_json_option
def uninstall(*, name: str, dry_run: bool, as_json: bool) -> int:
    """Stop the service and remove its files. Exit code 4: there are none.

    \u0008
    Examples:
      mcpbridge service uninstall
    """
    plan = _plan(Path("/"), name, "", is_activated=True)
    there = [file for file in plan.files if file.exists()]
    if not there:
        fail(UNREACHABLE, f"no service {name!r} is installed", f"Looked for {', '.join(map(str, plan.files))}.")
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        if not dry_run:
            _run_all(plan.disable)
        for file in there:
            _say(f"remove {file}", dry_run)
            if not dry_run:
                file.unlink()
        if not dry_run:
            _run_all(plan.after_removal)
    if as_json:
        print_json("service-uninstall/1", {"name": name, "dry_run": dry_run, "files": list(map(str, there))})
    return OK


@service_command.command("status")
@config_option
@_name_option
@as_json_option
def status(*, config: str | None, name: str, as_json: bool) -> int:
    """Show whether the service is installed, and whether it serves. Exit code 4: it is not installed.

    \u0008
    Examples:
      mcpbridge service status
    """
    plan = _plan(Path("/"), name, "", is_activated=True)
    files = [str(file) for file in plan.files if file.exists()]
    running = [one for one in daemons(None) if (one.daemon or {}).get("is_supervised")]
    state = _state(name) if files else ""
    if as_json:
        pids = [one.pid for one in running]
        print_json("service-status/1", {"name": name, "files": files, "state": state, "supervised_daemons": pids})
        return OK if files else UNREACHABLE
    if not files:
        fail(UNREACHABLE, f"no service {name!r} is installed", "`mcpbridge service install` does that.")
    for file in files:
        print(visible(file))
    print(f"state: {state or 'unknown, the service manager cannot be reached'}")
    for one in running:
        print(visible(f"serves {(one.daemon or {}).get('config')}: process {one.pid}"))
    for outdated in _outdated_sockets(files, config):
        note(outdated)
    return OK


def _plan(config: Path, name: str, http: str, *, is_activated: bool) -> _Plan:
    if not name.replace("-", "").replace("_", "").isalnum():
        fail(USAGE, f"not usable as the name of a service: {name!r}", "Use letters, digits, - and _.")
    service = Service(
        name=name,
        config=config,
        program=[sys.executable, "-P", "-m", "mcpbridge"],
        path=":".join(dict.fromkeys(os.environ.get("PATH", os.defpath).split(":"))),
        environment_file=config_directory(os.environ) / "environment",
        http=http,
        ends_when_idle=is_activated,
    )
    return (_launchd if _ON_MAC else _systemd)(service)


def _systemd(service: Service) -> _Plan:
    base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user"
    files = {base / f"{service.name}.service": systemd_service(service).encode()}
    units = [f"{service.name}.service"]
    if service.ends_when_idle:
        socket = Path(socket_path(runtime_directory(os.environ), daemon_key(service.config)))
        files[base / f"{service.name}.socket"] = systemd_socket(service, socket).encode()
        units.append(f"{service.name}.socket")
    tell = ["systemctl", "--user"]
    again = [[*tell, "daemon-reload"]]
    return _Plan(
        files,
        [*again, [*tell, "enable", units[-1]], [*tell, "restart", units[-1]]],
        [[*tell, "disable", "--now", *units]],
        again,
    )


def _launchd(service: Service) -> _Plan:
    file = Path.home() / "Library" / "LaunchAgents" / f"{service.name}.plist"
    variables = _variables(service.environment_file)
    domain = f"gui/{os.getuid()}"
    stop = ["launchctl", "bootout", f"{domain}/{service.name}"]
    return _Plan(
        {file: launchd_plist(service, log_of(service.config), variables)},
        [["launchctl", "bootstrap", domain, str(file)]],
        [stop],
        [],
    )


def _variables(file: Path) -> dict[str, str]:
    """What launchd, which knows no such file, is given of it."""
    if not file.is_file():
        return {}
    pairs = (line.partition("=") for line in file.read_text("utf-8").splitlines() if line[:1] not in ("", "#"))
    return {name.strip(): value.strip().strip("\"'") for name, equals, value in pairs if equals}


def _run_all(commands: Sequence[Sequence[str]]) -> bool:
    """Run them in order; says whether all went well. What they complain about is shown."""
    for words in commands:
        if shutil.which(words[0]) is None:
            return False
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode:
            note(visible(f"{' '.join(words)}: {(done.stderr or done.stdout).strip()}"))
            return False
        print(" ".join(words))
    return True


def _state(name: str) -> str:
    if _ON_MAC or shutil.which("systemctl") is None:
        return ""
    words = ["systemctl", "--user", "is-active", f"{name}.service", f"{name}.socket"]
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
    return ", ".join(done.stdout.split())


def _outdated_sockets(files: Sequence[str], config: str | None) -> list[str]:
    """A socket unit names the socket of one release; clients of another do not look there."""
    found: list[str] = []
    for file in files:
        if file.endswith(".socket"):
            path = socket_path(runtime_directory(os.environ), daemon_key(config_path(config)))
            if path not in Path(file).read_text("utf-8"):
                found.append(f"{file} is for another release or configuration; `mcpbridge service install --socket`")
    return found


def _say(what: str, dry_run: bool) -> None:
    print(visible(f"would {what}" if dry_run else what))


def _print_commands(commands: Sequence[Sequence[str]]) -> None:
    for words in commands:
        print(f"  {' '.join(words)}")
