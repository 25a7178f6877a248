"""Which messages of clients are valid, and what is answered to those that are not. Pure.

JSON is RFC 8259 in UTF-8; the envelope is JSON-RPC 2.0; MCP adds that an id is a string or an integer and never null
(MCP 2025-11-25, Base Protocol, Requests). Nothing is repaired but a byte order mark and halves of surrogate pairs,
which RFC 8259 leaves to the reader. `docs/reference/frames.md` is the table of all cases, written from its tests. What
servers send is read by `repair.py`, which repairs what it can: their answers are waited for.

A message gets no answer if it is an answer itself, or a notification: a string as `method`, and no `id`. Every other
one gets the code and the id that `Spoiled` says.
"""

import math
import re

import msgspec
from msgspec import Raw

from mcpbridge.base.late_pattern import late
from mcpbridge.protocol.batches import Batch
from mcpbridge.protocol.error_codes import INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR
from mcpbridge.protocol.jsonrpc import (
    DEPTH_LIMIT_TEXT,
    OBJECT_START,
    Fields,
    Frame,
    decode_array,
    decode_arriving_frame,
    decode_fields,
    decode_frame,
    decode_text,
    encode_error,
    first_byte,
    one_line,
)
from mcpbridge.protocol.reading.escaped_names import with_plain_names
from mcpbridge.protocol.reading.repair import BOM, Item, Unfinished, is_cut_between_tokens, replace_lone_surrogates
from mcpbridge.protocol.reading.unreadable import Noise, Spoiled, bracket_balance

VERSION = Raw(b'"2.0"')
"""The `jsonrpc` of every message, as nearly everyone spells it."""

BLANKS = b" \t\r\n"
"""What RFC 8259 allows around a value."""

USUAL_ID = 20
"""Bytes of an id that needs no further look, if all of them are digits."""
_LONGEST_ID = 1024
"""Bytes. Ids are compared, kept and written back."""
_ID_WINDOW = 65_536
_TOKEN = late(rb'"(?:[^"\\]|\\.)*"?|[{}\[\],:]|[^\s"{}\[\],:]+', re.DOTALL)
_ID_AT_END = late(rb'"id"\s*:\s*(-?\d+|"[^"\\]*")\s*(?:,\s*"(?:jsonrpc|method)"\s*:\s*"[^"\\]*"\s*)*\}\s*$')
_BACKSLASH = ord("\\")
_CUT = "Input data was truncated"

_decode_any = msgspec.json.Decoder(Raw).decode


def read_client_message(data: bytes) -> list[Item]:
    """What one whole message of a channel that keeps messages apart is: one item, or none in blanks."""
    try:  # as `decode_arriving_frame`, which nearly every message would enter here
        frame = decode_frame(data) if _BACKSLASH not in data and data.isascii() else decode_arriving_frame(data)
    except (msgspec.DecodeError, RecursionError):
        items = refuse_client_line(data)
        return [Spoiled(find_client_ids(data), _CUT)] if isinstance(items, Unfinished) else items
    if b"\n" in data or b"\r" in data:  # slices of it may travel on a line-delimited channel
        frame = decode_arriving_frame(one_line(data))
    return [frame if is_usual_request(frame) else validated(frame)]


def is_usual_request(frame: Frame) -> bool:
    """Whether it is a request as nearly all are, with a short number as its id; `validated` decides on all others."""
    return (
        frame.jsonrpc == VERSION
        and frame.method != ""
        and len(frame.id) < USUAL_ID
        and bytes(frame.id).isdigit()
        and (not frame.params or first_byte(frame.params) == OBJECT_START)
    )


def refuse_client_line(line: bytes) -> list[Item] | Unfinished:
    """What a line is that the decoder refused, or that is not UTF-8; see `read_client_message`."""
    line = line.strip(BLANKS).removeprefix(BOM).strip(BLANKS)
    if not line:
        return []
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return [Spoiled(find_client_ids(line), f"not UTF-8 (byte {error.start})")]
    text = replace_lone_surrogates(line)
    try:
        _decode_any(text)
    except RecursionError:
        code = PARSE_ERROR if bracket_balance(line) else INVALID_REQUEST  # it may be cut: nobody has read to its end
        return [Spoiled(find_client_ids(line), DEPTH_LIMIT_TEXT, code)]
    except msgspec.DecodeError as error:
        if "truncated" in str(error) and line[:1] == b"{" and is_cut_between_tokens(text):
            return Unfinished(line)
        return [Spoiled(find_client_ids(line), str(error))]
    is_repaired = text != line
    text = with_plain_names(one_line(text))
    if text[:1] == b"[":
        return [Batch([read_client_member(bytes(member)) for member in decode_array(text)])]
    return [_read_value(text, is_repaired=is_repaired)]


def read_client_member(data: bytes) -> Frame | Spoiled:
    """What one member of a batch is."""
    try:
        return validated(decode_arriving_frame(data))
    except msgspec.DecodeError:
        return _read_value(data)


def encode_refusal(item: Spoiled | Noise) -> bytes:
    """What is answered to what is no valid message; empty where nothing is."""
    if isinstance(item, Noise):
        return encode_error(b"null", PARSE_ERROR, "Parse error: the line is no JSON object")
    if item.silent:
        return b""
    return encode_error(item.ids[0] if item.ids else b"null", item.code, f"{_NAMES[item.code]}: {item.reason}")


