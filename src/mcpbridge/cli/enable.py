"""`mcpbridge enable`: switch a server or tool on that is in the configuration."""

import os

import click

from mcpbridge.cli.exits import OK, report
from mcpbridge.cli.options import as_json_option, config_option

__all__ = ["command"]


@click.command("enable")
@click.argument("name")
@click.option("--dry-run", "is_dry", is_flag=True, help="Say what would change, and change nothing.")
@config_option
@as_json_option
def command(*, name: str, is_dry: bool, config: str | None, as_json: bool) -> int:
    """Switch a server (`github`), a tool (`tools/weather`) or one tool of a server (`github/create_issue`) on.

    Running bridges take it in at once.
    """
    try:
        from mcpbridge.cli.changing import What, change, owner_of
        from mcpbridge.cli.launching import configuration_to_write
        from mcpbridge.config.editing import switch

        path = configuration_to_write(config, os.environ)
        section, owner, tool = owner_of(path, name)
        change(
            path,
            lambda text: switch(text, section, owner, on=True, tool=tool),
            What(section, owner, "on", tool),
            done=f"{name} is switched on",
            is_dry=is_dry,
            as_json=as_json,
        )
    except (Exception, KeyboardInterrupt) as error:
        code = report(error, as_json=as_json)
        if code is None:
            raise
        return code
    return OK
