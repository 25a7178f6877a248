"""`mcpbridge daemon` in the table of all commands. It is apart from `run.py`, since a daemon needs no click."""

from collections.abc import Sequence

import click

from mcpbridge.app.cli.daemon.run import daemon


@click.command("daemon", add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def daemon_command(*, arguments: Sequence[str]) -> int:
    """Be the daemon, in the foreground."""
    return daemon(arguments)
