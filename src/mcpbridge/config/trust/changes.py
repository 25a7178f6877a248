"""What changed in a configuration since a person trusted it: which files, and which lines of its own text. Pure."""

import difflib
import os
from collections.abc import Iterator

from mcpbridge.config.trust.content import Content
from mcpbridge.config.trust.decisions import Decision, changed_files

_MOST_FILES = 20
_MOST_LINES = 40
_LONGEST_LINE = 300


def describe_changes(decision: Decision, path: str, text: str, content: Content) -> Iterator[str]:
    """Lines for a person. `path`: of the configuration; `text`: what it says now, secrets masked as in the decision."""
    changed = changed_files(decision, content)
    folder = os.path.dirname(path)  # noqa: PTH120 - paths of decisions are texts
    for name in changed[:_MOST_FILES]:
        how = "new" if name not in decision.files else "gone" if name not in content else "changed"
        yield f"{how}: {os.path.relpath(name, folder) if name.startswith(folder) else name}"
    if len(changed) > _MOST_FILES:
        yield f"… and {len(changed) - _MOST_FILES} more files"
    if path not in changed or not decision.text:
        return
    lines = list(difflib.unified_diff(decision.text.splitlines(), text.splitlines(), n=1, lineterm=""))[2:]
    if not lines:
        yield "only values that are masked here differ"
    for line in lines[:_MOST_LINES]:
        yield f"  {line if len(line) <= _LONGEST_LINE else line[:_LONGEST_LINE] + '…'}"
    if len(lines) > _MOST_LINES:
        yield f"  … and {len(lines) - _MOST_LINES} more lines: read the file"
