"""Whether a schema accepts all that another one did: a yes is always right."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from mcpbridge.catalog.definitions.pins.schema_inclusion import accepts_all_of

LEAVES = st.sampled_from([0, 1, 2, 3.5, -1, "", "a", "abc", True, False, None])
INSTANCES: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
TYPES = st.sampled_from(["string", "integer", "number", "object", "array", "boolean", "null"])


def schemas_over(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
            "enum": st.lists(LEAVES, min_size=1, max_size=3),
            "const": LEAVES,
            "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
            "patternProperties": st.dictionaries(st.sampled_from(["a", "^b", "."]), inner, max_size=1),
            "required": st.lists(st.sampled_from("abc"), max_size=2, unique=True),
            "additionalProperties": inner,
            "items": inner,
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "minItems": st.integers(0, 2),
            "maxItems": st.integers(0, 3),
            "uniqueItems": st.booleans(),
            "minLength": st.integers(0, 3),
            "maxLength": st.integers(0, 3),
            "minimum": st.integers(-1, 3),
            "exclusiveMinimum": st.integers(-1, 3),
            "maximum": st.integers(-1, 3),
            "minProperties": st.integers(0, 2),
            "contains": inner,
            "minContains": st.integers(0, 2),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "not": inner,
            "if": inner,
            "then": inner,
            "unevaluatedProperties": st.booleans(),
            "description": st.sampled_from(["x", "y"]),
        },
    )


NOTHING: dict[str, Any] = {}
SIMPLE: st.SearchStrategy[Any] = st.booleans() | st.just(NOTHING) | TYPES.map(lambda one: {"type": one})
SCHEMAS: st.SearchStrategy[Any] = SIMPLE | schemas_over(SIMPLE)


def first_two(schema: dict[str, Any]) -> dict[str, Any]:
    return dict(list(schema.items())[:2])


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Any, Any]:
    """A schema, and one that is mostly like it: of unrelated ones hardly any includes the other."""
    old: dict[str, Any] = draw(schemas_over(SCHEMAS))
    new = dict(old)
    for key in draw(st.lists(st.sampled_from(sorted(old) or ["type"]), max_size=3)):
        new.pop(key, None)
    return old, {**new, **draw(st.sampled_from([NOTHING]) | schemas_over(SIMPLE).map(first_two))}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(pairs(), st.lists(INSTANCES, min_size=1, max_size=8))
def test_whatever_the_old_schema_accepts_the_new_one_accepts_if_the_check_says_so(
    pair: tuple[Any, Any], instances: list[Any]
) -> None:
    """Issue 22: calls go on only if the new schema provably accepts what the old one did."""
    old, new = pair
    assume(accepts_all_of(json.dumps(old).encode(), json.dumps(new).encode()))
    before: Any = Draft202012Validator(old)
    after: Any = Draft202012Validator(new)
    for instance in instances:
        if before.is_valid(instance):
            assert after.is_valid(instance), (old, new, instance)


CLOSED = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (CLOSED, CLOSED, True),
        (CLOSED, {**CLOSED, "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}, True),
        (CLOSED, {**CLOSED, "required": ["a"]}, False),
        (CLOSED, {**CLOSED, "properties": {}}, False),
        (CLOSED, {**CLOSED, "properties": {"a": {"type": ["string", "null"], "description": "new"}}}, True),
        ({"enum": ["a"]}, {"enum": ["a", "b"]}, True),
        ({"enum": ["a", "b"]}, {"enum": ["a"]}, False),
        ({"enum": [1]}, {"enum": [True]}, False),
        ({"type": "integer"}, {"type": "number"}, True),
        ({"type": "number"}, {"type": "integer"}, False),
        # An open object accepted any `b`, so one of a certain type is less.
        ({"properties": {}}, {"properties": {"b": {"type": "string"}}}, False),
        ({"$ref": "#/$defs/x", "$defs": {"x": {}}}, {"$ref": "#/$defs/x", "$defs": {"x": False}}, False),
        ({"minimum": 1}, {"minimum": 0}, True),
        ({"minimum": 0}, {"minimum": 1}, False),
        ({"minimum": 1, "exclusiveMinimum": True}, {"minimum": 1, "exclusiveMinimum": False}, False),
        ({"pattern": "a"}, {"pattern": "b"}, False),
        ({"pattern": "a"}, {"pattern": "a", "title": "t"}, True),
        ({"properties": {"description": {}}}, {"properties": {"description": False}}, False),
        ({"type": "no type"}, {"type": "string"}, False),
        ({"$schema": "http://json-schema.org/draft-04/schema#"}, {}, False),
        (True, {}, True),
        ([], {}, False),
    ],
)
def test_plain_cases(old: Any, new: Any, expected: bool) -> None:
    """Issue 22: what is not clear counts as a no."""
    assert accepts_all_of(json.dumps(old).encode(), json.dumps(new).encode()) is expected


def test_a_schema_that_is_nested_too_deep_is_a_no() -> None:
    """A hostile server cannot make this fail."""
    deep = b'{"items":' * 50_000 + b"{}" + b"}" * 50_000
    assert accepts_all_of(b"{}", deep) is False
