"""`mcpbridge up`, `down`, `restart` and `reload`."""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import click

from mcpbridge.app.admin.control_client import SILENT, Document
from mcpbridge.app.cli.config.config_path import config_path, load_trusted
from mcpbridge.app.cli.failures import fail
from mcpbridge.app.cli.options import as_json_option, config_option
from mcpbridge.app.cli.output import note, print_json, progress, visible
from mcpbridge.app.cli.running_bridges import (
    END_PATIENCE,
    START_PATIENCE,
    RunningBridge,
    daemons,
    end_and_wait,
    ensure_daemon,
    has_ended,
    is_held,
    process_handle,
    survey,
)
from mcpbridge.app.exit_codes import OK, TIMED_OUT, UNREACHABLE, USAGE
from mcpbridge.base.version import __version__


@click.command("up")
@config_option
@as_json_option
def up_command(*, config: str | None, as_json: bool) -> int:
    """Start the daemon in the background, and wait until it serves.

    `mcpbridge serve` starts a daemon when one is needed; that one ends when no client was connected for a while
    (`daemon.idle_exit`). This one stays until `mcpbridge down`, and so does one that runs already.

    Exit code 2: it does not start, mostly because the configuration is wrong; the error is shown. Exit code 7: one runs
    and does not answer.

    \u0008
    Examples:
      mcpbridge up
      mcpbridge up --config ~/work/servers.toml
    """
    path = config_path(config)
    around = survey(path)
    around.require_answer(path)
    before = [one for one in around.daemons if one.ask("stay").get("stays")]  # else it is about to end
    if before:
        found = before[-1]
    else:
        loaded = load_trusted(
            config, fetches=False
        )  # what is wrong with it is better said here than in the log of a process
        found = ensure_daemon(path, is_found=loaded.is_found)
    show_started("up/1", found, "runs already" if before else "started", as_json=as_json)
    return OK


def show_started(json_format: str, bridge: RunningBridge, what: str, *, as_json: bool) -> None:
    """Say which daemon serves now, and where it logs."""
    daemon = bridge.daemon or {}
    if as_json:
        print_json(json_format, {"pid": bridge.pid, "started": what == "started", "what": what, **daemon})
        return
    print(visible(f"the daemon of {daemon.get('config')} {what}: process {bridge.pid}"))
    if daemon.get("http"):
        print(visible(f"  HTTP  {daemon['http']}"))
    if daemon.get("http") and daemon.get("token_file"):
        print(visible(f"  token {daemon['token_file']} (clients send it as `Authorization: Bearer TOKEN`)"))
    if daemon.get("http_error"):
        print(visible(f"  HTTP is not served: {daemon['http_error']}"))
    print(visible(f"  log   {daemon.get('log') or 'standard error'} (mcpbridge logs)"))


_LOOK = 0.1
"""Seconds between two looks for its control socket."""


@click.command("down")
@config_option
@click.option("--all", "everything", is_flag=True, help="Stop the daemons of all configurations.")
@as_json_option
def down_command(*, config: str | None, everything: bool, as_json: bool) -> int:
    """Stop the daemon of this configuration and its servers, when running calls have ended.

    The next `mcpbridge serve` starts one again. Exit code 0 also if none runs; 7 if it does not end, or does not
    answer.

    \u0008
    Examples:
      mcpbridge down
      mcpbridge down --all
    """
    if everything and config:
        raise click.UsageError("--all and --config exclude each other.")
    found = survey(None).daemons if everything else _running(config_path(config))
    stopped = [one.pid for one in found if end_and_wait(one)]
    if as_json:
        print_json("down/1", {"stopped": stopped})
    for one in found if not as_json else ():
        if one.pid in stopped:
            print(visible(f"stopped the daemon of {(one.daemon or {}).get('config')}, process {one.pid}"))
    if not found and not as_json:
        note("no daemon is running" + ("" if everything else " for this configuration"))
    left = [str(one.pid) for one in found if one.pid not in stopped]
    if left:
        fail(TIMED_OUT, f"still there after {END_PATIENCE:g} s: process {', '.join(left)}", "End it with `kill -9`.")
    return OK


def _running(config: Path) -> list[RunningBridge]:
    """The daemons to end. One that has only begun, or is between two lives, is waited for."""
    give_up = time.monotonic() + END_PATIENCE
    while True:
        around = survey(config)
        if around.daemons or not is_held(config):
            return around.daemons
        around.require_answer(config)
        if time.monotonic() > give_up:
            fail(
                TIMED_OUT, "a daemon of this configuration runs, and does not answer", "Find it with `ps`, and end it."
            )
        time.sleep(_LOOK)


_RESTART_POLL = 0.05
"""Seconds between two looks for the next one."""


