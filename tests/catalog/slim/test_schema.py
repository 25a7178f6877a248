"""What becomes of a tool's schema: it means the same, and names and data are never touched."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpbridge.catalog.slim.levels import SKELETON, SLIM, TIDY, SchemaRules
from mcpbridge.catalog.slim.schema import shorter_schema

RULES = {"tidy": TIDY, "slim": SLIM, "skeleton": SKELETON}


def raw(schema: object) -> bytes:
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":")).encode()


def short(schema: object, rules: SchemaRules = TIDY, *, tool: str = "t", about: str = "", is_input: bool = True) -> Any:
    given_ = raw(schema)
    found = shorter_schema(given_, rules, tool=tool, about=about, is_input=is_input)
    assert len(found) <= len(given_)
    assert shorter_schema(found, rules, tool=tool, about=about, is_input=is_input) == found
    return json.loads(found)


def props(**properties: object) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


DRAFT_7, DRAFT_2020 = "http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"


# -- what tidy takes away


@pytest.mark.parametrize(
    ("sent", "listed"),
    [
        ({"$schema": DRAFT_7}, {"$schema": DRAFT_7}),
        ({"$schema": DRAFT_2020}, {"$schema": DRAFT_2020}),
        ({"$schema": "https://example.com/own"}, {"$schema": "https://example.com/own"}),
        ({"additionalProperties": False}, {"additionalProperties": False}),
        ({"additionalProperties": {}}, {}),
        ({"additionalProperties": {"type": "string"}}, {"additionalProperties": {"type": "string"}}),
        ({"required": [], "$comment": "made by a tool", "$defs": {}}, {}),
        ({"title": "tArguments"}, {}),
        ({"title": "Something else"}, {"title": "Something else"}),
        ({"x-mine": {"title": "kept", "required": []}}, {"x-mine": {"title": "kept", "required": []}}),
        ({"description": "Told already."}, {}),
    ],
)
def test_what_says_nothing_goes_and_nothing_else(sent: dict[str, Any], listed: dict[str, Any]) -> None:
    base = {"type": "object", "properties": {}}
    assert short({**base, **sent}, about="Told already.") == {**base, **listed}


@pytest.mark.parametrize(
    ("sent", "listed"),
    [
        ({"type": "string", "title": "Repo Path"}, {"type": "string"}),
        ({"type": "string", "title": "Where"}, {"type": "string", "title": "Where"}),
        ({"type": "string", "description": "repo path"}, {"type": "string"}),
        ({"type": "string", "description": "  A\n   \n\n\n  path "}, {"type": "string", "description": "A\n\npath"}),
        ({"type": "string", "title": "On it", "description": "On it"}, {"type": "string", "description": "On it"}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
         {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ({"type": ["string", "null"], "default": None}, {"type": ["string", "null"]}),
        ({"type": "integer", "minimum": -9007199254740991, "maximum": 9007199254740991},
         {"type": "integer", "minimum": -9007199254740991, "maximum": 9007199254740991}),
        ({"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": True}, {"type": "object"}),
        ({"allOf": [{"type": "string", "minLength": 2}], "description": "x y"},
         {"allOf": [{"type": "string", "minLength": 2}], "description": "x y"}),
        ({"type": "array", "items": {"type": "string", "description": "Some"}, "description": "Some"},
         {"type": "array", "items": {"type": "string"}, "description": "Some"}),
    ],
)  # fmt: skip
def test_a_property_keeps_what_tells_something(sent: dict[str, Any], listed: dict[str, Any]) -> None:
    assert short(props(repo_path=sent)) == props(repo_path=listed)


NULLABLE = {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}


def test_a_default_of_null_stays_where_it_may_mean_something() -> None:
    """Of an argument that must be given, and in what a server answers with."""
    assert short({**props(a=NULLABLE), "required": ["a"]}) == {**props(a=NULLABLE), "required": ["a"]}
    assert short(props(a=NULLABLE), is_input=False) == props(a=NULLABLE)
    assert short({**props(a=NULLABLE), "required": "a"})["properties"] == {"a": NULLABLE}
    assert short(props(a={"type": "integer", "default": 0})) == props(a={"type": "integer", "default": 0})


def test_unevaluated_keeps_what_it_counts_on() -> None:
    sent = {**props(a={"type": "object", "additionalProperties": True}), "unevaluatedProperties": False}
    assert short(sent) == sent


def test_the_tool_of_the_official_suite_passes_by_default() -> None:
    """Scenario json-schema-2020-12: `$schema`, `$defs` and `additionalProperties` reach the client."""
    sent = {
        "$schema": DRAFT_2020,
        "type": "object",
        "$defs": {"address": {"type": "object", "properties": {"street": {"type": "string"}}}},
        "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
        "additionalProperties": False,
    }
    assert short(sent) == sent
    anchored = {"address": {"$anchor": "here", **sent["$defs"]["address"]}}
    newer = {
        **sent,
        "$defs": anchored,
        "allOf": [{"anyOf": [{"required": ["name"]}]}],
        "if": {},
        "then": {},
        "else": {},
    }
    assert short(newer) == newer
    assert short(newer, SLIM)["$defs"] == anchored


# -- names and data


KEYWORDS = ["title", "$schema", "$ref", "$defs", "default", "description", "examples", "additionalProperties",
            "required", "items", "enum", "$comment", "minLength", "properties", "anyOf", "type",
            "definitions"]  # fmt: skip


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
@pytest.mark.parametrize("name", KEYWORDS)
def test_properties_called_like_keywords_are_properties(name: str, rules: SchemaRules) -> None:
    sent = {**props(**{name: {"type": "string"}}), "required": [name], "patternProperties": {name: {"type": "string"}}}
    assert short(sent, rules) == sent
    inner = props(
        o=props(**{name: {"type": "integer"}}), d={"type": "array", "items": props(**{name: {"type": "null"}})}
    )
    assert short(inner, rules) == inner


DATA: list[Any] = [
    {"title": "T", "$schema": "http://json-schema.org/draft-07/schema#", "required": [], "description": " x "}
]


@pytest.mark.parametrize("keyword", ["enum", "const", "default"])
def test_data_is_never_touched(keyword: str) -> None:
    sent = b'{"type":"object","title":"t","properties":{"a":{"%b":%b}}}' % (
        keyword.encode(),
        b'[{"title":"T", "required":[], "n":1.0e+2, "big":123456789012345678901234567890, "s":"\\u00e9"}]',
    )
    found = shorter_schema(sent, TIDY, tool="t", about="", is_input=True)
    assert found == sent.replace(b'"title":"t",', b"")
    assert short(props(a={keyword: DATA}))["properties"]["a"][keyword] == DATA


def test_header_marks_and_their_paths_stay() -> None:
    """Modern clients find `x-mcp-header` by walking the properties."""
    region = {"anyOf": [{"type": "string"}], "title": "Region", "x-mcp-header": "R"}
    for rules in RULES.values():
        found = short(props(region=region), rules)["properties"]["region"]
        assert found["x-mcp-header"] == "R"
        assert found["anyOf"] == region["anyOf"]


# -- definitions


POINT = {"type": "object", "title": "Point", "properties": {"x": {"type": "number"}, "y": {"type": "number"}}}
PLAIN_POINT = {name: value for name, value in POINT.items() if name != "title"}


def with_defs(properties: dict[str, Any], group: str = "$defs", **definitions: Any) -> dict[str, Any]:
    return {**props(**properties), group: definitions}


def test_what_nothing_refers_to_goes() -> None:
    chain = {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}
    assert short(with_defs({"a": {"type": "string"}}, **chain, Point=POINT)) == props(a={"type": "string"})


def test_what_is_used_once_stands_where_it_is_used() -> None:
    nested = {"Line": {"type": "object", "properties": {"from": {"$ref": "#/definitions/Point"}}}, "Point": POINT}
    sent = with_defs({"a": {"$ref": "#/definitions/Line", "description": "First line"}}, "definitions", **nested)
    assert short(sent, SLIM) == props(a={**props(**{"from": PLAIN_POINT}), "description": "First line"})
    optional = {"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}], "default": None, "title": "A"}
    found = short(with_defs({"a": optional}, Point=POINT), SLIM)
    assert found == props(a={"anyOf": [PLAIN_POINT, {"type": "null"}]})


def test_what_is_used_once_stands_where_it_was_by_default() -> None:
    sent = with_defs({"a": {"$ref": "#/$defs/Point", "description": "Which"}}, Point=PLAIN_POINT)
    assert short(sent) == sent


def test_the_dialect_comes_first_also_where_a_definition_stands_at_the_top() -> None:
    sent = {"$schema": DRAFT_7, "$ref": "#/definitions/In", "definitions": {"In": {"$schema": DRAFT_2020, **POINT}}}
    assert short(sent, SLIM) == {"$schema": DRAFT_7, **PLAIN_POINT}


def test_what_is_used_twice_stays_unless_it_is_small() -> None:
    twice = {"a": {"$ref": "#/$defs/Point"}, "b": {"$ref": "#/$defs/Point"}}
    assert short(with_defs(twice, Point=POINT), SLIM) == with_defs(twice, Point=PLAIN_POINT)
    found = short(with_defs(twice, Point={"type": "string"}), SLIM)
    assert found == props(a={"type": "string"}, b={"type": "string"})


def test_words_of_both_places_stay() -> None:
    sent = with_defs({"a": {"$ref": "#/$defs/P", "description": "Here"}}, P={"type": "string", "description": "There"})
    assert short(sent) == sent
    slim = short(sent, SLIM)
    assert slim == props(a={"type": "string", "description": "Here"})


@pytest.mark.parametrize(
    "definitions",
    [
        {"A": {"type": "object", "properties": {"next": {"$ref": "#/$defs/A"}}}},
        {"A": {"items": {"$ref": "#/$defs/B"}}, "B": {"items": {"$ref": "#/$defs/A"}}},
        {"A": {"$ref": "#/$defs/A"}},
        {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}},
        {"A": {"properties": {"all": {"$ref": "#"}}}},
    ],
)
def test_circles_are_survived(definitions: dict[str, Any]) -> None:
    found = short(with_defs({"a": {"$ref": "#/$defs/A"}, "b": {"$ref": "#/$defs/A"}}, **definitions))
    assert "A" in found["$defs"]


@pytest.mark.parametrize(
    "reference",
    ["#/properties/a/anyOf/0", "#/$defs/Point/properties/x", "#Anchor", "https://example.com/x", "x.json#/$defs/P", ""],
)  # fmt: skip
def test_nothing_moves_where_references_go_elsewhere(reference: str) -> None:
    union = {"anyOf": [{"type": "string"}]}
    sent = with_defs({"a": union, "b": {"$ref": reference}, "c": {"$ref": "#/$defs/Point"}}, Point=POINT)
    for rules in RULES.values():
        found = short(sent, rules)
        assert found["properties"]["a"] == union
        assert found["properties"]["c"] == {"$ref": "#/$defs/Point"}
        assert found["$defs"] == {"Point": PLAIN_POINT}


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
@pytest.mark.parametrize(
    ("keyword", "value", "reference"),
    [
        ("additionalProperties", True, "#/properties/a/additionalProperties"),
        ("additionalProperties", {}, "#/properties/a/additionalProperties"),
        ("propertyNames", {"type": "string"}, "#/properties/a/propertyNames"),
        ("patternProperties", {}, "#/properties/a/patternProperties"),
        ("dependentSchemas", {}, "#/properties/a/dependentSchemas"),
        ("default", {}, "#/properties/a/default"),
        ("examples", [{}], "#/properties/a/examples/0"),
        ("example", {}, "#/properties/a/example"),
        ("$comment", {}, "#/properties/a/$comment"),
        ("contentSchema", {}, "#/properties/a/contentSchema"),
        ("$defs", {"A": {}}, "#/properties/a/$defs/A"),
    ],
)
def test_what_a_reference_points_to_stays(keyword: str, value: Any, reference: str, rules: SchemaRules) -> None:
    for escaped in ('"$ref"', '"\\u0024ref"', '"$r\\u0065f"'):
        sent = raw(props(a={keyword: value}, b={"$ref": reference})).replace(b'"$ref"', escaped.encode())
        found = shorter_schema(sent, rules, tool="t", about="", is_input=True)
        assert json.loads(found) == json.loads(sent)


def test_nested_definitions_stay_where_a_dynamic_reference_may_mean_them() -> None:
    node = {"$dynamicAnchor": "node", "type": "string"}
    sent = props(a={"$dynamicRef": "#node", "$defs": {"node": node}})
    for rules in RULES.values():
        assert short(sent, rules) == sent
    assert short(props(a={"$defs": {"node": node}})) == props(a={})


def test_names_of_definitions_are_read_as_pointers() -> None:
    sent = with_defs({"a": {"$ref": "#/$defs/List%3Ca~1b~0%3E"}}, **{"List<a/b~>": POINT})
    assert short(sent, SLIM) == props(a={**PLAIN_POINT, "title": "Point"})


# -- slim and skeleton


def test_slim_leaves_the_first_sentence_that_tells_something() -> None:
    texts = {
        "issue_id": "The ID of the issue.",
        "since_date": "(Optional) The date since when. Such as 2026-11-22, in UTC if it has no zone. More elsewhere.",
        "n": "Number of items per page (max 100)",
    }
    found = short(props(**{name: {"type": "string", "description": text} for name, text in texts.items()}), SLIM)
    assert {name: schema.get("description") for name, schema in found["properties"].items()} == {
        "issue_id": None,
        "since_date": "Such as 2026-11-22, in UTC if it has no zone…",
        "n": "Number of items per page (max 100)",
    }


def test_slim_leaves_out_examples_and_keeps_all_that_checks() -> None:
    sent = {
        "type": "string", "format": "date", "pattern": "^2", "minLength": 3, "examples": ["2026-11-22"],
        "default": "2026-01-01", "enum": ["2026-01-01", "2026-01-02"], "contentEncoding": "base64",
    }  # fmt: skip
    left = {name: value for name, value in sent.items() if name != "examples"}
    for rules in (SLIM, SKELETON):
        assert short({**props(a=sent), "required": ["a"]}, rules) == {**props(a=left), "required": ["a"]}


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_a_long_list_of_values_stays_whole(rules: SchemaRules) -> None:
    values = [f"Country number {number}" for number in range(200)]
    assert short(props(where={"enum": values, "description": "where"}), rules) == props(where={"enum": values})


def test_descriptions_have_limited_room_and_required_ones_come_first() -> None:
    words = "What this one is for in so many words that nobody can guess it"
    sent = props(**{f"p{number}": {"type": "string", "description": f"{words} {number}"} for number in range(10)})
    sent["properties"]["o"] = props(deep={"type": "string", "description": words})
    sent["required"] = ["p8", "p9"]
    found = short(sent, SLIM)
    told = [name for name, schema in found["properties"].items() if "description" in schema]
    assert told == ["p0", "p8", "p9"]
    assert short(sent, SKELETON) == {
        **props(**{f"p{number}": {"type": "string"} for number in range(10)}, o=props(deep={"type": "string"})),
        "required": ["p8", "p9"],
    }


# -- whatever is sent


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=30) | st.sampled_from(["#/$defs/a", "object", "null"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*KEYWORDS, "oneOf", "allOf", "const", "x"]) | st.text(max_size=5), inner, max_size=4
        )
    ),
    max_leaves=15,
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from([*KEYWORDS, "oneOf", "x"]), JSON, max_size=6), st.sampled_from([*RULES]))
def test_no_schema_is_too_odd(schema: Any, level: str) -> None:
    """It is never longer, and doing it again changes nothing."""
    found = shorter_schema(raw(schema), RULES[level], tool="t", about="", is_input=True)
    assert len(found) <= len(raw(schema))
    assert isinstance(json.loads(found), dict)
    assert shorter_schema(found, RULES[level], tool="t", about="", is_input=True) == found


def test_hostile_schemas_are_survived() -> None:
    deep = b'{"type":"object","properties":{"a":' * 10_000 + b"{}" + b"}}" * 10_000
    wide = raw(props(**{f"p{number}": {"$ref": f"#/$defs/d{number}"} for number in range(5000)}))
    chain = {f"d{number}": {"$ref": f"#/$defs/d{number + 1}"} for number in range(3000)}
    doubling = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]} for n in range(200)}
    for sent in (
        deep, wide, b'{"a":', b"[]", b'{"\xff":1}', b'{"$defs":[],"properties":7,"required":{"a":1},"type":{"a":{}}}',
        b'{"properties":{"a":{"description":"\\ud800","title":"A"}}}', b'{"$ref":"#/$defs/%ff","$defs":{"\\u0000":{}}}',
    ):  # fmt: skip
        for rules in RULES.values():
            found = shorter_schema(sent, rules, tool="t", about="", is_input=True)
            assert len(found) <= len(sent)
    last = {"type": "string"}
    assert short(with_defs({"a": {"$ref": "#/$defs/d0"}}, **chain, d3000=last), SLIM) == props(a=last)
    assert short(with_defs({"a": {"$ref": "#/$defs/d0"}}, **doubling, d200=last), SLIM)
