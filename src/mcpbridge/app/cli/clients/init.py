"""`mcpbridge init`: find servers, write servers.toml, put the bridge into clients, as a short dialogue."""

import sys
from contextlib import nullcontext, redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mcpbridge.app.cli.clients.install import (
    change_files,
    changes_document,
    client_environment,
    next_steps,
    project_option,
    show_changes,
)
from mcpbridge.app.cli.clients.launch_command import launching
from mcpbridge.app.cli.config.config_path import configuration_to_write, load_trusted
from mcpbridge.app.cli.failures import fail, report
from mcpbridge.app.cli.options import as_json_option, config_option, secrets_option
from mcpbridge.app.cli.output import counted, note, print_json, print_table, print_text, visible
from mcpbridge.app.client_config.discover.discovered_servers import ClientEnvironment, FoundServer
from mcpbridge.app.client_config.install import Change, all_targets, plan_install
from mcpbridge.app.exit_codes import OK, USAGE
from mcpbridge.base.config_file import is_found_in_working_directory
from mcpbridge.base.errors import ConfigError
from mcpbridge.config.files.backups import Backups
from mcpbridge.config.files.write_file import ChangedMeanwhile, replace_file

if TYPE_CHECKING:
    from mcpbridge.app.client_config.importing.plan import Plan, SecretsTo


_EMPTY = """# The servers of mcpbridge. For instance:
#
# [servers.time]
# command = "uvx"
# args = ["mcp-server-time"]
"""


@click.command("init")
@click.option("--yes", "-y", is_flag=True, help="Ask nothing: take over all servers, and install into all clients.")
@click.option(
    "--replace", "replaces", is_flag=True, help="With --yes: take the servers out of the clients' files, too."
)
@secrets_option
@project_option
@config_option
@as_json_option
def init_command(
    *, yes: bool, replaces: bool, secrets_to: "SecretsTo", project: Path | None, config: str | None, as_json: bool
) -> int:
    """Set up: find the servers that your clients have, write servers.toml, and put the bridge into your clients.

    You are asked at each step. With --yes nothing is asked: all servers are taken over, and all clients get the bridge.

    \u0008
    Examples:
      mcpbridge init
      mcpbridge init --yes --replace
    """
    try:
        if as_json and not yes:
            fail(USAGE, "--json prints one document and asks nothing", "Say --yes as well.")
        if not (yes or (sys.stdin.isatty() and sys.stderr.isatty())):
            advice = "Say --yes to take over all servers and install into all clients that are found."
            fail(USAGE, "`mcpbridge init` asks at a terminal, and there is none", advice)
        around = client_environment(project)
        if is_found_in_working_directory(config, around.environ):  # it is about to be put into clients
            load_trusted(config, fetches=False)
        path = configuration_to_write(config, around.environ)
        with redirect_stdout(sys.stderr) if as_json else nullcontext():
            plan, backup = _take_over(path, around, secrets_to, yes=yes, is_named=project is not None)
            changes, code = _install(plan, path, around, yes=yes, replaces=replaces, as_json=as_json)
        if as_json:
            from mcpbridge.app.cli.clients.import_servers import plan_document

            servers = plan_document(plan, backup, is_written=bool(plan.written))
            installed = changes_document(changes, dry_run=False, then=next_steps(changes))
            print_json("init/1", {**servers, "changes": installed["changes"], "next": installed["next"]})
        return code
    except (Exception, KeyboardInterrupt) as error:
        known = report(error, as_json=as_json)
        if known is None:
            raise
        return known


def _take_over(
    path: Path, around: ClientEnvironment, secrets_to: "SecretsTo", *, yes: bool, is_named: bool
) -> tuple["Plan", Path | None]:
    """The first half: which servers there are, and servers.toml with those that are wanted.

    Returns what was planned and written, and where the file before is kept, if any. `is_named`: somebody named the
    directory whose own files count.
    """
    from mcpbridge.app.cli.clients import migrate  # knows all settings, which takes a while to load
    from mcpbridge.app.cli.clients.import_servers import ABOUT_SECRETS
    from mcpbridge.app.cli.prompts import choose

    plan = migrate.plan_for(None, around, path, secrets_to, asks=not yes or is_named)
    migrate.show_plan(plan, around)
    if plan.written and not yes:
        rows = [[str(number), outcome.name, _origin(outcome.entry)] for number, outcome in enumerate(plan.written, 1)]
        print_table(["", "Server", "From"], rows, is_report=True)
        print_text(f"Those that you choose are written to {plan.path}{ABOUT_SECRETS[secrets_to]}")
        wanted = choose("Which of these shall mcpbridge serve?", plan.written)
        if len(wanted) < len(plan.written):
            refused = {outcome.name for outcome in plan.written if outcome not in wanted}
            but = [one.entry for one in plan.outcomes if one.became in ("new", "same") and one.name in refused]
            plan = migrate.plan_for(None, around, path, secrets_to, but=but)
    backup = None
    if plan.written:
        backup = migrate.write(plan)
    elif plan.before is None:
        note("no servers were found in the clients' files" if not plan.outcomes else "no servers were taken over")
        _write_example(plan.path)
    else:
        print_text(f"{path} stays as it is")
    return plan, backup


def _origin(entry: FoundServer) -> str:
    """Who has it; what a directory brings along is named, since nobody may have looked at it."""
    return f"{entry.title}, in {entry.project}" if entry.scope == "project" else entry.title


def _install(
    plan: "Plan", path: Path, around: ClientEnvironment, *, yes: bool, replaces: bool, as_json: bool
) -> tuple[list[Change], int]:
    """The second half: the bridge in the clients that are wanted. Returns what was changed, and the exit code."""
    from mcpbridge.app.cli.clients import migrate
    from mcpbridge.app.cli.prompts import choose

    targets = all_targets(around)
    if not targets:
        note("no client was found here; `mcpbridge install CLIENT --force` makes the file of one")
        return [], OK
    if not yes:
        rows = [
            [str(number), target.client.title, str(target.visible_path)] for number, target in enumerate(targets, 1)
        ]
        print_table(["", "Client", "File"], rows, is_report=True)
        targets = choose("Into which of these shall it be installed?", targets)
    taken = {target: migrate.taken_from(plan, target) for target in targets}
    if replaces or not yes:
        for line in (line for target in targets for line in migrate.staying(plan, target)):
            note(visible(line))
    count = sum(map(len, taken.values()))
    served = counted(count, "server")
    question = f"Take the {served} that it serves now out of these clients' files, so that none runs twice?"
    if not (count and ((yes and replaces) or (not yes and click.confirm(question, default=True, err=True)))):
        taken = {}
    launched, backups = launching(None, None, None, around.environ, coming=path), Backups(around.environ)
    plans = [
        partial(plan_install, target, launched.from_file(target, around), backups, taken.get(target, ()))
        for target in targets
    ]
    changes, code = change_files(plans, backups, dry_run=False, as_json=as_json)
    show_changes(changes, dry_run=False, then=next_steps(changes))
    return changes, code


def _write_example(path: Path) -> None:
    try:
        replace_file(path, None, _EMPTY.encode(), private=False)
    except ChangedMeanwhile as error:
        raise ConfigError("somebody else made it meanwhile", file=str(path), hint="Run it again.") from error
    print_text(f"wrote {path}, with an example to fill in")
