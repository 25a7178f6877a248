"""`mcpbridge reload`: let running bridges read their configuration again."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, cast

import click

from mcpbridge.admin.control_socket import SILENT, Document
from mcpbridge.cli.daemons import config_path, survey
from mcpbridge.cli.exits import OK, TIMED_OUT, UNREACHABLE, USAGE, fail
from mcpbridge.cli.options import as_json_option, config_option
from mcpbridge.cli.output import note, print_json, visible

__all__ = ["command"]

_PATIENCE = 60.0
"""Seconds for a reload; it waits for servers that come and go."""
_CHANGES = ("added", "removed", "replaced")


@click.command("reload")
@config_option
@as_json_option
def command(*, config: str | None, as_json: bool) -> int:
    """Let every running bridge with this configuration read it again, and say what changed.

    Only servers whose settings changed are stopped and started; calls under way finish on the old ones. Bridges do this
    by themselves when the file is edited, unless `daemon.watch` is off; then what changed last is said. A file that is
    wrong changes nothing: exit code 2. Exit code 4: no bridge runs; 7: one does not answer.
    """
    path = config_path(config)
    around = survey(path)
    found = around.bridges
    told = [one.ask("reload", patience=_PATIENCE) for one in found]
    if as_json:
        print_json({"bridges": told})
    else:
        for document in told:
            _show(document)
    around.require_answer(path)
    for line in around.told_silent():
        note(line)
    if any(document.get("code") == SILENT for document in told) or (around.silent and not found):
        return TIMED_OUT
    if not found:
        if not as_json:
            fail(UNREACHABLE, "no bridge runs with this configuration", "It is read when one starts.")
        return UNREACHABLE
    return OK if all(document.get("ok") for document in told) else USAGE


def _show(document: Document) -> None:
    who = f"process {document.get('pid')}"
    if not document.get("ok"):
        wrong = cast("Mapping[str, Any]", document.get("config_error") or {})
        print(visible(f"{who}: nothing changed. {wrong.get('message') or document.get('error')}"))
        return
    before = cast("Mapping[str, Any]", document.get("before") or {})
    if changes := _changes(document):
        print(visible(f"{who}: {changes}"))
    elif before:
        when = datetime.fromisoformat(before["at"]).astimezone().strftime("%H:%M:%S")
        print(visible(f"{who}: nothing changed since {when}; what did then: {_changes(before)}"))
    else:
        print(visible(f"{who}: nothing changed"))
    if later := document.get("needs_restart"):
        print(visible(f"  after `mcpbridge restart`: {_list(later)}"))
    for warning in cast("Sequence[str]", document.get("warnings") or ()):
        print(visible(f"  warning: {warning}"))


def _changes(document: Document) -> str:
    found = [f"{kind} {_list(document[kind])}" for kind in _CHANGES if document.get(kind)]
    sections = cast("Sequence[str]", document.get("sections") or ())
    other = [*cast("Sequence[str]", document.get("kept") or ()), *(f"[{section}]" for section in sections)]
    return "; ".join([*found, *([f"changed {_list(other)}"] if other else [])])


def _list(names: object) -> str:
    return ", ".join(map(str, cast("Sequence[object]", names))) if isinstance(names, list) else str(names)
