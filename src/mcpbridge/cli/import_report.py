"""What `mcpbridge import` tells: what it found, what became of it, what is left to do. Never a secret."""

import difflib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from mcpbridge.cli.output import note, print_table, visible
from mcpbridge.client_files.diffs import shown_change
from mcpbridge.client_files.editing import Splice
from mcpbridge.client_files.found import Found
from mcpbridge.client_files.importing import Plan
from mcpbridge.client_files.merging import Outcome
from mcpbridge.redaction import MASK, Redactor

__all__ = ["as_document", "show_outcomes", "show_problems", "shown_diff", "to_do"]

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
            outcome.found.title,
            _short(outcome.found.place, home),
            outcome.found.name,
            "; ".join(filter(None, [_WORDS[outcome.became], outcome.detail])),
        ]
        for outcome in plan.outcomes
    ]
    if rows:
        print_table(["Client", "Where", "Server", "What became of it"], rows, wraps="What became of it")


def show_problems(found: Found, plan: Plan, home: Path) -> None:
    """What is wrong with files, what was assumed, and what could not be taken over."""
    for problem in found.problems:
        note(visible(f"{_short(str(problem.file), home)}: {problem.message}"))
    for outcome in plan.written:
        for remark in _remarks(outcome):
            note(visible(f"{outcome.name}: {remark}"))


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
    if plan.kept:
        what = "written down as they are" if len(plan.kept) > 1 else "written down as it is"
        yield f"{_counted(plan.kept, what)}, for whoever reads {plan.path.name} (--secrets file keeps them apart)"


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
    text = shown_change(str(plan.path), before, after, edit)
    text = Redactor(plan.kept)(text)
    for secret in plan.kept:  # the short ones, too
        text = text.replace(secret, MASK)
    return text


def as_document(found: Found, plan: Plan, backup: Path | None, *, is_written: bool) -> dict[str, object]:
    """The same for programs."""
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
        "problems": [
            {"file": str(one.file), "client": one.client, "message": one.message, "error": one.is_error}
            for one in found.problems
        ],
    }


def _as_json(outcome: Outcome) -> dict[str, object]:
    found = outcome.found
    return {
        "client": found.client,
        "scope": found.scope,
        "file": str(found.file),
        "line": found.line,
        "server": found.name,
        "became": outcome.became,
        "name": outcome.name or None,
        "why": outcome.detail,
        "left_out": sorted(found.left_out),
        "notes": list(found.notes),
    }


def _remarks(outcome: Outcome) -> Iterator[str]:
    if outcome.found.left_out:
        yield f"not taken over, and kept as comments: {', '.join(sorted(outcome.found.left_out))}"
    yield from outcome.found.notes


def _short(path: str, home: Path) -> str:
    return f"~{path[len(str(home)) :]}" if path.startswith(f"{home}{os.sep}") else path
