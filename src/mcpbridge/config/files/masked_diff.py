"""Show a change of a file without what others keep in it: the values of its other lines may be secrets."""

import difflib
import re

from mcpbridge.config.files.edit import Edit

_HIDDEN = "…"
_KEY = r"""(?:"[^"\n]*"|'[^'\n]*'|[A-Za-z0-9_.-]+)"""
_STRUCTURE = re.compile(
    rf"\ufeff?\s*(?:-\s+)?(?:{_KEY}\s*:\s*)?[\[\]{{}},\s]*|\s*\[\[?mcp_servers(?:\.{_KEY})+\]\]?\s*"
)
"""A line without a value: brackets, a key of what comes below, or the header of a server in TOML."""
_VALUE = re.compile(rf"(\s*(?:-\s+)?{_KEY}\s*(?::|=(?!=))).*\S.*")

_Line = list[tuple[str, bool]]
"""The pieces of a line, and whether each is ours."""


def masked_diff(path: str, before: str, after: str, edit: Edit = ()) -> str:
    """A unified diff. What `edit` put into `before` is shown as it is; without one, all values are hidden."""
    old = [_masked_line([(line, False)]) for line in before.split("\n")]
    new = [_masked_line(line) for line in _lines(before, after, edit)]
    return "\n".join(difflib.unified_diff(old, new, path, path, n=2, lineterm=""))


def _lines(before: str, after: str, edit: Edit) -> list[_Line]:
    pieces: _Line = []
    at = 0
    for splice in sorted(edit, key=lambda splice: (splice.start, splice.end)):
        pieces += [(before[at : splice.start], False), (splice.text, True)]
        at = splice.end
    pieces = [*pieces, (before[at:], False)] if edit else [(after, False)]
    lines: list[_Line] = [[]]
    for text, is_ours in pieces:
        first, *more = text.split("\n")
        lines[-1].append((first, is_ours))
        lines += [[(line, is_ours)] for line in more]
    return lines


def _masked_line(line: _Line) -> str:
    return "".join(text if is_ours else _blind(text) for text, is_ours in line if text).rstrip("\r")


def _blind(line: str) -> str:
    """A line with its keys, and without its values and comments."""
    if not line.strip() or _STRUCTURE.fullmatch(line):
        return line
    if found := _VALUE.match(line):
        return f"{found[1]} {_HIDDEN}"
    return re.sub(r"\S.*", _HIDDEN, line, flags=re.DOTALL)
