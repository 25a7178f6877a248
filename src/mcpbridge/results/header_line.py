"""The bridge's own line above every rewritten result, and every spelling that a reader would take for it. Pure.

The line says what the result is, what was done to it, and how to get the rest. Nothing that a server sends may look
like it: `spoof_check.py` goes over whole results and changes what does.

The beginning is `[mcpbridge`, followed by a blank, a colon, a dot or a handle. A reader cannot see whether a letter is
a full-width or a mathematical one, and does not see characters without width. So letters and the bracket count as what
NFKC makes of them, in any case, and format characters (category Cf) do not count at all. `[mcpbridge] started` is the
tag of a log and not ours: a closing bracket never follows our name.
"""

import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Literal

_NAME = "mcpbridge"
OTHER_BRACKETS = "［﹇【〖〚〔⟦⁅❲⦋⦍⦏"
"""What may be read as `[`, beside it."""
_BLANKS = "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2028\u2029\u202f\u205f\u2800\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
_STOPS = ":：∶꞉·•∙⋅・‧|%"
"""What may follow the name; `%` begins a blank in a URI."""
_HANDLE = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_BACKSLASH = ord("\\")
_M_AND_C = "🅪"
"""The only character that NFKC makes two letters of the name of."""
_DRAWN_ALIKE = {"m": "Мм", "c": "Ссϲ", "p": "РрΡρ", "b": "ВЬ", "i": "ІіΙı", "d": "ԁ", "g": "ɡ", "e": "Ее"}
"""Letters of other scripts, which NFKC leaves as they are."""
_COMPATIBLE = [
    *((0x02B0, 0x0300), (0x1D2C, 0x1DC0), (0x2070, 0x20A0), (0x2100, 0x2190), (0x24B6, 0x24EA)),
    *((0xA7F2, 0xA7F5), (0xFF21, 0xFF5B), (0x1D400, 0x1D7CC), (0x1F110, 0x1F150)),
]
"""Where the characters are that NFKC makes a Latin letter of: to ask all of Unicode takes a second."""
_CONTROLS = r"[\x00-\x07\x0e-\x1b]"
"""Those that JSON cannot say in two characters."""
_UNSEEN = [
    *((0x00, 0x08), (0x0E, 0x1C), (0x80, 0x85), (0x86, 0xA0)),  # controls
    *((0xAD, 0xAE), (0x34F, 0x350), (0x600, 0x606), (0x61C, 0x61D), (0x6DD, 0x6DE), (0x70F, 0x710), (0x890, 0x892)),
    *((0x8E2, 0x8E3), (0x115F, 0x1161), (0x17B4, 0x17B6), (0x180B, 0x1810), (0x200B, 0x2010), (0x202A, 0x202F)),
    *((0x2060, 0x2070), (0x3164, 0x3165), (0xFE00, 0xFE10), (0xFEFF, 0xFF00), (0xFFA0, 0xFFA1), (0xFFF9, 0xFFFC)),
    *((0x110BD, 0x110BE), (0x110CD, 0x110CE), (0x13430, 0x13440), (0x1BCA0, 0x1BCA4), (0x1D173, 0x1D17B)),
    *((0xE0001, 0xE0002), (0xE0020, 0xE0080), (0xE0100, 0xE01F0)),
]
"""Format characters, and others without a width."""

Spelled = Callable[[Iterable[str]], str]
"""A pattern for one of these characters."""


def plain_mark(blanks: str, after: str) -> str:
    """The pattern of what follows the bracket, in ASCII. `blanks`: pattern of one, `after`: of what ends it."""
    name = f"{_CONTROLS}*+".join(_NAME)
    return rf"(?:{blanks}|{_CONTROLS})*+(?i:{name}){_CONTROLS}*+(?=(?:{blanks})|[:|%]|[a-zA-Z2-7]{{26}}|{after})"


def mark(spelled: Spelled, after: str) -> str:
    """The pattern of what follows the bracket, in any spelling. Takes time linear in what is searched."""
    unseen, blank = spelled(_unseen()), spelled(_BLANKS)
    letters = [spelled(_like(letter)) for letter in _NAME]
    rest = f"{unseen}*+".join(letters[2:])
    first = f"(?:{letters[0]}{unseen}*+{letters[1]}|{spelled(_M_AND_C)})"
    ends = f"{spelled(_BLANKS + _STOPS)}|(?:{spelled(_HANDLE)}){{26}}|{after}"
    return f"(?:{blank}|{unseen})*+{first}{unseen}*+{rest}{unseen}*+(?={ends})"


@cache
def _letters() -> dict[str, str]:
    import unicodedata  # loaded with the first text that is not of ASCII

    found = {letter: letter + letter.upper() + _DRAWN_ALIKE.get(letter, "") for letter in _NAME}
    for start, end in _COMPATIBLE:
        for char in map(chr, range(start, end)):
            letter = unicodedata.normalize("NFKC", char).casefold()
            if letter in found:
                found[letter] += char
    return found


