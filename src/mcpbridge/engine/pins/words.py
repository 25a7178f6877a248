"""How changes of definitions are named for people: what is concerned, what changed, and the command that agrees to it.

What a server says is hostile: it is on one line, and what cannot be seen is spelled out.
"""

import shlex
from typing import Any

from mcpbridge.base.hidden_text import with_hidden_shown
from mcpbridge.catalog.pins.definition import PinKind
from mcpbridge.catalog.pins.review import Effect, Finding

_KINDS: dict[PinKind, str] = {
    "tools": "tool",
    "prompts": "prompt",
    "resources": "resource",
    "templates": "resource template",
    "server": "its",
}
_LONGEST_NAME = 200
_MOST_CHANGES = 8
"""Changes of one definition that are named."""


def described(finding: Finding) -> tuple[str, str]:
    """What is concerned, and what changed, each on one line."""
    name = on_one_line(finding.name)[:_LONGEST_NAME]
    what = f"{_KINDS[finding.kind]} {name}" if name else "all of it"
    changes = [on_one_line(str(one)) for one in finding.changes[:_MOST_CHANGES]]
    if more := len(finding.changes) - len(changes):
        changes.append(f"{more} more")
    return what, "; ".join(changes) if name else "nothing of it is in servers.lock"


def command_for(server: str, name: str) -> str:
    """What a person types to agree to this."""
    what = f"{server}/{name}" if name else server
    return f"mcpbridge lock approve {shlex.quote(on_one_line(what))}"


_EFFECTS: dict[Effect, str] = {
    "warned": "clients get it as it is now",
    "held": "clients get what was agreed to, and its calls pass",
    "checked": "clients get what was agreed to, and calls pass whose arguments are right by both definitions",
    "refused": "clients get what was agreed to, and its calls are refused",
    "unlisted": "clients do not get it",
}


def sentence(finding: Finding) -> str:
    """What changed, and what becomes of it."""
    what, changes = described(finding)
    return f"{what}: {changes}; {_EFFECTS[finding.effect]}"


def as_json(server: str, finding: Finding) -> dict[str, Any]:
    """A finding, as JSON values."""
    return {
        "text": sentence(finding),
        "kind": finding.kind,
        "name": finding.name,
        "effect": finding.effect,
        "changes": [{"change": one.what, "where": one.where, "detail": one.detail} for one in finding.changes],
        "approve": command_for(server, finding.name),
    }


def on_one_line(text: str) -> str:
    """A text of a server, for a line."""
    return " ".join(with_hidden_shown(text).split())
