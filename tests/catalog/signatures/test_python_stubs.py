"""Stubs: always Python, always short, and the parameters are found again."""

import ast
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcpbridge.catalog.signatures.python_stubs import (
    LONGEST_SIGNATURE,
    LONGEST_STUB,
    Callee,
    callable_as,
    names_of,
    signature,
    stub,
    wires_by_name,
)


def of(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), **more}


def parameter(schema: Any) -> str:
    """What a required parameter `x` of this schema is annotated as."""
    told = signature(Callee("t", schema=of({"x": schema}, "x")))
    return told.removeprefix("t(*, x: ").removesuffix(") -> Any")


def test_a_short_one_is_a_line_and_a_docstring() -> None:
    schema = of({"labels": {"type": "array", "items": {"type": "string"}}, "owner": {"type": "string"}}, "owner")
    assert stub(Callee("github__create_issue", "Create an issue.", schema)) == (
        "async def github__create_issue(*, owner: str, labels: list[str] | None = None) -> Any:\n"
        '    """Create an issue."""'
    )


def test_what_is_known_of_parameters_stands_beside_them() -> None:
    schema = of(
        {
            "q": {"type": "string", "description": "What to look\n  for"},
            "since": {"type": "string", "format": "date-time"},
            "n": {"type": "integer", "minimum": 1, "maximum": 50, "default": 8},
            "filter": of({"state": {"enum": ["open", "closed"]}, "who": of({"id": {"type": "integer"}}, "id")}),
        },
        "q",
    )
    output = of({"items": {"type": "array", "items": of({"id": {"type": "integer"}}, "id")}}, "items")
    assert (
        stub(Callee("a-b.find", "Finds.\n\nMore.", schema, output))
        == '''\
# the tool 'a-b.find'
async def a_b_find(
    *,
    q: str,  # What to look for
    since: str | None = None,  # date-time
    n: int = 8,  # 1..50
    filter: dict[str, Any] | None = None,  # {state?: Literal['open', 'closed'], who?: {id: int}}
) -> dict[str, Any]:  # {items: list[{id: int}]}
    """Finds.

    More.
    """'''
    )


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "integer"}, "int"),
        ({"type": "number"}, "float"),
        ({"type": "boolean"}, "bool"),
        ({"type": "null"}, "None"),
        ({"type": "array"}, "list[Any]"),
        ({"type": "array", "items": {"type": "array", "items": {"type": "string"}}}, "list[list[str]]"),
        ({"type": "object"}, "dict[str, Any]"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "dict[str, float]"),
        ({"type": ["string", "null"]}, "str | None"),
        ({"type": "string", "nullable": True}, "str | None"),
        (
            {"anyOf": [{"type": "null"}, {"type": "string"}, {"type": "integer"}, {"type": "string"}]},
            "str | int | None",
        ),
        ({"oneOf": [{"type": "string"}, {}]}, "Any"),
        ({"enum": ["a", 1, None, True]}, "Literal['a', 1, None, True]"),
        ({"const": "x"}, "Literal['x']"),
        ({"enum": [f"value {n}" for n in range(100)]}, "str"),
        ({"enum": [1.5]}, "Any"),
        ({"$ref": "#/$defs/nowhere"}, "Any"),
        ({"$ref": "#/properties/x"}, "Any"),
        ({"allOf": [{"type": "string"}]}, "str"),
        (True, "Any"),
        (None, "Any"),
        (7, "Any"),
        ({"type": {"a": 1}}, "Any"),
        ({"type": "string", "enum": {"a": 1}}, "str"),
    ],
)
def test_types(schema: Any, told: str) -> None:
    assert parameter(schema) == told


def test_references_are_followed_but_not_for_ever() -> None:
    tree: dict[str, Any] = of({"kids": {"type": "array", "items": {"$ref": "#/$defs/T"}}, "id": {"$ref": "#/$defs/I"}})
    root = of(
        {"t": {"$ref": "#/$defs/T"}, "i": {"$ref": "#/$defs/I"}}, **{"$defs": {"T": tree, "I": {"type": "integer"}}}
    )
    told = stub(Callee("t", schema=root))
    assert "i: int | None = None" in told
    assert "{kids?: list[{kids?: list[{kids?:" in told
    assert "id?: int" in told
    assert len(told) < 600


def test_names_that_python_does_not_take() -> None:
    schema = of({"from": {}, "per-page": {}, "9": {}, "per_page": {}, "": {}, "ok": {}})
    told = signature(Callee("x", schema=schema))
    assert told == (
        "x(*, from_: Any = None, _9: Any = None, per_page: Any = None, _: Any = None, ok: Any = None, "
        "**arguments: Any) -> Any"
    )
    assert names_of(schema) == {"from_": "from", "_9": "9", "_": ""}
    assert names_of(None) == {}


