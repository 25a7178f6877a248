r"""Reads a large message in slices while it arrives, so that no step holds the event loop for long. Sans-I/O.

The decoder takes a message in one step: 50 MB hold all other traffic for a quarter of a second, in a thread too, since
it keeps the interpreter lock. Here each slice is checked and split when it comes, which takes about a millisecond.
What comes out is what the decoder would give: the same messages are refused, and the same members found. One that is
refused here is read again in the usual way, which says what is wrong with it.

How a slice is checked. The part between two commas, both outside of strings, is put between the opening and closing
brackets that it lacks. That is a JSON text, which the decoder takes or refuses, so the grammar is the decoder's own.
The content of a string that spans slices is checked as strings of its own.

How it is split. Only the members of the message and those of its `result` are wanted. Nearly all slices lie deeper
than these and need no look for members: how deep a slice lies is seen from its brackets alone.
"""

import mmap
import re
import sys
import threading

import msgspec
from msgspec import Raw

from mcpbridge.protocol.jsonrpc import Fields, LargeFrame, decode_frame, decode_text
from mcpbridge.protocol.reading.escaped_names import with_plain_names
from mcpbridge.protocol.reading.members import DEEPER, MemberReader, Span
from mcpbridge.protocol.reading.repair import replace_lone_surrogates, without_not_a_number
from mcpbridge.protocol.reading.unreadable import clean_utf8

SLICE = 64 << 10
"""Bytes that are checked in one step."""
_LONG_STRING = 4096
"""Bytes of a string from which it is checked in parts; a shorter one is seen whole. More than any name has."""
_SMALL = 4096
"""Bytes of a member that is copied, so that it can be kept without the message."""
_ROOM = 1 << 20
"""Bytes by which a message may grow where wrong bytes in it are replaced."""

WORDS = (b'uri"', b'"icons"', b'"resource_link"', b'"audio"', b'"mcpbridge/', b"mcpbridge")
"""What is looked for on the way, in lower case: where it occurs, the result may need a change. The last one is looked
for in all strings, the others in those of less than 4096 bytes."""
ESCAPED, NOT_ASCII = b"\\u", b"not ascii"
"""Among the words of a message that has such an escape, or a byte that is not ASCII."""
_NAME = WORDS[-1]

# Two patterns that begin with text: these are searched many times as fast.
_LONE_HIGH = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])")
_LONE_LOW = re.compile(rb"\\u[dD][c-fC-F](?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD].)")
_HIGH_SURROGATE = re.compile(rb"\\u[dD][89abAB]")
_LONGEST_ESCAPE = 12
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_REDUCED = re.compile(rb"[\]}]*+[\[{]*+")
_CLOSING = bytes.maketrans(b"[{", b"]}")
_BLANKS = b" \t\r\n"
_check = msgspec.json.Decoder(Raw).decode


class _Refused(Exception):
    """It is no message, or one that is read in the usual way."""


class _Room(mmap.mmap):
    """Memory that is given back in a thread: that of 50 MB takes 5 ms."""

    def __del__(self) -> None:
        if not self.closed:
            try:
                threading.Thread(target=self.close, daemon=True).start()
            except RuntimeError:
                pass  # the interpreter ends, and gives it back


