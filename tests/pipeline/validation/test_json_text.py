"""Arguments that name a member twice are refused where somebody decides by them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from mcpbridge.base.errors import ArgumentsRefused
from mcpbridge.pipeline.validation.json_text import Edit, applied, at, refuse_doubles


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (b'{"path":"/etc","path":"/tmp"}', "path"),
        (b'{"path":"/etc", "p\\u0061th" :"/tmp"}', "path"),
        (b'{"a":1,"b":[{"c":{"d":1,"e":2,"d":1}}]}', "d"),
        (b'{"":1,"":1}', ""),
        (b'{"first":0,"path":"/etc","other":1,"path":"/tmp","last":2}', "path"),
        (b'{"a":\xff,"a":1}'.replace(b"\xff", b'"\xff"'), "a"),
        (b'{"n":%b,"n":1}' % (b"9" * 10_000), "n"),
    ],
)
def test_a_member_that_is_named_twice_is_refused_and_named(arguments: bytes, name: str) -> None:
    with pytest.raises(ArgumentsRefused, match=f"`{name}` is named twice") as refused:
        refuse_doubles("up/echo", Raw(arguments))
    assert "/etc" not in refused.value.full_message()


@pytest.mark.parametrize("arguments", [None, b"{}", b"null", b'{"a":{"a":1},"b":{"a":"\\"a\\":1"}}', b'{"n":1e999}'])
def test_what_is_named_once_passes(arguments: bytes | None) -> None:
    refuse_doubles("up/echo", arguments)


def test_what_is_nested_too_deeply_to_be_looked_at_is_refused() -> None:
    with pytest.raises(ArgumentsRefused, match="cannot be read"):
        refuse_doubles("up/echo", b'{"a":' * 100_000 + b"1" + b"}" * 100_000)


@given(st.recursive(st.none() | st.integers() | st.text(), lambda of: st.lists(of) | st.dictionaries(st.text(), of)))
def test_what_python_encodes_has_no_doubles(value: Any) -> None:
    refuse_doubles("up/echo", json.dumps({"a": value}, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def test_edits_change_their_places_alone() -> None:
    text = b'{"a": {"x":1.10,"y":[1, 2,{"z":null}]},"b":"\\u0041" ,"c":9007199254740993}'
    edits = [
        Edit(("a", "y", 2, "z"), b'"new"'),
        Edit(("a", "y", 0), b"7"),
        Edit(("a", "x"), name="renamed"),
        Edit(("c",)),
        Edit(("added",), b"[]"),
    ]
    expected = b'{"a":{"renamed":1.10,"y":[7,2,{"z":"new"}]},"b":"\\u0041","added":[]}'
    for raw in (text, Raw(text)):
        assert bytes(applied(raw, edits)) == expected
    assert bytes(applied(text, [Edit((), b"3")])) == b"3"
    assert bytes(applied(text, [Edit(())])) == b"null"
    assert bytes(applied(b"{}", [Edit(("gone",))])) == b'{"gone":null}'
    assert at(text, ("a", "y", 2, "z")) == b"null"
    assert at(text, ("a", "x")) == b"1.10"
    assert at(text, ()) == text


OBJECTS = st.dictionaries(
    st.sampled_from("abcd"), st.integers() | st.dictionaries(st.sampled_from("xy"), st.integers())
)


@given(OBJECTS, st.dictionaries(st.sampled_from("abcde"), st.none() | st.integers()))
def test_edits_do_what_they_would_do_to_the_value(value: dict[str, Any], changes: dict[str, int | None]) -> None:
    """A new value takes the place of the old one or is added last; without one the member goes."""
    edits = [Edit((name,), None if new is None else b"%d" % new) for name, new in changes.items()]
    expected = {name: changes.get(name, old) for name, old in value.items() if changes.get(name, old) is not None}
    expected |= {name: new for name, new in changes.items() if name not in value}
    found = json.loads(bytes(applied(json.dumps(value).encode(), edits)))
    assert list(found.items()) == list(expected.items())


@given(
    st.lists(st.tuples(st.text('ab":,{ ', max_size=3), st.text('ab":,{} ', max_size=4) | st.integers()), max_size=4),
    st.booleans(),
)
def test_names_that_come_twice_are_seen_whatever_is_written_around_them(
    members: list[tuple[str, object]], is_nested: bool
) -> None:
    """Most arguments are looked at in a cheap way, which takes a doubt as a reason for the dear one."""
    text = ",".join(f"{json.dumps(name)} : {json.dumps(value)}" for name, value in members)
    arguments = (f'{{"in": [{{{text}}}]}}' if is_nested else f"{{{text}}}").encode()
    names = [name for name, _ in members]
    if len({*names}) == len(names):
        refuse_doubles("a/b", arguments)
    else:
        with pytest.raises(ArgumentsRefused):
            refuse_doubles("a/b", arguments)
