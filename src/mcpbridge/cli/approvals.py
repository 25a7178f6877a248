"""`mcpbridge approvals`: the calls that wait for a person, in all running bridges of this user and in their store."""

import time

import click

from mcpbridge.cli.deciding import Waiting, waiting
from mcpbridge.cli.exits import OK, CommandFailed, report
from mcpbridge.cli.options import as_json_option, config_option
from mcpbridge.cli.output import first_line, note, print_json, print_table
from mcpbridge.errors import ConfigError
from mcpbridge.units import show_seconds

__all__ = ["command"]


@click.command("approvals")
@config_option
@as_json_option
def command(*, config: str | None, as_json: bool) -> int:
    """List the calls that wait for approval, and those that gave up but can still be approved.

    Exit code 4 if no bridge is running and there is none of these.
    """
    try:
        found = [one for _, one in waiting(config)]
    except (ConfigError, CommandFailed) as error:
        return report(error, as_json=as_json) or OK
    if as_json:
        print_json({"approvals": found})
    elif not found:
        note("no call waits for approval")
    else:
        titles = ["ID", "Tool", "Client", "Since", "Answer within", "Arguments"]
        print_table(titles, [_row(one, time.time()) for one in found])
    return OK


def _row(one: Waiting, now: float) -> list[str]:
    who = " as ".join(filter(None, [one["client"], one["principal"]])) or "-"
    since, left = (show_seconds(round(max(0.0, span))) for span in (now - one["since"], one["until"] - now))
    arguments = first_line(one["arguments_line"], 60)
    state = since if one["waiting"] else f"{since}, gave up"
    return [one["id"], first_line(one["tool"], 40), first_line(who, 30), state, left, arguments]
