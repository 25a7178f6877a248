"""`mcpbridge down`: stop the daemon."""

import time
from pathlib import Path

import click

from mcpbridge.cli.daemons import END_PATIENCE, Found, asked_to_end, config_path, is_held, survey
from mcpbridge.cli.exits import OK, TIMED_OUT, fail
from mcpbridge.cli.options import as_json_option, config_option
from mcpbridge.cli.output import note, print_json, visible

__all__ = ["command"]

_LOOK = 0.1
"""Seconds between two looks for its control socket."""


@click.command("down")
@config_option
@click.option("--all", "everything", is_flag=True, help="Stop the daemons of all configurations.")
@as_json_option
def command(*, config: str | None, everything: bool, as_json: bool) -> int:
    """Stop the daemon of this configuration and its servers, after the calls that are under way.

    The next `mcpbridge serve` starts one again. One that is starting anew does not. Exit code 0 also if none runs; 7 if
    it does not end, or does not answer.
    """
    if everything and config:
        raise click.UsageError("--all and --config exclude each other.")
    found = survey(None).daemons if everything else _running(config_path(config))
    stopped = [one.pid for one in found if asked_to_end(one)]
    if as_json:
        print_json({"stopped": stopped})
    for one in found if not as_json else ():
        if one.pid in stopped:
            print(visible(f"stopped the daemon of {(one.daemon or {}).get('config')}, process {one.pid}"))
    if not found and not as_json:
        note("no daemon is running" + ("" if everything else " for this configuration"))
    left = [str(one.pid) for one in found if one.pid not in stopped]
    if left:
        fail(TIMED_OUT, f"still there after {END_PATIENCE:g} s: process {', '.join(left)}", "End it with `kill -9`.")
    return OK


def _running(config: Path) -> list[Found]:
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
