"""JSON that is given back as it came: every number, every name, or a clean refusal."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpbridge.results.exact_json import NotReadable, parse_json, write_json

TEXTS = st.text(st.characters(exclude_categories=("Cs",)))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.decimals(allow_nan=False, allow_infinity=False).filter(lambda number: "." in str(number) or "E" in str(number))
    | TEXTS
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=30)


def exactly(value: Any) -> Any:
    """Something that is equal only to the same value, digit by digit and member by member."""
    if isinstance(value, list):
        return [exactly(item) for item in value]
    if isinstance(value, dict):
        return [(name, exactly(item)) for name, item in value.items()]
    return type(value), str(value)


@settings(deadline=None)
@given(VALUES)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    """Promise: types, digits and the order of members stay."""
    assert exactly(parse_json(write_json(value))) == exactly(value)


@settings(deadline=None)
@given(VALUES)
def test_what_is_written_is_json(value: Any) -> None:
    assert json.loads(write_json(value), parse_float=Decimal) == value


@pytest.mark.parametrize(
    "text", ["1.10", "-0.0", "0.1", "12345678901234567890.123456789", "1" * 40, "-7", "1E+400", "1E-7", "3.00", "1E+5"]
)
def test_a_number_keeps_its_digits(text: str) -> None:
    assert write_json(parse_json(f"[{text}]")) == f"[{text}]"


@pytest.mark.parametrize(("text", "written"), [("1e400", "1E+400"), ("1.5e3", "1.5E+3"), ("0e-10", "0E-10")])
def test_an_exponent_keeps_its_value(text: str, written: str) -> None:
    assert write_json(parse_json(text)) == written
    assert parse_json(written) == parse_json(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "{", "[1,]", "{'a':1}", "01", "1.", "+1", "NaN", "[-Infinity]", "undefined", "[1] x", "\ufeff[]"),
        *('{"a":1,"a":2}', '[{"b":{"a":1,"c":0,"a":1}}]', '{"a":1,"a":"\\u003a"}', '{"a":"\\u003A","b":2,"b" :1}'),
        *(
            '{"a":1,"a":"....."}',
            '{"a" :"......","a":2}',
            '{"a":"\\":......","a" :2}',
            '"a\x01"',
            "9" * 5000,
            "1e99999999999999999999999999",
        ),
        *("1e-99999999999999999999999999", "[" * 100_000, '{"a":' * 100_000, "[" * 100_000 + "]" * 100_000),
    ],
)
def test_what_could_not_be_given_back_is_refused(text: str) -> None:
    with pytest.raises(NotReadable):
        parse_json(text)


@settings(deadline=None)
@given(st.text() | st.text('{}[]",:0123456789.eE+-nulltruefas \\u'))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Nothing but NotReadable is raised."""
    try:
        value = parse_json(text)
        again = write_json(value)
    except NotReadable:
        return
    assert parse_json(again) == value
    assert json.loads(text, parse_float=Decimal) == value


@pytest.mark.parametrize("text", [r'"\ud800"', r'["\udfff x"]', r'{"\ud800":1}'])
def test_half_a_character_is_read_but_not_written(text: str) -> None:
    value = parse_json(text)
    with pytest.raises(NotReadable):
        write_json(value)


def test_two_halves_are_one_character() -> None:
    assert write_json(parse_json(r'"\ud83d\ude00"')) == '"😀"'


@pytest.mark.parametrize("depth", [100, 900, 5000, 100_000])
def test_a_deep_value_is_written_or_refused(depth: int) -> None:
    """A value may come from elsewhere than a text, so it may be deeper than what could be read."""
    value: Any = 1
    for _ in range(depth):
        value = {"a": [value]}
    try:
        text = write_json(value)
    except NotReadable:
        assert depth > 100
    else:
        assert text == '{"a":[' * depth + "1" + "]}" * depth


BLANKS = st.sampled_from(["", " ", "\n", "\t\r"])
NAMES = st.sampled_from(["a", "b", '\\"', ":", '":', " :", "\\u0061", "\\u003a", ":\\u003A"]).map(
    lambda name: f'"{name}"'
)
WRITTEN = st.recursive(
    st.sampled_from(
        [
            *("1", "-0", "1.10", "1e5", "1E999", "9" * 30, "true", "null", '"a:b"', '"\\":"', '" :"', '"\\ud800"'),
            *('"\\u003a\\u003A"', '"......"', '"\\\\u003a"'),
        ]
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]"),
        st.lists(st.tuples(NAMES, BLANKS, BLANKS, inner), max_size=3).map(
            lambda members: (
                "{" + ",".join(f"{name}{before}:{after}{value}" for name, before, after, value in members) + "}"
            )
        ),
    ),
    max_leaves=12,
)


@given(WRITTEN)
@settings(max_examples=400)
def test_names_are_never_dropped_however_they_are_written(text: str) -> None:
    """One reader counts colons, and names by quotes with colons; both stand in texts, too, escaped or after blanks."""

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) != len(pairs):
            raise ValueError
        return dict(pairs)

    try:
        expected = json.loads(text, parse_float=Decimal, object_pairs_hook=members)
    except ValueError:
        with pytest.raises(NotReadable):
            parse_json(text)
        return
    value = parse_json(text)
    assert value == expected
    assert repr(value) == repr(expected)
