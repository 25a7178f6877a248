"""The last look at every finished result: nothing in it looks like the bridge's own header line but that line itself.

Which spellings count is decided in `header_line.py`. The check works on the JSON as it is spelled, not on its values:
so it meets every string, whatever its name and wherever it is (also a member whose name occurs twice, of which a
client may take the one and we the other), and all that need not change keeps its bytes. Only brackets are replaced, so
the JSON stays what it was. Linear in the size of the result, whatever is in it. Pure.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import msgspec

from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.results.header_line import (
    OTHER_BRACKETS,
    RESULT,
    in_text,
    mark,
    may_hold_header_line,
    plain_mark,
    ranges,
)

_TOP = 0x10000
_SHORT = {"\t": r"\\t", "\n": r"\\n", "\r": r"\\r", "\f": r"\\f", "/": r"\\/"}
"""What JSON has a shorter escape for, of what can be around the mark."""
_BLANK, _END = r"\s|\\[tnrf]", '"'
_PLAIN = re.compile(rf"\[({plain_mark(_BLANK, _END)})")
_PART = 64 * 1024
"""Bytes of a large result that are searched at once."""
_SEARCHED = 4096
"""Bytes at the end of a part in which a place to cut is looked for."""
_LONGEST_END = 256
"""Bytes of what ends the name in a header line, such as a handle with all its letters escaped."""
_STRANGE = re.compile(rb"[hjkloqsvwxyzHJKLOQSVWXYZ]|[\xe4-\xe9][\x80-\xbf]{2}")
"""No letter of the name, nor of an escape; or a character of Chinese or Japanese."""
_PIECE = 256 * 1024
"""Characters that are searched at once: a search lets nobody else run."""


def without_spoofs(data: bytes, own: Sequence[str] = (), *, is_ours: bool = False) -> bytes | None:
    """The result, in which nothing looks like the bridge's word but what is in `own`; None: that is what came.

    `data`: a whole `tools/call` result. `own`: whole texts that the bridge wrote itself, with nothing of a server's in
    them that looks so; every string that is equal to one stays. `is_ours`: the bridge put `mcpbridge/result` into
    `_meta` of it; else that goes. Never raises.
    """
    if not may_hold_header_line(data):
        return None
    text = str(data, "utf-8", "surrogateescape")
    said = _defused(text, own)
    done = data if said == text else said.encode("utf-8", "surrogateescape")
    if not is_ours and ("\\" in said or RESULT in said) and _claim().search(said):
        done = _unclaimed(done)
    return None if done == data else done


def parts_to_search(data: memoryview) -> Iterator[bytes]:
    """A large result in parts that end with a quote, of which what is searched for has none inside."""
    start = 0
    while start < len(data):
        part = bytes(data[start : start + _PART])
        quote = part.rfind(b'"') + 1
        if quote and start + len(part) < len(data):
            part = part[:quote]
        elif start + len(part) < len(data):
            part = bytes(data[start : _cut_of_string(data, start)])
            yield bytes(data[start : start + len(part) + _LONGEST_END])
            start += len(part)
            continue
        yield part
        start += len(part)


def _cut_of_string(data: memoryview, start: int) -> int:
    """Where a long string may be cut: at a character that stands in no header line before what ends its name."""
    size = _PART
    while start + size < len(data):
        places = [found.end() for found in _STRANGE.finditer(data, start + size - _SEARCHED, start + size)]
        if places:
            return places[-1]
        size *= 2
    return len(data)


def holds_spoof(part: bytes) -> bool:
    """Whether something in such a part looks like the bridge's word."""
    if not may_hold_header_line(part):
        return False
    text = str(part, "utf-8", "surrogateescape")
    if any(pattern.search(text) for pattern in _patterns(text)):
        return True
    return ("\\" in text or RESULT in text) and _claim().search(text) is not None


def _defused(text: str, own: Sequence[str]) -> str:
    patterns = _patterns(text)
    parts = list(_parts(text))
    if not any(pattern.search(part) for part in parts for pattern in patterns):
        return text
    pieces = _split(text, _spelled_out(own))  # every second one is ours
    pieces[::2] = ["".join([_replaced(part, patterns) for part in _parts(piece)]) for piece in pieces[::2]]
    return "".join(pieces)


def _parts(text: str) -> Iterator[str]:
    """The text in parts that end with a quote, of which the mark has none."""
    start = 0
    while start < len(text):
        end = (text.find('"', start + _PIECE) + 1) or len(text)
        yield text[start:end]
        start = end


