"""The text of a failure in fewer characters, in which the message is kept wherever it stands; pure.

A failure says what happened in its first line, in the last one of a trace, in the middle of a log, or in a member of an
object. What looks like the message comes first, then as much of the rest as there is room for.
"""

import re
from collections.abc import Iterator
from typing import Any, cast

from mcpbridge.results.document import Document
from mcpbridge.results.exact_json import NotReadable, write_json
from mcpbridge.results.truncate import shorten_error, truncate

__all__ = ["shorten_failure"]

_MEMBERS = re.compile(
    r"(?:.*_)?(?:err(?:or)?s?|msg|messages?|details?|reasons?|causes?|code|status|title|stderr|exception|problem|hint)",
    re.IGNORECASE,
)
_LOUD = re.compile(
    r"error|exception|fail|fatal|denied|refused|forbidden|no such|not found|cannot|can't|unable|invalid|time[d ]?-?out"
    r"|panic|unauthorized|unexpected|missing|abort|caused by|rejected|conflict",
    re.IGNORECASE,
)
_MOST_LINES, _LONGEST_LINE, _MOST_NODES = 50_000, 300, 20_000
_SHARE = 0.6
"""Of the room, at most, for what looks like the message."""
_LEAST = 100
"""Characters in which the rest says anything."""


def shorten_failure(document: Document, room: int) -> str:
    """A failure in at most `room` characters."""
    if len(document.text) <= room:
        return document.text
    found = _members(document.value) if document.kind in ("json", "repr") else _lines(document.text)
    message = _within(found, int(room * _SHARE))
    left = room - len(message) - 1
    if message and left < _LEAST:
        return message[:room]
    rest = _rest(document, left if message else room)
    return f"{message}\n{rest}"[:room] if message else rest


def _rest(document: Document, room: int) -> str:
    text = truncate(document, room) if document.is_structured else ""
    return text if text and len(text) <= room else shorten_error(document.text, room)


def _within(found: Iterator[str], room: int) -> str:
    """So many of these lines as fit; each once."""
    lines: dict[str, None] = {}
    used = 0
    for line in found:
        if line in lines:
            continue
        used += len(line) + 1
        if used > room:
            break
        lines[line] = None
    return "\n".join(lines)


def _members(value: Any) -> Iterator[str]:
    """The members that are called like a message, the outermost first."""
    level: list[tuple[str, Any]] = [("", value)]
    seen = 0
    while level and seen < _MOST_NODES:
        below: list[tuple[str, Any]] = []
        for path, node in level:
            seen += 1
            if isinstance(node, dict):
                for name, inner in cast("dict[str, Any]", node).items():
                    at = f"{path}.{name}" if path else name
                    if isinstance(inner, dict | list):
                        below.append((at, cast("Any", inner)))
                    elif inner is not None and _MEMBERS.fullmatch(name):
                        yield f"{at[-80:]}: {_said(inner)}"
            elif isinstance(node, list):
                items = cast("list[Any]", node)[:100]
                below += [(f"{path}[{place}]", item) for place, item in enumerate(items)]
        level = below[:_MOST_NODES]


def _said(value: Any) -> str:
    try:
        text = value if isinstance(value, str) else write_json(value)
    except NotReadable:
        text = "?"
    return text if len(text) <= _LONGEST_LINE else f"{text[:_LONGEST_LINE]}…"


def _lines(text: str) -> Iterator[str]:
    """The lines that sound like a failure, with their numbers."""
    for number, line in enumerate(text.splitlines()[:_MOST_LINES], 1):
        if _LOUD.search(line[:2000]):
            shown = line.strip()
            yield f"L{number}: {shown[:_LONGEST_LINE]}{'…' if len(shown) > _LONGEST_LINE else ''}"
