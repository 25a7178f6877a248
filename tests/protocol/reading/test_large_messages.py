"""Large messages that are read in slices: the same is accepted, refused and found as by the decoder in one step."""

import json
import random
from collections.abc import Iterator

import msgspec
import pytest

from mcpbridge.protocol.jsonrpc import Frame, LargeFrame, decode_arriving_frame, decode_fields
from mcpbridge.protocol.reading import large_messages
from mcpbridge.protocol.reading.framing import LARGE_MESSAGE, LineReader
from mcpbridge.protocol.reading.large_messages import SLICE, LargeMessage
from mcpbridge.protocol.reading.repair import salvage
from mcpbridge.protocol.reading.unreadable import Spoiled

MB = 1 << 20
LIMIT = 64 * MB
CHUNK = 256 << 10
"""Bytes of one read of a pipe."""


def chunks(data: bytes, size: int = CHUNK) -> Iterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


def read_in_slices(data: bytes, size: int = CHUNK) -> LargeFrame | None:
    message = LargeMessage(len(data) * 3)
    for chunk in chunks(data, size):
        message.add(chunk)
    return message.finish()


def fed(line: bytes) -> list[object]:
    reader = LineReader(LIMIT, slices=True)
    return [item for chunk in chunks(line + b"\n") for item in reader.feed(chunk)]


def answer(result: object, **others: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 7, "result": result, **others}, ensure_ascii=False).encode()


