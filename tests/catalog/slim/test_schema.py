"""What becomes of a tool's schema: it means the same, and names and data are never touched."""

import json
import re
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpbridge.catalog.slim.levels import SKELETON, SLIM, TIDY, SchemaRules
from mcpbridge.catalog.slim.schema import shorter_schema

RULES = {"tidy": TIDY, "slim": SLIM, "skeleton": SKELETON}


def raw(schema: object) -> bytes:
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":")).encode()


def short(schema: object, rules: SchemaRules = TIDY, *, tool: str = "t", told: str = "", is_input: bool = True) -> Any:
    given_ = raw(schema)
    found = shorter_schema(given_, rules, tool=tool, told=told, is_input=is_input)
    assert len(found) <= len(given_)
    assert shorter_schema(found, rules, tool=tool, told=told, is_input=is_input) == found
    return json.loads(found)


def props(**properties: object) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


# -- what tidy takes away


@pytest.mark.parametrize(
    ("sent", "listed"),
    [
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, {}),
        ({"$schema": "https://json-schema.org/draft/2020-12/schema"}, {}),
        ({"$schema": "https://example.com/own"}, {"$schema": "https://example.com/own"}),
        ({"additionalProperties": False}, {}),
        ({"additionalProperties": {}}, {}),
        ({"additionalProperties": {"type": "string"}}, {"additionalProperties": {"type": "string"}}),
        ({"required": [], "$comment": "made by a tool", "$defs": {}}, {}),
        ({"title": "tArguments"}, {}),
        ({"title": "Something else"}, {"title": "Something else"}),
        ({"x-mine": {"title": "kept", "required": []}}, {"x-mine": {"title": "kept", "required": []}}),
        ({"description": "Told already."}, {}),
    ],
)
def test_what_says_nothing_goes(sent: dict[str, Any], listed: dict[str, Any]) -> None:
    base = {"type": "object", "properties": {}}
    assert short({**base, **sent}, told="Told already.") == {**base, **listed}


@pytest.mark.parametrize(
    ("sent", "listed"),
    [
        ({"type": "string", "title": "Repo Path"}, {"type": "string"}),
        ({"type": "string", "title": "Where"}, {"type": "string", "title": "Where"}),
        ({"type": "string", "description": "repo path"}, {"type": "string"}),
        ({"type": "string", "description": "  A\n   \n\n\n  path "}, {"type": "string", "description": "A\n\npath"}),
        ({"type": "string", "title": "On it", "description": "On it"}, {"type": "string", "description": "On it"}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}, {"type": "string"}),
        ({"type": ["string", "null"], "default": None}, {"type": "string"}),
        ({"type": ["string", "integer", "null"], "default": None}, {"type": ["string", "integer"]}),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}], "default": None},
         {"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        ({"type": "integer", "minimum": -9007199254740991, "maximum": 9007199254740991}, {"type": "integer"}),
        ({"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": True}, {"type": "object"}),
        ({"allOf": [{"type": "string", "minLength": 2}], "description": "x y"},
         {"type": "string", "minLength": 2, "description": "x y"}),
        ({"type": "array", "items": {"type": "string", "description": "Some"}, "description": "Some"},
         {"type": "array", "items": {"type": "string"}, "description": "Some"}),
    ],
)  # fmt: skip
def test_a_property_keeps_what_tells_something(sent: dict[str, Any], listed: dict[str, Any]) -> None:
    assert short(props(repo_path=sent)) == props(repo_path=listed)


NULLABLE = {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}


def test_null_stays_where_it_may_mean_something() -> None:
    """A value that is cleared, one that must be there, and what a server answers with."""
    kept = NULLABLE
    assert short({**props(a=kept), "required": ["a"]}) == {**props(a=kept), "required": ["a"]}
    clears = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert short(props(a=clears)) == props(a=clears)
    assert short(props(a=kept), is_input=False) == props(a=kept)
    for around in ({"allOf": [{"required": ["a"]}]}, {"minProperties": 1}, {"dependentRequired": {"b": ["a"]}}):
        assert short({**props(a=kept), **around})["properties"]["a"] == kept


def test_what_tells_alternatives_apart_stays() -> None:
    """An alternative that accepts more would accept what another one accepts, and then none fits."""
    arms = [{**props(a={"type": "string"}), "additionalProperties": False} for _ in range(2)]
    for keyword in ("oneOf", "not", "if"):
        sent = props(x={keyword: arms if keyword == "oneOf" else arms[0]})
        assert short(sent) == sent
    assert "additionalProperties" not in raw(short(props(x={"anyOf": arms}))).decode()


