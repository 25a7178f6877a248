"""`mcpbridge import`: take over the servers that other programs have in their files. Shows what becomes of each.

No secret is ever shown.
"""

import difflib
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import click

from mcpbridge.app.cli.config.config_path import configuration_to_write
from mcpbridge.app.cli.failures import fail, report
from mcpbridge.app.cli.options import as_json_option, header_option, secrets_option
from mcpbridge.app.cli.output import note, print_json, print_table, progress, visible
from mcpbridge.app.client_config.clients import CLIENTS, KnownClient, find_client
from mcpbridge.app.client_config.discover.discover import find_all, find_in_file
from mcpbridge.app.client_config.discover.discovered_servers import ClientEnvironment, Found, Problem, together
from mcpbridge.app.client_config.importing.merge import Outcome
from mcpbridge.app.client_config.importing.plan import Plan, SecretsTo, carry_out, plan_import
from mcpbridge.app.exit_codes import OK, USAGE
from mcpbridge.base.errors import ConfigError
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.base.masking.mask import MASK
from mcpbridge.config.files.edit import Splice
from mcpbridge.config.files.masked_diff import masked_diff

_WORDS = {
    "new": "new",
    "replaced": "replaced",
    "there": "there already",
    "kept": "not taken",
    "same": "the same",
    "bridge": "skipped",
    "left-out": "left out",
}


def show_outcomes(plan: Plan, home: Path) -> None:
    """A table: client, file and line, server, what became of it."""
    rows = [
        [
            outcome.entry.title,
            _short(outcome.entry.place, home),
            outcome.entry.name,
            "; ".join(filter(None, [_WORDS[outcome.became], outcome.detail])),
        ]
        for outcome in plan.outcomes
    ]
    if rows:
        print_table(["Client", "Where", "Server", "What became of it"], rows, wraps="What became of it")


def show_problems(discovered: Found, plan: Plan, home: Path) -> None:
    """What is wrong with files, what was assumed, and what could not be taken over."""
    for problem in discovered.problems:
        note(visible(f"{_short(str(problem.file), home)}: {problem.message}"))
    for outcome in plan.written:
        for remark in _remarks(outcome):
            note(visible(f"{outcome.name}: {remark}"))


ABOUT_SECRETS: dict[SecretsTo, str] = {
    "file": ", their secrets to private files beside it",
    "env": ", with ${NAME} for each secret",
    "keep": ", secrets and all",
}
"""What is said of secrets before a person agrees."""


def to_do(plan: Plan) -> Iterator[str]:
    """Warnings of secrets that were moved and of variables to set."""
    if plan.moved and plan.secrets_to == "file":
        what = "kept in private files in" if len(plan.moved) > 1 else "kept in a private file in"
        yield f"{_counted(plan.moved, what)} {plan.folder} (--secrets env writes ${{NAME}}, for you to set)"
    elif plan.moved:
        what = "not written down: ${NAME} stands for" + (" each" if len(plan.moved) > 1 else " it")
        yield f"{_counted(plan.moved, what)} (--secrets file puts them into private files, for nothing to be set)"
    if plan.unset:
        widest = max(map(len, plan.unset))
        lines = [f"    {name.ljust(widest)}  {', '.join(servers)}" for name, servers in plan.unset.items()]
        yield "\n".join(["set these in the environment of the bridge; until then the servers are off:", *lines])
    if plan.open_secrets:
        what = "written down as they are" if len(plan.open_secrets) > 1 else "written down as it is"
        how = "(--secrets file keeps them apart)"
        yield f"{_counted(plan.open_secrets, what)}, for whoever reads {plan.path.name} {how}"


def _counted(secrets: Sequence[object], what: str) -> str:
    return f"{len(secrets)} secrets are {what}" if len(secrets) != 1 else f"one secret is {what}"


