"""Parts of schemas put together or left out: what validates stays the same, and all that is made is a schema."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from mcpbridge.catalog.slim.levels import SKELETON, SLIM, TIDY
from mcpbridge.catalog.slim.merge import References, only_arm, references
from mcpbridge.catalog.slim.schema import shorter_schema
from mcpbridge.protocol.jsonrpc import decode_fields


def fields(schema: dict[str, Any]) -> dict[str, Raw]:
    return {name: Raw(json.dumps(value).encode()) for name, value in schema.items()}


def plain(found: dict[str, Raw]) -> dict[str, Any]:
    return {name: json.loads(bytes(value)) for name, value in found.items()}


NULL: dict[str, Any] = {"type": "null"}
TEXT: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "integer", "minimum": 1}


ARMS = st.sampled_from(
    [NULL, TEXT, NUMBER, {"const": None}, {"type": "null", "title": "t"}, {"type": ["null"]}, {}, True]
)


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
    found = json.loads(shorter_schema(json.dumps(whole).encode(), rules, tool="t", about="", is_input=True))
    assert all(unions(found)), found


def test_a_schema_that_refers_elsewhere_too_is_left_as_it_refers() -> None:
    """What stands elsewhere may refer back into it by names that nobody here sees."""
    here, elsewhere = {"$ref": "#/$defs/a"}, {"$ref": "https://example.com/schema"}
    definitions = {"a": {"type": "string"}}

    def references_of(**properties: Any) -> References:
        raw = json.dumps({"type": "object", "properties": properties, "$defs": definitions}).encode()
        return references(raw, decode_fields(raw))

    for properties in ({"x": here, "y": elsewhere}, {"x": elsewhere, "y": here}, {"x": elsewhere}):
        assert (references_of(**properties).is_fixed, references_of(**properties).are_kept) == (True, True)
    assert not references_of(x=here).is_fixed
    assert references_of(x=here).inlined