class LargeMessage:
    """One message. `add` its bytes as they come, in pieces of any size, then `finish` it."""

    def __init__(self, most: int) -> None:
        """`most`: bytes that it may have. Memory is used as it fills."""
        room = most + _ROOM
        # Bytes that grow are moved again and again, and pieces are copied when they are joined.
        if sys.platform == "win32":
            self._out = _Room(-1, room)
        else:
            self._out = _Room(-1, room, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._room = room
        self._size = 0
        self._beyond: list[bytes] = []
        """What there was no room for; only of a message that is refused."""
        self._carry = b""
        """A string whose end has not come, or the end of a part of a long one."""
        self._in_long_string = False
        self._string_at = 0
        """Where it began."""
        self._pending: list[bytes] = []
        """What came since the last comma and was not checked; long strings are empty in it."""
        self._cut = b""
        """The brackets that were open at that comma; empty: there was none yet."""
        self._stack = b""
        """The brackets that are open."""
        self._members = MemberReader()
        self._words = set[bytes]()
        self._end_of_part = b""
        self._is_refused = False
        self.steps = 0
        """Slices checked so far."""

    def add(self, data: bytes) -> None:
        """Take the next bytes."""
        for start in range(0, len(data), SLICE):
            piece = data[start : start + SLICE] if len(data) > SLICE else data
            if self._carry:
                piece, self._carry = self._carry + piece, b""
            before = self._size
            if not self._is_refused:
                try:
                    self.steps += 1
                    self._take(piece)
                    continue
                except (_Refused, msgspec.DecodeError, RecursionError):
                    self._is_refused = True
                    self._size, self._carry = before, b""
            self._write(piece)

    def finish(self) -> LargeFrame | None:
        """The message, once all of it has come; None: it is refused, see `received`."""
        try:
            if self._is_refused or self._in_long_string or self._carry or self._stack:
                return None
            _check(_opening(self._cut) + b"".join(self._pending))
            return self._frame()
        except (msgspec.DecodeError, RecursionError):
            return None

    def received(self, most: int = sys.maxsize) -> bytes:
        """The bytes so far, `most` of them, perhaps with repairs that reading them anew would make too."""
        head = self._out[: min(self._size, most)]
        return head if len(head) == most else b"".join([head, *self._beyond, self._carry])[:most]

    # -- slices

    def _take(self, data: bytes) -> None:
        while data:
            data = self._part_of_string(data) if self._in_long_string else self._outside(data)

    def _part_of_string(self, data: bytes) -> bytes:
        """Take what belongs to the long string; returns what follows it."""
        clean = _without_escapes(data)
        quote = clean.find(b'"')
        end = quote if quote >= 0 else _end_of_part(data, clean)
        part = data[:end]
        if part:
            if b"\\u" in clean:
                self._words.add(ESCAPED)
                part = _without_lone_surrogates(part, clean[:end])
            part = self._clean(part)
            _check(b'"%b"' % part)
            if _NAME not in self._words:
                low = self._end_of_part + part.lower()
                if _NAME in low:
                    self._words.add(_NAME)
                self._end_of_part = low[-len(_NAME) :]
            self._write(part)
        if quote < 0:
            self._carry = data[end:]
            return b""
        self._in_long_string = False
        self._write(b'"')
        self._pending.append(b'""')
        depth = len(self._stack)
        if depth < DEEPER and self._members.waits_for_name(depth):
            self._members.name(depth, self._out[self._string_at : self._size])
        return data[quote + 1 :]

    def _outside(self, data: bytes) -> bytes:
        """Take what stands outside of long strings; returns what follows the quote of one that begins."""
        clean = _without_escapes(data)
        parts = clean.split(b'"')  # every second one is a string
        rest, begins = b"", False
        if len(parts) % 2 == 0:
            unfinished = len(parts.pop())
            begin = len(data) - unfinished - 1
            begins = unfinished >= _LONG_STRING
            if begins:
                rest = data[begin + 1 :]
            else:
                self._carry = data[begin:]
            data, clean = data[:begin], clean[:begin]
        if data:
            tidy = self._tidy(data, clean, parts)
            if tidy is not data:
                data, clean = tidy, _without_escapes(tidy)
                parts = clean.split(b'"')
            self._take_run(data, clean, parts)
        if begins:
            self._in_long_string, self._end_of_part = True, b""
            self._string_at = self._size
            self._write(b'"')
        return rest

    def _tidy(self, data: bytes, clean: bytes, parts: list[bytes]) -> bytes:
        """The same, as messages are repaired that the decoder refuses, and with names spelled plainly."""
        bare = b"".join(parts[::2])
        if b"N" in bare or b"I" in bare:
            data = without_not_a_number(data)
            clean = _without_escapes(data)
        if b"\\u" in clean:
            self._words.add(ESCAPED)
            data = _without_lone_surrogates(data, clean)
        data = with_plain_names(self._clean(data), most=len(data))
        if missing := [word for word in WORDS if word not in self._words]:
            low = data.lower()
            self._words.update(word for word in missing if word in low)
        return data

    def _clean(self, data: bytes) -> bytes:
        if data.isascii():
            return data
        self._words.add(NOT_ASCII)
        return clean_utf8(data)

    def _take_run(self, data: bytes, clean: bytes, parts: list[bytes]) -> None:
        """Take what holds whole strings only."""
        comma, head, tail = _last_comma(parts, len(data))
        before = self._stack
        at_comma, least = _after(before, head)
        self._stack, lowest = _after(at_comma, tail)
        if min(least, lowest) < 0 or len(self._stack) > sys.getrecursionlimit():
            raise _Refused
        if min(len(before), least, lowest) < DEEPER:
            self._members.read(data, clean, self._size, len(before))
        self._write(data)
        if comma < 0:
            self._pending.append(data)
            return
        if not at_comma:
            raise _Refused
        self._pending.append(data[:comma])
        _check(b"".join([_opening(self._cut), *self._pending, _closing(at_comma)]))
        self._pending, self._cut = [data[comma + 1 :]], at_comma

    def _write(self, data: bytes) -> None:
        end = self._size + len(data)
        if end > self._room or self._beyond:
            self._is_refused = True
            self._beyond.append(data)
            return
        self._out[self._size : end] = data
        self._size = end

    # -- the end

    def _frame(self) -> LargeFrame:
        """The message; raises msgspec.DecodeError if it is none of JSON-RPC."""
        view = memoryview(self._out)[: self._size].toreadonly()
        envelope: list[bytes] = []
        large: dict[str, Raw] = {}
        members: Fields = {}
        for place, span in enumerate(self._members.outer):
            name, value = decode_text(span.key), _value(view, span)
            is_large = len(value) > _SMALL and name in _PAYLOADS
            if is_large:
                large[name] = value
            else:
                large.pop(name, None)
            envelope.append(b"%b:%b" % (span.key, b"{}" if is_large else bytes(value)))
            if name == "result":
                inner = self._members.inner.get(place, ())
                members = {decode_text(one.key): _value(view, one) for one in inner}
        frame = decode_frame(b"{%b}" % b",".join(envelope))
        for name, value in large.items():
            setattr(frame, name, value)
        return LargeFrame(
            frame.id,
            frame.method,
            frame.params,
            frame.result,
            frame.error,
            frame.jsonrpc,
            members,
            frozenset(self._words),
        )


_PAYLOADS = ("params", "result", "error")


def _value(view: memoryview, span: Span) -> Raw:
    """The value without the blanks around it."""
    start, end = span.start, span.end
    while start < end:
        head = bytes(view[start : min(start + _SMALL, end)])
        start += len(head) - len(rest := head.lstrip(_BLANKS))
        if rest:
            break
    while start < end:
        tail = bytes(view[max(start, end - _SMALL) : end])
        end -= len(tail) - len(rest := tail.rstrip(_BLANKS))
        if rest:
            break
    return Raw(bytes(view[start:end]) if end - start <= _SMALL else view[start:end])


def _without_escapes(data: bytes) -> bytes:
    r"""The same number of bytes, in which each quote begins or ends a string, and `\u` is an escape."""
    return data.replace(b"\\\\", b"xx").replace(b'\\"', b"xx") if b"\\" in data else data


def _without_lone_surrogates(data: bytes, clean: bytes) -> bytes:
    is_any = _LONE_HIGH.search(clean) or _LONE_LOW.search(clean)
    return replace_lone_surrogates(data) if is_any else data


def _end_of_part(data: bytes, clean: bytes) -> int:
    """How much of it can be checked without what follows: no escape, pair of escapes or character is torn apart."""
    end = len(data)
    escape = clean.find(b"\\", max(0, end - _LONGEST_ESCAPE))
    if escape >= 0:
        end = escape - 6 if escape >= 6 and _HIGH_SURROGATE.match(clean, escape - 6) else escape
    least = max(0, end - 4)
    while end > least and data[end - 1] >= 0x80:
        end -= 1
        if data[end] >= 0xC0:
            break
    return end


def _last_comma(parts: list[bytes], size: int) -> tuple[int, bytes, bytes]:
    """Where the last comma outside of strings stands, -1: nowhere; the brackets before it, and those behind it.

    `parts`: of so many bytes, cut at the quotes.
    """
    behind = 0
    for place in range(len(parts) - 1, -1, -2):
        part = parts[place]
        comma = part.rfind(b",")
        if comma >= 0:
            head = b"".join([*parts[:place:2], part[:comma]]).translate(None, _NOT_BRACKETS)
            tail = b"".join([part[comma:], *parts[place + 2 :: 2]]).translate(None, _NOT_BRACKETS)
            return size - behind - len(part) + comma, head, tail
        behind += len(part) + (len(parts[place - 1]) if place else 0) + 2
    return -1, b"".join(parts[::2]).translate(None, _NOT_BRACKETS), b""


def _after(stack: bytes, brackets: bytes) -> tuple[bytes, int]:
    """The open brackets after these, and how many were open at the least.

    Whether each ends the one that it should is not looked at: the decoder does that.
    """
    for _ in range(_MOST_PASSES):
        before = len(brackets)
        brackets = brackets.replace(b"{}", b"").replace(b"[]", b"")
        if len(brackets) == before:
            break
    if _REDUCED.fullmatch(brackets):
        opened = len(brackets.lstrip(b"]}"))
        closed = len(brackets) - opened
        return stack[: len(stack) - closed] + brackets[closed:] if closed <= len(stack) else b"", len(stack) - closed
    open_now, least = bytearray(stack), len(stack)
    for bracket in brackets:
        if bracket in b"[{":
            open_now.append(bracket)
        elif open_now:
            open_now.pop()
            least = min(least, len(open_now))
        else:
            return b"", -1
    return bytes(open_now), least


_MOST_PASSES = 16
"""A slice of deeper nesting is read bracket by bracket."""


def _opening(stack: bytes) -> bytes:
    """The beginning of a JSON text in which these brackets are open and a value, or member, has ended with a comma."""
    if not stack:
        return b""
    outer = stack[:-1].replace(b"{", b'{"":')
    return outer + (b'{"":0,' if stack[-1:] == b"{" else b"[0,")


def _closing(stack: bytes) -> bytes:
    """The end of such a text, from the next comma on."""
    return (b',"":0' if stack[-1:] == b"{" else b",0") + stack.translate(_CLOSING)[::-1]