def _replaced(text: str, patterns: Iterable[re.Pattern[str]]) -> str:
    for pattern in patterns:
        text = pattern.sub(_without_bracket, text)
    return text


def _without_bracket(match: re.Match[str]) -> str:
    text, start = match.string, match.start()
    if text[start] == "\\":
        before = start
        while before and text[before - 1] == "\\":
            before -= 1
        if (start - before) % 2:  # a backslash that is a character itself, then letters
            return match.group()
    return "(" + match.group(1)


def _spelled_out(own: Sequence[str]) -> list[str]:
    """The strings that are ours, as they were written."""
    written: list[str] = []
    for text in own:
        try:
            written.append(encode(text).decode())
        except UnicodeEncodeError:  # half a character: it was never written
            continue
    return written


def _split(text: str, written: Sequence[str]) -> list[str]:
    """The text in pieces, of which every second one is one of these strings; the first in order where several begin.

    Not by a pattern: to compile one of a whole preview takes longer than all else that is done here.
    """
    pieces: list[str] = []
    end, nearest = 0, [_find(text, one, 0) for one in written]
    while any(at >= 0 for at in nearest):
        begin, place = min((at, place) for place, at in enumerate(nearest) if at >= 0)
        pieces += [text[end:begin], written[place]]
        end = begin + len(written[place])
        nearest = [_find(text, one, end) if 0 <= at < end else at for at, one in zip(nearest, written, strict=True)]
    return [*pieces, text[end:]]


def _find(text: str, string: str, start: int) -> int:
    """Where the string stands next; -1: nowhere. A quote after a backslash does not begin one."""
    at = text.find(string, start)
    while at > 0 and text[at - 1] == "\\":
        at = text.find(string, at + 1)
    return at


def _unclaimed(data: bytes) -> bytes:
    """The result without what a server says in our name to programs. Each name stands once in what is encoded anew."""
    try:
        result = Body(data)
        meta = result.inner("_meta")
        if meta is not None and RESULT in meta:
            meta.drop(RESULT)
            result.put("_meta", meta)
        else:
            result.remove_duplicate_members()
        return bytes(result.data)
    except (msgspec.DecodeError, RecursionError):
        text = str(data, "utf-8", "surrogateescape")
        return _claim().sub('"not of mcpbridge":', text).encode("utf-8", "surrogateescape")


# -- patterns


def _patterns(text: str) -> list[re.Pattern[str]]:
    """Those that can match at all; one for each kind of beginning, since what begins alike is searched fast."""
    has_escapes = "\\u" in text
    if text.isascii() and not has_escapes:
        return [_PLAIN]
    starts = [r"\[", _escaped("[" + OTHER_BRACKETS)] if has_escapes else [r"\["]
    starts += [f"[{OTHER_BRACKETS}]"] if any(map(text.__contains__, OTHER_BRACKETS)) else []
    return [_wide(start, has_escapes) for start in starts]


@cache
def _wide(start: str, has_escapes: bool) -> re.Pattern[str]:
    return re.compile(f"{start}({mark(_in_json if has_escapes else _unescaped, _END)})")


@cache
def _claim() -> re.Pattern[str]:
    name = "".join(map(_in_json, RESULT))
    return re.compile(rf'"{name}"\s*+:')


def _in_json(chars: Iterable[str]) -> str:
    """The pattern of one of these characters as JSON may spell it."""
    chars = list(chars)
    return f"(?:{_unescaped(chars)}|{_escaped(chars)})"


def _unescaped(chars: Iterable[str]) -> str:
    """The same, where nothing is spelled by its number."""
    chars = list(chars)
    short = [_SHORT[char] for char in chars if char in _SHORT]
    return f"(?:{'|'.join([in_text(chars), *short])})" if short else in_text(chars)


def _escaped(chars: Iterable[str]) -> str:
    r"""The pattern of one of these characters as `\u005b`, or as two such where it has more than 16 bits."""
    last_digits: dict[str, str] = defaultdict(str)
    for code in map(ord, chars):
        high, low = divmod(code - _TOP, 0x400)
        digits = f"{code:04x}" if code < _TOP else rf"{0xD800 + high:04x}\\u{0xDC00 + low:04x}"
        last_digits[digits[:-1]] += digits[-1]
    return rf"\\u(?i:{'|'.join(f'{first}[{ranges(last)}]' for first, last in last_digits.items())})"
