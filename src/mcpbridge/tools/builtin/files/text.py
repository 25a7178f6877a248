"""Whether bytes of a file are text, in which encoding, and which of its lines are shown. Pure."""

import codecs

from msgspec import Struct

ENCODINGS = (
    *("utf-8", "utf-16", "utf-16-le", "utf-16-be", "latin-1", "cp1252", "cp1251", "koi8-r"),
    *("shift_jis", "euc-jp", "gb18030", "big5", "euc-kr"),
)
"""That can be asked for; among those that Python has are some that take for ever, or are no encodings of text."""

LOOKED_AT = 8192
"""Bytes at the beginning that show whether it is text."""

_MARKS = (  # longer ones first: that of UTF-32 begins as that of UTF-16 does
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_BINARY = (
    (b"%PDF-", "PDF"),
    (b"PK\x03\x04", "ZIP or an office document"),
    (b"\x1f\x8b", "gzip"),
    (b"\x7fELF", "a program"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
)
_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_GUESSED = "cp1252"


def encoding_of(data: bytes) -> str:
    """The encoding of a text that begins so, known by its mark; `utf-8` without one. Empty: it is no text."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return encoding
    head = data[:LOOKED_AT]
    is_binary = b"\x00" in head or bool(image_type(head)) or any(head.startswith(begin) for begin, _ in _BINARY)
    return "" if is_binary else "utf-8"


def image_type(data: bytes) -> str:
    """The media type of an image that models are shown; empty: it is none."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for begin, kind in _IMAGES if data.startswith(begin)), "")


def kind_of_binary(data: bytes) -> str:
    """What it is, in a word or two; empty: that is not known."""
    return next((kind for begin, kind in _BINARY if data.startswith(begin)), "") or image_type(data)


def decoded(data: bytes, encoding: str) -> tuple[str, str]:
    """A whole text without its mark, and the encoding that it is really in.

    Raises:
        UnicodeDecodeError: it is in none that could be guessed either.
    """
    if encoding != "utf-8":
        return data[_mark_length(data, encoding) :].decode(encoding.removesuffix("-sig")), encoding
    try:
        return data.decode(), encoding
    except UnicodeDecodeError:
        return data.decode(_GUESSED), _GUESSED


def unified(data: bytes, encoding: str) -> tuple[bytes, str]:
    """A text, or a piece of one, as UTF-8, and the encoding that it is really in. What cannot be read becomes `�`."""
    data = data[_mark_length(data, encoding) :]
    if encoding not in ("utf-8", "utf-8-sig"):
        return data.decode(encoding, "replace").encode(), encoding
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data)  # a piece may end within a character
    except UnicodeDecodeError:
        return data.decode(_GUESSED, "replace").encode(), _GUESSED
    return data, encoding


def _mark_length(data: bytes, encoding: str) -> int:
    return next((len(mark) for mark, its in _MARKS if its == encoding and data.startswith(mark)), 0)


class Page(Struct, frozen=True):
    """Some lines of a text."""

    text: str
    first: int
    """Number of its first line, from 1."""
    last: int
    """Of its last one; below `first`: there is none."""
    total: int
    """Lines of the text."""
    is_cut: bool
    """The last line is not shown to its end."""


def page(data: bytes, offset: int, limit: int, room: int) -> Page:
    r"""Up to `limit` lines (0: any) from line `offset` on (below 0: from the end), in at most `room` bytes of UTF-8.

    Line ends become `\n`. A first line that is longer than `room` is cut.
    """
    total = data.count(b"\n") + (1 if data and not data.endswith(b"\n") else 0)
    first = max(1, total + offset + 1 if offset < 0 else offset)
    if first > total:
        return Page("", first, first - 1, total, is_cut=False)
    start = _line_start(data, first)
    shown = data[start : start + room]
    is_all = start + room >= len(data)
    if limit:
        end = _line_start(shown, limit + 1)
        is_all, shown = is_all or end < len(shown), shown[:end]
    is_cut = False
    if not is_all and not shown.endswith(b"\n"):
        end = shown.rfind(b"\n") + 1
        is_cut, shown = not end, shown[:end] or shown
    lines = shown.count(b"\n") + (1 if not shown.endswith(b"\n") else 0)
    text = shown.decode(errors="ignore" if is_cut else "replace").replace("\r\n", "\n")
    return Page(text, first, first + lines - 1, total, is_cut)


def _line_start(data: bytes, number: int) -> int:
    """Where a line begins; its length if there are fewer. Counts in large steps before it looks at single lines."""
    at, step = 0, 1 << 16
    left = number - 1
    while left and at < len(data):
        within = data.count(b"\n", at, at + step)
        if within >= left:
            break
        left -= within
        at += step
    while left:
        found = data.find(b"\n", at)
        if found < 0:
            return len(data)
        at, left = found + 1, left - 1
    return min(at, len(data))
