"""The needs of a request: "find a hotel in Rome, and book a table there" needs two tools, by words of their own."""

import re
from collections.abc import Iterator

from mcpbridge.routing.words import stems_of

__all__ = ["clauses"]

_BREAK = re.compile(
    r"[.!?;]+(?=\s|$)|:(?=\s)|[\n\r]+|[。！？；]"
    r"|,?\s(?:and\s+then|after\s+that|after\s+which|as\s+well\s+as|in\s+addition\s+to|in\s+addition|along\s+with)\s"
    r"|\b(?:then|also|additionally|furthermore|moreover|finally|lastly|next|meanwhile|afterwards|besides|plus)\b",
    re.IGNORECASE,
)
"""Where one need ends and another begins."""
_JOINT = re.compile(r",?\sand\s+|,\s+(?:but|or|so)\s+", re.IGNORECASE)
"""Where that may be, if enough is said on both sides: "and" also joins the things of one need."""
_TASK = re.compile(
    r"(?:find|get|show|list|tell|give|search|look|check|calculate|compute|create|make|send|book|write|save|add|update"
    r"|delete|remove|convert|translate|compare|fetch|retrieve|provide|recommend|suggest|generate|open|run|play|set|plan"
    r"|summari[sz]e|schedule|download|upload|how|what|which|where|who|when)\b",
    re.IGNORECASE,
)
_ENOUGH, _ENOUGH_OF_TASK = 3, 2
"""Words, other than stop words, that a need has at least, and one that begins as tasks do."""
_LONGEST = 4000
"""Characters of a request in which needs are looked for."""
_MOST = 8
_LETTERS = 6
"""Letters that a need has at least."""


def clauses(text: str) -> list[str]:
    """The parts of a request, in order, each once; none where it has one need only."""
    seen: dict[str, None] = {}
    for sentence in _BREAK.split(text[:_LONGEST]):
        for part in _parts(sentence) if sentence.strip() else ():
            trimmed = part.strip(" ,\"'()\t")
            if sum(map(str.isalpha, trimmed[:64])) >= _LETTERS:
                seen.setdefault(trimmed)
                if len(seen) == _MOST:
                    return list(seen)
    return list(seen) if len(seen) > 1 else []


def _parts(sentence: str) -> Iterator[str]:
    """A sentence, taken apart where both sides say enough."""
    begun, *rest = _JOINT.split(sentence)
    count = len(stems_of(begun))
    for piece in rest:
        size = len(stems_of(piece))
        if min(count, size) >= (_ENOUGH_OF_TASK if _TASK.match(piece) else _ENOUGH):
            yield begun
            begun, count = piece, size
        else:
            begun, count = f"{begun} and {piece}", count + size
    yield begun
