"""Patterns that are beyond what the validator can compile: they alone go unchecked, and nothing is refused for it."""

import json
from typing import Any

import pytest
import structlog
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jsonschema_rs import validator_for

from mcpbridge.pipeline.validation.large_patterns import Schema, without_large_patterns
from mcpbridge.pipeline.validation.schema_check import Uncheckable, compiled

LARGE = "^(.b?){0,10000}$"
"""Beyond the validator's own limit, whatever limit it is given."""
TEXT = {"type": "string", "pattern": LARGE, "minLength": 2}


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"properties": {"a": TEXT}}, {"a": "xx"}, {"a": "x"}),
        ({"properties": {"a": {"properties": {"b": {"items": TEXT}}}}}, {"a": {"b": ["xx"]}}, {"a": {"b": ["x"]}}),
        ({"$defs": {"T": TEXT}, "properties": {"a": {"$ref": "#/$defs/T"}}}, {"a": "xx"}, {"a": 1}),
        ({"patternProperties": {LARGE: {"type": "null"}, "^n": {"type": "integer"}}}, {"n": 1, "x": 5}, {"n": "1"}),
        (
            {"patternProperties": {LARGE: {}}, "additionalProperties": False, "required": ["a"]},
            {"a": 1, "b": 2},
            {"b": 2},
        ),
        ({"properties": {"a": {"anyOf": [TEXT, {"type": "integer"}]}}}, {"a": "xx"}, {"a": "x"}),
        ({"properties": {"a": {"not": {"pattern": LARGE}, "type": "string"}}}, {"a": "xx"}, {"a": 1}),
        ({"properties": {"a": {"oneOf": [TEXT, {"type": "string"}]}, "b": {"const": 1}}}, {"a": "xx"}, {"b": 2}),
        (
            {"properties": {"a": {"if": {"pattern": LARGE}, "else": False, "minLength": 1}}},
            {"a": "xx"},
            {"a": ""},
        ),
        (
            {"properties": {"a": {"contains": TEXT, "maxContains": 1, "minContains": 1}}},
            {"a": ["xx", "yy"]},
            {"a": []},
        ),
        ({"$defs": {"T": TEXT}, "not": {"$ref": "#/$defs/T"}, "required": ["a"]}, {"a": 1}, {}),
        (
            {"oneOf": [{"properties": {"a": TEXT}}, False], "unevaluatedProperties": False, "minProperties": 1},
            {"a": "xx"},
            {},
        ),
        ({"properties": {"pattern": TEXT, "a": {"enum": [{"pattern": LARGE}]}}}, {"a": {"pattern": LARGE}}, {"a": {}}),
    ],
    ids=str,
)
def test_what_stands_beside_a_large_pattern_is_checked(schema: Schema, right: object, wrong: object) -> None:
    check = compiled(schema)
    assert check.is_valid(right)
    assert not check.is_valid(wrong)


def test_a_large_pattern_is_named_in_the_log_once() -> None:
    pattern = f"^named{LARGE[1:]}"
    with structlog.testing.capture_logs() as lines:
        for _ in range(3):
            compiled({"properties": {"a": {"pattern": pattern}, "b": {"pattern": pattern}}})
    assert [line["pattern"] for line in lines if "pattern" in line] == [pattern]


def test_a_pattern_that_is_none_breaks_its_schema_beside_a_large_one() -> None:
    with pytest.raises(Uncheckable):
        compiled({"properties": {"a": {"pattern": LARGE}, "b": {"pattern": "(" + LARGE}}})


# -- whatever the shape, a value that the whole schema accepts is accepted

