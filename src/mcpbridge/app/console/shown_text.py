"""Text of servers, clients and models as the console shows it: inert, and visible for what it is.

Templates escape markup by themselves. Here characters that have no shape of their own, or change that of others, become
their code in brackets: control characters and ANSI sequences, marks that turn the direction of text, characters of no
width, tags and variation selectors. What a person reads is then what is there. Pure.
"""

import json
import re
from datetime import UTC, datetime

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u070f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)
"""Line ends and tabs stay."""
_LINE_ENDS = re.compile(r"\r\n?")
_MOST_MARKS = 4
"""Combining marks that one character keeps; more of them cover the lines above and below."""
_COMBINING = "[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
_MARKS = re.compile(f"({_COMBINING}{{{_MOST_MARKS}}}){_COMBINING}+")

LONGEST = 20_000
"""Characters of one text that a page shows, unless it says otherwise."""


def inert_text(text: str, limit: int = LONGEST) -> str:
    """The text without anything that hides or moves; what is cut off is counted at the end."""
    cut = len(text) - limit
    if cut > 0:
        text = text[:limit]
    if not text.isascii() or _UNSEEN.search(text):
        text = _MARKS.sub(r"\1⟦…⟧", _UNSEEN.sub(_code, _LINE_ENDS.sub("\n", text)))
        text = text.encode("utf-8", "replace").decode() if any("\ud800" <= one <= "\udfff" for one in text) else text
    return f"{text}⟦{cut:,} more characters⟧" if cut > 0 else text


def _code(match: re.Match[str]) -> str:
    char = match.group()
    name = "ESC" if char == "\x1b" else f"U+{ord(char):04X}"
    return f"⟦{name}⟧"


def pretty_json(data: bytes | str | object) -> str:
    """JSON with indents, as a form can hold it and send it back unchanged: what cannot be seen is escaped in it.

    What is no JSON comes back as text.
    """
    if isinstance(data, bytes | str):
        try:
            data = json.loads(data)
        except (ValueError, RecursionError):
            return data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    text = json.dumps(data, indent=2, ensure_ascii=False)
    return escape_unseen(text)


def escape_unseen(text: str) -> str:
    """The same JSON, with what cannot be seen in its strings escaped by its number."""
    text = _MARKS.sub(lambda match: match[1] + json.dumps(match.group()[_MOST_MARKS:])[1:-1], text)
    return _UNSEEN.sub(lambda match: json.dumps(match.group())[1:-1], text)


def shown_time(at: float) -> str:
    """A moment (seconds since 1970) in UTC; the browser shows it in its own time zone."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def shown_seconds(seconds: float | None) -> str:
    """A duration in the unit that fits it."""
    if seconds is None:
        return "–"
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.0f} d"


def shown_bytes(size: int) -> str:
    """A size in the unit that fits it."""
    if size < 1000:
        return f"{size} B"
    for unit, factor in (("kB", 1e3), ("MB", 1e6), ("GB", 1e9)):
        if size < factor * 1000:
            return f"{size / factor:.3g} {unit}"
    return f"{size / 1e9:,.0f} GB"


def shown_count(number: float | None) -> str:
    """A number with separators between thousands."""
    return "–" if number is None else f"{number:,.0f}"
