"""Repairs a message that does not decode, or finds the ids in it.

A line is repaired where the repair leaves no doubt: a byte order mark, a wrong UTF-8 byte, half a surrogate pair,
NaN. Otherwise the ids in it are found, so that the right call fails at once (issue 2). Only lines that failed to
decode come here: a healthy server pays nothing for this file.
"""

import json
import re

import msgspec
from msgspec import Struct

from mcpbridge.base.late_pattern import late
from mcpbridge.protocol.batches import Batch, decode_batch, decode_member
from mcpbridge.protocol.jsonrpc import DEPTH_LIMIT_TEXT, Frame, decode_arriving_frame
from mcpbridge.protocol.reading.unreadable import (
    ID_PATTERN,
    NOISE_LIMIT,
    Noise,
    Spoiled,
    clean_utf8,
    find_ids,
    noise_of,
)


class Unfinished(Struct, frozen=True):
    """The beginning of an object that later lines may finish (pretty-printed JSON)."""

    line: bytes


Item = Frame | Batch | Spoiled | Noise
"""What one line of a channel can turn out to be."""

BOM = b"\xef\xbb\xbf"
"""A byte order mark in UTF-8, which JSON does not have but some programs write (RFC 8259, section 8.1)."""
_ESCAPE = late(rb"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[dD][89a-fA-F][0-9a-fA-F]{2}|.)")
# The closing quote is optional: an open string must match to its end, or the search starts again at each quote in it
# and costs the square of the length.
_STRING = late(rb'"(?:[^"\\]|\\.)*("?)', re.DOTALL)
_STRING_OR_NOT_A_NUMBER = late(rb'"(?:[^"\\]|\\.)*"?|-?\b(?:NaN|Infinity)\b', re.DOTALL)


def salvage(line: bytes) -> list[Item] | Unfinished:
    """Make the most of one line that `decode_frame` refused."""
    line = line.strip().removeprefix(BOM).strip()
    if not line:
        return []
    if line[:1] == b"[":
        batch = decode_batch(line)
        is_printed = isinstance(batch, Batch) and not any(map(_may_be_meant, batch.members))
        return [noise_of(line) if is_printed else batch]
    if line[:1] != b"{":
        return [noise_of(line)]
    repaired = _repair(line)
    try:
        return [decode_arriving_frame(repaired)]
    except RecursionError:
        return [Spoiled(find_ids(line), DEPTH_LIMIT_TEXT)]
    except msgspec.ValidationError as error:
        if not _looks_like_a_message(line):
            return [noise_of(line)]
        return [Spoiled(find_ids(line), f"not a JSON-RPC message: {error}")]
    except msgspec.DecodeError as error:
        if "trailing characters" in str(error):
            return _several(repaired)
        if "truncated" in str(error) and is_cut_between_tokens(repaired):
            return Unfinished(line)
        if not _looks_like_a_message(line):
            return [noise_of(line)]
        return [Spoiled(find_ids(line), str(error))]


def _may_be_meant(member: Frame | Spoiled) -> bool:
    """A member of an array may have been meant as a message; a list of numbers that some program printed was not."""
    return isinstance(member, Frame) or bool(member.ids)


def _looks_like_a_message(line: bytes) -> bool:
    """Whether a line in braces was meant as JSON-RPC, or is what some program printed of an object."""
    return b'"jsonrpc"' in line or (ID_PATTERN.search(line) is not None and (b'"result"' in line or b'"error"' in line))


def _repair(line: bytes) -> bytes:
    line = clean_utf8(line)
    line = replace_lone_surrogates(line)
    if b"NaN" in line or b"Infinity" in line:
        line = without_not_a_number(line)
    return line


def without_not_a_number(line: bytes) -> bytes:
    """The line with null for each number that JSON does not have: NaN, and those of unlimited size."""
    return _STRING_OR_NOT_A_NUMBER.sub(_null_for_not_a_number, line)


def replace_lone_surrogates(line: bytes) -> bytes:
    """The line with U+FFFD for each escaped half of a surrogate pair: it means no character, and few can read it."""
    return _ESCAPE.sub(_whole_pairs_only, line) if b"\\u" in line else line


def _whole_pairs_only(match: re.Match[bytes]) -> bytes:
    text = match.group()
    is_lone_half = match.group(1) is None and text[:2] == b"\\u" and len(text) == 6
    return b"\\ufffd" if is_lone_half else text


def _null_for_not_a_number(match: re.Match[bytes]) -> bytes:
    text = match.group()
    return text if text[:1] == b'"' else b"null"


def is_cut_between_tokens(text: bytes) -> bool:
    """Whether no string is left open at the end: JSON strings cannot continue in the next line."""
    return all(match.group(1) for match in _STRING.finditer(text))


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
        items.append(decode_member(text[at:end].encode("utf-8", "replace")))
        at = end
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
    return items


def _leftover(text: str) -> Spoiled | Noise:
    ids = find_ids(text.encode("utf-8", "replace"))
    return Spoiled(ids, "malformed text after a message on the same line") if ids else Noise(text[:NOISE_LIMIT])
