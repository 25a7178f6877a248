"""One spelling for arguments that mean the same, and none shared by those that may not."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from mcpbridge.protocol.canonical_json import canonical, canonical_digest

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def shuffled(value: Any, chance: random.Random) -> Any:
    """The same value with members in another order."""
    if isinstance(value, dict):
        items = [(key, shuffled(item, chance)) for key, item in value.items()]
        chance.shuffle(items)
        return dict(items)
    return [shuffled(item, chance) for item in value] if isinstance(value, list) else value


@given(st.dictionaries(st.text(max_size=5), values, max_size=5), st.randoms(use_true_random=False))
def test_order_blanks_and_escapes_do_not_count(value: dict[str, Any], chance: random.Random) -> None:
    plain = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    other = json.dumps(shuffled(value, chance), ensure_ascii=True, indent=2).encode()
    assert canonical(plain) == canonical(other)


@given(st.dictionaries(st.text(max_size=5), values, max_size=5))
def test_the_spelling_means_the_same_and_is_its_own(value: dict[str, Any]) -> None:
    spelled = canonical(json.dumps(value).encode())
    assert json.loads(spelled) == value
    assert canonical(spelled) == spelled


@given(values, values)
def test_what_differs_stays_different(one: Any, other: Any) -> None:
    first, second = (json.dumps({"a": value}, sort_keys=True).encode() for value in (one, other))
    assert (canonical(first) == canonical(second)) == (first == second)


@pytest.mark.parametrize(
    "number", ["1e400", "0.1000000000000000055", "123456789012345678901234567890", "-9223372036854775809", "1.50"]
)
def test_numbers_stay_exact(number: str) -> None:
    assert canonical(b'{ "n": %b }' % number.encode()) == b'{"n":%b}' % number.encode()


def test_no_arguments_are_the_empty_object() -> None:
    assert canonical(None) == canonical(b"") == canonical(Raw()) == canonical(b" { } ") == b"{}"
    assert canonical_digest(None) == canonical_digest(Raw(b"{}"))
    assert len(canonical_digest(None)) == 64


@pytest.mark.parametrize(
    "data",
    [
        b'{"path":"/home","path":"/etc"}',
        b'{"deep":[{"a":1, "\\u0061":2}]}',
        b'{"lone":"\\ud800"}',
        b"{broken",
        b'{"bytes":"\xff"}',
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
    ],
)
def test_what_has_no_single_meaning_is_equal_to_itself_alone(data: bytes) -> None:
    """A grant for one of two meanings must not let the other pass."""
    assert canonical(data) == data


texts = st.sampled_from(["a", "b", ":", '":', '\\":', "\\", '":"', "\u20ac", "a:b"])
blanks = st.sampled_from(["", "", " ", "\t\n"])


@st.composite
def members(draw: st.DrawFn) -> tuple[bytes, bool]:
    """An object as somebody may write it, and whether a member is named twice."""
    names = draw(st.lists(texts, min_size=1, max_size=5))
    parts: list[str] = []
    for name in names:
        spellings: list[str] = []
        for text in (name, draw(texts)):
            plain = json.dumps(text, ensure_ascii=draw(st.booleans()))
            quoted = (
                plain[1:-1].replace('\\"', "\\u0022").replace(":", "\\u003a") if draw(st.booleans()) else plain[1:-1]
            )
            spellings.append(f'"{quoted}"')
        parts.append(f"{spellings[0]}{draw(blanks)}:{draw(blanks)}{spellings[1]}")
    return ("{" + ",".join(parts) + "}").encode(), len(set(names)) < len(names)


@given(members())
def test_a_member_named_twice_is_found_however_it_is_written(written: tuple[bytes, bool]) -> None:
    data, is_double = written
    if is_double:
        assert canonical(data) == data
    else:
        assert canonical(data) == canonical(json.dumps(json.loads(data)).encode())


def test_a_colon_in_a_string_is_no_member() -> None:
    assert canonical(rb'{"b": "\"x\": 1", "a": "c:\\\\"}') == rb'{"a":"c:\\\\","b":"\"x\": 1"}'
