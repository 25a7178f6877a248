"""The canonical form of definitions: the same for what means the same, another one for anything else."""

import json
import random
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.catalog.definitions.pins.canonical import canonical, digest

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def shuffled(value: Any, randomness: random.Random) -> Any:
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        names = sorted(table, key=lambda name: randomness.random())
        return {name: shuffled(table[name], randomness) for name in names}
    return [shuffled(one, randomness) for one in cast("list[Any]", value)] if isinstance(value, list) else value


@given(VALUES, st.randoms(use_true_random=False))
def test_the_digest_depends_neither_on_order_nor_on_spacing_nor_on_escapes(
    value: Any, randomness: random.Random
) -> None:
    """Issue 22: the same definition has one digest, however it is written."""
    first = json.dumps(value).encode()
    second = json.dumps(shuffled(value, randomness), indent=2, ensure_ascii=False).encode("utf-8", "surrogatepass")
    if b"\xed" not in second:
        assert digest(first) == digest(second)


@given(VALUES)
def test_the_canonical_form_means_the_same_and_is_its_own(value: Any) -> None:
    """Promise of the module: nothing is lost."""
    text = json.dumps(value).encode()
    form = canonical(text)
    assert json.loads(form, parse_int=float) == json.loads(text, parse_int=float)
    assert canonical(form) == form
    assert form.isascii()


@pytest.mark.parametrize(
    ("one", "other"),
    [("1", "1.0"), ("100", "1e2"), ("0", "-0.0"), ("0.5", "5E-1"), ("1e30", "1000000000000000000000000000000.0")],
)
def test_numbers_that_mean_the_same_have_one_spelling(one: str, other: str) -> None:
    """Issue 22."""
    assert digest(b'{"default":%b}' % one.encode()) == digest(b'{"default":%b}' % other.encode())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a":1}', '{"a":true}'),
        ('"1"', "1"),
        ("0.1", "0.10000000000000000000001"),
        ("9007199254740993", "9007199254740992"),
        ('{"a":1}', '{"a":1,"a":2}'),
        ('{"a":1,"a":2}', '{"a":2,"a":1}'),
        ('"a"', '"a\\u200b"'),
        ("[1,2]", "[2,1]"),
        ("{", "{}"),
    ],
)
def test_what_means_something_else_has_another_digest(one: str, other: str) -> None:
    """Issue 22: no change goes unseen, not even of a key that stands twice or of a character nobody sees."""
    assert digest(one.encode()) != digest(other.encode())


def test_ignored_texts_do_not_count() -> None:
    """Issue 22: `pin_ignore` is for texts that change each day."""
    import re

    ignored = [re.compile(r"\d{4}-\d\d-\d\d")]
    assert digest(b'{"description":"As of 2026-01-02"}', ignored) == digest(
        b'{"description":"As of 2026-01-03"}', ignored
    )
    assert digest(b'{"description":"As of 2026-01-02"}', ignored) != digest(
        b'{"description":"as of 2026-01-02"}', ignored
    )


def test_a_text_that_is_nested_too_deep_still_has_a_digest() -> None:
    """A hostile server cannot make this fail."""
    assert digest(b"[" * 100_000) != digest(b"[" * 100_001)