def test_names_of_functions() -> None:
    assert wires_by_name(["a__b", "a-b__c", "a.b__c", "class", "print"]) == {"class_": "class"}, (
        "one name of two is nobody's"
    )
    assert wires_by_name(["a_b__c", "a-b__c"]) == {}, "it is another tool's own"
    assert wires_by_name(["a-b__c", "class"]) == {"a_b__c": "a-b__c", "class_": "class"}
    assert callable_as("print") == ""
    assert stub(Callee("print")).startswith("# only by await call_tool('print', {…})\n")


def test_no_schema_takes_anything() -> None:
    assert signature(Callee("t")) == "t(**arguments: Any) -> Any"
    assert signature(Callee("t", schema={"anyOf": [{"type": "object"}]})) == "t(**arguments: Any) -> Any"
    assert signature(Callee("t", schema=of({}))) == "t() -> Any"
    assert signature(Callee("t", schema=of({"a": {}}, additionalProperties=True))) == (
        "t(*, a: Any = None, **arguments: Any) -> Any"
    )


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = of({"x": schema}, allOf=[schema])
    return schema


@pytest.mark.parametrize(
    "callee",
    [
        Callee("t", "x" * 6_000_000),
        Callee("t", "\n" * 1_000_000 + '"""\\'),
        Callee("t", 'ends with "'),
        Callee("t", '"""; import os  # \0 \ud800 \u2028'),
        Callee("t" * 10_000, schema=of({"a" * 10_000: {"description": "# \n raise", "default": "'\\\n"}})),
        Callee("t", schema=of({f"parameter_{n}": {"description": "x" * 500} for n in range(5000)})),
        Callee(
            "t", schema=of({"x": {"enum": list(range(100_000))}, "y": {"default": 10**5000}, "z": {"minimum": 1e400}})
        ),
        Callee("t", schema=of({"x": deep(2000)}, allOf=[{"$ref": "#"}] * 1000)),
        Callee("t", schema=of({"x": {"const": 10**5000}, "y": {"enum": [10**5000]}, "w": {"enum": ["\ud800"]}})),
        Callee("t", schema=of({"x": {"anyOf": [{"anyOf": [{"anyOf": [{}] * 99}] * 99}] * 99}})),
        Callee("t", schema={"properties": {1: 2, "a": {"description": 7}}, "required": [1, {}]}),  # pyright: ignore
        Callee("t", 7, schema={"$ref": "#"}),  # pyright: ignore[reportArgumentType]
        Callee("", "", {}, {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}),
    ],
)
def test_whatever_it_says_it_is_python_and_short(callee: Callee) -> None:
    assert_is_python(callee)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
KEYWORDS = st.sampled_from(
    ["type", "properties", "required", "items", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "default",
     "description", "format", "minimum", "nullable", "additionalProperties", "$defs"]
)  # fmt: skip
KINDS = st.sampled_from(["string", "integer", "object", "array", "null", "#", "#/properties/a", "#/$defs/b"])
SCHEMAS = st.recursive(
    VALUES | KINDS,
    lambda inner: (
        st.dictionaries(KEYWORDS, inner, max_size=5)
        | st.dictionaries(st.text(max_size=6), inner, max_size=4)
        | st.lists(inner, max_size=3)
    ),
    max_leaves=25,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(max_size=30), st.text(max_size=200), st.dictionaries(KEYWORDS, SCHEMAS, max_size=6), SCHEMAS)
def test_anything_makes_python(wire: str, description: str, schema: dict[str, Any], output: Any) -> None:
    assert_is_python(Callee(wire, description, schema, output if isinstance(output, dict) else None))


def assert_is_python(callee: Callee) -> None:
    told, line = stub(callee), signature(callee)
    assert len(told) <= LONGEST_STUB + 300
    assert len(line) <= LONGEST_SIGNATURE + 300
    assert "\n" not in line
    (function,) = ast.parse(told).body
    (same,) = ast.parse(f"async def {line}: ...").body
    assert isinstance(function, ast.AsyncFunctionDef)
    assert isinstance(same, ast.AsyncFunctionDef)
    assert [one.arg for one in function.args.kwonlyargs] == [one.arg for one in same.args.kwonlyargs] or (
        len(told) > LONGEST_SIGNATURE
    )
    assert len(set(names_of(callee.schema).values())) == len(names_of(callee.schema))
    assert json.dumps([told, line]) == json.dumps([stub(callee), signature(callee)])
