"""Signatures: what of a definition they say, that they say where they leave something out, and any schema at all."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpbridge.catalog.signatures.schema import is_identifier
from mcpbridge.catalog.signatures.signature import MARK, Level, call_line, signature
from mcpbridge.catalog.signatures.types import FORMS
from support.catalog.searchable_tools import GITHUB, an_object

LEVELS: tuple[Level, ...] = ("names", "brief", "full")


def kind(schema: Any, *, level: Level = "full", **root: Any) -> str:
    """How the type of a required parameter `x` with this schema is written."""
    whole = {"type": "object", "properties": {"x": schema}, "required": ["x"], **root}
    text = signature("t", "", whole, level).text.splitlines()
    line = text[0] if len(text) == 1 else text[1].strip().partition("  # ")[0]
    return line.removeprefix("t(").removesuffix("…").removesuffix(")").partition(" needs ")[0].removeprefix("x: ")


def test_one_tool_at_all_levels() -> None:
    assert signature(GITHUB.wire, GITHUB.description, GITHUB.schema, "names").text == (
        "github__create_issue(…) - Create a new issue in a GitHub repository…"
    )
    assert signature(GITHUB.wire, GITHUB.description, GITHUB.schema).text == (
        "github__create_issue(owner: str, repo: str, title: str, body?: str, labels?: str[], "
        'state?: "open"|"closed"="open")… - Create a new issue in a GitHub repository. The token needs the scope `repo`'
    )
    full = signature(GITHUB.wire, GITHUB.description, GITHUB.schema, "full", output=an_object("id", id="integer"))
    assert full.is_whole
    assert full.text == (
        "github__create_issue(\n"
        "  owner: str\n"
        "  repo: str\n"
        "  title: str\n"
        "  body?: str  # Text in Markdown\n"
        "  labels?: str[]\n"
        '  state?: "open"|"closed"="open"\n'
        ") -> {id: int}\n"
        "  Create a new issue in a GitHub repository. The token needs the scope `repo`."
    )


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        ({"type": "string"}, "str"),
        ({"type": "number"}, "float"),
        ({"type": "boolean"}, "bool"),
        ({"type": "object"}, "object"),
        ({"type": "array"}, "list"),
        ({}, "x"),
        (True, "x"),
        (False, "never"),
        ({"type": ["string", "null"]}, "str|null"),
        ({"type": ["null", "string"]}, "str|null"),
        ({"anyOf": [{"type": "null"}, {"type": "integer"}, {"type": "integer"}]}, "int|null"),
        ({"oneOf": [{"type": "string"}, {}]}, "x"),
        ({"enum": ["a", 1, None, True]}, '"a"|1|true|null'),
        ({"const": "file"}, '"file"'),
        ({"type": "string", "format": "date-time"}, "str(date-time)"),
        ({"type": "integer", "format": "int32"}, "int"),
        ({"type": "integer", "minimum": 1, "maximum": 50}, "int(1..50)"),
        ({"type": "integer", "minimum": 0}, "int(>=0)"),
        ({"type": "number", "exclusiveMinimum": 0, "maximum": 1}, "float(>0 <=1)"),
        ({"type": "number", "minimum": 0, "exclusiveMinimum": True}, "float(>0)"),
        ({"type": "integer", "minimum": -(2**53 - 1), "maximum": 2**53 - 1}, "int"),
        ({"type": "string", "minLength": 1, "maxLength": 9, "pattern": "^a+$"}, "str(len 1..9, /^a+$/)"),
        ({"type": "array", "items": {"type": "string"}, "minItems": 1, "uniqueItems": True}, "str[](len >=1, unique)"),
        ({"type": "array", "items": {"type": ["string", "integer"]}}, "(str|int)[]"),
        ({"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}, "int[][]"),
        ({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]}, "[str, int]"),
        ({"type": "array", "items": [{"type": "string"}]}, "[str]"),
        (an_object("a", b="integer", a="string"), "{a: str, b?: int}"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "{[str]: int}"),
        ({"type": "object", "additionalProperties": True}, "object"),
        ({"properties": {"a": True}}, "{a?}"),
        ({"items": {"type": "string"}}, "str[]"),
        ({"allOf": [an_object(a="string"), {"properties": {"b": {}}, "required": ["a"]}]}, "{a: str, b?}"),
        ({"allOf": [{"type": "string"}], "description": "a"}, "str"),
        ({"type": "object", "oneOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}, "{a?}|{b?}"),
        ({"type": "file"}, "file"),
        ({"type": "object", "properties": {"no name": {}, "a\nb": {}, "ü": {}}}, '{"no name"?, "a\\nb"?, "ü"?}'),
    ],
)  # fmt: skip
def test_types(schema: Any, written: str) -> None:
    assert kind(schema) == written
    assert signature("t", "", {"properties": {"x": schema}}, "full").is_whole


def test_definitions_are_told_once_and_then_named() -> None:
    filter_ = an_object("field", field="string", value={"type": "string"}, comparison={"enum": ["eq", "lt", "gt"]})
    schema = {**an_object(a={"$ref": "#/$defs/Filter"}, b={"$ref": "#/$defs/Filter"}), "$defs": {"Filter": filter_}}
    assert signature("t", "", schema).text == (
        't(a?: Filter{field: str, value?: str, comparison?: "eq"|"lt"|"gt"}, b?: Filter)'
    )
    once = {**an_object(a={"$ref": "#/$defs/Filter"}), "$defs": {"Filter": filter_}}
    assert "Filter" not in signature("t", "", once).text


def test_schemas_that_lead_back_to_themselves() -> None:
    node = an_object("value", value="string", children={"type": "array", "items": {"$ref": "#/$defs/Node"}})
    schema = {**an_object(root={"$ref": "#/$defs/Node"}), "$defs": {"Node": node}}
    assert signature("t", "", schema).text == "t(root?: Node{value: str, children?: Node[]})"
    by_path = an_object(root=an_object(next={"$ref": "#/properties/root"}))
    assert signature("t", "", by_path).text == "t(root?: root{next?: root})"
    itself: dict[str, Any] = {"$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}}
    assert signature("t", "", an_object(inner={"$ref": "#"})).text == "t(inner?: Self)"
    for ref in ("#/$defs/A", "#", "#/nothing", "https://example.com/schema", 7, "#/%zz/~"):
        assert signature("t", "", {**itself, "properties": {"x": {"$ref": ref}}}).text.startswith("t(x?")
        assert signature("t", "", {**itself, "$ref": ref}).text


def test_what_may_be_left_out_is_marked_and_a_null_default_says_nothing() -> None:
    schema = an_object(
        "a", a={"type": "string", "default": "x"}, b={"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}
    )
    found = signature("t", "", schema)
    assert (found.text, found.is_whole) == ('t(a: str="x", b?: str)', True)
    assert signature("t", "", {"properties": {"a": {"required": True}, "b": {}}}).text == "t(a, b?)"
    assert signature("t", "", {"properties": {"b": {}}, "required": ["a", "b", "a"]}).text == "t(b, a)"


def test_alternatives_of_needed_parameters_are_told() -> None:
    schema = {**an_object(id="string", name="string"), "oneOf": [{"required": ["id"]}, {"required": ["id", "name"]}]}
    found = signature("t", "", schema)
    assert (found.text, found.is_whole) == ("t(id?: str, name?: str) needs one of: id|id+name", True)
    assert not signature("t", "", {**schema, "anyOf": [{"required": ["id"]}]}, "full").is_whole
    assert not signature("t", "", {**schema, "if": {}}, "full").is_whole


def test_arguments_without_names() -> None:
    assert signature("t", "", {}).text == "t()"
    assert signature("t", "", {"additionalProperties": True}).text == "t(**)"
    assert signature("t", "", an_object(a="string") | {"additionalProperties": {"type": "integer"}}).text == (
        "t(a?: str, **: int)"
    )
    assert signature("t", "", {"anyOf": [an_object("a", a="string"), an_object("b", b="string")]}).text == (
        "t({a: str}|{b: str})"
    )
    unknown = signature("t", "", None)
    assert (unknown.text, unknown.is_whole) == ("t(…)", False)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "a"},
        {"type": "string", "minLength": 3},
        {"type": "string", "description": "How it is spelled"},
        {"type": "string", "examples": ["a"]},
        {"enum": [f"value number {n}" for n in range(30)]},
        an_object(a=an_object(b=an_object(c="string"))),
        an_object(**{f"member_{n}": "string" for n in range(30)}),
        {"type": "string", "not": {"const": "a"}},
        {"type": "object", "patternProperties": {"^a": {}}},
        {"type": "string", "default": "x" * 500},
        {"$ref": "https://example.com"},
        {"type": {"type": "string"}},
    ],
)
def test_what_is_left_out_is_marked(schema: Any) -> None:
    """Promise of the bridge (issue 6): a reader can tell."""
    found = signature("t", "", an_object("x", x=schema))
    assert not found.is_whole
    assert MARK in found.text


def test_descriptions_that_add_nothing_to_a_name_are_no_loss() -> None:
    assert signature("t", "", an_object(owner={"type": "string", "description": "The owner."})).is_whole
    assert not signature("t", "", an_object(owner={"type": "string", "description": "The owner of the house"})).is_whole


def test_many_parameters_are_counted() -> None:
    schema = an_object("a", a="string", **{f"option_{n}": "string" for n in range(40)})
    for form, left in zip(FORMS[:4], (24, 32, 36, 40), strict=True):
        assert f"…+{left})" in signature("t", "", schema, form).text
    assert signature("t", "", schema, FORMS[-1]).text == "t…"
    assert "option_39" in signature("t", "", schema, "full").text
    assert call_line("t", schema).startswith("t(a: str, option_0?: str")


def test_names_that_clients_do_not_take_are_quoted() -> None:
    assert signature("a b", "", {}).text == '"a b"()'
    assert signature("brave-search__web", "", {}).text == "brave-search__web()"
    assert signature('"\ud800\n' * 1000, "", {}).text.isprintable()
    assert is_identifier("snake_case")
    assert not is_identifier("ünï")
    assert not is_identifier("")


def test_the_first_sentences_of_a_description() -> None:
    def said(description: Any, level: Level = "brief") -> str:
        return signature("t", description, {}, level).text.removeprefix("t() - ")

    assert said("Lists pages, e.g. drafts. Sorted.") == "Lists pages, e.g. drafts. Sorted"
    assert said("Lists pages, e.g. drafts. Sorted.", "names") == "Lists pages, e.g. drafts…"
    assert said("# Title\n\n- Lists pages\n- Sorts them") == "Title; Lists pages; Sorts them"
    assert said("List pages.\n\nArgs:\n    path: where") == "List pages…"
    assert said("Lists all of the pages that there are in this space,\nwhatever their state.") == (
        "Lists all of the pages that there are in this space, whatever their state"
    )
    assert said("x" * 5000).endswith("x…")
    assert len(said("word " * 2_000_000)) <= 200
    assert said("\x00\x1b[31m\u202ehidden\ud800") == "[31m hidden"
    for nothing in ("", None, 7, [], "\n \n"):
        assert signature("t", nothing, {}).text in ("t()", "t()…")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
NAMES = st.text(max_size=8).filter(str.isprintable) | st.sampled_from(["id", "a_b"])
SCALARS = st.fixed_dictionaries(
    {"type": st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object"])},
    optional={
        "description": st.text(max_size=30),
        "enum": st.lists(st.text(max_size=12) | st.integers(), max_size=5),
        "default": st.none() | st.text(max_size=8) | st.integers(),
        "minimum": st.integers(-5, 5),
        "maxLength": st.integers(0, 99),
        "format": st.sampled_from(["uri", "date"]),
    },
)
SCHEMAS = st.recursive(
    SCALARS | st.booleans() | st.just({"$ref": "#/$defs/D"}) | st.just({"$ref": "#"}),
    lambda inner: (
        st.fixed_dictionaries(
            {"type": st.just("object"), "properties": st.dictionaries(NAMES, inner, max_size=4)},
            optional={"required": st.lists(NAMES, max_size=3), "additionalProperties": inner},
        )
        | st.fixed_dictionaries({"type": st.just("array"), "items": inner})
        | st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=3)})
        | st.fixed_dictionaries({"allOf": st.lists(inner, min_size=1, max_size=2)})
    ),
    max_leaves=12,
)
TOOLS = st.fixed_dictionaries(
    {"properties": st.dictionaries(NAMES, SCHEMAS, max_size=4)},
    optional={"required": st.lists(NAMES, max_size=3), "$defs": st.fixed_dictionaries({"D": SCHEMAS})},
)


@settings(max_examples=60, deadline=None)
@given(st.text(), JSON, JSON | TOOLS)
def test_whatever_a_server_sends(name: str, description: Any, schema: Any) -> None:
    for level in (*LEVELS, *FORMS):
        found = signature(name, description, schema, level, output=schema)
        assert found == signature(name, description, schema, level, output=schema)
        assert found.is_whole or MARK in found.text
        found.text.encode()
        if level != "full":
            assert len(found.text) < 3000
            assert "\n" not in found.text


@settings(max_examples=60, deadline=None)
@given(NAMES, st.text(max_size=100), TOOLS)
def test_none_is_larger_than_the_definition(name: str, description: str, schema: dict[str, Any]) -> None:
    definition = {"name": name, "description": description, "inputSchema": schema}
    size = len(json.dumps(definition, ensure_ascii=False, separators=(",", ":")))
    for level in LEVELS:
        assert len(signature(name, description, schema, level).text) <= size


@settings(max_examples=60, deadline=None)
@given(TOOLS)
def test_what_must_be_given_is_told_apart(schema: dict[str, Any]) -> None:
    """Every named parameter is there, and has a question mark if, and only if, it may be left out."""
    text = signature("t", "", schema, "full").text
    for name in filter(is_identifier, {*schema["properties"], *schema.get("required", [])}):
        parameters = re.findall(rf"(?:^t\(|^  |, ){re.escape(name)}(?![A-Za-z0-9_$])(\??)", text, re.MULTILINE)
        assert ("" if name in schema.get("required", []) else "?") in parameters


def d(number: int) -> dict[str, str]:
    return {"$ref": f"#/$defs/d{number}"}


def nested(levels: int, make: Any) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(levels):
        schema = make(schema)
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        nested(10_000, lambda inner: {"type": "array", "items": inner}),
        nested(10_000, lambda inner: {"properties": {"a": inner}}),
        nested(10_000, lambda inner: {"allOf": [inner]}),
        nested(10_000, lambda inner: {"anyOf": [inner]}),
        {"properties": {"x": {"default": nested(10_000, lambda inner: [inner])}}},
        {"properties": {f"p{n}": {"type": "string"} for n in range(50_000)}},
        {"properties": {"x": {"anyOf": [{"const": n} for n in range(50_000)]}}},
        {"properties": {"x": {"enum": list(range(50_000))}}},
        {"required": [f"p{n}" for n in range(50_000)]},
        {"properties": {"x": {"enum": [10**6000, "x" * 1_000_000]}}},
        {"$defs": {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 9} for n in range(30)}, "$ref": "#/$defs/d0"},
        {
            "$defs": {f"d{n}": an_object(a=d(n + 1), b=d(n + 1), c={"allOf": [d(n + 1)]}) for n in range(30)},
            "properties": {"x": d(0)},
        },
    ],
    ids=range(12),
)  # fmt: skip
def test_hostile_schemas_are_cut(schema: Any) -> None:
    for level in LEVELS:
        found = signature("t", "d" * 3_000_000, schema, level)
        assert not found.is_whole
        assert len(found.text) < 60_000