def shown_diff(plan: Plan) -> str:
    """The change of the file. What others wrote is shown without its values."""
    before, after = plan.before_text, plan.text
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    at = [0]
    for line in old:
        at.append(at[-1] + len(line))
    edit = tuple(
        Splice(at[low], at[high], "".join(new[first:last]))
        for what, low, high, first, last in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        if what != "equal"
    )
    text = masked_diff(str(plan.path), before, after, edit)
    text = Redactor(plan.open_secrets)(text)
    for secret in plan.open_secrets:  # the short ones, too
        text = text.replace(secret, MASK)
    return text


def as_document(discovered: Found, plan: Plan, backup: Path | None, *, is_written: bool) -> dict[str, object]:
    """The same for programs."""
    problems = [
        {"file": str(one.file), "client": one.client, "message": one.message, "error": one.is_error}
        for one in discovered.problems
    ]
    return {**plan_document(plan, backup, is_written=is_written), "problems": problems}


def plan_document(plan: Plan, backup: Path | None, *, is_written: bool) -> dict[str, object]:
    """What became of each server, for programs."""
    return {
        "config": str(plan.path),
        "written": is_written,
        "backup": str(backup) if backup else None,
        "servers": [_as_json(outcome) for outcome in plan.outcomes],
        "secrets": [
            {"name": one.variable, "servers": list(one.servers), "in": plan.secrets_to, "set": one.is_set}
            for one in plan.moved
        ],
        "unset": {name: list(servers) for name, servers in plan.unset.items()},
    }


def _as_json(outcome: Outcome) -> dict[str, object]:
    entry = outcome.entry
    return {
        "client": entry.client,
        "scope": entry.scope,
        "file": str(entry.file),
        "line": entry.line,
        "server": entry.name,
        "became": outcome.became,
        "name": outcome.name or None,
        "why": outcome.detail,
        "left_out": sorted(entry.left_out),
        "notes": list(entry.notes),
    }


def _remarks(outcome: Outcome) -> Iterator[str]:
    if outcome.entry.left_out:
        yield f"not taken over, and kept as comments: {', '.join(sorted(outcome.entry.left_out))}"
    yield from outcome.entry.notes


def _short(path: str, home: Path) -> str:
    return f"~{path[len(str(home)) :]}" if path.startswith(f"{home}{os.sep}") else path