def rows(size: int) -> list[dict[str, object]]:
    one = {"id": 1, "name": 'Zoë "the" 😀 \\ \n', "tags": ["a", None, True], "deep": {"er": [[[{"x": 1.50}]]]}}
    return [{**one, "id": number} for number in range(size // len(json.dumps(one, ensure_ascii=False)))]


RESULTS = {
    "rows": {"content": [], "structuredContent": {"rows": rows(6 * MB)}},
    "rows as text": {"content": [{"type": "text", "text": json.dumps(rows(5 * MB))}]},
    "one string": {"content": [{"type": "image", "data": "iVBORw0K" * (MB // 2)}], "isError": False},
    "deep nesting": {"content": [json.loads("[" * 400 + "]" * 400)] * 4000},
    "many members": {f"member {number}": "x" * 40 for number in range(60_000)},
    "escapes": {"content": [{"type": "text", "text": '\\"\n\t\u2028é\U0001f600' * 300_000}]},
}


@pytest.mark.parametrize("what", RESULTS)
@pytest.mark.parametrize("ascii_only", [True, False])
def test_a_large_answer_is_read_as_by_the_decoder(what: str, ascii_only: bool) -> None:
    line = json.dumps({"jsonrpc": "2.0", "id": 7, "result": RESULTS[what]}, ensure_ascii=ascii_only).encode()
    assert len(line) > LARGE_MESSAGE * 2
    (frame,) = fed(line)
    assert isinstance(frame, LargeFrame)
    expected = decode_arriving_frame(line)
    assert bytes(frame.result) == bytes(expected.result)
    assert bytes(frame.id) == b"7"
    members = decode_fields(expected.result)
    assert [(name, bytes(value)) for name, value in frame.members.items()] == [
        (name, bytes(value)) for name, value in members.items()
    ]


def test_numbers_blanks_and_duplicate_names_cross_as_they_came() -> None:
    middle = b'{ "n" : 12345678901234567890123.4500e+10 , "n":1,"n" : 2 }' + b" " * 30
    result = b'{ "content" : [' + b",".join([middle] * 60_000) + b'] , "isError":false , "isError" : true }'
    line = b'{ "id": "a" , "result": %b , "jsonrpc":"2.0" }' % result
    (frame,) = fed(line)
    assert isinstance(frame, LargeFrame)
    assert bytes(frame.result) == result
    assert {name: bytes(value) for name, value in frame.members.items()}["isError"] == b"true"


@pytest.mark.parametrize(
    ("name", "value"),
    [("isError", True), ("resultType", "task"), ("_meta", {"x": 1})],
)
def test_a_member_in_the_middle_of_a_large_result_is_found(name: str, value: object) -> None:
    filler = "x" * (4 * MB)
    (frame,) = fed(answer({"content": [{"type": "text", "text": filler}], name: value, "more": filler}))
    assert isinstance(frame, LargeFrame)
    assert json.loads(bytes(frame.members[name])) == value


def test_what_may_need_a_change_is_seen_on_the_way() -> None:
    filler = [{"type": "text", "text": "x" * 50}] * 50_000
    link = {"type": "resource_link", "uri": "file:///a", "name": "a", "icons": []}
    (frame,) = fed(answer({"content": [*filler, link, *filler, {"type": "text", "text": "[MCPbridge says]"}]}))
    assert isinstance(frame, LargeFrame)
    assert frame.words == {b'uri"', b'"resource_link"', b'"icons"', b"mcpbridge"}
    (plain,) = fed(answer({"content": filler * 2}))
    assert isinstance(plain, LargeFrame)
    assert not plain.words


def test_a_name_is_seen_where_a_long_string_was_cut() -> None:
    for before in range(SLICE - 12, SLICE + 1):
        frame = read_in_slices(b'{"result":{"text":"%bMcpBridge%b"}}' % (b"x" * (before - 19), b"y" * SLICE), SLICE)
        assert frame is not None
        assert frame.words == {b"mcpbridge"}


@pytest.mark.parametrize(
    "wrong",
    [b'{"a" 1}', b"[1,]", b"[,1]", b"[1 2]", b'{"a":1,}', b'{"a"}', b"01", b"tru", b'"\x01"', b'"\\q"', b"[1}", b"]"],
)
def test_broken_json_late_in_a_large_answer_spoils_it_and_names_its_id(wrong: bytes) -> None:
    good = b",".join([b'{"id":1,"name":"x","tags":["a","b"]}'] * 120_000)
    (spoiled,) = fed(b'{"jsonrpc":"2.0","id":7,"result":{"content":[%b,%b,1]}}' % (good, wrong))
    assert isinstance(spoiled, Spoiled)
    assert spoiled.ids[0] == b"7"


def test_what_is_repaired_in_small_messages_is_repaired_in_large_ones() -> None:
    filler = b'"%b"' % (b"x" * 60)
    for wrong, right in ((b'"\xff\xc3"', '"��"'.encode()), (b"NaN", b"null"), (b'"\\ud800"', b'"\\ufffd"')):
        many = b",".join([filler] * 50_000)
        (frame,) = fed(b'{"jsonrpc":"2.0","id":7,"result":{"content":[%b,%b,%b]}}' % (many, wrong, many))
        assert isinstance(frame, LargeFrame), wrong
        assert bytes(frame.result) == b'{"content":[%b,%b,%b]}' % (many, right, many)


def test_names_with_escapes_are_spelled_plainly() -> None:
    filler = "x" * (5 * MB)
    line = answer({"content": [], "is_Error": True, "text": filler}).replace(b"is_Error", b"isErr\\u006fr")
    (frame,) = fed(line)
    assert isinstance(frame, LargeFrame)
    assert "isError" in frame.members
    assert bytes(frame.result) == bytes(decode_arriving_frame(line).result)


def test_a_line_over_the_limit_is_skipped_and_names_its_id() -> None:
    reader = LineReader(4 * MB, slices=True)
    line = answer({"text": "x" * (6 * MB)}) + b"\n" + answer({"ok": 1}) + b"\n"
    spoiled, frame = [item for chunk in chunks(line) for item in reader.feed(chunk)]
    assert isinstance(spoiled, Spoiled)
    assert b"7" in spoiled.ids
    assert isinstance(frame, Frame)
    assert bytes(frame.result) == b'{"ok": 1}'


def test_several_messages_and_a_large_one_keep_their_order() -> None:
    large = answer({"text": "x" * (5 * MB)})
    line = b"\n".join([answer({"first": 1}), large, answer({"second": 2})])
    first, middle, last = fed(line)
    assert isinstance(middle, LargeFrame)
    assert isinstance(first, Frame)
    assert isinstance(last, Frame)
    assert (bytes(first.result), bytes(last.result)) == (b'{"first": 1}', b'{"second": 2}')


def test_each_read_of_a_pipe_is_few_slices() -> None:
    """What holds the loop is one read: the slices of it, and of what had come before the message was known as large."""
    reader = LineReader(LIMIT, slices=True)
    most = done = 0
    for chunk in chunks(answer({"content": [], "structuredContent": {"rows": rows(12 * MB)}})):
        reader.feed(chunk)
        large = reader._large
        steps = large.steps if large is not None else 0
        most, done = max(most, steps - done), steps
    assert done > 150
    assert most <= 2 * CHUNK // SLICE + 1


def test_any_json_any_damage_and_any_slices_come_out_as_from_the_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(18)
    counts = {True: 0, False: 0}
    for _ in range(700):
        monkeypatch.setattr(large_messages, "SLICE", chance.choice([7, 16, 64, 200]))
        monkeypatch.setattr(large_messages, "_LONG_STRING", chance.choice([16, 40, 4096]))
        line = damaged(chance, message(chance)).strip()
        if line[:1] != b"{":
            continue
        frame = read_in_slices(line, chance.choice([1, 5, 33, 500]))
        expected = decoded(line)
        counts[expected is None] += 1
        assert (frame is None) == (expected is None), line
        if frame is None or expected is None:
            continue
        for name in ("id", "params", "result", "error"):
            assert bytes(getattr(frame, name)) == bytes(getattr(expected, name)), line
        assert frame.method == expected.method
        if bytes(expected.result)[:1] == b"{":
            members = {name: bytes(value) for name, value in decode_fields(expected.result).items()}
            assert {name: bytes(value) for name, value in frame.members.items()} == members, line
    assert min(counts.values()) > 80


def decoded(line: bytes) -> Frame | None:
    """As it is read in one step, repairs and all."""
    try:
        return decode_arriving_frame(line)
    except (msgspec.DecodeError, RecursionError):
        saved = salvage(line)
    return saved[0] if isinstance(saved, list) and len(saved) == 1 and isinstance(saved[0], Frame) else None


def message(chance: random.Random) -> bytes:
    result = chance.choice([value(chance), {"content": [value(chance, 3)], "isError": True, "_meta": {"a": 1}}])
    whole = {"jsonrpc": "2.0", "id": chance.choice([1, "a"]), "result": result, "extra": value(chance)}
    names = chance.sample(list(whole), len(whole))
    indent = chance.choice([None, None, 1])
    text = json.dumps({name: whole[name] for name in names}, ensure_ascii=chance.random() < 0.5, indent=indent)
    return text.replace("\n", " ").encode()


def value(chance: random.Random, depth: int = 0) -> object:
    kind = chance.random()
    if depth > 6 or kind < 0.4:
        return chance.choice([text(chance), 1, -2.5, 1e30, True, None, 12345678901234567890])
    many = range(chance.randint(0, 5))
    if kind < 0.7:
        return [value(chance, depth + 1) for _ in many]
    return {text(chance)[:30]: value(chance, depth + 1) for _ in many}


def text(chance: random.Random) -> str:
    pieces = ["a", '"', "\\", "\n", "é", "😀", "[", "{", "}", "]", ",", ":", "x" * 50, "mcpbridge", "/", "\u0001"]
    return "".join(chance.choices(pieces, k=chance.choice([0, 1, 3, 10, 200])))


DAMAGE = [b",", b'"', b"}", b"]", b"\\", b"\\ud800", b"NaN", b"-Infinity", b"\xc3", b"{}", b'"a":1,']


def damaged(chance: random.Random, line: bytes) -> bytes:
    if chance.random() < 0.5:
        return line
    data = bytearray(line)
    for _ in range(chance.randint(1, 2)):
        at, kind = chance.randrange(1, len(data)), chance.random()
        if kind < 0.4:
            data[at] = chance.choice(b'",:{}[]\\ 0aN\xff')
        elif kind < 0.7:
            del data[at]
        else:
            data[at:at] = chance.choice(DAMAGE)
    return bytes(data)
