"""Sentences of running text that are likely to be asked for: those with a figure, or with something set off."""

import re

from mcpbridge.results.text_facts import cut

__all__ = ["FIGURE", "KEPT", "around"]

KEPT = 200
"""Sentences that are kept of each sort."""

FIGURE = re.compile(r"(?<![\w.])\d[\d.,:%/-]*\w{0,4}\b")
"""A number, with a unit or not."""

_END = re.compile(
    r"(?<!\b\w)(?<!\b(?:Mr|Ms|Dr|St|No|Nr|vs))(?<!\b(?:Mrs|Fig|Vol|Sec|Nos))[.!?][\"')\]]? (?=[^\sa-z\d])"
)
"""Where a sentence ends: not after an initial or an abbreviation, nor before a number or a small letter."""

SIDE = 80
"""Characters that are shown on each side at most."""


def around(line: str, start: int, end: int) -> str:
    """The sentence that holds this place of a line, or as much of it as fits, cut between words."""
    low = max((match.end() for match in _END.finditer(line, max(0, start - SIDE), start + 1)), default=0)
    if not low:
        low = max(0, start - SIDE)
        low = 0 if low == 0 else line.find(" ", low, start) + 1 or low
    stop = _END.search(line, end, end + SIDE)
    high = stop.end() - 1 if stop else 0
    if not high:
        high = min(len(line), end + SIDE)
        high = high if high == len(line) else max(line.rfind(" ", end, high), end)
    return cut(line[low:high].strip(), 3 * SIDE)
