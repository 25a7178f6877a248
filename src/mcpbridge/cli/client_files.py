"""What `install`, `uninstall` and `init` share: which clients are meant, and how what was done is told."""

import os
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from mcpbridge.cli.exits import OK, USAGE, fail, report
from mcpbridge.cli.output import note, print_json, print_table, print_text, visible
from mcpbridge.client_files.backups import Backups
from mcpbridge.client_files.found import Surroundings
from mcpbridge.client_files.installing import Change, carry_out
from mcpbridge.client_files.known import Scope, named
from mcpbridge.client_files.targets import Target, all_targets, target_of
from mcpbridge.errors import BridgeError, ConfigError

__all__ = [
    "WORDS",
    "change_files",
    "dry_run_option",
    "meant",
    "project_option",
    "scope_option",
    "secrets_option",
    "surroundings",
    "tell",
]

scope_option = click.option(
    "--scope",
    type=click.Choice(["user", "local", "project"]),
    help="The user's file (default), or that of a project; `local` is the user's part for one project (Claude Code).",
)
project_option = click.option(
    "--project", metavar="DIR", type=click.Path(file_okay=False, path_type=Path), help="The project; default: here."
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Show what would be changed, and change nothing.")

secrets_option = click.option(
    "--secrets",
    "secrets_to",
    type=click.Choice(["env", "file", "keep"]),
    default="file",
    help="What becomes of secrets that are taken over: private files (default), ${VAR}, or left as they are.",
)

WORDS = {
    "installed": "installed",
    "updated": "updated",
    "unchanged": "was installed",
    "removed": "removed",
    "restored": "restored",
    "absent": "was not there",
}


def surroundings(project: Path | None) -> Surroundings:
    """Where this command runs. The home directory is no project unless it is named, nor is what it is in.

    Raises:
        ConfigError: there is no such directory.
    """
    if project is not None and not project.is_dir():
        raise ConfigError("no such directory", file=str(project), key="--project")
    home, here = Path.home(), (project or Path()).resolve()
    is_project = project is not None or here not in (home.resolve(), *home.resolve().parents)
    return Surroundings(os.environ, home, sys.platform, here if is_project else None)


def meant(clients: Sequence[str], around: Surroundings, scope: Scope | None, *, everywhere: bool) -> list[Target]:
    """The files of the clients that were named, or of all that are used here.

    Raises:
        ConfigError: no client is called so, or it has no such file.
    """
    if everywhere == bool(clients):
        raise click.UsageError("Name clients, or say --all.")
    if scope in ("project", "local") and around.project is None:
        raise ConfigError("the home directory is no project", key="--scope", hint="Say which: --project DIR.")
    if not everywhere:
        return [target_of(client, around, scope) for client in dict.fromkeys(map(named, clients))]
    targets = all_targets(around, scope)
    if not targets:
        where = around.project if scope == "project" else around.home
        fail(USAGE, f"no client was found in {where}", "Name the one you mean.")
    return targets


def change_files(
    plans: Sequence[Callable[[], Change]], environ: Backups, *, dry_run: bool, as_json: bool
) -> tuple[list[Change], int]:
    """Make the changes, or only plan them. One that fails is told of and decides the exit code; others are made."""
    done: list[Change] = []
    code = OK
    now = datetime.now()
    for plan in plans:
        try:
            done.append(plan() if dry_run else carry_out(plan, environ, now))
        except BridgeError as error:
            code = report(error, as_json=as_json) or USAGE
    return done, code


def tell(changes: Sequence[Change], *, dry_run: bool, as_json: bool, then: Sequence[str] = ()) -> None:
    """Show what was done, or would be. `then`: what there is to do next."""
    if as_json:
        print_json({"dry_run": dry_run, "changes": [_document(change) for change in changes], "next": list(then)})
        return
    for change in changes if dry_run else ():
        if change.diff:
            print_text(change.diff)
        elif change.before != change.after:
            print_text(f"{change.target.shown}: a line would change that holds more than the bridge")
    if changes and not dry_run:
        rows = [[WORDS[change.outcome], change.target.client.title, str(change.target.shown)] for change in changes]
        print_table(["", "Client", "File"], rows)
    for change in changes:
        if dry_run and change.before == change.after:
            note(f"{change.target.client.title}: {WORDS[change.outcome]}; nothing to do")
        for text in change.notes:
            note(visible(f"{change.target.client.title}: {text}"))
    copies = [change.backup for change in changes if change.backup and change.before != change.after and not dry_run]
    if len(copies) > 1:
        note(f"each file as it was before is kept in {Path(copies[0]).parent}")
    elif copies:
        note(f"the file as it was before is kept in {copies[0]}")
    for text in then:
        print_text(text)


def _document(change: Change) -> dict[str, Any]:
    return {
        "client": change.target.client.id,
        "title": change.target.client.title,
        "scope": change.target.file.scope,
        "file": str(change.target.shown),
        "outcome": change.outcome,
        "changed": change.before != change.after,
        "backup": change.backup or None,
        "notes": list(change.notes),
        "diff": change.diff,
    }