@click.command("restart")
@config_option
@as_json_option
def restart_command(*, config: str | None, as_json: bool) -> int:
    """Start the daemon again, with all its servers. Its clients stay connected.

    A wrong configuration is reported before anything is stopped (exit code 2). If no daemon runs, one is started. After
    an upgrade, the new daemon is of the new release. Exit code 7: it does not answer, or does not start again.

    \u0008
    Examples:
      mcpbridge restart
    """
    path = config_path(config)
    is_found = load_trusted(config, fetches=False).is_found
    around = survey(path)
    around.require_answer(path)
    running = around.daemons
    known = {(one.daemon or {})["instance"] for one in running}
    found = (
        [_restarted(one, path, known, is_found=is_found) for one in running][-1]
        if running
        else ensure_daemon(path, is_found=is_found)
    )
    if found.status.get("version") != __version__:
        version = found.status.get("version")
        note(
            f"it is of release {version}, which its service starts; `mcpbridge service install` makes it {__version__}"
        )
    show_started("restart/1", found, "started anew" if running else "started", as_json=as_json)
    return OK


def _restarted(before: RunningBridge, config: Path, known: set[str], *, is_found: bool) -> RunningBridge:
    """The next daemon in the same process, or in another one that a client has started meanwhile.

    `known`: those that ran before; the new one is added. `is_found`: see `ensure_daemon`.
    """
    if not _becomes_ours(before):
        if not end_and_wait(before, "yield"):
            fail(TIMED_OUT, f"process {before.pid} does not end", f"`kill -9 {before.pid}` ends it.")
        return ensure_daemon(config, stays=(before.daemon or {}).get("idle_exit_s") is None, is_found=is_found)
    process = process_handle(before.pid)
    try:
        with progress("starting the daemon again …"):
            return _next_of(before, process, config, known, is_found=is_found)
    finally:
        if process is not None:
            os.close(process)


def _next_of(
    before: RunningBridge, process: int | None, config: Path, known: set[str], *, is_found: bool
) -> RunningBridge:
    before.ask("restart")
    deadline = time.monotonic() + END_PATIENCE + START_PATIENCE
    while True:
        for one in daemons(config):
            if (instance := (one.daemon or {})["instance"]) not in known:
                known.add(instance)
                return one
        if has_ended(before.pid, process, within=_RESTART_POLL):  # in between it has no control socket
            return ensure_daemon(config, is_found=is_found)
        if time.monotonic() > deadline:
            fail(TIMED_OUT, f"process {before.pid} has not started anew", "See `mcpbridge logs`.")


def _becomes_ours(one: RunningBridge) -> bool:
    """What starts anew in its process is of our release, or is the service manager's business."""
    daemon = one.daemon or {}
    is_ours = one.status.get("version") == __version__ or daemon.get("program") == sys.executable
    return is_ours or bool(daemon.get("is_supervised"))


_PATIENCE = 60.0
"""Seconds for a reload; it waits for servers that come and go."""
_CHANGES = ("added", "removed", "replaced")


@click.command("reload")
@config_option
@as_json_option
def reload_command(*, config: str | None, as_json: bool) -> int:
    """Make every running bridge with this configuration read it again, and show what changed.

    Only servers whose settings changed are stopped and started; running calls end on the old ones. Bridges reload by
    themselves when the file is edited, unless `daemon.watch` is off; then the last change is shown. A file that is
    wrong changes nothing (exit code 2). Exit code 4: no bridge runs; 7: one does not answer.

    \u0008
    Examples:
      mcpbridge reload
    """
    path = config_path(config)
    around = survey(path)
    found = around.bridges
    with progress("waiting for the bridges to read the configuration …"):
        told = [one.ask("reload", patience=_PATIENCE) for one in found]
    if as_json:
        print_json("reload/1", {"bridges": told})
    else:
        for document in told:
            _show(document)
    around.require_answer(path)
    for line in around.describe_silent():
        note(line)
    if any(document.get("code") == SILENT for document in told) or (around.silent and not found):
        return TIMED_OUT
    if not found:
        if not as_json:
            fail(UNREACHABLE, "no bridge runs with this configuration", "It is read when one starts.")
        return UNREACHABLE
    return OK if all(document.get("ok") for document in told) else USAGE


def _show(document: Document) -> None:
    who = f"process {document.get('pid')}"
    if not document.get("ok"):
        wrong = cast("Mapping[str, Any]", document.get("config_error") or {})
        print(visible(f"{who}: nothing changed. {wrong.get('message') or document.get('error')}"))
        return
    before = cast("Mapping[str, Any]", document.get("before") or {})
    if changes := _changes(document):
        print(visible(f"{who}: {changes}"))
    elif before:
        when = datetime.fromisoformat(before["at"]).astimezone().strftime("%H:%M:%S")
        print(visible(f"{who}: nothing changed since {when}; what did then: {_changes(before)}"))
    else:
        print(visible(f"{who}: nothing changed"))
    if later := document.get("needs_restart"):
        print(visible(f"  after `mcpbridge restart`: {_list(later)}"))
    for warning in cast("Sequence[str]", document.get("warnings") or ()):
        print(visible(f"  warning: {warning}"))


def _changes(document: Document) -> str:
    found = [f"{kind} {_list(document[kind])}" for kind in _CHANGES if document.get(kind)]
    sections = cast("Sequence[str]", document.get("sections") or ())
    other = [*cast("Sequence[str]", document.get("kept") or ()), *(f"[{section}]" for section in sections)]
    return "; ".join([*found, *([f"changed {_list(other)}"] if other else [])])


def _list(names: object) -> str:
    return ", ".join(map(str, cast("Sequence[object]", names))) if isinstance(names, list) else str(names)
