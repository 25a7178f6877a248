"""Migrate servers from the files of clients to servers.toml, for `install --replace` and `init`: first in, then out.

A server leaves its file only if it is in servers.toml by then, under whatever name, and nothing keeps it from working
there: its variables are set, its secrets kept.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from mcpbridge.app.cli.clients.import_servers import (
    show_outcomes,
    show_problems,
    to_do,
    without_unnamed_projects,
)
from mcpbridge.app.cli.output import note, print_text, progress, visible
from mcpbridge.app.client_config.clients import CLIENTS
from mcpbridge.app.client_config.discover.discover import find_all
from mcpbridge.app.client_config.discover.discovered_servers import ClientEnvironment, Found, FoundServer
from mcpbridge.app.client_config.entry import NAME
from mcpbridge.app.client_config.importing.merge import Outcome
from mcpbridge.app.client_config.importing.plan import Plan, SecretsTo, carry_out, plan_import
from mcpbridge.app.client_config.install import Target

_IS_SAFE = ("new", "replaced", "there")


def plan_for(
    targets: Sequence[Target] | None,
    around: ClientEnvironment,
    path: Path,
    secrets_to: SecretsTo,
    *,
    but: Sequence[FoundServer] = (),
    asks: bool = True,
) -> Plan:
    """What taking over all servers of these files would write; None: of all that there are. Nothing is changed.

    `but`: without these. `asks`: a person is shown the servers; else those of the directory's own files are left out,
    and named on standard error.

    Raises:
        ConfigError: the configuration is there and wrong.
    """
    clients = CLIENTS if targets is None else [target.client for target in targets]
    with progress("looking for servers in the files of your clients …"):
        found = find_all(around.environ, around.home, around.platform, around.project, clients=clients)
    if targets is not None:
        servers = [one for one in found.servers if any(_is_in(one, target) for target in targets)]
        found = replace(found, servers=tuple(servers))
    if not asks:
        known, found = found.problems, without_unnamed_projects(found)
        for problem in found.problems[len(known) :]:
            note(visible(f"{problem.file}: {problem.message}"))
    places = {(one.file, one.line, one.name) for one in but}
    servers = [one for one in found.servers if (one.file, one.line, one.name) not in places]
    found = replace(found, servers=tuple(servers))
    return plan_import(found, path, around.environ, secrets_to=secrets_to)


def taken_from(plan: Plan, target: Target) -> list[str]:
    """The names of the servers of a file that servers.toml has once the plan is carried out; and of other bridges."""
    return [outcome.entry.name for outcome in _of(plan, target) if not _missing(plan, outcome)]


def staying(plan: Plan, target: Target) -> Iterator[str]:
    """What to say of servers that stay in a file although servers.toml has them: they would not work there."""
    for outcome in _of(plan, target):
        if missing := _missing(plan, outcome):
            what = f"{outcome.entry.name} stays in {target.client.title}'s file, since the bridge would lack"
            then = f"set it where the bridge starts, then run `mcpbridge install {target.client.id} --replace`"
            yield f"{what} {', '.join(missing)} for it; {then}"


def _of(plan: Plan, target: Target) -> Iterator[Outcome]:
    """Those servers of a file that servers.toml has once the plan is carried out; and other bridges."""
    safe = {outcome.name for outcome in plan.outcomes if outcome.became in _IS_SAFE}
    for outcome in plan.outcomes:
        is_safe = outcome.became in (*_IS_SAFE, "bridge") or (outcome.became == "same" and outcome.name in safe)
        if is_safe and _is_in(outcome.entry, target) and outcome.entry.name != NAME:
            yield outcome


def _missing(plan: Plan, outcome: Outcome) -> tuple[str, ...]:
    is_off = outcome.became == "bridge" or outcome.entry.server.get("disabled")
    return () if is_off else plan.waiting.get(outcome.name, ())


def show_plan(plan: Plan, around: ClientEnvironment) -> None:
    """Which servers there are, and what would become of each."""
    show_outcomes(plan, around.home)
    show_problems(Found(servers=tuple(outcome.entry for outcome in plan.outcomes)), plan, around.home)


def write(plan: Plan) -> Path | None:
    """Put the servers into servers.toml, and say what there is to do. Returns where the file before is kept, if any.

    Raises:
        ConfigError: it cannot be written, or somebody else wrote it meanwhile.
    """
    backup = carry_out(plan, datetime.now().astimezone(), os.environ) if plan.written else None
    for line in to_do(plan):
        note(visible(line))
    if plan.written:
        kept = f"; what was there before is in {backup}" if backup else ""
        several = "servers" if len(plan.written) > 1 else "server"
        print_text(f"wrote {len(plan.written)} {several} to {plan.path}{kept}")
    return backup


def _is_in(entry: FoundServer, target: Target) -> bool:
    is_its_table = "*" not in target.file.key or str(entry.project) in target.table
    return entry.file == target.visible_path and entry.scope == target.file.scope and is_its_table
