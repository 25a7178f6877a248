"""`mcpbridge remove`: take a server or tool out of the configuration."""

import os

import click

from mcpbridge.cli.exits import OK, USAGE, fail
from mcpbridge.cli.options import as_json_option, config_option, dry_run_option

__all__ = ["command"]


@click.command("remove")
@click.argument("name")
@dry_run_option
@config_option
@as_json_option
def command(*, name: str, is_dry: bool, config: str | None, as_json: bool) -> int:
    """Take a server or a tool out of servers.toml; a copy of the file is kept. Running bridges take it in at once."""
    from mcpbridge.cli.changing import What, change, owner_of
    from mcpbridge.cli.launching import configuration_to_write
    from mcpbridge.config.editing import remove_table

    path = configuration_to_write(config, os.environ)
    section, owner, tool = owner_of(path, name)
    if tool:
        fail(USAGE, f"{tool!r} is one tool of the server {owner!r}", f"`mcpbridge disable {name}` switches it off.")
    change(
        path,
        lambda text: remove_table(text, section, owner),
        What(section, owner, "gone"),
        done=f"{name} is out",
        is_dry=is_dry,
        as_json=as_json,
    )
    return OK
