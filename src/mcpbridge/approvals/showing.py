"""The arguments of a call as a person reads them before saying yes. Pure.

What is shown is what would be sent: numbers and members stand as they were written, also a member that is named
twice. What a terminal or a dialog does not show, or what turns the direction of the text, is spelled out. Too much is
shortened at its long texts first, so that every member can be seen, and then size and digest of the whole are told.
"""

import re

import msgspec

from mcpbridge.wire.canonical import canonical_digest

__all__ = ["one_line_of", "shown"]

LONGEST = 3000
"""Characters of arguments that are shown whole."""
LONGEST_TEXT = 400
"""Characters of one text in them, once they are longer than that."""

_TEXTS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
_UNSEEN = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\xa0\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202f\u205f-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff\U000e0000-\U000e0fff]"
)


def shown(arguments: bytes, digest: str = "") -> str:
    """The arguments on several lines. `digest`: theirs, if it is known (`canonical_digest`).

    Takes a few milliseconds for what is large: no more is spelled out than is shown.
    """
    text = _formatted(arguments, indent=2)
    if len(text) <= LONGEST and len(text := _UNSEEN.sub(_spelled, text)) <= LONGEST:
        return text
    text = _UNSEEN.sub(_spelled, _shorter(text))
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}\n…"
    return f"{text}\n(shortened; in all {len(arguments)} bytes, SHA-256 {digest or canonical_digest(arguments)})"


def one_line_of(arguments: bytes, longest: int) -> str:
    """The arguments on one line of at most so many characters."""
    text = _UNSEEN.sub(_spelled, _formatted(arguments, indent=-1)[: longest + 1])
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _formatted(arguments: bytes, *, indent: int) -> str:
    try:
        formatted = msgspec.json.format(arguments, indent=indent)
    except (msgspec.DecodeError, RecursionError):
        formatted = arguments
    return formatted.decode("utf-8", "replace")


def _shorter(text: str) -> str:
    """With its long texts shortened, as far as somewhat beyond `LONGEST`."""
    parts, size, at = list[str](), 0, 0
    for found in _TEXTS.finditer(text):
        parts += text[at : found.start()], _shortened(found)
        size += len(parts[-1]) + len(parts[-2])
        at = found.end()
        if size > LONGEST:
            break
    return "".join([*parts, text[at : at + LONGEST + 1 - size] if size <= LONGEST else ""])


def _shortened(match: re.Match[str]) -> str:
    text = match[0]
    return text if len(text) <= LONGEST_TEXT else f'{text[:LONGEST_TEXT]}…" [{len(text) - 2} characters]'


def _spelled(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code > 0xFFFF:
        code -= 0x10000
        return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
    return f"\\u{code:04x}"
