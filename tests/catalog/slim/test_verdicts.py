"""A shorter schema accepts and refuses exactly what the schema that was sent does: at every level, in every dialect."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpbridge.catalog.slim.levels import RULES, Level
from mcpbridge.catalog.slim.schema import shorter_schema
from mcpbridge.catalog.slim.slim import slimmed
from support.catalog.definitions import tool

DIALECTS = [
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
]
LISTED: tuple[Level, ...] = ("tidy", "slim", "skeleton")
"""The levels that list schemas."""


def validator(schema: Any) -> Any:
    try:
        return jsonschema_rs.validator_for(schema)
    except (jsonschema_rs.ValidationError, ValueError):
        return None  # a reference to itself alone, for one


def shortened(schema: Any, level: Level, *, is_input: bool = True) -> Any:
    sent = json.dumps(schema, ensure_ascii=False, separators=(",", ":")).encode()
    return json.loads(shorter_schema(sent, RULES[level], tool="t", about="About it.", is_input=is_input))


def assert_same(schema: Any, level: Level, values: list[Any], *, is_input: bool = True) -> None:
    found = shortened(schema, level, is_input=is_input)
    before, after = validator(schema), validator(found)
    if before is None:
        return
    assert after is not None
    assert [value for value in values if before.is_valid(value) != after.is_valid(value)] == [], found
    assert found.get("$schema") == schema.get("$schema")


# -- schemas at random


KEYS = ["a", "b", "title"]
NAMES = st.sampled_from(KEYS)
SCALARS: list[Any] = [None, True, 0, 1.5, 2**53, -(2**53), "", "long", "2026-11-22"]
INNER: list[Any] = [
    *SCALARS, [], {}, *([one] for one in SCALARS), ["", ""], *({key: one} for key in KEYS for one in SCALARS),
    {"a": {}}, *({"a": one, "b": other} for one in (0, "", {}) for other in (0, "", None)), {"a": {"a": 0, "b": ""}},
    {"x": 1},
]  # fmt: skip
VALUES: list[Any] = [
    {}, None, [], {"x": 1}, *({key: one} for key in KEYS for one in INNER), *({"a": one, "b": 0} for one in INNER),
    *({"a": one, "x": None} for one in INNER),
]  # fmt: skip
"""Arguments that the schemas below tell apart."""
REFERENCES = st.sampled_from(["#/$defs/A", "#/$defs/B", "#/$defs/C", "#/properties/a", "#", "#here", "#/definitions/A"])
WORDS: dict[str, st.SearchStrategy[Any]] = {
    "title": st.sampled_from(["A", "Title", "Else"]),
    "description": st.sampled_from(["a", "Some words. And others.", "  x\n  y", ""]),
    "$comment": st.just("no"),
    "examples": st.just([]) | st.just([{"$ref": "#/$defs/B"}]),
    "default": st.none() | st.just("long" * 50),
    "deprecated": st.just(True),
}
EMPTY: dict[str, st.SearchStrategy[Any]] = {
    "required": st.just([]),
    "patternProperties": st.just({}),
    "dependentSchemas": st.just({}),
    "dependencies": st.just({}),
    "propertyNames": st.sampled_from([{"type": "string"}, {}, True, {"maxLength": 1}]),
    "minProperties": st.integers(0, 1),
    "additionalProperties": st.sampled_from([True, False, {}, {"type": "string"}, {"title": "Nothing"}]),
    "unevaluatedProperties": st.booleans(),
}
"""Keywords that may check nothing, or something."""


def optionally(needed: dict[str, st.SearchStrategy[Any]], **others: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(needed, optional={**WORDS, **others})


def schemas_of(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    objects = optionally(
        {"type": st.just("object")},
        **{
            **EMPTY,
            "properties": st.dictionaries(NAMES, inner, max_size=3),
            "required": st.lists(NAMES, unique=True, max_size=2),
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "t"]), inner, max_size=1),
            "dependentSchemas": st.dictionaries(NAMES, inner, max_size=1),
            "$defs": st.dictionaries(st.sampled_from(["A", "Z"]), inner, max_size=1),
        },
    )
    arrays = optionally(
        {"type": st.just("array")},
        items=inner,
        minItems=st.integers(0, 1),
        uniqueItems=st.booleans(),
        contains=inner,
        prefixItems=st.lists(inner, min_size=1, max_size=1),
    )
    several = st.lists(inner, min_size=1, max_size=3)
    unions = st.one_of(*(optionally({keyword: several}, **EMPTY) for keyword in ("anyOf", "oneOf", "allOf")))
    nullable = optionally({"anyOf": inner.map(lambda one: [one, {"type": "null"}])})
    turned = optionally({"not": inner}) | optionally({"if": inner, "then": inner}, **{"else": inner})
    return objects | arrays | unions | nullable | turned


LEAVES = (
    optionally({"type": st.sampled_from(["string", "integer", "null", "boolean", "number"])})
    | optionally({"type": st.just(["string", "null"])}, minLength=st.integers(0, 2), maxLength=st.integers(0, 5))
    | optionally({"type": st.just("string")}, pattern=st.just("^2"), format=st.just("date"))
    | optionally({"type": st.just("string")}, contentEncoding=st.just("base64"))
    | optionally({"type": st.just("integer")}, minimum=st.sampled_from([1 - 2**53, 0]), maximum=st.just(2**53 - 1))
    | optionally({"enum": st.lists(st.sampled_from(["a", "", None, "long", "x" * 500]), min_size=1, unique=True)})
    | optionally({"const": st.sampled_from([0, "", None])})
    | st.sampled_from([{}, True, False])
    | optionally({"$ref": REFERENCES}, minLength=st.integers(0, 2))
)
SCHEMAS = st.recursive(LEAVES, schemas_of, max_leaves=8)
WHOLE = st.fixed_dictionaries(
    {"type": st.just("object"), "properties": st.dictionaries(NAMES, SCHEMAS, max_size=3)},
    optional={
        "$schema": st.sampled_from(DIALECTS),
        "required": st.lists(NAMES, unique=True, max_size=2),
        "additionalProperties": st.booleans() | SCHEMAS,
        "unevaluatedProperties": st.booleans(),
        "allOf": st.lists(SCHEMAS, min_size=1, max_size=2),
        "if": SCHEMAS,
        "then": SCHEMAS,
        "title": st.just("Title"),
    },
)
DEFINED = st.fixed_dictionaries(
    dict.fromkeys(
        "ABC", SCHEMAS | SCHEMAS.filter(lambda one: isinstance(one, dict)).map(lambda one: {**one, "$anchor": "here"})
    )
)


@settings(deadline=None, max_examples=400)
@given(WHOLE, st.sampled_from(["$defs", "definitions", ""]), DEFINED, st.sampled_from(LISTED), st.booleans())
def test_any_schema_means_the_same(schema: Any, group: str, definitions: Any, level: Level, is_input: bool) -> None:
    assert_same({**schema, **({group: definitions} if group else {})}, level, VALUES, is_input=is_input)


@settings(deadline=None, max_examples=200)
@given(SCHEMAS.filter(lambda one: isinstance(one, dict)), DEFINED, st.sampled_from(LISTED))
def test_any_schema_at_the_top_means_the_same(schema: Any, definitions: Any, level: Level) -> None:
    assert_same({**schema, "$defs": definitions}, level, [*VALUES, *INNER])


# -- schemas as generators write them


def pydantic(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"title": name.replace("_", " ").title(), **kind, **more}


TEXT, WHOLE_NUMBER, NULL = {"type": "string"}, {"type": "integer"}, {"type": "null"}
REAL: dict[str, dict[str, Any]] = {
    "pydantic, optional": {
        "type": "object",
        "title": "searchArguments",
        "required": ["query"],
        "properties": {
            "query": pydantic("query", TEXT),
            "limit": pydantic("limit", {"anyOf": [WHOLE_NUMBER, NULL]}, default=None),
            "since": pydantic("since", {"anyOf": [{**TEXT, "format": "date-time"}, NULL]}, default=None),
        },
    },
    "pydantic, models": {
        "type": "object",
        "title": "addArguments",
        "required": ["items"],
        "properties": {"items": {"type": "array", "title": "Items", "items": {"$ref": "#/$defs/Item"}}},
        "$defs": {
            "Item": {
                "type": "object",
                "title": "Item",
                "required": ["kind"],
                "additionalProperties": False,
                "properties": {"kind": {"$ref": "#/$defs/Kind"}, "next": {"anyOf": [{"$ref": "#/$defs/Item"}, NULL]}},
            },
            "Kind": {"type": "string", "title": "Kind", "enum": ["a", "b"]},
            "Unused": {"type": "object"},
        },
    },
    "pydantic, told apart": {
        "type": "object",
        "properties": {
            "shape": {
                "oneOf": [{"$ref": "#/$defs/Circle"}, {"$ref": "#/$defs/Square"}],
                "discriminator": {"propertyName": "kind", "mapping": {"circle": "#/$defs/Circle"}},
            }
        },
        "$defs": {
            name.title(): {
                "type": "object",
                "additionalProperties": False,
                "required": ["kind", size],
                "properties": {
                    "kind": {"const": name, "type": "string"},
                    size: {"type": "number", "exclusiveMinimum": 0},
                },
            }
            for name, size in (("circle", "radius"), ("square", "side"))
        },
    },
    "zod": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "additionalProperties": False,
        "required": ["path"],
        "properties": {
            "path": {"type": "string", "minLength": 1, "description": "The path"},
            "depth": {"type": "integer", "minimum": -(2**53) + 1, "maximum": 2**53 - 1},
            "edits": {
                "type": "array",
                "minItems": 0,
                "items": {"type": "object", "additionalProperties": False, "properties": {"old": TEXT, "new": TEXT}},
            },
            "labels": {"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {}},
        },
    },
    "zod, at the top": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$ref": "#/definitions/In",
        "definitions": {
            "In": {"type": "object", "properties": {"a": TEXT}, "required": ["a"], "additionalProperties": False}
        },
    },
    "draft 4 bounds": {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 0, "exclusiveMinimum": True}},
    },
    "draft 7 tuples": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "at": {"type": "array", "items": [{"type": "number"}, {"type": "number"}], "additionalItems": False}
        },
        "dependencies": {"at": ["zone"]},
    },
    "draft 7, beside a reference": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"a": {"$ref": "#/definitions/A", "minLength": 5, "title": "A"}},
        "definitions": {"A": {"type": "string", "title": "A"}},
    },
    "newest, beside a reference": {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/A", "minLength": 5, "title": "A"}},
        "$defs": {"A": {"type": "string", "title": "A"}},
    },
    "conditions": {
        "type": "object",
        "properties": {"mode": {"enum": ["all", "one"]}, "id": {"type": ["string", "null"], "default": None}},
        "if": {"properties": {"mode": {"const": "one"}}, "required": ["mode"]},
        "then": {"required": ["id"]},
        "else": {"not": {"required": ["id"]}},
    },
    "one of, both with null": {
        "type": "object",
        "oneOf": [
            {
                "properties": {"a": {"anyOf": [TEXT, NULL], "default": None}},
                "additionalProperties": False,
                "minProperties": 1,
            },
            {
                "properties": {"b": {"anyOf": [TEXT, NULL], "default": None}},
                "additionalProperties": False,
                "minProperties": 1,
            },
        ],
    },
    "all of one": {
        "type": "object",
        "allOf": [{"anyOf": [{"required": ["a"]}]}],
        "properties": {"a": {"oneOf": [TEXT]}},
    },
    "unevaluated": {
        "type": "object",
        "allOf": [{"properties": {"a": TEXT}, "additionalProperties": True}],
        "unevaluatedProperties": False,
    },
    "many values": {
        "type": "object",
        "properties": {"where": {"enum": [f"Country {number}" for number in range(200)]}},
    },
    "a number of millions": {"type": "object", "properties": {"n": {"type": "integer", "maximum": 2**53 - 1}}},
    "a tree": {
        "type": "object",
        "properties": {"root": {"$ref": "#/$defs/Node"}},
        "$defs": {
            "Node": {"type": "object", "properties": {"below": {"type": "array", "items": {"$ref": "#/$defs/Node"}}}}
        },
    },
}


def probes(schema: Any, root: Any, depth: int = 0) -> Iterator[Any]:
    """Values that fit a schema, and such as nearly fit."""
    yield from (None, True, "", "text", 0, -1, 2**53 + 1, 0.5, [], {})
    if not isinstance(schema, dict) or depth > 4:
        return
    yield from schema.get("enum", ())
    yield from (schema[name] for name in ("const", "default") if name in schema)
    if "$ref" in schema:
        yield from probes(root[schema["$ref"].split("/")[1]][schema["$ref"].split("/")[2]], root, depth + 1)
    for union in ("anyOf", "oneOf", "allOf"):
        for arm in schema.get(union, ()):
            yield from probes(arm, root, depth + 1)
    if isinstance(schema.get("items"), dict):
        yield from ([one] for one in probes(schema["items"], root, depth + 1))
    if "properties" in schema:
        parts = {name: list(probes(inner, root, depth + 1)) for name, inner in schema["properties"].items()}
        for step in range(max(map(len, parts.values()), default=0)):
            whole = {name: values[(step + shift) % len(values)] for shift, (name, values) in enumerate(parts.items())}
            yield from (whole, {**whole, "x": 1})
        for name, values in parts.items():
            yield from ({name: value} for value in values)


@pytest.mark.parametrize("level", LISTED)
@pytest.mark.parametrize("name", REAL)
def test_schemas_as_generators_write_them_mean_the_same(name: str, level: Level) -> None:
    schema = REAL[name]
    values = list(probes(schema.get("definitions", {}).get("In", schema), schema))
    verdicts = [validator(schema).is_valid(value) for value in values]
    assert {True, False} <= {*verdicts}, "the values tell nothing apart"
    assert_same(schema, level, values)
    assert_same(schema, level, values, is_input=False)
    listed = json.loads(slimmed(tool("t", inputSchema=schema), level))["inputSchema"]
    assert [validator(listed).is_valid(value) for value in values] == verdicts


@pytest.mark.parametrize("name", REAL)
def test_by_default_all_that_checks_stands_where_it_was(name: str) -> None:
    """`tidy`: properties, `required`, `enum`, definitions and unions, for clients that only look at them."""
    words = {"title", "description", "default", "examples", "$comment"}
    needless = {"minItems": 0, "propertyNames": {"type": "string"}, "additionalProperties": {}}

    def checking(schema: Any, *, is_schema: bool = True) -> Any:
        if isinstance(schema, list):
            return [checking(one) for one in schema]
        if not isinstance(schema, dict):
            return schema
        if not is_schema:
            return {key: checking(value) for key, value in schema.items() if key != "Unused"}
        named = ("properties", "$defs", "definitions")
        return {
            key: checking(value, is_schema=key not in named)
            for key, value in schema.items()
            if key not in words and needless.get(key, schema) != value
        }

    assert checking(shortened(REAL[name], "tidy")) == checking(REAL[name])
