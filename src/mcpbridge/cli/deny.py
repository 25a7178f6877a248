"""`mcpbridge deny`: say no to a call that waits for approval."""

import click

from mcpbridge.cli.deciding import decide
from mcpbridge.cli.exits import OK, CommandFailed, report
from mcpbridge.cli.options import as_json_option, config_option
from mcpbridge.cli.output import print_json, visible
from mcpbridge.errors import ConfigError

__all__ = ["command"]


@click.command("deny")
@click.argument("id_", metavar="ID")
@config_option
@as_json_option
def command(*, id_: str, config: str | None, as_json: bool) -> int:
    """Refuse the call ID, or the one whose id begins so; `mcpbridge approvals` lists them.

    One that gave up waiting needs no running bridge: it is in the store that the configuration names.

    Exit code 5: no such call waits. 6: it was answered before.
    """
    try:
        done = decide(id_, "deny", "once", config)
    except (ConfigError, CommandFailed) as error:
        return report(error, as_json=as_json) or OK
    if as_json:
        print_json(done)
    else:
        print(visible(f"denied: {done['tool']}"))
    return OK
