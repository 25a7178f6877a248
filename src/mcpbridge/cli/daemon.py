"""`mcpbridge daemon`, as it is found among the other commands. See `cli/daemon_process.py`."""

from collections.abc import Sequence

import click

from mcpbridge.cli.daemon_process import daemon

__all__ = ["command"]


@click.command("daemon", add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(*, arguments: Sequence[str]) -> int:
    """Be the daemon, in the foreground."""
    return daemon(arguments)
