r"""Names with needless escapes are spelled plainly as they arrive, so that a search in bytes cannot miss them.

The property that all searches rest on: however the names of a message are escaped, its bytes are those of the message
with plain names.
"""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import Frame, decode_arriving_frame
from mcpbridge.protocol.reading.client_messages import read_client_message
from mcpbridge.protocol.reading.escaped_names import with_plain_names
from mcpbridge.protocol.reading.framing import LineReader, read_message

NAMES = [
    "resultType",
    "isError",
    "_meta",
    "content",
    "structuredContent",
    "task",
    "input_required",
    "complete",
    "uri",
    "resourceUri",
    "ui/resourceUri",
    "resource_link",
    "nextCursor",
    "outputSchema",
    "inputSchema",
    "$ref",
    "$id",
    "$defs",
    "$dynamicRef",
    "x-mcp-header",
    "unevaluatedProperties",
    "default",
    "not",
    "if",
    "id",
    "oneOf",
    "_transform",
    "annotations",
    "icons",
    "execution",
    "taskSupport",
    "progressToken",
    "requestState",
    "inputRequests",
    "null",
    "audio",
    "mcpbridge/result",
    "mcpbridge/error",
    "io.modelcontextprotocol/serverInfo",
    "io.modelcontextprotocol/protocolVersion",
    "com.example/x",
    "jsonrpc",
    "method",
    "params",
]


@st.composite
def escaped(draw: st.DrawFn, text: str) -> str:
    """A string of JSON for this text, any of its characters escaped in any way that JSON allows."""
    parts: list[str] = []
    for letter in text:
        ways = [letter, f"\\u{ord(letter):04x}", f"\\u{ord(letter):04X}"]
        if letter == "/":
            ways.append("\\/")
        parts.append(draw(st.sampled_from(ways)))
    return '"' + "".join(parts) + '"'