_NAMES = {PARSE_ERROR: "Parse error", INVALID_REQUEST: "Invalid request", INVALID_PARAMS: "Invalid params"}


def validated(frame: Frame) -> Frame | Spoiled:
    """The message if it is valid, else what is wrong with it.

    The cases: 1. an answer, with an id and either a result or an error; an error may have no id, or null. 2. A
    notification. 3. A request. 4. Neither of them.
    """
    id_ = bytes(frame.id)
    usable = id_ if is_usable_id(id_) else b""
    reason = _wrong_version(frame.jsonrpc)
    if not frame.method:
        if frame.result or frame.error:
            return _validated_answer(frame, reason or ("" if usable else "its id is no string or integer"))
        return _invalid(usable, reason or "it has neither a method nor a result or an error")
    params = bytes(memoryview(frame.params)[:1])
    is_null = params == b"n"
    if not reason and params not in (b"", b"{", b"[") and not is_null:
        reason = "params must be an object"
    if not id_:
        return _invalid(b"", reason, silent=True) if reason else _without_null(frame, is_null=is_null)
    if not reason and not usable:
        reason = "the id must be a string or an integer"
    if reason:
        return _invalid(usable, reason)
    if params == b"[":  # of JSON-RPC, though of no method of MCP
        return Spoiled([usable], "params must be an object", INVALID_PARAMS)
    return _without_null(frame, is_null=is_null)


def is_usable_id(id_: bytes) -> bool:
    """Whether these valid bytes of JSON are a string or an integer, and short enough to be kept."""
    if not id_ or len(id_) > _LONGEST_ID:
        return False
    if id_[:1] == b'"':
        return True
    if id_.removeprefix(b"-").isdigit():
        return math.isfinite(float(id_))
    try:
        number = float(id_)  # 1.0 is an integer, too
    except ValueError:
        return False
    return math.isfinite(number) and number.is_integer()


def find_client_ids(message: bytes) -> list[bytes]:
    """The id in a message that cannot be read, as far as it is known: only one that belongs to the message itself.

    An id within the params is somebody else's: an error with that id would end another request of this client.
    """
    if message[:1] != b"{":
        return []
    tokens = [match.group() for match in _TOKEN.finditer(message, 0, _ID_WINDOW)]
    depth, found = 0, b""
    for number, token in enumerate(tokens):
        if token in (b"{", b"["):
            if number and not depth:
                return []  # two values on one line: nobody knows which is meant
            depth += 1
        elif token in (b"}", b"]"):
            depth -= 1
        elif token == b'"id"' and depth == 1 and tokens[number + 1 : number + 2] == [b":"]:
            found = b"".join(tokens[number + 2 : number + 3])
    if not found and (at_end := _ID_AT_END.search(message[-_LONGEST_ID:])) is not None:
        found = at_end.group(1)
    return [found] if _is_readable_id(found) else []


def _is_readable_id(id_: bytes) -> bool:
    try:
        id_.decode()
        _decode_any(id_)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return is_usable_id(id_)


def _read_value(text: bytes, *, is_repaired: bool = False) -> Frame | Spoiled:
    """A valid JSON value that is no frame as it stands: a scalar, or an object whose `method` is no string.

    Of a member that stands there twice the last counts; the decoder looks at the other one, too.
    """
    if text[:1] != b"{":
        return _invalid(b"", "a message is an object")
    fields: Fields = decode_fields(text)
    id_ = bytes(fields.get("id", b""))
    if is_repaired and b"\\ufffd" in id_:  # not the id that the client knows
        return _invalid(b"", "the id has half of a surrogate pair")
    method = bytes(fields.get("method", b'""'))
    if method[:1] != b'"':
        return _invalid(id_ if is_usable_id(id_) else b"", "the method must be a string")
    members = {name: fields[name] for name in _ENVELOPE if name in fields}
    return validated(Frame(method=decode_text(method), **members))


_ENVELOPE = ("id", "params", "result", "error", "jsonrpc")


def _wrong_version(version: Raw) -> str:
    if version == VERSION:
        return ""
    spelled = bytes(version)
    if spelled[:1] == b'"' and decode_text(spelled) == "2.0":
        return ""
    return 'jsonrpc must be "2.0"'


def _validated_answer(frame: Frame, reason: str) -> Frame | Spoiled:
    if frame.result and frame.error:
        reason = "it has a result and an error"
    elif frame.error and bytes(frame.id) in (b"", b"null"):
        reason = _wrong_version(frame.jsonrpc)  # it could not read what we sent (JSON-RPC 2.0, section 5)
    return _invalid(b"", reason, silent=True) if reason else frame


def _without_null(frame: Frame, *, is_null: bool) -> Frame:
    """The same with `params` left out if they are null: clients of several languages write nothing so."""
    if is_null:
        frame.params = Raw()
    return frame


def _invalid(id_: bytes, reason: str, *, silent: bool = False) -> Spoiled:
    return Spoiled([id_] if id_ else [], reason, INVALID_REQUEST, silent)