def test_unevaluated_keeps_what_it_counts_on() -> None:
    sent = {**props(a={"type": "object", "additionalProperties": True}), "unevaluatedProperties": False}
    assert short(sent) == sent


def test_the_dialect_stays_where_it_decides() -> None:
    old = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}
    for decides in (
        {"properties": {"a": {"type": "array", "items": [{"type": "string"}]}}},
        {"properties": {"a": {"minimum": 1, "exclusiveMinimum": True}}},
        {"dependencies": {"a": ["b"]}},
        {
            "properties": {"a": {"$ref": "#/$defs/A", "minLength": 3}, "b": {"$ref": "#/$defs/A"}},
            "$defs": {"A": props()},
        },
    ):
        assert short({**old, **decides})["$schema"] == old["$schema"]
    new = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "dependencies": {"a": ["b"]}}
    assert "$schema" not in short(new)


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
    found = shorter_schema(sent, TIDY, tool="t", told="", is_input=True)
    assert found == sent.replace(b'"title":"t",', b"")
    assert short(props(a={keyword: DATA}))["properties"]["a"][keyword] == DATA


def test_header_marks_and_their_paths_stay() -> None:
    """Modern clients find `x-mcp-header` by walking the properties."""
    region = {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "title": "Region", "x-mcp-header": "R"}
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
    found = short(with_defs({"a": {"$ref": "#/definitions/Line", "description": "Which"}}, "definitions", **nested))
    assert found == props(a={**props(**{"from": PLAIN_POINT}), "description": "Which"})
    optional = {"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}], "default": None, "title": "A"}
    assert short(with_defs({"a": optional}, Point=POINT)) == props(a=PLAIN_POINT)


def test_what_is_used_twice_stays_unless_it_is_small() -> None:
    twice = {"a": {"$ref": "#/$defs/Point"}, "b": {"$ref": "#/$defs/Point"}}
    assert short(with_defs(twice, Point=POINT)) == with_defs(twice, Point=PLAIN_POINT)
    assert short(with_defs(twice, Point={"type": "string"})) == props(a={"type": "string"}, b={"type": "string"})


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
    optional = {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}
    sent = with_defs({"a": optional, "b": {"$ref": reference}, "c": {"$ref": "#/$defs/Point"}}, Point=POINT)
    found = short(sent)
    assert found["properties"]["a"] == optional
    assert "Point" in found["$defs"]


def test_names_of_definitions_are_read_as_pointers() -> None:
    sent = with_defs({"a": {"$ref": "#/$defs/List%3Ca~1b~0%3E"}}, **{"List<a/b~>": POINT})
    assert short(sent) == props(a={**PLAIN_POINT, "title": "Point"})


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


def test_slim_drops_lengths_and_keeps_what_a_value_is() -> None:
    sent = {
        "type": "string", "format": "date", "pattern": "^2", "minLength": 3, "examples": ["2026-11-22"],
        "default": "2026-01-01", "enum": ["2026-01-01", "2026-01-02"],
    }  # fmt: skip
    kept = {name: sent[name] for name in ("type", "format", "default", "enum")}
    assert short({**props(a=sent), "required": ["a"]}, SLIM) == {**props(a=kept), "required": ["a"]}


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


@pytest.mark.parametrize("rules", [SLIM, SKELETON], ids=["slim", "skeleton"])
def test_a_long_list_of_values_says_that_it_is_cut(rules: SchemaRules) -> None:
    values = [f"Country number {number}" for number in range(200)]
    found = short(props(where={"enum": values, "description": "Where to look."}), rules)["properties"]["where"]
    assert "enum" not in found
    assert found["type"] == "string"
    assert found["description"].endswith("(200 values: Country number 0, Country number 1, …)")
    assert short(props(where={"enum": list(range(1000))}), rules)["properties"]["where"]["enum"] == list(range(1000))


# -- it means the same


KEYS = ["a", "b", "title"]
NAMES = st.sampled_from(KEYS)
SCALARS: list[Any] = [None, True, 0, -9007199254740992, "", "long"]
INNER: list[Any] = [
    *SCALARS, [], {}, *([one] for one in SCALARS), *({key: one} for key in KEYS for one in SCALARS), {"a": {}},
    *({"a": one, "b": other} for one in (0, "", {}) for other in (0, "", None)), {"a": {"a": 0, "b": ""}},
]  # fmt: skip
VALUES: list[dict[str, Any]] = [
    {},
    *({key: one} for key in KEYS for one in INNER),
    *({"a": one, "b": 0} for one in INNER),
]
"""Arguments that the schemas below tell apart."""
REFERENCES = st.sampled_from(["#/$defs/A", "#/$defs/B", "#/$defs/C"]).map(lambda aim: {"$ref": aim})
WORDS: dict[str, st.SearchStrategy[Any]] = {
    "title": st.sampled_from(["A", "Title", "Else"]),
    "description": st.sampled_from(["a", "Some words. And others.", "  x\n  y", ""]),
    "$comment": st.just("no"),
    "examples": st.just([]),
}


def optionally(needed: dict[str, st.SearchStrategy[Any]], **others: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(needed, optional={**WORDS, **others})


def schemas_of(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    objects = optionally(
        {"type": st.just("object")},
        properties=st.dictionaries(NAMES, inner, max_size=3),
        required=st.lists(NAMES, unique=True, max_size=2),
        additionalProperties=st.sampled_from([True, False, {}]) | inner,
        propertyNames=st.just({"type": "string"}),
        minProperties=st.integers(0, 1),
    )
    arrays = optionally({"type": st.just("array")}, items=inner, minItems=st.integers(0, 1), contains=inner)
    several = st.lists(inner, min_size=1, max_size=2)
    unions = st.one_of(*(optionally({keyword: several}, default=st.none()) for keyword in ("anyOf", "oneOf", "allOf")))
    nullable = optionally({"anyOf": inner.map(lambda one: [one, {"type": "null"}]), "default": st.none()})
    others = optionally({"not": inner}) | optionally({"if": inner, "then": inner})
    return objects | arrays | unions | nullable | others


LEAVES = (
    optionally({"type": st.sampled_from(["string", "integer", "null", "boolean"])}, default=st.none())
    | optionally({"type": st.just(["string", "null"]), "default": st.none()}, minLength=st.integers(0, 2))
    | optionally({"type": st.just("integer")}, minimum=st.sampled_from([-9007199254740991, 0]))
    | st.fixed_dictionaries({"enum": st.lists(st.sampled_from(["a", "", None]), min_size=1, unique=True)})
    | st.sampled_from([{}, True, False])
    | REFERENCES
)
SCHEMAS = st.recursive(LEAVES, schemas_of, max_leaves=8)
WHOLE = st.fixed_dictionaries(
    {"type": st.just("object"), "properties": st.dictionaries(NAMES, SCHEMAS, max_size=3)},
    optional={
        "$schema": st.sampled_from(
            ["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"]
        ),
        "required": st.lists(NAMES, unique=True, max_size=2),
        "additionalProperties": st.booleans() | SCHEMAS,
    },
)
DEFINED = st.fixed_dictionaries(dict.fromkeys("ABC", SCHEMAS))


def validator(schema: Any) -> Any:
    try:
        return jsonschema_rs.validator_for(schema)
    except (jsonschema_rs.ValidationError, ValueError):
        return None  # a reference to itself alone, for one


def has_null(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(has_null, value.values() if isinstance(value, dict) else value))
    return value is None


@settings(deadline=None)
@given(WHOLE, DEFINED, st.sampled_from([*RULES]), st.booleans())
def test_what_was_valid_stays_valid(schema: Any, defs: Any, level: str, is_input: bool) -> None:
    """But for null, written out as an argument that may be left out."""
    sent = {**schema, "$defs": defs}
    found = short(sent, RULES[level], is_input=is_input)
    before, after = validator(sent), validator(found)
    if before is None:
        return
    assert after is not None
    lost = [value for value in VALUES if before.is_valid(value) and not after.is_valid(value)]
    assert [value for value in lost if not (is_input and has_null(value))] == []


@settings(deadline=None)
@given(WHOLE, DEFINED)
def test_without_what_is_relaxed_both_mean_the_same(schema: Any, defs: Any) -> None:
    sent = json.loads(RELAXED.sub("", raw({**schema, "$defs": defs}).decode()))
    before, after = validator(sent), validator(short(sent))
    if before is None:
        return
    assert after is not None
    assert [value for value in VALUES if before.is_valid(value) != after.is_valid(value)] == []


RELAXED = re.compile(r'"(?:additionalProperties":false|default":null|minimum":-9007199254740991),|'
                     r',"(?:additionalProperties":false|default":null|minimum":-9007199254740991)(?=})')  # fmt: skip


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
    short(schema, RULES[level])


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
            found = shorter_schema(sent, rules, tool="t", told="", is_input=True)
            assert len(found) <= len(sent)
    last = {"type": "string"}
    assert short(with_defs({"a": {"$ref": "#/$defs/d0"}}, **chain, d3000=last)) == props(a=last)
    assert short(with_defs({"a": {"$ref": "#/$defs/d0"}}, **doubling, d200=last))
