"""What clients send is read without fail: valid messages as they are, others as what is wrong with them (issue 18)."""

import json
import re
from typing import Any, NoReturn

from hypothesis import example, given, settings
from hypothesis import strategies as st

from mcpbridge.protocol.batches import Batch
from mcpbridge.protocol.error_codes import INVALID_REQUEST, PARSE_ERROR
from mcpbridge.protocol.jsonrpc import Frame
from mcpbridge.protocol.reading.client_messages import (
    find_client_ids,
    read_client_message,
    refuse_client_line,
    validated,
)
from mcpbridge.protocol.reading.framing import LineReader
from mcpbridge.protocol.reading.repair import Item
from mcpbridge.protocol.reading.unreadable import Spoiled

PING = b'{"jsonrpc":"2.0","id":"ping","method":"ping"}'

PIECES = [
    *(
        b"NaN",
        b"Infinity",
        b"01",
        b"1.",
        b"+1",
        b"1e",
        b"\xff",
        b"\xc0\x80",
        b"\xed\xa0\x80",
        b"\x00",
        b"\x1f",
        b"\t",
        b",",
    ),
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b'"',
        b"\\",
        b"//",
        b"'",
        b"\\u12",
        b"\\ud800",
        b" ",
        b"\xef\xbb\xbf",
        b"null",
        b"1e999",
        b"-",
    ),
    *(b'"id":null,', b'"id":[1],', b'"method":7,', b'"method":"x",', b'"params":"s",', b'"result":1,', b'"jsonrpc":1,'),
]
VALUES = [b"1", b'"a"', b"null", b"{}", b"[]", b"true", b"1.5", b'"ping"', b'"2.0"', b'"p\\u0069ng"']
NAMES = [b"id", b"method", b"params", b"result", b"error", b"jsonrpc", b"m\\u0065thod", b"x"]

objects = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)), max_size=9).map(
    lambda members: b"{%b}" % b",".join(b'"%b":%b' % one for one in members)
)
"""With members that come twice, in any order."""


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    text = draw(objects | st.just(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":[1,2.5,"x"]}}'))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.sampled_from(PIECES)) + text[at + draw(st.integers(0, 4)) :]
    return text


def read_lines(data: bytes) -> list[Item]:
    reader = LineReader(1 << 20, rescue=refuse_client_line, find_ids=find_client_ids)
    return reader.feed(data) + reader.end()


def strict(text: bytes) -> Any:
    """As RFC 8259 has it.

    Raises:
        ValueError: it is no JSON.
    """

    def refuse(constant: str) -> NoReturn:
        raise ValueError(constant)

    return json.loads(text.decode(), parse_constant=refuse)


@given(damaged())
@settings(max_examples=1000)
def test_whatever_a_line_is_the_next_one_is_read(text: bytes) -> None:
    """Where the line may go on, the next message ends the wait for it."""
    items = read_lines(text + b"\n" + PING + b"\n")
    assert isinstance(items[-1], Frame)
    assert bytes(items[-1].id) == b'"ping"'


@given(damaged())
@example(rb'{"jsonrpc":"2.0","id":1,"method":"\ud800ping"}')
@settings(max_examples=1000)
def test_a_message_is_refused_for_what_is_wrong_with_it(text: bytes) -> None:
    read = read_client_message(text)
    plain = text.strip(b" \t\r\n").removeprefix(b"\xef\xbb\xbf").strip(b" \t\r\n")
    if not plain:
        assert read == []
        return
    [item] = read
    try:
        value = strict(plain)
    except ValueError:
        assert isinstance(item, Spoiled)
        assert item.code == PARSE_ERROR
        return
    if isinstance(value, list):
        assert isinstance(item, Batch | Spoiled)
    elif not isinstance(value, dict) or value.get("jsonrpc") != "2.0":
        assert isinstance(item, Spoiled)
        assert item.code == INVALID_REQUEST
    elif isinstance(item, Frame):
        assert validated(item) is item or isinstance(validated(item), Frame)
        # Half a character has no UTF-8: it is read as U+FFFD.
        assert item.method == re.sub("[\ud800-\udfff]", "\ufffd", value.get("method", ""))
        assert bool(item.id) == ("id" in value)
    else:
        assert isinstance(item, Spoiled)
        assert item.silent == ("id" not in value and isinstance(value.get("method"), str)) or "method" not in value
