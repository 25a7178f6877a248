"""A new schema that accepts all that the old one did is recognized; no other one ever is."""

import json
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpbridge.catalog.pins.schema_inclusion import accepts_all


def accepts(new: Any, old: Any) -> bool:
    return accepts_all(json.dumps(new).encode(), json.dumps(old).encode())


def an_object(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


TEXT, NUMBER, WHOLE = {"type": "string"}, {"type": "number"}, {"type": "integer"}


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (an_object(a=TEXT), an_object(a={**TEXT, "description": "words", "default": "x"})),
        (an_object(a=TEXT, b=NUMBER), an_object(a=TEXT)),
        (an_object(a=TEXT), an_object(("a",), a=TEXT)),
        (an_object(a=NUMBER), an_object(a=WHOLE)),
        (an_object(a={"type": ["string", "null"]}), an_object(a=TEXT)),
        (an_object(a={"enum": ["x", "y", "z"]}), an_object(a={"enum": ["x", "z"]})),
        (an_object(a={**TEXT, "maxLength": 20}), an_object(a={**TEXT, "maxLength": 10})),
        (an_object(a={**NUMBER, "minimum": 0}), an_object(a={**NUMBER, "exclusiveMinimum": 0})),
        (an_object(a={"anyOf": [TEXT, WHOLE]}), an_object(a=TEXT)),
        (an_object(a={"anyOf": [TEXT, NUMBER, {"type": "null"}]}), an_object(a={"anyOf": [TEXT, WHOLE]})),
        (an_object(a={"type": "array", "items": NUMBER}), an_object(a={"type": "array", "items": WHOLE})),
        ({"type": "object"}, an_object(a=TEXT)),
        (
            {**an_object(a={"$ref": "#/$defs/t"}, b=TEXT), "$defs": {"t": TEXT}},
            {**an_object(a={"$ref": "#/$defs/t"}), "$defs": {"t": TEXT}},
        ),
        ({}, False),
        (True, {"type": "string"}),
    ],
)
def test_a_wider_schema_is_recognized(new: Any, old: Any) -> None:
    assert accepts(new, old)
    assert accepts(old, old)
    assert accepts(new, new)


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (an_object(("b",), a=TEXT, b=TEXT), an_object(a=TEXT)),
        (an_object(("a",), a=TEXT), an_object(a=TEXT)),
        (an_object(a=NUMBER), an_object(a=TEXT)),
        (an_object(), an_object(a=TEXT)),
        (an_object(a={"enum": ["x"]}), an_object(a={"enum": ["x", "y"]})),
        (an_object(a={"enum": [1]}), an_object(a={"enum": [True]})),
        (an_object(a={**NUMBER, "exclusiveMinimum": 0}), an_object(a={**NUMBER, "minimum": 0})),
        ({"type": "object", "properties": {"a": TEXT, "b": TEXT}}, {"type": "object", "properties": {"a": TEXT}}),
        (
            {**an_object(a={"$ref": "#/$defs/t"}, b=TEXT), "$defs": {"t": NUMBER}},
            {**an_object(a={"$ref": "#/$defs/t"}), "$defs": {"t": TEXT}},
        ),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, {}),
        (False, True),
        (an_object(a={**TEXT, "unheard-of": 1}), an_object(a=TEXT)),
    ],
)
def test_what_is_narrower_or_not_known_is_no(new: Any, old: Any) -> None:
    assert not accepts(new, old)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.5, 1.0, -1.5])
    | st.sampled_from(["", "a", "bb"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=5,
)
TYPES = st.sampled_from(["string", "number", "integer", "boolean", "null", "array", "object"])


def _schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
            "enum": st.lists(VALUES, min_size=1, max_size=3),
            "const": VALUES,
            "minimum": st.integers(-2, 2),
            "exclusiveMinimum": st.integers(-2, 2),
            "maximum": st.integers(-2, 2),
            "exclusiveMaximum": st.integers(-2, 2),
            "minLength": st.integers(0, 2),
            "maxLength": st.integers(0, 2),
            "minItems": st.integers(0, 2),
            "uniqueItems": st.booleans(),
            "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "b"]), inner, max_size=1),
            "additionalProperties": inner,
            "required": st.lists(st.sampled_from("abc"), max_size=2, unique=True),
            "items": inner,
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "contains": inner,
            "minContains": st.integers(0, 2),
            "not": inner,
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "oneOf": st.lists(inner, min_size=1, max_size=2),
            "if": inner,
            "then": inner,
            "unevaluatedProperties": st.booleans(),
            "description": st.just("words"),
            "$ref": st.sampled_from(["#/$defs/d", "#"]),
        },
    )


SCHEMAS = st.recursive(st.booleans() | _schemas(st.just({"type": "string"})), _schemas, max_leaves=4)


@st.composite
def changed(draw: st.DrawFn, schema: Any) -> Any:
    """A schema like this one, with a few things changed anywhere inside: near enough to be included now and then."""
    if isinstance(schema, dict) and draw(st.integers(0, 3)):
        members: dict[str, Any] = {**cast("dict[str, Any]", schema)}
        for name in list(members):
            match draw(st.integers(0, 5)):
                case 0:
                    del members[name]
                case 1 | 2 if isinstance(members[name], dict | list) and name not in (
                    "enum",
                    "const",
                    "type",
                    "required",
                ):
                    members[name] = draw(changed(members[name]))
                case 3 if isinstance(members[name], int) and not isinstance(members[name], bool):
                    members[name] = max(0, members[name] + draw(st.integers(-1, 1)))
                case _:
                    pass
        return members
    if isinstance(schema, list) and draw(st.booleans()):
        return [draw(changed(one)) for one in cast("list[Any]", schema)]
    return cast("Any", schema)


def with_definitions(schema: Any, definitions: Any) -> Any:
    return {**cast("dict[str, Any]", schema), "$defs": definitions} if isinstance(schema, dict) else schema


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_yes_is_always_true_of_what_a_validator_accepts(data: st.DataObject) -> None:
    old = data.draw(SCHEMAS)
    new = data.draw(changed(old) | SCHEMAS)
    definitions = data.draw(st.sampled_from([{}, {"d": {"type": "string"}}, {"d": True}]))
    old, new = with_definitions(old, definitions), with_definitions(new, definitions)