BIG = "b"
"""Counts as too large here, and can be compiled, so that the whole schema can be asked."""
PATTERNS = st.sampled_from(["^a", BIG, "c$"])
NAMES = st.sampled_from(["a", "b", "ab", "c"])
LEAVES: st.SearchStrategy[Any] = st.one_of(
    st.booleans(),
    st.fixed_dictionaries({"pattern": PATTERNS}),
    st.sampled_from([{"type": "string"}, {"type": "object"}, {"const": "ab"}, {"enum": [{"pattern": BIG}, "b", 1]}]),
)
REFERENCES = st.sampled_from(["#/$defs/A", "#/$defs/B"]).map(lambda name: {"$ref": name})


def deeper(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    named = st.dictionaries(NAMES, inner, min_size=1, max_size=2)
    one: dict[str, st.SearchStrategy[Any]] = {
        "allOf": several,
        "anyOf": several,
        "oneOf": several,
        "not": inner,
        "if": inner,
        "then": inner,
        "else": inner,
        "contains": inner,
        "minContains": st.integers(0, 1),
        "maxContains": st.integers(0, 2),
        "items": inner,
        "prefixItems": several,
        "properties": named,
        "patternProperties": st.dictionaries(PATTERNS, inner, min_size=1, max_size=2),
        "additionalProperties": inner,
        "propertyNames": inner,
        "dependentSchemas": named,
        "unevaluatedProperties": inner,
        "unevaluatedItems": inner,
        "pattern": PATTERNS,
    }
    keywords = st.lists(st.sampled_from(sorted(one)), min_size=1, max_size=4, unique=True)
    return keywords.flatmap(lambda names: st.fixed_dictionaries({name: one[name] for name in names}))


SCHEMAS: st.SearchStrategy[Any] = st.recursive(LEAVES | REFERENCES, deeper, max_leaves=8)
DEFINITIONS: st.SearchStrategy[Any] = st.recursive(LEAVES, deeper, max_leaves=3)


def root(top: Any, a: Any, b: Any) -> Schema:
    return {**(top if isinstance(top, dict) else {"allOf": [top]}), "$defs": {"A": a, "B": b}}


ROOTS = st.builds(root, SCHEMAS, DEFINITIONS, DEFINITIONS)
SCALARS: st.SearchStrategy[Any] = st.sampled_from(["a", "b", "ab", "c", 1, None, True])
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=5,
)


@given(schema=ROOTS, values=st.lists(VALUES, min_size=1, max_size=8))
@example({"not": {"$ref": "#/$defs/A"}, "$defs": {"A": {"pattern": BIG}}}, ["a", "b"])
@example({"oneOf": [{"pattern": BIG}, {"type": "string"}]}, ["a", "b"])
@example({"if": {"pattern": BIG}, "then": False}, ["a", "b"])
@example({"if": {"properties": {"a": {"pattern": BIG}}}, "unevaluatedProperties": False}, [{"a": "b"}])
@example({"patternProperties": {BIG: True}, "unevaluatedProperties": False}, [{"b": 1}])
@example({"patternProperties": {BIG: True}, "additionalProperties": False}, [{"b": 1}])
@example({"contains": {"pattern": BIG}, "maxContains": 1}, [["b", "a"]])
@example({"patternProperties": {BIG: True}, "not": {"unevaluatedItems": False}}, [["a"]])
@settings(max_examples=150, deadline=None)
def test_no_value_is_refused_for_a_pattern_that_is_left_out(schema: Schema, values: list[Any]) -> None:
    lighter, patterns = without_large_patterns(schema, lambda pattern: pattern == BIG)
    if not patterns:
        assert lighter == schema
    whole, light = validator_for(schema), validator_for(lighter)
    for value in values:
        assert light.is_valid(value) or not whole.is_valid(value), json.dumps([schema, lighter, value])


@given(schema=ROOTS)
@settings(max_examples=50, deadline=None)
def test_no_large_pattern_is_left(schema: Schema) -> None:
    lighter, _ = without_large_patterns(schema, lambda pattern: pattern == BIG)
    assert without_large_patterns(lighter, lambda pattern: pattern == BIG) == (lighter, [])
