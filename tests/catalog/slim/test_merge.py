"""Parts of schemas put together or left out: what validates stays the same, and all that is made is a schema."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator
from msgspec import Raw

from mcpbridge.catalog.slim.levels import SKELETON, SLIM, TIDY
from mcpbridge.catalog.slim.merge import only_arm, without_null
from mcpbridge.catalog.slim.schema import shorter_schema


def fields(schema: dict[str, Any]) -> dict[str, Raw]:
    return {name: Raw(json.dumps(value).encode()) for name, value in schema.items()}


def plain(found: dict[str, Raw]) -> dict[str, Any]:
    return {name: json.loads(bytes(value)) for name, value in found.items()}


NULL: dict[str, Any] = {"type": "null"}
TEXT: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "integer", "minimum": 1}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"anyOf": [TEXT, NULL], "default": None}, {"anyOf": [TEXT]}),
        ({"oneOf": [NULL, TEXT, NUMBER], "default": None}, {"oneOf": [TEXT, NUMBER]}),
        ({"anyOf": [NULL], "default": None}, {"anyOf": [NULL]}),
        ({"anyOf": [NULL, NULL], "default": None}, {"anyOf": [NULL, NULL]}),
        ({"oneOf": [{"const": None}], "default": None}, {"oneOf": [{"const": None}]}),
        ({"anyOf": [{"type": "null", "title": "none"}, TEXT], "default": None}, {"anyOf": [TEXT]}),
        ({"anyOf": [{"type": "null", "description": "x"}, TEXT], "default": None}, {"anyOf": [TEXT]}),
        ({"anyOf": [{"type": "null", "enum": [None]}, TEXT]}, {"anyOf": [{"type": "null", "enum": [None]}, TEXT]}),
        ({"anyOf": [{"const": "null"}, TEXT]}, {"anyOf": [{"const": "null"}, TEXT]}),
        ({"anyOf": [{"type": ["null"]}, TEXT]}, {"anyOf": [{"type": ["null"]}, TEXT]}),
        ({"anyOf": [True, NULL]}, {"anyOf": [True]}),
        ({"allOf": [TEXT, NULL], "default": None}, {"allOf": [TEXT, NULL]}),
        ({"type": ["string", "null"], "default": None}, {"type": "string"}),
        ({"type": ["string", "null", "integer"]}, {"type": ["string", "integer"]}),
        ({"type": ["null"], "default": None}, {"type": ["null"]}),
        ({"type": "null", "default": None}, {"type": "null"}),
        ({"enum": ["a", None], "default": None}, {"enum": ["a", None]}),
        ({"default": None, "description": "d"}, {"description": "d"}),
        ({}, {}),
    ],
)
def test_null_goes_where_something_else_is_left(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    """`anyOf: []` allows nothing at all and is no schema (JSON Schema 2020-12, 10.2.1.2): it is never made."""
    assert plain(without_null(fields(schema))) == expected


ARMS = st.sampled_from(
    [NULL, TEXT, NUMBER, {"const": None}, {"type": "null", "title": "t"}, {"type": ["null"]}, {}, True]
)
VALUES: list[Any] = ["a", "", 0, 1, 5, 1.5, True, [], {}, ["a"]]


@given(st.sampled_from(["anyOf", "oneOf", "allOf"]), st.lists(ARMS, min_size=1, max_size=4))
def test_without_null_a_union_is_a_schema_that_says_the_same_of_all_else(keyword: str, arms: list[Any]) -> None:
    before = {keyword: arms, "default": None}
    after = plain(without_null(fields(before)))
    assert after[keyword], "an empty union is no schema"
    was, now = Draft202012Validator(before), Draft202012Validator(after)
    for value in VALUES:
        assert was.is_valid(value) == now.is_valid(value)
    assert "default" not in after


@given(st.lists(st.sampled_from(["null", "string", "integer", "object"]), min_size=1, max_size=4, unique=True))
def test_without_null_types_say_the_same_of_all_else(types: list[str]) -> None:
    after = plain(without_null(fields({"type": types})))
    assert after["type"]
    was, now = Draft202012Validator({"type": types}), Draft202012Validator(after)
    for value in VALUES:
        assert was.is_valid(value) == now.is_valid(value)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"anyOf": [TEXT]}, ("anyOf", TEXT)),
        ({"oneOf": [NUMBER], "title": "t"}, ("oneOf", NUMBER)),
        ({"allOf": [TEXT]}, ("allOf", TEXT)),
        ({"anyOf": [TEXT, NUMBER]}, None),
        ({"anyOf": []}, None),
        ({"anyOf": [True]}, None),
        ({"anyOf": TEXT}, None),
        ({"anyOf": [TEXT, NUMBER], "allOf": [TEXT]}, ("allOf", TEXT)),
        ({"not": [TEXT]}, None),
        ({}, None),
    ],
)
def test_a_union_of_one_is_that_one(schema: dict[str, Any], expected: tuple[str, dict[str, Any]] | None) -> None:
    found = only_arm(fields(schema))
    assert (None if found is None else (found[0], plain(found[1]))) == expected


def unions(schema: Any) -> list[Any]:
    """The arms of every union in it."""
    if isinstance(schema, list):
        return [found for one in schema for found in unions(one)]
    if not isinstance(schema, dict):
        return []
    own = [schema[keyword] for keyword in ("anyOf", "oneOf", "allOf") if keyword in schema]
    return own + [found for value in schema.values() for found in unions(value)]


@pytest.mark.parametrize("rules", [TIDY, SLIM, SKELETON], ids=["tidy", "slim", "skeleton"])
@given(st.dictionaries(st.sampled_from(["anyOf", "oneOf"]), st.lists(ARMS, min_size=1, max_size=3), min_size=1))
def test_no_listed_schema_has_a_union_of_nothing(rules: Any, own: dict[str, Any]) -> None:
    whole = {"type": "object", "properties": {"a": {**own, "default": None}, "b": {"items": own, "type": "array"}}}
    found = json.loads(shorter_schema(json.dumps(whole).encode(), rules, tool="t", told="", is_input=True))
    assert all(unions(found)), found
