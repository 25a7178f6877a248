"""Options that several commands have."""

import click

config_option = click.option("--config", metavar="FILE", help="servers.toml, or any mcpServers JSON.")
as_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
dry_run_option = click.option("--dry-run", "is_dry", is_flag=True, help="Say what would change, and change nothing.")
standalone_option = click.option(
    "--standalone", is_flag=True, help="Start servers for this command alone, also where the daemon runs."
)
