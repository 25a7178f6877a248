r"""Spells the names in a message plainly, as it arrives: `"isErr\u006fr"` becomes `"isError"`. Pure.

The bridge looks for names in bytes before it parses anything, since most messages do not have them. A name that is
written with escapes would pass unseen, and the client would see it. So every short string that reads as a name, and has
an escape of a letter, a digit or one of `$_-./`, is written without escapes, once, where messages arrive. All searches
below may rely on that. No serializer writes such escapes by itself but `\/`, which counts in names of protocols alone.
All other strings keep their bytes.
"""

import re

import msgspec

from mcpbridge.base.late_pattern import late

_LETTER = late(rb"\\u00(?:24|2[dDeEfF]|3[0-9]|4[1-9a-fA-F]|5[0-9aAfF]|6[1-9a-fA-F]|7[0-9aA])")
_SLASHES = (re.compile(rb"mcpbridge\\/"), re.compile(rb"modelcontextprotocol\\/"), re.compile(rb'"ui\\/'))
_NAME = late(r"[A-Za-z0-9_$./-]{3,128}|i[df]")
_LONGEST = 128 * 6
"""Bytes of a name with each of its letters escaped."""
_BACKSLASH = ord("\\")
_MOST = 2000
"""Escapes that are looked at one by one. A message with more of them is read and written anew as a whole."""


def with_plain_names(data: bytes, *, most: int = _MOST) -> bytes:
    """The message with its names spelled plainly; the very same object where nothing changes.

    Broken JSON stays broken; whoever decodes it says so. `most`: escapes that are looked at one by one.
    """
    if _BACKSLASH not in data:  # one byte is found many times as fast as several
        return data
    if b"\\u00" in data:
        data = _with_plain(_LETTER, data, most)
    if b"\\/" in data:
        for pattern in _SLASHES:
            data = _with_plain(pattern, data, most)
    return data


def _with_plain(pattern: re.Pattern[bytes], data: bytes, most: int) -> bytes:
    parts: list[bytes] = []
    copied = 0
    count = 0
    at = 0
    while (escape := pattern.search(data, at)) is not None:
        count += 1
        if count > most:
            return _written_anew(data)
        at = escape.end()
        begin = _opening_quote(data, escape.start() + 1)
        if begin < copied:
            continue
        end = _closing_quote(data, at)
        if end < 0:
            continue
        at = end
        plain = _plain(data[begin:end])
        if plain:
            parts += (data[copied:begin], plain)
            copied = end
    return b"".join((*parts, data[copied:])) if parts else data


def _plain(string: bytes) -> bytes:
    try:
        text = _decode_text(string)
    except msgspec.DecodeError:
        return b""
    return b'"%b"' % text.encode() if _NAME.fullmatch(text) else b""


def _opening_quote(data: bytes, at: int) -> int:
    """Where the string around this place begins; -1 if that is too far away for a name.

    An escape stands only within a string, so the nearest quote before it that is not escaped itself opens it.
    """
    least = max(0, at - _LONGEST)
    while (at := data.rfind(b'"', least, at)) >= 0 and _is_escaped(data, at):
        pass
    return at


def _closing_quote(data: bytes, at: int) -> int:
    """The place behind the end of the string around this one; -1 if it is too far away for a name."""
    most = at + _LONGEST
    while (at := data.find(b'"', at, most)) >= 0:
        at += 1
        if not _is_escaped(data, at - 1):
            return at
    return -1


def _is_escaped(data: bytes, at: int) -> bool:
    begin = max(0, at - _LONGEST)
    return (at - begin - len(data[begin:at].rstrip(b"\\"))) % 2 == 1


_decode_text = msgspec.json.Decoder(str).decode


def _exact(number: str) -> msgspec.Raw:
    return msgspec.Raw(number.encode())


_decode_all = msgspec.json.Decoder(float_hook=_exact).decode


def _written_anew(data: bytes) -> bytes:
    try:
        return msgspec.json.encode(_decode_all(data))
    except (msgspec.MsgspecError, RecursionError):
        return data  # no JSON, which its decoder says
