"""What can be saved of a message that does not decode.

The rule (issue 2): whoever waits for a spoiled answer must not wait for its deadline. So a line is
repaired where the repair leaves no doubt (a byte order mark, a wrong UTF-8 byte, half a surrogate pair, NaN),
and where it cannot be, the ids in it are found so that the right call fails at once. Only lines that failed
to decode come here: nothing in this file costs a healthy server anything.

Cut a byte stream into messages, one a line (spec, stdio transport). Sans-I/O.

Every byte is looked at a fixed number of times: a line of 40 MB costs ten times one of 4 MB. A line
over the limit is skipped while it arrives; only its ends are kept, to find out whose answer it was.

One message that came whole, for channels that keep messages apart by themselves (WebSocket, server-sent events).

The same rules as on a line of stdio: what can be repaired is, and of what cannot the ids are found. But there is no
noise: text that is no message stands where a message was meant to be, so it is told as a spoiled one.
"""

import json
import re

import msgspec
from msgspec import Struct

from mcpbridge.protocol.jsonrpc import DEPTH_LIMIT_TEXT, Frame, decode_batch, decode_frame, one_line


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


_KEPT_OF_OVERSIZED = 4096
_STARTS = frozenset(b"{[ \t\r\xef")
"""First bytes of lines that may be messages; any other line is noise and not worth a look, however much of it comes."""
_NOISE_A_FEED = 8
"""Lines of noise that are told of in one chunk; a program that prints without end must not cost a look each."""
_OUTSIDE_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"?')


class LineReader:
    """Feed it chunks as they come; it returns the messages that they complete, in order."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._held = 0
        self._oversized_head = b""
        self._oversized_tail = b""
        self._pretty: list[bytes] = []
        self._pretty_bytes = 0
        self._open_brackets = 0

    @property
    def is_waiting(self) -> bool:
        """An object was begun on an earlier line and is not finished: `give_up` ends the wait."""
        return bool(self._pretty)

    def feed(self, data: bytes) -> list[Item]:
        """Take a chunk; return what it completes."""
        *lines, rest = data.split(b"\n")
        items: list[Item] = []
        if lines:
            if self._held:
                lines[0] = self._finish(lines[0], items)
            noise = 0
            for line in lines:
                if len(line) > self._max_bytes:
                    items.append(self._too_long(find_ids(line)))
                elif line:
                    if line[0] in _STARTS or self._pretty:
                        self._take(line, items)
                    elif (noise := noise + 1) <= _NOISE_A_FEED:
                        items += salvage_noise(line)
        if rest:
            self._hold(rest)
        return items

    def end(self) -> list[Item]:
        """The stream ended; a last line without a line end still counts."""
        items: list[Item] = []
        if self._held:
            line = self._finish(b"", items)
            if line:
                self._take(line, items)
        return items + self.give_up()

    def give_up(self) -> list[Item]:
        """Stop waiting for the rest of an object begun on an earlier line."""
        if not self._pretty:
            return []
        held = b" ".join(self._pretty)
        self._pretty.clear()
        if b'"' not in held:
            return [Noise(held[:200].decode("utf-8", "replace"))]
        return [Spoiled(find_ids(held), "Input data was truncated")]

    def _take(self, line: bytes, items: list[Item]) -> None:
        if self._pretty:
            self._go_on(line, items)
            return
        try:
            frame = decode_frame(line)
        except (msgspec.DecodeError, RecursionError):
            self._rescue(line, items)
            return
        if not line.isascii():
            clean = clean_utf8(line)
            if clean is not line:
                frame = decode_frame(clean)
        items.append(frame)

    def _rescue(self, line: bytes, items: list[Item]) -> None:
        saved = salvage(line)
        if isinstance(saved, Unfinished):
            self._pretty = [saved.line]
            self._pretty_bytes = len(saved.line)
            self._open_brackets = _depth_change(saved.line)
        else:
            items += saved

    def _go_on(self, line: bytes, items: list[Item]) -> None:
        """A line after the first of an object that spans lines."""
        if line[:1] == b"{" and (frame := _whole_message(line)) is not None:
            # The object was never going to be finished: a new message begins.
            items += self.give_up()
            items.append(frame)
            return
        self._pretty.append(line)
        self._pretty_bytes += len(line)
        self._open_brackets += _depth_change(line)
        if self._pretty_bytes > self._max_bytes:
            items.append(self._too_long(find_ids(b" ".join(self._pretty))))
            self._pretty.clear()
        elif self._open_brackets <= 0:
            whole = b" ".join(self._pretty)
            self._pretty.clear()
            try:
                items.append(decode_frame(clean_utf8(whole)))
            except RecursionError:
                items.append(Spoiled(find_ids(whole), DEPTH_LIMIT_TEXT))
            except msgspec.DecodeError as error:
                items.append(Spoiled(find_ids(whole), str(error)))

    def _hold(self, rest: bytes) -> None:
        self._held += len(rest)
        if self._held <= self._max_bytes:
            self._parts.append(rest)
            return
        if self._parts:
            self._oversized_head = b"".join(self._parts)[:_KEPT_OF_OVERSIZED]
            self._parts.clear()
        elif not self._oversized_head:
            self._oversized_head = rest[:_KEPT_OF_OVERSIZED]
        self._oversized_tail = (self._oversized_tail + rest)[-_KEPT_OF_OVERSIZED:]

    def _finish(self, last: bytes, items: list[Item]) -> bytes:
        """Close the held line with its last part. An oversized one is reported and becomes an empty line."""
        was_oversized = self._held > self._max_bytes
        self._held = 0
        if was_oversized:
            tail = (self._oversized_tail + last)[-_KEPT_OF_OVERSIZED:]
            items.append(self._too_long(find_ids(self._oversized_head + b"\n" + tail)))
            self._oversized_head = self._oversized_tail = b""
            return b""
        line = b"".join([*self._parts, last])
        self._parts.clear()
        return line

    def _too_long(self, ids: list[bytes]) -> Spoiled:
        return Spoiled(ids, f"larger than the limit of {self._max_bytes / 2**20:g} MiB for one message")


def _whole_message(line: bytes) -> Frame | None:
    try:
        frame = decode_frame(line)
    except (msgspec.DecodeError, RecursionError):
        return None
    return frame if frame.method or frame.id else None


def _depth_change(line: bytes) -> int:
    bare = _OUTSIDE_STRINGS.sub(b"", line)
    return bare.count(b"{") + bare.count(b"[") - bare.count(b"}") - bare.count(b"]")


_SHOWN = 80
"""Characters that are repeated of what is no message."""


def read_message(data: bytes) -> list[Frame | Spoiled]:
    """The messages in `data`: one; the members of a batch in order; none in blanks."""
    line = one_line(data)
    try:
        frame = decode_frame(line)
    except (msgspec.DecodeError, RecursionError):
        return _rescued(line)
    if not line.isascii():
        clean = clean_utf8(line)
        if clean is not line:
            frame = decode_frame(clean)
    return [frame]


def _rescued(line: bytes) -> list[Frame | Spoiled]:
    saved = salvage(line)
    if isinstance(saved, Unfinished):
        return [Spoiled(find_ids(line), "cut off in the middle")]
    found: list[Frame | Spoiled] = []
    for item in saved:
        if isinstance(item, Batch):
            found += item.members
        elif isinstance(item, Noise):
            found.append(Spoiled([], f"no JSON-RPC message: {item.text[:_SHOWN]!r}"))
        else:
            found.append(item)
    return found