@st.composite
def documents(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A JSON object, written plainly and with escapes in its names and in values that are names."""

    def value(depth: int) -> tuple[str, str]:
        kind = draw(st.integers(0, 4 if depth else 2))
        if kind == 0:
            plain = json.dumps(draw(st.text(st.characters(codec="utf-8"), max_size=5)) + " .")
            return plain, plain
        if kind == 1:
            name = draw(st.sampled_from(NAMES))
            return json.dumps(name), with_slash(name)
        if kind == 2:
            number = draw(st.sampled_from(["1", "1.10", "true", "null", "-0", "12345678901234567890123"]))
            return number, number
        if kind == 3:
            items = [value(depth - 1) for _ in range(draw(st.integers(0, 3)))]
            return "[" + ",".join(one for one, _ in items) + "]", "[" + ",".join(two for _, two in items) + "]"
        return members(depth - 1)

    def with_slash(name: str) -> str:
        text = draw(escaped(name))
        # `\/` by itself is what serializers of PHP write; it counts in the names of protocols alone
        is_usual = "\\u" not in text and not name.startswith(("mcpbridge/", "io.modelcontextprotocol/", "ui/"))
        return text.replace("\\/", "/") if is_usual else text

    def members(depth: int) -> tuple[str, str]:
        names = draw(st.lists(st.sampled_from(NAMES), max_size=4, unique=True))
        values = [value(depth) for _ in names]
        plain = ",".join(f"{json.dumps(name)}:{one}" for name, (one, _) in zip(names, values, strict=True))
        other = ",".join(f"{with_slash(name)}:{two}" for name, (_, two) in zip(names, values, strict=True))
        return "{" + plain + "}", "{" + other + "}"

    plain, other = members(3)
    return plain.encode(), other.encode()


@given(documents())
def test_however_names_are_escaped_the_bytes_are_those_of_the_plain_message(pair: tuple[bytes, bytes]) -> None:
    plain, other = pair
    assert with_plain_names(other) == plain
    assert with_plain_names(plain) is plain


@given(documents(), st.booleans())
def test_so_it_is_wherever_messages_arrive(pair: tuple[bytes, bytes], is_error: bool) -> None:
    plain, other = pair
    kind, word = ("error", b"err\\u006fr") if is_error else ("result", b"r\\u0065sult")
    line = b'{"jsonrpc":"2.0","id":1,"%b":%b}' % (word, other)
    for items in (LineReader(1 << 20).feed(line + b"\n"), read_message(line), read_client_message(line)):
        [frame] = items
        assert isinstance(frame, Frame)
        assert bytes(getattr(frame, kind)) == plain
    [batch] = LineReader(1 << 20).feed(b"[" + line + b"]\n")
    [member] = getattr(batch, "members")  # noqa: B009 - an item has many types
    assert bytes(getattr(member, kind)) == plain


@given(st.text(st.characters(codec="utf-8")), st.booleans())
def test_the_meaning_of_no_string_changes(text: str, ascii_only: bool) -> None:
    data = json.dumps({text: [text, "x"]}, ensure_ascii=ascii_only).encode()
    assert json.loads(with_plain_names(data)) == json.loads(data)


@pytest.mark.parametrize(
    "data",
    [
        b'{"\\u0061":1,"\\u0061x":2}',
        b'{"a":"\\u003cb\\u003e \\u0026 \\u00e9"}',
        b'{"url":"https:\\/\\/example.com\\/a"}',
        b'{"text":"say \\u0068ello to them"}',
        b'{"a":"C:\\\\u0061bc"}',
        b'{"a":"\\\\\\\\u0061bc"}',
        b'{"a":"quoted \\"\\u0061bc\\" here"}',
        b'{"a":"\\n\\u0061bc"}',
    ],
)
def test_other_strings_keep_their_bytes(data: bytes) -> None:
    assert with_plain_names(data) is data


def test_a_message_of_many_escapes_means_the_same_and_costs_no_more_than_reading_it() -> None:
    value: Any = {"a": [1, 2.5, "x"], "big": 123456789012345678901234567890}
    data = b'{"v":%b,"n":1.10,"list":[%b]}' % (json.dumps(value).encode(), b",".join([b'"\\u0061bc"'] * 5000))
    written = with_plain_names(data)
    assert b"\\u" not in written
    assert b'"n":1.10' in written
    assert json.loads(written) == json.loads(data)


@given(st.binary(max_size=80), st.sampled_from([b"\\u0061", b"mcpbridge\\/", b'"\\u0061bc"']), st.binary(max_size=80))
def test_broken_json_stays_broken(before: bytes, escape: bytes, after: bytes) -> None:
    data = before + escape + after
    try:
        was = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        was = None
    try:
        now = msgspec.json.decode(with_plain_names(data))
    except (msgspec.DecodeError, UnicodeDecodeError):
        now = None
    assert was == now


def test_a_result_says_that_it_failed_however_that_is_written() -> None:
    from mcpbridge.pipeline.input_required import needs_driving
    from mcpbridge.pipeline.observability.metrics import says_error
    from mcpbridge.pipeline.task_results import is_task

    def arrived(result: bytes) -> Body:
        return Body(decode_arriving_frame(b'{"jsonrpc":"2.0","id":1,"result":%b}' % result).result)

    assert says_error(arrived(b'{"content":[],"isE\\u0072ror":true}'))
    assert is_task(arrived(b'{"result\\u0054ype":"t\\u0061sk"}'))
    assert needs_driving(arrived(b'{"resultTyp\\u0065":"input\\u005Frequired"}'))


@pytest.mark.parametrize("size", [10, 3 << 20])
@pytest.mark.parametrize("is_first", [False, True])
def test_what_a_result_is_does_not_depend_on_its_size(size: int, is_first: bool) -> None:
    from mcpbridge.pipeline.input_required import needs_driving
    from mcpbridge.pipeline.task_results import is_task

    content = b'"content":[{"type":"text","text":"\\"task\\" \\"input_required\\" %b"}]' % (b"x" * size)

    def result(kind: bytes) -> Body:
        said = b'"resultType":%b' % kind
        parts = (said, content) if is_first else (content, said)
        return Body(b"{%b}" % b",".join(parts))

    for kind, task, asks in (
        (b'"task"', True, False),
        (b'"input_required"', False, True),
        (b'"complete"', False, False),
        (b"null", False, False),
    ):
        assert (is_task(result(kind)), needs_driving(result(kind))) == (task, asks)