@click.command("import")
@click.argument("sources", nargs=-1, metavar="[CLIENT|FILE]…")
@click.option("--client", "clients", multiple=True, metavar="ID", help="The same as CLIENT.")
@click.option("--all", "all_", is_flag=True, help="Every client that is known; so it is if none is named.")
@click.option("--project", metavar="DIR", help="Whose project files count. Default: the current directory.")
@click.option("--output", metavar="FILE", help="What to write. Default: the servers.toml that is in use.")
@secrets_option
@click.option("--replace", "replacing", is_flag=True, help="Let servers take the place of others of their name.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and write nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@as_json_option
@header_option
def import_command(
    *,
    sources: tuple[str, ...],
    clients: tuple[str, ...],
    all_: bool,
    project: str | None,
    output: str | None,
    secrets_to: SecretsTo,
    replacing: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Take over servers into servers.toml: of all clients that have a file here, of single CLIENTs, or of FILEs.

    Servers that are in servers.toml stay as they are, with every comment. Secrets are taken out of the text. You are
    asked before anything is written. Without a terminal, --yes is needed; it leaves out what the current directory
    brings along, unless its file or --project names it.

    Exit code 2: a file that you named cannot be read, or a client that you named has no servers.

    \u0008
    Examples:
      mcpbridge import --dry-run
      mcpbridge import cursor claude-code
      mcpbridge import ./.mcp.json --yes
    """
    try:
        wanted = [*sources, *clients]
        if all_ and wanted:
            fail(USAGE, "--all is every client: name none beside it")
        around = _around(project)
        with progress("looking for servers in the files of your clients …"):
            found = search(wanted, around)
        if yes and project is None:
            found = without_unnamed_projects(found, sources)
        path = configuration_to_write(output, around.environ)
        plan = plan_import(found, path, around.environ, secrets_to=secrets_to, replacing=replacing)
        if not as_json:
            _show(found, plan, around.home)
        backup = None
        if plan.written and not dry_run:
            if not yes:
                _ask(plan)
            backup = carry_out(plan, datetime.now().astimezone(), around.environ)
    except Exception as error:
        known = report(error, as_json=as_json)
        if known is None:
            raise
        return known
    _tell(found, plan, backup, dry_run=dry_run, as_json=as_json)
    is_wrong = bool(wanted) and (any(one.is_error for one in found.problems) or not found.servers)
    return USAGE if is_wrong else OK


def _around(project: str | None) -> ClientEnvironment:
    """Where this command runs. The home directory is no project, nor is what it is in."""
    home = Path(os.environ.get("HOME") or Path.home()).absolute()
    directory = Path(project).expanduser().absolute() if project else Path.cwd()
    if project and not directory.is_dir():
        raise ConfigError("no such directory (from --project)", file=str(directory))
    is_project = bool(project) or directory not in (home, *home.parents)
    return ClientEnvironment(os.environ, home, sys.platform, directory if is_project else None)


def search(wanted: Sequence[str], around: ClientEnvironment) -> Found:
    """The servers of these clients and files; of all clients if none is named.

    Raises:
        ConfigError: there is no such client.
    """

    def of(clients: Sequence[KnownClient]) -> Found:
        chosen = [client for client in CLIENTS if client in clients]
        return find_all(around.environ, around.home, around.platform, around.project, clients=chosen)

    if not wanted:
        return of(CLIENTS)
    return together(
        [find_in_file(Path(one).expanduser(), around) if _is_file(one) else of([find_client(one)]) for one in wanted]
    )


def without_unnamed_projects(discovered: Found, named: Sequence[str] = ()) -> Found:
    """Without the servers that the working directory brings along, but for those of files that were `named`.

    `--yes` stands for a person who has seen what it is said to. A cloned repository may have files of clients, whose
    programs would run unasked.
    """
    agreed = {Path(one).expanduser().resolve() for one in named}
    left_out = [one for one in discovered.servers if one.scope == "project" and one.file.resolve() not in agreed]
    files = dict.fromkeys((one.file, one.client) for one in left_out)
    problems = [
        Problem(
            file,
            f"not taken over: it came with this directory, and --yes was not said to it. If you know what its servers "
            f"start, name it: mcpbridge import {shlex.quote(str(file))}",
            client,
            is_error=False,
        )
        for file, client in files
    ]
    servers = tuple(one for one in discovered.servers if one not in left_out)
    return replace(discovered, servers=servers, problems=(*discovered.problems, *problems))


def _is_file(typed: str) -> bool:
    path = Path(typed).expanduser()
    return (
        "/" in typed
        or os.sep in typed
        or path.suffix in (".json", ".jsonc", ".toml", ".yaml", ".yml")
        or path.is_file()
    )


def _show(discovered: Found, plan: Plan, home: Path) -> None:
    show_outcomes(plan, home)
    show_problems(discovered, plan, home)
    if not discovered.servers:
        note("no servers were found")


def _ask(plan: Plan) -> None:
    """Ask the person at the terminal. Ends the command if they do not agree, or if there is none."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        hint = "Say --yes, or --dry-run to see what it would be."
        fail(USAGE, "nothing was written: a person has to agree, and the command runs without a terminal", hint)
    about = ABOUT_SECRETS[plan.secrets_to] if plan.moved or plan.open_secrets else ""
    click.confirm(f"Write to {plan.path} (servers: {len(plan.written)}){about}?", default=True, abort=True, err=True)


def _tell(discovered: Found, plan: Plan, backup: Path | None, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_json("import/1", as_document(discovered, plan, backup, is_written=bool(plan.written) and not dry_run))
        return
    if dry_run and plan.written:
        print(visible(shown_diff(plan)))
    for line in to_do(plan):
        note(visible(line))
    if not plan.written:
        if plan.outcomes:
            note(visible(f"nothing to write: {plan.path} stays as it is"))
    elif dry_run:
        note("nothing was written (--dry-run)")
    else:
        kept = f"; what was there before is in {backup}" if backup else ""
        note(visible(f"wrote to {plan.path} (servers: {len(plan.written)}){kept}"))
