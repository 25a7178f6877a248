"""`mcpbridge approve`: say yes to a call that waits for it."""

import click

from mcpbridge.cli.deciding import decide
from mcpbridge.cli.exits import OK, CommandFailed, report
from mcpbridge.cli.options import as_json_option, config_option
from mcpbridge.cli.output import print_json, visible
from mcpbridge.errors import ConfigError

__all__ = ["command"]


@click.command("approve")
@click.argument("id_", metavar="ID")
@config_option
@click.option("--session", is_flag=True, help="Also the same call again, for as long as the session lasts.")
@as_json_option
def command(*, id_: str, config: str | None, session: bool, as_json: bool) -> int:
    """Approve the call ID, or the one whose id begins so; `mcpbridge approvals` lists them.

    One that gave up waiting needs no running bridge: it is in the store that the configuration names.

    Exit code 5: no such call waits. 6: it was answered before.
    """
    try:
        done = decide(id_, "approve", "session" if session else "once", config)
    except (ConfigError, CommandFailed) as error:
        return report(error, as_json=as_json) or OK
    if as_json:
        print_json(done)
        return OK
    more = ", and the same call for this session" if session else ""
    then = "" if done["waiting"] else "; the call gave up waiting, it passes when it is made again"
    print(visible(f"approved: {done['tool']}{more}{then}\n{done['arguments']}"))
    return OK