def _like(letter: str) -> str:
    return _letters()[letter]


@cache
def _unseen() -> str:
    return "".join(chr(code) for start, end in _UNSEEN for code in range(start, end))


def in_text(chars: Iterable[str]) -> str:
    """The pattern of one of these characters, as it is in a text."""
    return f"[{ranges(chars)}]"


def ranges(chars: Iterable[str]) -> str:
    """They as the inside of a class of a pattern, short since patterns are compiled by slow code."""
    runs: list[tuple[int, int]] = []
    for code in sorted(set(map(ord, chars))):
        if runs and runs[-1][1] == code - 1:
            runs[-1] = (runs[-1][0], code)
        else:
            runs.append((code, code))
    ends = [(re.escape(chr(first)), re.escape(chr(last))) for first, last in runs]
    return "".join(first if first == last else f"{first}-{last}" for first, last in ends)


RESULT = "mcpbridge/result"
"""In `_meta` of a rewritten result: its `handle`, `uri`, `form`, `kind` and `chars`, for programs."""

URI = "mcpbridge://results/"
"""What URIs of kept results begin with; the handle follows."""

Form = Literal["as sent", "minified", "table", "visible", "preview", "truncated", "summary", "transformed"]
"""What was done to a result; the first four lose nothing."""

_MARK = "[mcpbridge "
_BLANK, _END = r"\s", r"\Z"
"""A text may be continued by the next block."""
_CLOSING = str.maketrans("[]［］﹇﹈", "()()()")
"""A headline is inside of brackets."""

_DONE: dict[Form, str] = {
    "as sent": "complete",
    "minified": "complete, minified",
    "table": "complete, as a table",
    "visible": "complete, hidden characters shown",
    "preview": "a preview",
    "truncated": "cut",
    "summary": "summary by a model, may be wrong",
    "transformed": "transformed",
}
_COMPLETE = frozenset[Form](("as sent", "minified", "table", "visible"))


def uri_of(handle: str) -> str:
    """The URI of a kept result."""
    return URI + handle


def header_line(form: Form, headline: str, chars: int, *, handle: str, recall: str, transforms: bool) -> str:
    """The line. `recall`: what that tool is called; empty: the client has none. `handle` empty: nothing is kept."""
    parts = [f"{_MARK}{handle}" if handle else "[mcpbridge", _on_one_line(headline), f"{chars:,} chars", _DONE[form]]
    line = " · ".join(parts)
    if form == "visible" and handle:
        return f"{line}; as sent: {f'{recall}(handle)' if recall else uri_of(handle)}]"
    if form in _COMPLETE or not handle:
        return f"{line}{'' if form in _COMPLETE else '; the rest was not kept'}]"
    ways = [f"{recall}(handle, path|where|select|find|lines…)"] if recall else []
    ways += ["_transform"] if transforms else []
    return f"{line}; more: {' or '.join(ways)}]" if ways else f"{line}; whole: {uri_of(handle)}]"


def defused(text: str) -> str:
    """The text, in which nothing begins as the bridge's own lines do."""
    if text.isascii():
        return _plain().sub(r"(\1", text)
    for pattern in _patterns(text):
        text = pattern.sub(r"(\1", text)
    return text


def holds_header_line(text: str) -> bool:
    """Whether a text has a line that could be taken for ours."""
    if text.isascii():
        return _plain().search(text) is not None
    return any(pattern.search(text) for pattern in _patterns(text))


def may_hold_header_line(data: bytes) -> bool:
    """Whether bytes of JSON need a closer look for lines like ours; cheap, since every small result is asked."""
    if not data.isascii() or (_BACKSLASH in data and b"\\u" in data):
        return True
    return data.lower().find(b"mcpbridge") >= 0  # `in` takes twice as long: it begins with an exception


def words_may_hold_header_line(words: frozenset[bytes]) -> bool:
    """The same by what was found in a large result while it arrived (`large_messages.py`)."""
    return not words.isdisjoint((b"not ascii", b"\\u", b"mcpbridge"))


def _on_one_line(headline: str) -> str:
    """The headline without what cannot be seen, what begins a line, or what could end ours."""
    seen = "".join(char if char.isprintable() else " " for char in headline.translate(_CLOSING))
    return defused(" ".join(seen.split()))


def _patterns(text: str) -> list[re.Pattern[str]]:
    """Those that can match at all. Two, since one that begins with a single character is searched ten times as fast."""
    has_others = any(map(text.__contains__, OTHER_BRACKETS))
    return [_wide(r"\["), _wide(f"[{OTHER_BRACKETS}]")] if has_others else [_wide(r"\[")]


@cache
def _plain() -> re.Pattern[str]:
    return re.compile(rf"\[({plain_mark(_BLANK, _END)})")


@cache
def _wide(start: str) -> re.Pattern[str]:
    return re.compile(f"{start}({mark(in_text, _END)})")
