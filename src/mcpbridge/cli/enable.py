"""`mcpbridge enable`: switch a server or tool on that is in the configuration."""

import click

from mcpbridge.cli.exits import OK
from mcpbridge.cli.options import as_json_option, config_option, dry_run_option

__all__ = ["command"]


@click.command("enable")
@click.argument("name")
@dry_run_option
@config_option
@as_json_option
def command(*, name: str, is_dry: bool, config: str | None, as_json: bool) -> int:
    """Switch a server (`github`), a tool (`tools/weather`) or one tool of a server (`github/create_issue`) on.

    Running bridges take it in at once.
    """
    from mcpbridge.cli.changing import switch_named

    switch_named(name, config, to="on", is_dry=is_dry, as_json=as_json)
    return OK
