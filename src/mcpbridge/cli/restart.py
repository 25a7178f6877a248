"""`mcpbridge restart`: stop the daemon and start it anew; clients stay connected."""

import os
import sys
import time
from pathlib import Path

import click

from mcpbridge._version import __version__
from mcpbridge.cli.daemons import (
    END_PATIENCE,
    START_PATIENCE,
    Found,
    asked_to_end,
    config_path,
    daemons,
    has_ended,
    process_handle,
    started,
    survey,
)
from mcpbridge.cli.exits import OK, TIMED_OUT, fail
from mcpbridge.cli.options import as_json_option, config_option
from mcpbridge.cli.output import note
from mcpbridge.cli.up import show_started
from mcpbridge.config.load import read

__all__ = ["command"]

_LOOK = 0.05
"""Seconds between two looks for the next one."""


@click.command("restart")
@config_option
@as_json_option
def command(*, config: str | None, as_json: bool) -> int:
    """Start the daemon anew, with all its servers. Its clients stay connected, it only takes a moment.

    A configuration that is wrong is shown before anything is stopped: exit code 2. If none runs, one is started. After
    an upgrade the new one is of the new release. Exit code 7: it does not answer, or does not start anew.
    """
    path = config_path(config)
    read(path, os.environ)
    around = survey(path)
    around.require_answer(path)
    running = around.daemons
    known = {(one.daemon or {})["instance"] for one in running}
    found = [_restarted(one, path, known) for one in running][-1] if running else started(path)
    if found.status.get("version") != __version__:
        version = found.status.get("version")
        note(
            f"it is of release {version}, which its service starts; `mcpbridge service install` makes it {__version__}"
        )
    show_started(found, "started anew" if running else "started", as_json=as_json)
    return OK


def _restarted(before: Found, config: Path, known: set[str]) -> Found:
    """The next daemon in the same process, or in another one that a client has started meanwhile.

    `known`: those that ran before; the new one is added.
    """
    if not _becomes_ours(before):
        if not asked_to_end(before, "yield"):
            fail(TIMED_OUT, f"process {before.pid} does not end", f"`kill -9 {before.pid}` ends it.")
        return started(config, stays=(before.daemon or {}).get("idle_exit_s") is None)
    process = process_handle(before.pid)
    try:
        before.ask("restart")
        deadline = time.monotonic() + END_PATIENCE + START_PATIENCE
        while True:
            for one in daemons(config):
                if (instance := (one.daemon or {})["instance"]) not in known:
                    known.add(instance)
                    return one
            if has_ended(before.pid, process, within=_LOOK):  # in between it has no control socket
                return started(config)
            if time.monotonic() > deadline:
                fail(TIMED_OUT, f"process {before.pid} has not started anew", "See `mcpbridge logs`.")
    finally:
        if process is not None:
            os.close(process)


def _becomes_ours(one: Found) -> bool:
    """What starts anew in its process is of our release, or is the service manager's business."""
    daemon = one.daemon or {}
    is_ours = one.status.get("version") == __version__ or daemon.get("program") == sys.executable
    return is_ours or bool(daemon.get("is_supervised"))
