"""Values on their way into a program and out of it."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpbridge.sandbox.python.worker_values import encode_error, encode_value, value_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=80, deadline=None)
@given(JSON)
def test_data_is_the_same_inside(value: Any) -> None:
    assert value_of(json.dumps(value).encode(), is_text_of_json=False) == value
    if isinstance(value, dict | list):
        assert value_of(json.dumps(json.dumps(value)).encode(), is_text_of_json=True) == value


@settings(max_examples=80, deadline=None)
@given(st.text(max_size=60) | st.text('[]{}":,1e ', max_size=30))
def test_text_that_is_no_object_or_list_of_json_stays_text(text: str) -> None:
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None
    value = value_of(json.dumps(text).encode(), is_text_of_json=True)
    assert value == (parsed if isinstance(parsed, dict | list) else text)


def test_what_is_too_deep_or_too_long_is_given_as_text() -> None:
    deep = b"[" * 5000 + b"]" * 5000
    assert value_of(deep, is_text_of_json=False) == deep.decode()
    assert isinstance(value_of(json.dumps(deep.decode()).encode(), is_text_of_json=True), str)
    assert value_of(b"9" * 5000, is_text_of_json=False) == "9" * 5000
    inner: Any = value_of(json.dumps({"a": json.loads("[" * 60 + "]" * 60)}).encode(), is_text_of_json=False)
    levels = 0
    while not isinstance(inner, str):
        (inner,) = inner.values() if isinstance(inner, dict) else inner
        levels += 1
    assert levels == 40
    assert json.loads(inner)


def test_half_characters_are_replaced() -> None:
    assert value_of(rb'{"a":["\ud83d x"]}', is_text_of_json=False) == {"a": ["? x"]}
    assert value_of(rb'"\ud83d\ude00"', is_text_of_json=False) == "😀"


class Proxy:
    def __init__(self) -> None:
        self.attributes = {"x": 1}


@pytest.mark.parametrize(
    ("value", "text", "shape"),
    [
        (None, "", ""),
        ("a", "a", "text"),
        ([1, "é"], '[1, "é"]', "json"),
        ({"b", "a"}, '["a", "b"]', "json"),
        ([Proxy()], '[{"x": 1}]', "json"),
        ({(1, 2): 3}, "{(1, 2): 3}", "text"),
        (float("nan"), "NaN", "json"),
        ("<coroutine object f>", "<coroutine object f>; await it", "text"),
    ],
)
def test_what_a_program_says(value: Any, text: str, shape: str) -> None:
    assert encode_value(value) == (text, shape)


def test_what_cannot_be_said_is_told_of() -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    for value in (deep, 10**5000):
        assert encode_value(value) == ("[a value that cannot be shown: nested too deep, or a number too long]", "text")


class Gone(Exception):
    timed_out = True


def test_the_clock_of_the_interpreter_counts_as_its_limit() -> None:
    assert encode_error(Gone("killed")) == {"what": "TimeoutError", "message": "time limit"}
    assert encode_error(Exception("killed"))["what"] == "Crashed"
