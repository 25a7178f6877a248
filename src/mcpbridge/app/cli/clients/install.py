"""`mcpbridge install` and `uninstall`: put the bridge into the files of clients, and take it out.

Here too: which clients are meant, and how a change is shown; `init` does that alike.
"""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mcpbridge.app.cli.clients.launch_command import launching
from mcpbridge.app.cli.config.config_path import configuration_to_write
from mcpbridge.app.cli.failures import CommandFailed, fail, report
from mcpbridge.app.cli.options import as_json_option, config_option, secrets_option
from mcpbridge.app.cli.output import note, print_json, print_table, print_text, visible
from mcpbridge.app.cli.prompts import person_agrees
from mcpbridge.app.client_config.clients import Scope, find_client
from mcpbridge.app.client_config.discover.discovered_servers import ClientEnvironment
from mcpbridge.app.client_config.install import (
    Change,
    Target,
    all_targets,
    carry_out,
    plan_install,
    plan_uninstall,
    target_of,
)
from mcpbridge.app.exit_codes import OK, USAGE
from mcpbridge.base.errors import BridgeError, ConfigError
from mcpbridge.config.files.backups import Backups

if TYPE_CHECKING:
    from mcpbridge.app.client_config.importing.plan import SecretsTo


scope_option = click.option(
    "--scope",
    type=click.Choice(["user", "local", "project"]),
    help="The user's file (default), or that of a project; `local` is the user's part for one project (Claude Code).",
)
project_option = click.option(
    "--project", metavar="DIR", type=click.Path(file_okay=False, path_type=Path), help="The project; default: here."
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Show what would be changed, and change nothing.")

WORDS = {
    "installed": "installed",
    "updated": "updated",
    "unchanged": "was installed",
    "removed": "removed",
    "restored": "restored",
    "absent": "was not there",
}


def client_environment(project: Path | None) -> ClientEnvironment:
    """Where this command runs. The home directory is no project unless it is named, nor is what it is in.

    Raises:
        ConfigError: there is no such directory.
    """
    if project is not None and not project.is_dir():
        raise ConfigError("no such directory", file=str(project), key="--project")
    home, here = Path.home(), (project or Path()).resolve()
    is_project = project is not None or here not in (home.resolve(), *home.resolve().parents)
    return ClientEnvironment(os.environ, home, sys.platform, here if is_project else None)


def chosen_targets(
    clients: Sequence[str], around: ClientEnvironment, scope: Scope | None, *, everywhere: bool
) -> list[Target]:
    """The files of the clients that were named, or of all that are used here.

    Raises:
        ConfigError: no client is called so, or it has no such file.
    """
    if everywhere == bool(clients):
        raise click.UsageError("Name clients, or say --all.")
    if scope in ("project", "local") and around.project is None:
        raise ConfigError("the home directory is no project", key="--scope", hint="Say which: --project DIR.")
    if not everywhere:
        return [target_of(client, around, scope) for client in dict.fromkeys(map(find_client, clients))]
    targets = all_targets(around, scope)
    if not targets:
        where = around.project if scope == "project" else around.home
        fail(USAGE, f"no client was found in {where}", "Name the one you mean.")
    return targets


def change_files(
    plans: Sequence[Callable[[], Change]], environ: Backups, *, dry_run: bool, as_json: bool
) -> tuple[list[Change], int]:
    """Make the changes, or only plan them. One that fails is reported and decides the exit code; others are made."""
    done: list[Change] = []
    code = OK
    now = datetime.now()
    for plan in plans:
        try:
            done.append(plan() if dry_run else carry_out(plan, environ, now))
        except BridgeError as error:
            code = report(error, as_json=as_json) or USAGE
    return done, code


def show_changes(changes: Sequence[Change], *, dry_run: bool, json_format: str = "", then: Sequence[str] = ()) -> None:
    """Show what was done, or would be: as a document of this format, or for people if it is empty.

    `then`: what there is to do next.
    """
    if json_format:
        print_json(json_format, changes_document(changes, dry_run=dry_run, then=then))
        return
    for change in changes if dry_run else ():
        if change.diff:
            print_text(change.diff)
        elif change.before != change.after:
            print_text(f"{change.target.visible_path}: a line would change that holds more than the bridge")
    if changes and not dry_run:
        rows = [
            [WORDS[change.outcome], change.target.client.title, str(change.target.visible_path)] for change in changes
        ]
        print_table(["", "Client", "File"], rows, is_report=True)
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


def changes_document(changes: Sequence[Change], *, dry_run: bool, then: Sequence[str]) -> dict[str, Any]:
    """The same as JSON values."""
    return {"dry_run": dry_run, "changes": [_document(change) for change in changes], "next": list(then)}


def _document(change: Change) -> dict[str, Any]:
    return {
        "client": change.target.client.id,
        "title": change.target.client.title,
        "scope": change.target.file.scope,
        "file": str(change.target.visible_path),
        "outcome": change.outcome,
        "changed": change.before != change.after,
        "backup": change.backup or None,
        "notes": list(change.notes),
        "diff": change.diff,
    }


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
def install_command(
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
    """Put the bridge into the file of a CLIENT, such as claude-code, codex, cursor, vscode or zed.

    Everything else in the file stays as it is, byte for byte. A copy of the file is kept, and `mcpbridge uninstall`
    takes the bridge out again.

    \u0008
    Examples:
      mcpbridge install cursor
      mcpbridge install --all --dry-run
      mcpbridge install claude-code --scope project
    """
    try:
        around = client_environment(project)
        scope = scope or ("project" if project is not None and not everywhere else None)
        targets = chosen_targets(clients, around, scope, everywhere=everywhere)
        for target in targets:
            _refuse_absent(target, force=force)
        path = configuration_to_write(config, around.environ) if replaces else None
        launched = launching(config, profile, url, around.environ, coming=path)
        backups = Backups(around.environ)
        taken = (
            _servers_to_replace(targets, around, path, secrets_to, yes=yes or dry_run, writes=not dry_run)
            if path
            else {}
        )
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
    show_changes(
        changes,
        dry_run=dry_run,
        json_format="install/1" if as_json else "",
        then=[] if dry_run else next_steps(changes),
    )
    return code


def _servers_to_replace(
    targets: Sequence[Target],
    around: ClientEnvironment,
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
    from mcpbridge.app.cli.clients import migrate  # knows all settings, which takes a while to load

    plan = migrate.plan_for(targets, around, path, secrets_to)
    taken = {target: migrate.taken_from(plan, target) for target in targets}
    kept = [line for target in targets for line in migrate.staying(plan, target)]
    with redirect_stdout(sys.stderr):  # standard output is for what was done to the files
        if kept or any(taken.values()):
            migrate.show_plan(plan, around)
        for line in kept:
            note(visible(line))
        if not any(taken.values()):
            return {}
        count = sum(map(len, taken.values()))
        if not person_agrees(f"Have them in {plan.path}, and take {count} out of the clients' files?", yes=yes):
            fail(USAGE, "nothing was changed")
        if writes:
            migrate.write(plan)
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
        raise ConfigError(
            f"{target.client.title} was not found on this machine", file=str(target.visible_path), hint=hint
        )


@click.command("uninstall")
@click.argument("clients", nargs=-1, metavar="[CLIENT]...")
@click.option("--all", "everywhere", is_flag=True, help="All clients that are found on this machine.")
@scope_option
@project_option
@click.option("--restore", is_flag=True, help="Put the file back as it was before, if it was not changed since.")
@dry_run_option
@as_json_option
def uninstall_command(
    *,
    clients: tuple[str, ...],
    everywhere: bool,
    scope: Scope | None,
    project: Path | None,
    restore: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Take the bridge out of the file of a CLIENT. What else was changed in the file stays.

    \u0008
    Examples:
      mcpbridge uninstall cursor
      mcpbridge uninstall --all
    """
    try:
        around = client_environment(project)
        scope = scope or ("project" if project is not None and not everywhere else None)
        targets = chosen_targets(clients, around, scope, everywhere=everywhere)
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
    show_changes(
        changes,
        dry_run=dry_run,
        json_format="uninstall/1" if as_json else "",
        then=["Clients that run keep it until they are restarted."] if changed and not dry_run else [],
    )
    return code


def _tell_of_others(targets: Sequence[Target], backups: Backups) -> None:
    """Installs that `--all` does not reach: into projects."""
    reached = {(str(target.path), target.table) for target in targets}
    for record in backups.all():
        if (record.file, record.table) not in reached:
            note(f"{record.file} has the bridge, too: mcpbridge uninstall {record.client} --project DIR")
