"""A body behaves like a dict, and what nobody changes keeps its bytes."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from mcpbridge.protocol.body import Body

NAMES = st.sampled_from(["a", "b", "_meta", "é", 'with "quotes"', ""])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = st.recursive(
    SCALARS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=6)
ODD = b'{ "big" : 123456789012345678901234567890, "e":1.0e500,"f":1.10 ,"null":null,\n"\\u0061":"\\/", "t":"x" }'


def write(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


@given(OBJECTS, st.lists(st.tuples(NAMES, VALUES, st.sampled_from(["put", "raw", "body", "drop"])), max_size=8))
def test_any_puts_and_drops_leave_what_they_would_leave_of_a_dict(
    start: dict[str, Any], steps: list[tuple[str, Any, str]]
) -> None:
    body, model = Body(write(start)), dict(start)
    for name, value, how in steps:
        match how:
            case "drop":
                body.drop(name)
                model.pop(name, None)
            case "body":
                body.put(name, Body(write({"in": value})))
                model[name] = {"in": value}
            case _:
                body.put(name, Raw(write(value)) if how == "raw" else value)
                model[name] = value
        assert (name in body) == (name in model)
        assert msgspec.json.decode(body.data) == body.value()
    written = json.loads(bytes(body.data))
    assert written == model
    assert list(written) == list(model), "the members keep their order"


@given(OBJECTS, NAMES)
def test_a_body_that_is_only_read_keeps_its_bytes(start: dict[str, Any], name: str) -> None:
    data = json.dumps(start, indent=1).encode()  # not as the encoder would write it
    body = Body(data)
    _ = body.get(name), body.inner(name), name in body, body.fields, body.is_object, body.value()
    if name not in start:
        body.drop(name)
    assert body.data is data


@given(NAMES, VALUES)
def test_a_change_leaves_the_bytes_of_every_other_member(name: str, value: object) -> None:
    """Numbers of any size, nulls, escapes and unknown members cross as they came."""
    body = Body(ODD)
    others = {key: bytes(raw) for key, raw in body.fields.items() if key != name}
    body.put(name, value)
    again = Body(bytes(body.data))
    assert {key: bytes(raw) for key, raw in again.fields.items() if key != name} == others
    assert others["big"] == b"123456789012345678901234567890" or name == "big"


def test_a_new_member_comes_last_and_a_changed_one_stays_in_its_place() -> None:
    body = Body(b'{"a":1,"b":2}')
    body.put("c", 3)
    body.put("a", "x")
    assert body.data == b'{"a":"x","b":2,"c":3}'


def test_an_empty_body_is_an_empty_object() -> None:
    assert Body().data == b"{}"
    assert Body().value() == {}


@pytest.mark.parametrize("data", [b"[]", b"5", b"null", b'"x"', b'{"a":1', b"", b'{"a":1}x'])
def test_a_look_inside_what_is_no_object_is_an_error(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        _ = Body(data).fields


def test_text_wants_a_string_and_inner_an_object() -> None:
    body = Body(b'{"t":"x","n":5,"o":{"p":1},"null":null}')
    assert body.text("t") == "x"
    with pytest.raises(KeyError):
        body.text("missing")
    with pytest.raises(msgspec.DecodeError):
        body.text("n")
    inner = body.inner("o")
    assert inner is not None
    assert inner.value() == {"p": 1}
    assert [body.inner(name) for name in ("t", "n", "null", "missing")] == [None] * 4


def test_a_changed_inner_object_counts_once_it_is_put_back() -> None:
    body = Body(b'{"o":{"p":1},"q":2}')
    inner = body.inner("o")
    assert inner is not None
    inner.put("p", 3)
    assert body.data == b'{"o":{"p":1},"q":2}'
    body.put("o", inner)
    assert body.data == b'{"o":{"p":3},"q":2}'


def test_an_unchanged_inner_object_is_put_back_as_it_came() -> None:
    body = Body(b'{"o":{ "p" : 1.0 }}')
    inner = body.inner("o")
    assert inner is not None
    body.put("other", inner)
    assert body.data == b'{"o":{ "p" : 1.0 },"other":{ "p" : 1.0 }}'


@given(OBJECTS)
def test_what_says_everything_once_keeps_its_bytes(start: dict[str, Any]) -> None:
    data = msgspec.json.encode(start)
    body = Body(data)
    body.remove_duplicate_members()
    assert bytes(body.data) == data


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"a":1,"a":2}', b'{"a":2}'),
        (b'{"a":1,"\\u0061":2}', b'{"a":2}'),
        (b'{ "a" : [ 1 ] , "a" : [ 2 ] }', b'{"a":[ 2 ]}'),
        (b'{"a":1,"b":1,"a":"","":0}', b'{"a":"","b":1,"":0}'),
        (b"{}", b"{}"),
    ],
)
def test_of_a_member_that_is_named_twice_the_last_is_said(data: bytes, said: bytes) -> None:
    body = Body(data)
    body.remove_duplicate_members()
    assert bytes(body.data) == said
