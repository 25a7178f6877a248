"""`mcpbridge trust` and `untrust`: say which configurations of working directories may be used without being named."""

import os
from pathlib import Path

import click

from mcpbridge.app.cli.config.audited import audit_of_user
from mcpbridge.app.cli.config.config_path import describe_change, describe_what_runs, is_answered_yes
from mcpbridge.app.cli.failures import fail
from mcpbridge.app.cli.options import as_json_option, header_option
from mcpbridge.app.cli.output import is_at_terminal, print_json, print_table, print_text, visible
from mcpbridge.app.exit_codes import OK, USAGE
from mcpbridge.base.config_file import FILE_NAME
from mcpbridge.base.errors import ConfigError
from mcpbridge.config.load import read
from mcpbridge.config.trust.content import place_of, whole_content
from mcpbridge.config.trust.decisions import Decision, TrustStore, changed_files


def _configuration(named: str | None) -> Path:
    """The file that is meant: one that is named, or `servers.toml` of a directory; the working directory's if none is.

    Raises:
        ConfigError: there is none.
    """
    path = Path(named).expanduser() if named else Path(FILE_NAME)
    return Path(place_of(path / FILE_NAME if path.is_dir() else path))


@click.command("trust")
@click.argument("path", required=False)
@click.option("--list", "lists", is_flag=True, help="List the files that are trusted, and which of them changed since.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@as_json_option
@header_option
def trust_command(*, path: str | None, lists: bool, yes: bool, as_json: bool) -> int:
    """Trust a configuration of a working directory: PATH, or ./servers.toml.

    Shows what it starts and reads, and what changed since the last time; at a terminal it asks first.
    Commands that start its servers then use it without asking, as it is now. They ask again if it changes, or a file
    of its repository that it names: scripts, hooks, spec files, Python modules. Exit code 2: there is no such file, it
    is wrong, or the answer was no.

    \u0008
    Examples:
      mcpbridge trust
      mcpbridge trust ~/work/shop/servers.toml
      mcpbridge trust --yes
      mcpbridge trust --list
    """
    store = TrustStore(os.environ)
    if lists:
        if path is not None:
            raise click.UsageError("--list goes without a PATH.")
        return _list(store, as_json=as_json)
    file = _configuration(path)
    if not file.is_file():
        fail(USAGE, visible(f"there is no configuration at {file}"), "Name one: mcpbridge trust PATH.")
    loaded = read(file, os.environ)
    content = whole_content(loaded.judged, loaded.content)
    changed = describe_change(loaded, store, content)
    if not as_json:
        if changed:
            print_text("changed since it was trusted:")
            print_text(changed)
        print_text(f"{file} starts and reads:")
        print_text(describe_what_runs(loaded))
    if not (yes or as_json or _agrees()):
        fail(USAGE, visible(f"{file} is not trusted: nobody said yes"))
    store.add(file, content, loaded.masked_text)
    audit_of_user("trust.given", {"detail": str(file), "files": dict(content)})
    if as_json:
        print_json("trust/1", {"path": str(file), "trusted": True, "files": sorted(content)})
        return OK
    print_text(f"trusted {file}")
    return OK


def _agrees() -> bool:
    """What the person at the terminal says; without a terminal, whoever typed the command has said it."""
    return not is_at_terminal() or is_answered_yes("Trust it?")


@click.command("untrust")
@click.argument("path", required=False)
@as_json_option
def untrust_command(*, path: str | None, as_json: bool) -> int:
    """Stop trusting a configuration: PATH, or ./servers.toml. What runs with it runs until it ends.

    \u0008
    Examples:
      mcpbridge untrust
    """
    file = _configuration(path)
    was_trusted = TrustStore(os.environ).remove(file)
    audit_of_user("trust.withdrawn", {"detail": str(file)})
    if as_json:
        print_json("untrust/1", {"path": str(file), "trusted": False, "was_trusted": was_trusted})
    else:
        print_text(f"{file} is trusted no longer" if was_trusted else f"{file} was not trusted")
    return OK


def _list(store: TrustStore, *, as_json: bool) -> int:
    found = [{"path": path, "state": _state(path, one), "at": one.at} for path, one in sorted(store.all().items())]
    if as_json:
        print_json("trust-list/1", {"trusted": found})
    elif found:
        print_table(["File", "State", "Trusted at"], [[one["path"], one["state"], one["at"]] for one in found])
    else:
        print_text("no configuration is trusted")
    return OK


def _state(path: str, decision: Decision) -> str:
    """How a file is compared with what was trusted."""
    if not Path(path).is_file():
        return "gone"
    try:
        loaded = read(Path(path), os.environ)
    except ConfigError:
        return "changed"  # what was trusted could be read
    return "changed" if changed_files(decision, whole_content(loaded.judged, loaded.content)) else "trusted"
