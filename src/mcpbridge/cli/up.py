"""`mcpbridge up`: start the daemon in the background."""

import os

import click

from mcpbridge.cli.daemons import Found, config_path, started, survey
from mcpbridge.cli.exits import OK
from mcpbridge.cli.options import as_json_option, config_option
from mcpbridge.cli.output import print_json, visible
from mcpbridge.config.load import read

__all__ = ["command", "show_started"]


@click.command("up")
@config_option
@as_json_option
def command(*, config: str | None, as_json: bool) -> int:
    """Start the daemon in the background, and wait until it serves.

    `mcpbridge serve` starts one when it is needed, which ends when nobody is connected for a while
    (`daemon.idle_exit`); this one stays until `mcpbridge down`. If one runs already it stays from now on. Exit code 2:
    it does not come up, mostly because the configuration is wrong; what it says is shown. Exit code 7: one runs and
    does not answer.
    """
    path = config_path(config)
    around = survey(path)
    around.require_answer(path)
    before = [one for one in around.daemons if one.ask("stay").get("stays")]  # else it is about to end
    if not before:
        read(path, os.environ)  # what is wrong with it is better said here than in the log of a process that ended
    found = before[-1] if before else started(path)
    show_started(found, "runs already" if before else "started", as_json=as_json)
    return OK


def show_started(found: Found, what: str, *, as_json: bool) -> None:
    """Say which daemon serves now, and where it logs."""
    daemon = found.daemon or {}
    if as_json:
        print_json({"pid": found.pid, "started": what == "started", "what": what, **daemon})
        return
    print(visible(f"the daemon of {daemon.get('config')} {what}: process {found.pid}"))
    if daemon.get("http"):
        print(visible(f"  HTTP  {daemon['http']}"))
    if daemon.get("http_error"):
        print(visible(f"  HTTP is not served: {daemon['http_error']}"))
    print(visible(f"  log   {daemon.get('log') or 'standard error'} (mcpbridge logs)"))
