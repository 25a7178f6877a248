"""`mcpbridge install`: put the bridge into the files of clients."""

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mcpbridge.cli.client_files import (
    change_files,
    dry_run_option,
    meant,
    project_option,
    scope_option,
    secrets_option,
    surroundings,
    tell,
)
from mcpbridge.cli.exits import USAGE, CommandFailed, fail, report
from mcpbridge.cli.launching import configuration_to_write, launching
from mcpbridge.cli.options import as_json_option, config_option
from mcpbridge.cli.output import note, visible
from mcpbridge.client_files.backups import Backups
from mcpbridge.client_files.found import Surroundings
from mcpbridge.client_files.installing import Change, plan_install
from mcpbridge.client_files.known import Scope
from mcpbridge.client_files.targets import Target
from mcpbridge.errors import BridgeError, ConfigError

if TYPE_CHECKING:
    from mcpbridge.client_files.importing import SecretsTo

__all__ = ["command", "next_steps"]


@click.command("install")
@click.argument("clients", nargs=-1, metavar="[CLIENT]...")
@click.option("--all", "everywhere", is_flag=True, help="All clients that are found on this machine.")
@scope_option
@project_option
@click.option("--profile", metavar="NAME", help="Serve what belongs to this profile.")
@click.option(
    "--http", "url", metavar="URL", help="Have clients visit a bridge that serves HTTP, instead of starting one."
)
@click.option(
    "--replace", "replaces", is_flag=True, help="Take the client's other servers over into servers.toml first."
)
@secrets_option
@click.option(
    "--force",
    is_flag=True,
    help="Make the file of a client that was not found; take the place of another server called mcpbridge.",
)
@click.option("--yes", "-y", is_flag=True, help="Ask nothing.")
@dry_run_option
@config_option
@as_json_option
def command(
    *,
    clients: tuple[str, ...],
    everywhere: bool,
    scope: Scope | None,
    project: Path | None,
    profile: str | None,
    url: str | None,
    replaces: bool,
    secrets_to: "SecretsTo",
    force: bool,
    yes: bool,
    dry_run: bool,
    config: str | None,
    as_json: bool,
) -> int:
    """Put the bridge into the file of CLIENT: claude-code, codex, cursor, vscode, zed and others.

    Everything else in the file stays as it is, byte for byte. A copy is kept; `mcpbridge uninstall` takes it out again.
    """
    try:
        around = surroundings(project)
        scope = scope or ("project" if project is not None and not everywhere else None)
        targets = meant(clients, around, scope, everywhere=everywhere)
        for target in targets:
            _refuse_absent(target, force=force)
        path = configuration_to_write(config, around.environ) if replaces else None
        launched = launching(config, profile, url, around.environ, coming=path)
        backups = Backups(around.environ)
        taken = _taken(targets, around, path, secrets_to, yes=yes or dry_run, writes=not dry_run) if path else {}
    except (BridgeError, CommandFailed) as error:
        return report(error, as_json=as_json) or USAGE
    plans = [
        partial(
            plan_install,
            target,
            launched.from_file(target, around),
            backups,
            taken.get(target, ()),
            takes_place=force,
        )
        for target in targets
    ]
    changes, code = change_files(plans, backups, dry_run=dry_run, as_json=as_json)
    tell(changes, dry_run=dry_run, as_json=as_json, then=[] if dry_run else next_steps(changes))
    return code


def _taken(
    targets: Sequence[Target],
    around: Surroundings,
    path: Path,
    secrets_to: "SecretsTo",
    *,
    yes: bool,
    writes: bool,
) -> dict[Target, list[str]]:
    """Take the other servers of these files over, and return which of each can go.

    Raises:
        ConfigError: they cannot be written.
        CommandFailed: nobody agreed.
    """
    from mcpbridge.cli import taking_over  # knows all settings, which takes a while to load

    plan = taking_over.plan_for(targets, around, path, secrets_to)
    taken = {target: taking_over.taken_from(plan, target) for target in targets}
    kept = [line for target in targets for line in taking_over.staying(plan, target)]
    with redirect_stdout(sys.stderr):  # standard output is for what was done to the files
        if kept or any(taken.values()):
            taking_over.show_plan(plan, around)
        for line in kept:
            note(visible(line))
        if not any(taken.values()):
            return {}
        count = sum(map(len, taken.values()))
        if not taking_over.is_asked(f"Have them in {plan.path}, and take {count} out of the clients' files?", yes=yes):
            fail(USAGE, "nothing was changed")
        if writes:
            taking_over.write(plan)
    return taken


def next_steps(changes: list[Change]) -> list[str]:
    """What people do after an install."""
    changed = [change for change in changes if change.before != change.after]
    if not changed:
        return []
    titles = list(dict.fromkeys(change.target.client.title for change in changed))
    shown = titles[0] if len(titles) == 1 else f"{', '.join(titles[:-1])} and {titles[-1]}"
    steps = [f"Restart {shown} to use it. `mcpbridge doctor` shows whether all is well."]
    shared = [change.target.client for change in changed if change.target.file.scope == "project"]
    return steps + [f"{client.title} {_ASKS[client.id]}" for client in shared if client.id in _ASKS]


_ASKS = {
    "claude-code": "asks once whether it may use the servers of this project.",
    "codex": "reads it only in projects that are trusted.",
    "gemini": "reads it only in folders that are trusted.",
}
"""By client: what it does about servers of a project."""


def _refuse_absent(target: Target, *, force: bool) -> None:
    if not (target.is_used or force):
        hint = "If it is there all the same, --force makes the file."
        raise ConfigError(f"{target.client.title} was not found on this machine", file=str(target.shown), hint=hint)
