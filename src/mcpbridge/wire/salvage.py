"""What can be saved of a message that does not decode.

The rule (issue 2): whoever waits for a spoiled answer must not wait for its deadline. So a line is
repaired where the repair leaves no doubt (a byte order mark, a wrong UTF-8 byte, half a surrogate pair, NaN),
and where it cannot be, the ids in it are found so that the right call fails at once. Only lines that failed
to decode come here: nothing in this file costs a healthy server anything.
"""

import json
import re

import msgspec
from msgspec import Struct

from mcpbridge.wire.frame import DEPTH_LIMIT_TEXT, Frame, decode_batch, decode_frame

__all__ = ["Batch", "Item", "Noise", "Spoiled", "Unfinished", "clean_utf8", "find_ids", "salvage", "salvage_noise"]


class Spoiled(Struct, frozen=True):
    """A protocol message that cannot be read. `ids`: raw request ids found in it, most likely first."""

    ids: list[bytes]
    reason: str


class Noise(Struct, frozen=True):
    """Text that is no protocol message, such as a stray print of the server."""

    text: str


class Batch(Struct, frozen=True):
    """A JSON-RPC batch (revision 2025-03-26 only), its members in order."""

    members: list[Frame | Spoiled]


class Unfinished(Struct, frozen=True):
    """The beginning of an object that later lines may finish (pretty-printed JSON)."""

    line: bytes


Item = Frame | Batch | Spoiled | Noise
"""What one line of a channel can turn out to be."""

_BOM = b"\xef\xbb\xbf"
_SAMPLE = 4096
"""Bytes of noise that are kept: enough to mask a secret in it before it is cut to what is shown."""
_ID = re.compile(rb'"id"\s*:\s*(-?\d{1,18}(?![\d.eE])|"(?:[^"\\]|\\.){0,256}")')
_ID_WINDOW = 65_536
_ESCAPE = re.compile(
    rb"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[dD][89a-fA-F][0-9a-fA-F]{2}|.)"
)
# The closing quote is optional: an open string must match to its end, or the search starts again at each quote in it
# and costs the square of the length.
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*("?)', re.DOTALL)
_STRING_OR_NOT_A_NUMBER = re.compile(rb'"(?:[^"\\]|\\.)*"?|-?\b(?:NaN|Infinity)\b', re.DOTALL)


def find_ids(message: bytes) -> list[bytes]:
    """Raw ids in a message that does not decode: those near its start first, then those near its end.

    JSON-RPC writers put the id at one end or the other; ids in the middle belong to the payload.
    """
    found = _ID.findall(message[:_ID_WINDOW])
    if len(message) > _ID_WINDOW:
        found += reversed(_ID.findall(message[-_ID_WINDOW:]))
    return list(dict.fromkeys(found))


def clean_utf8(line: bytes) -> bytes:
    """The line with every wrong byte as U+FFFD. Wrong bytes must not travel on: the next peer would choke on them."""
    if line.isascii():
        return line
    try:
        line.decode()
    except UnicodeDecodeError:
        return line.decode("utf-8", "replace").encode()
    return line


def salvage(line: bytes) -> list[Item] | Unfinished:
    """Make the most of one line that `decode_frame` refused."""
    line = line.strip().removeprefix(_BOM).strip()
    if not line:
        return []
    if line[:1] == b"[":
        return _batch(line)
    if line[:1] != b"{":
        return [Noise(line[:_SAMPLE].decode("utf-8", "replace"))]
    repaired = _repair(line)
    try:
        return [decode_frame(repaired)]
    except RecursionError:
        return [Spoiled(find_ids(line), DEPTH_LIMIT_TEXT)]
    except msgspec.ValidationError as error:
        return [Spoiled(find_ids(line), f"not a JSON-RPC message: {error}")]
    except msgspec.DecodeError as error:
        if "trailing characters" in str(error):
            return _several(repaired)
        if "truncated" in str(error) and _string_ends(repaired):
            return Unfinished(line)
        if not _looks_like_a_message(line):
            return [Noise(line[:_SAMPLE].decode("utf-8", "replace"))]
        return [Spoiled(find_ids(line), str(error))]


def _looks_like_a_message(line: bytes) -> bool:
    """Whether a line in braces was meant as JSON-RPC, or is what some program printed of an object."""
    return b'"jsonrpc"' in line or (_ID.search(line) is not None and (b'"result"' in line or b'"error"' in line))


def salvage_noise(line: bytes) -> list[Item]:
    """What a line is that cannot be a message."""
    return [Noise(line.strip()[:_SAMPLE].decode("utf-8", "replace"))]


def _repair(line: bytes) -> bytes:
    line = clean_utf8(line)
    if b"\\u" in line:
        line = _ESCAPE.sub(_whole_pairs_only, line)
    if b"NaN" in line or b"Infinity" in line:
        line = _STRING_OR_NOT_A_NUMBER.sub(_null_for_not_a_number, line)
    return line


def _whole_pairs_only(match: re.Match[bytes]) -> bytes:
    text = match.group()
    is_lone_half = match.group(1) is None and text[:2] == b"\\u" and len(text) == 6
    return b"\\ufffd" if is_lone_half else text


def _null_for_not_a_number(match: re.Match[bytes]) -> bytes:
    text = match.group()
    return text if text[:1] == b'"' else b"null"


def _string_ends(text: bytes) -> bool:
    """No string is left open at the end: JSON strings cannot go on in the next line."""
    return all(match.group(1) for match in _STRING.finditer(text))


def _batch(line: bytes) -> list[Item]:
    try:
        members = decode_batch(clean_utf8(line))
    except RecursionError:
        return [Spoiled(find_ids(line), DEPTH_LIMIT_TEXT)]
    except msgspec.DecodeError as error:
        if b'"jsonrpc"' not in line:
            return [Noise(line[:_SAMPLE].decode("utf-8", "replace"))]
        return [Spoiled(find_ids(line), str(error))]
    return [Batch([_member(bytes(member)) for member in members])]


def _member(data: bytes) -> Frame | Spoiled:
    try:
        return decode_frame(data)
    except (msgspec.DecodeError, RecursionError) as error:
        return Spoiled(find_ids(data), f"not a JSON-RPC message: {error}")


def _several(line: bytes) -> list[Item]:
    """Two or more objects on one line."""
    text = line.decode("utf-8", "replace")
    scan = json.JSONDecoder().raw_decode
    items: list[Item] = []
    at = 0
    while at < len(text):
        try:
            _, end = scan(text, at)
        except (ValueError, RecursionError):
            items.append(_leftover(text[at:]))
            break
        items.append(_member(text[at:end].encode("utf-8", "replace")))
        at = end
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
    return items


def _leftover(text: str) -> Spoiled | Noise:
    ids = find_ids(text.encode("utf-8", "replace"))
    return Spoiled(ids, "malformed text after a message on the same line") if ids else Noise(text[:_SAMPLE])
