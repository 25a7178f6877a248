"""Options that several commands have."""

import click

from mcpbridge.app.cli.output import WITHOUT_HEADER

config_option = click.option("--config", metavar="FILE", help="servers.toml, or any mcpServers JSON.")
as_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
secrets_option = click.option(
    "--secrets",
    "secrets_to",
    type=click.Choice(["env", "file", "keep"]),
    default="file",
    help="What becomes of secrets that are taken over: private files (default), ${VAR}, or left as they are.",
)


def _leave_out_header(context: click.Context, _option: click.Parameter, is_set: bool) -> None:
    context.meta[WITHOUT_HEADER] = is_set


header_option = click.option(
    "--no-header",
    is_flag=True,
    expose_value=False,
    callback=_leave_out_header,
    help="Leave out the titles of the columns.",
)
"""For commands that print tables."""
dry_run_option = click.option("--dry-run", "is_dry", is_flag=True, help="Say what would change, and change nothing.")
standalone_option = click.option(
    "--standalone", is_flag=True, help="Start servers for this command alone, also where the daemon runs."
)
