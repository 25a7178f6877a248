"""`mcpbridge uninstall`: take the bridge out of the files of clients."""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from mcpbridge.cli.client_files import (
    change_files,
    dry_run_option,
    meant,
    project_option,
    scope_option,
    surroundings,
    tell,
)
from mcpbridge.cli.exits import USAGE, CommandFailed, report
from mcpbridge.cli.options import as_json_option
from mcpbridge.cli.output import note
from mcpbridge.client_files.backups import Backups
from mcpbridge.client_files.installing import plan_uninstall
from mcpbridge.client_files.known import Scope
from mcpbridge.client_files.targets import Target
from mcpbridge.errors import BridgeError

__all__ = ["command"]


@click.command("uninstall")
@click.argument("clients", nargs=-1, metavar="[CLIENT]...")
@click.option("--all", "everywhere", is_flag=True, help="All clients that are found on this machine.")
@scope_option
@project_option
@click.option("--restore", is_flag=True, help="Put the file back as it was before, if it was not changed since.")
@dry_run_option
@as_json_option
def command(
    *,
    clients: tuple[str, ...],
    everywhere: bool,
    scope: Scope | None,
    project: Path | None,
    restore: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Take the bridge out of the file of CLIENT, and leave what else was changed there."""
    try:
        around = surroundings(project)
        scope = scope or ("project" if project is not None and not everywhere else None)
        targets = meant(clients, around, scope, everywhere=everywhere)
        backups = Backups(os.environ)
        if everywhere:
            _tell_of_others(targets, backups)
    except (BridgeError, CommandFailed) as error:
        return report(error, as_json=as_json) or USAGE
    plans = [partial(plan_uninstall, target, backups, restore=restore) for target in targets]
    changes, code = change_files(plans, backups, dry_run=dry_run, as_json=as_json)
    if everywhere and not as_json:
        changes = [change for change in changes if change.outcome != "absent"]
        if not changes and not code:
            note("the bridge is in none of the files of the clients that are here")
    changed = any(change.before != change.after for change in changes)
    tell(
        changes,
        dry_run=dry_run,
        as_json=as_json,
        then=["Clients that run keep it until they are restarted."] if changed and not dry_run else [],
    )
    return code


def _tell_of_others(targets: Sequence[Target], backups: Backups) -> None:
    """Installs that `--all` does not reach: into projects."""
    reached = {(str(target.path), target.table) for target in targets}
    for record in backups.all():
        if (record.file, record.table) not in reached:
            note(f"{record.file} has the bridge, too: mcpbridge uninstall {record.client} --project DIR")
