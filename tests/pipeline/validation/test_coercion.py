"""Coercion: what is mended, what leaves a doubt; it never changes what is right, and what comes out is right."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from mcpbridge.pipeline.validation.coercion import Mended, mended, object_within
from mcpbridge.pipeline.validation.schema_check import Check, compiled
from mcpbridge.protocol.jsonrpc import encode

Schema = dict[str, Any]


def mending(schema: Schema, raw: str) -> Mended | None:
    """What becomes of arguments that are wrong."""
    check = compiled(schema)
    assert not check.is_valid(json.loads(raw)), "nothing to mend"
    return mended(check, raw.encode(), check.is_valid)


def of_one(schema: Schema, value: str) -> str | None:
    """What becomes of the one argument `n`, as JSON."""
    found = mending({"type": "object", "properties": {"n": schema}}, f'{{"n":{value}}}')
    return None if found is None else bytes(found.raw).decode().removeprefix('{"n":').removesuffix("}")


STRINGS = {"type": "array", "items": {"type": "string"}}
NUMBERS = {"type": "array", "items": {"type": "integer"}}
POINT = {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"type": "integer"}, '"5"', "5"),
        ({"type": "integer"}, '"-5"', "-5"),
        ({"type": "integer"}, '"123456789012345678901234567890"', "123456789012345678901234567890"),
        ({"type": "number"}, '"1.50"', "1.50"),
        ({"type": "number"}, '"1e-3"', "1e-3"),
        ({"type": ["number", "null"]}, '"0"', "0"),
        ({"type": ["integer", "null"]}, '"null"', "null"),
        ({"type": "boolean"}, '"true"', "true"),
        ({"type": "boolean"}, '"False"', "false"),
        ({"type": "string"}, "5", '"5"'),
        ({"type": "string"}, "1.10", '"1.10"'),
        ({"type": "string"}, "12345678901234567890123", '"12345678901234567890123"'),
        ({"type": ["string", "null"]}, "-7", '"-7"'),
        (POINT, r'"{\"x\": 1.10}"', '{"x": 1.10}'),
        (POINT, r'" {\n \"x\": \"2\"}\n"', '{"x":2}'),
        (NUMBERS, '"[1, 2]"', "[1, 2]"),
        (NUMBERS, '["1",2,"3"]', "[1,2,3]"),
        (NUMBERS, "5", "[5]"),
        (NUMBERS, '"5"', "[5]"),
        (STRINGS, '"a"', '["a"]'),
        (STRINGS, "5", '["5"]'),
        (STRINGS, r'"[\"a\",\"b\"]"', '["a","b"]'),
        ({"type": "array", "items": POINT}, '{"x":1.0}', '[{"x":1.0}]'),
        ({"enum": ["Open", "Closed"]}, '"OPEN"', '"Open"'),
        ({"type": "string", "enum": ["Straße"]}, '"STRASSE"', '"Straße"'),
        ({"enum": [1, 2]}, '"2"', "2"),
        ({"enum": ["1", "2"]}, "2", '"2"'),
        ({"const": "Yes"}, '"yes"', '"Yes"'),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, '"5"', "5"),
        ({"anyOf": [NUMBERS, {"type": "integer"}]}, '"5"', "5"),
        ({"anyOf": [{"type": "integer", "minimum": 10}, {"type": "number", "maximum": 3}]}, '"2"', "2"),
        ({"oneOf": [{"type": "boolean"}, POINT]}, '"true"', "true"),
        ({"allOf": [{"type": "integer"}, {"minimum": 3}]}, '"5"', "5"),
    ],
)
def test_what_can_only_be_meant_in_one_way_is_mended(schema: Schema, value: str, expected: str) -> None:
    assert of_one(schema, value) == expected


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "integer"}, '"5.5"'),
        ({"type": "integer"}, '"five"'),
        ({"type": "integer"}, '"0x10"'),
        ({"type": "integer"}, '"٥"'),
        ({"type": "integer"}, '"007"'),
        ({"type": "integer"}, "5.5"),
        ({"type": "integer"}, "true"),
        ({"type": "integer", "maximum": 3}, '"5"'),
        ({"type": "number"}, '"NaN"'),
        ({"type": "number"}, '""'),
        ({"type": "boolean"}, "1"),
        ({"type": "boolean"}, '"yes"'),
        ({"type": "boolean"}, '"0"'),
        ({"type": "string"}, "true"),
        ({"type": "string"}, "{}"),
        ({"type": "string"}, "1e5"),
        ({"type": "string", "pattern": "^a"}, "5"),
        ({"type": ["string", "boolean"]}, "5"),
        (POINT, '"x"'),
        (POINT, '"[1]"'),
        (POINT, r'"{\"x\": 1"'),
        (POINT, r'"{\"x\": NaN}"'),
        (NUMBERS, '"1,2"'),
        (STRINGS, '"a, b"'),
        (STRINGS, '""'),
        (STRINGS, '"[a"'),
        (NUMBERS, "{}"),
        ({"type": "array"}, '"a"'),
        ({"type": ["array", "boolean"], "items": {"type": "string"}}, '"a"'),
        ({"enum": ["open", "Open"]}, '"OPEN"'),
        ({"enum": ["open"]}, '"opened"'),
        ({"enum": [1, "1"]}, "true"),
        ({"anyOf": [{"type": "integer"}, {"type": "boolean"}]}, '"maybe"'),
        ({"anyOf": [{"type": "object", "properties": {"A": {}}}, {"type": "array"}]}, '"{]"'),
        ({"anyOf": [{"enum": ["AB", 1]}, {"enum": ["aB", 2]}]}, '"ab"'),
    ],
)
def test_what_leaves_a_doubt_is_not_mended(schema: Schema, value: str) -> None:
    assert of_one(schema, value) is None


NAMES: Schema = {
    "type": "object",
    "properties": {"max_results": {"type": "integer"}, "query": {"type": "string"}},
    "additionalProperties": False,
}
OPEN: Schema = {**NAMES, "additionalProperties": True, "required": ["max_results"]}


@pytest.mark.parametrize("name", ["maxResults", "MAX_RESULTS", "max-results", "MaxResults", "max results"])
@pytest.mark.parametrize("schema", [NAMES, OPEN])
def test_a_name_is_mended_where_it_stands(schema: Schema, name: str) -> None:
    found = mending(schema, f'{{"query":"a","{name}":1.0,"query":"b"}}')
    assert found is not None
    assert bytes(found.raw) == b'{"query":"b","max_results":1.0}'


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        (NAMES, '{"maxResults":1,"max_results":2}'),
        (NAMES, '{"maxResults":1,"MaxResults":2}'),
        (NAMES, '{"maximum":1}'),
        ({**NAMES, "properties": {"a_b": {}, "aB": {}}}, '{"ab":1}'),
        ({**OPEN, "properties": {**OPEN["properties"], "maxResults": {}}}, '{"maxResults":1}'),
        ({**OPEN, "patternProperties": {"^m": {}}}, '{"maxResults":1}'),
        ({**OPEN, "allOf": [{"properties": {"maxResults": {"type": "integer"}}}]}, '{"maxResults":1}'),
    ],
)
def test_a_name_that_could_be_another_is_not_mended(schema: Schema, arguments: str) -> None:
    """The right one is there already, several are meant, or the wrong one means something itself."""
    assert mending(schema, arguments) is None


def test_names_are_mended_in_nested_objects_through_references() -> None:
    schema = {
        "type": "object",
        "properties": {"filter": {"anyOf": [{"$ref": "#/$defs/Filter"}, {"type": "null"}]}},
        "$defs": {
            "Filter": {"type": "object", "properties": {"min_price": {"type": "number"}}, "required": ["min_price"]}
        },
    }
    found = mending(schema, r'{"filter":"{\"minPrice\": \"1.50\", \"big\": 1e999}"}')
    assert found is not None
    assert bytes(found.raw) == b'{"filter":{"min_price":1.50,"big":1e999}}'
    assert [(slip.path, slip.what) for slip in found.slips] == [
        (("filter",), "parsed"),
        (("filter", "minPrice"), "renamed"),
        (("filter", "min_price"), "converted"),
    ]


@pytest.mark.parametrize(
    "schema", [{"type": "integer"}, {"enum": ["a"]}, {"anyOf": [{"type": "integer"}, {"type": "string"}]}]
)
def test_null_is_dropped_where_nothing_may_stand(schema: Schema) -> None:
    properties = {"n": schema, "m": {}}
    found = mending({"type": "object", "properties": properties}, '{"n":null,"m":null}')
    assert found is not None
    assert bytes(found.raw) == b'{"m":null}'
    assert mending({"type": "object", "properties": properties, "required": ["n"]}, '{"n":null}') is None


def test_what_is_not_wrong_keeps_its_bytes() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    found = mending(
        schema, '{"big":123456789012345678901234567890.10, "n":"1", "é":"\\u00e9", "deep":[1e999, {"a" : 1}]}'
    )
    assert found is not None
    assert bytes(found.raw).decode() == (
        '{"big":123456789012345678901234567890.10,"n":1,"é":"\\u00e9","deep":[1e999, {"a" : 1}]}'
    )


def test_slips_are_told_without_large_or_secret_values() -> None:
    properties = {"api_key": {"type": "string"}, "n": {"type": "integer"}, "o": {"type": "object"}}
    long = json.dumps({"text": "x" * 100})
    raw = json.dumps({"api_key": 12345, "n": "5", "o": long})
    found = mending({"type": "object", "properties": properties}, raw)
    assert found is not None
    assert [slip.to_json() for slip in found.slips] == [
        {"path": "api_key", "what": "converted", "from": "an integer", "to": "a string of 5 characters"},
        {"path": "n", "what": "converted", "from": '"5"', "to": "5"},
        {"path": "o", "what": "parsed", "from": f"a string of {len(long)} characters", "to": "an object"},
    ]
    assert found.slips[1].noted() == {
        "path": "n",
        "what": "converted",
        "from": "a string of 1 character",
        "to": "an integer",
    }


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (r'"{\"a\": 1.10}"', b'{"a": 1.10}'),
        (r'" {\n} "', b"{ }"),
        ('"[1]"', None),
        ('"x"', None),
        (r'"{\"a\""', None),
        ("{}", None),
        ("5", None),
    ],
)
def test_an_object_may_come_as_text(raw: str, expected: bytes | None) -> None:
    found = object_within(Raw(raw.encode()))
    assert (None if found is None else bytes(found)) == expected


# -- properties

WORDS = st.sampled_from(
    ["a", "B", "some_name", "someName", "Open", "OPEN", "5", "1.5", "true", "null", "[1]", '{"a":1}']
)
NAMES_OF_MEMBERS = st.sampled_from(["a", "A", "some_name", "someName", "some-name", "n", "tags"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-20, 20) | st.sampled_from([1.5, 5.0, 10**25]) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES_OF_MEMBERS, inner, max_size=4),
    max_leaves=8,
)
LEAVES: st.SearchStrategy[Schema] = st.one_of(
    st.sampled_from(["string", "integer", "number", "boolean", "null"]).map(lambda kind: {"type": kind}),
    st.lists(
        st.sampled_from(["string", "integer", "boolean", "null", "array"]), min_size=1, max_size=3, unique=True
    ).map(lambda kinds: {"type": kinds}),
    st.lists(WORDS | st.integers(0, 5), min_size=1, max_size=4, unique=True).map(lambda options: {"enum": options}),
    st.integers(0, 10).map(lambda limit: {"type": "integer", "maximum": limit}),
    st.sampled_from([{}, {"$ref": "#/$defs/D"}, {"type": "string", "pattern": "^a"}]),
)


def _composed(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(lambda keyword, schemas: {keyword: schemas}, st.sampled_from(["anyOf", "oneOf", "allOf"]), several),
        _objects(inner),
    )


def _objects(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    return st.builds(
        lambda properties, required, closed: {
            "type": "object",
            "properties": properties,
            "required": sorted(required),
            **({"additionalProperties": False} if closed else {}),
        },
        st.dictionaries(NAMES_OF_MEMBERS, inner, max_size=4),
        st.sets(NAMES_OF_MEMBERS, max_size=2),
        st.booleans(),
    )


SCHEMAS = st.builds(
    lambda schema, shared: {**schema, "$defs": {"D": shared}},
    _objects(st.recursive(LEAVES, _composed, max_leaves=6)),
    LEAVES.filter(lambda schema: "$ref" not in schema),
)
ARGUMENTS = st.dictionaries(NAMES_OF_MEMBERS, VALUES, max_size=4)


def _settled(check: Check, raw: bytes) -> Mended | None:
    return mended(check, raw, check.is_valid)


@settings(deadline=None, max_examples=400)
@given(schema=SCHEMAS, arguments=ARGUMENTS)
def test_what_comes_out_is_right_and_what_is_right_stays(schema: Schema, arguments: Schema) -> None:
    """Promise of the bridge: a right call is never changed, and a mended one fits the schema."""
    check, raw = compiled(schema), encode(arguments)
    found = _settled(check, raw)
    if check.is_valid(arguments):
        assert found is None, "nothing is wrong, so nothing can be mended"
    elif found is not None:
        assert check.is_valid(json.loads(bytes(found.raw)))
        assert found.slips
        assert _settled(check, bytes(found.raw)) is None, "once is enough"
        assert all(len(value) <= 100 for slip in found.slips for value in slip.to_json().values())


@settings(deadline=None, max_examples=300)
@given(schema=SCHEMAS, arguments=ARGUMENTS)
def test_members_that_are_right_by_themselves_are_not_touched(schema: Schema, arguments: Schema) -> None:
    """Those of which no fault speaks, under their declared name."""
    check, raw = compiled(schema), encode(arguments)
    found = _settled(check, raw)
    if found is None:
        return
    changed = {slip.path[0] for slip in found.slips}
    after = json.loads(bytes(found.raw))
    for name, value in arguments.items():
        if name not in changed:
            assert encode(after[name]) == encode(value), name
