"""Single rows as JSON, long texts and lists cut: what a row looks like."""

from collections.abc import Sequence
from typing import Any, cast

from mcpbridge.results.exact_json import NotReadable, write_json
from mcpbridge.results.preview_words import cut

__all__ = ["whole_rows"]

_LONGEST_TEXT = 80
_MOST_ELEMENTS = 3
_MOST_MEMBERS = 40
_DEEPEST = 6


def whole_rows(rows: Sequence[Any], most: int, room: int) -> str:
    """The first rows, at most so many, one a line; empty if there is no room for one."""
    lines = ["first in full:"]
    used = len(lines[0])
    for row in rows[:most]:
        try:
            line = write_json(_shortened(row, 0))
        except NotReadable:
            break
        used += len(line) + 1
        if used > room:
            break
        lines.append(line)
    return "\n".join(lines) if len(lines) > 1 else ""


def _shortened(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return cut(value, _LONGEST_TEXT)
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        if depth >= _DEEPEST:
            return f"… {len(members)} members"
        some = {name: _shortened(members[name], depth + 1) for name, _ in zip(members, range(_MOST_MEMBERS))}  # noqa: B905
        if len(members) > len(some):
            some["…"] = f"+{len(members) - len(some)} members"
        return some
    if isinstance(value, list):
        elements = cast("list[Any]", value)
        if depth >= _DEEPEST:
            return f"… {len(elements)} elements"
        some_elements = [_shortened(element, depth + 1) for element in elements[:_MOST_ELEMENTS]]
        if len(elements) > _MOST_ELEMENTS:
            some_elements.append(f"… +{len(elements) - _MOST_ELEMENTS}")
        return some_elements
    return value
