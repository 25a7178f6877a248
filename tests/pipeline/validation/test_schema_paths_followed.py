"""Which part of a schema governs a place, which names an object declares, and how places and values are named."""

from decimal import Decimal
from typing import Any

import pytest

from mcpbridge.pipeline.validation.schema_paths import (
    declared,
    follow,
    governing,
    has_patterns,
    kind_of,
    listed,
    owner,
    printed,
    spelled,
)

Schema = dict[str, Any]
A: Schema = {"properties": {"a": {"type": "string"}}}
B: Schema = {"properties": {"b": {"type": "integer"}}}
ROOT: Schema = {"$defs": {"A": A, "x/y~z": B, "ü": A}, "list": [A, B]}


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        ("#/$defs/A", A),
        ("#/$defs/x~1y~0z", B),
        ("#/$defs/%C3%BC", A),
        ("#/list/1", B),
        ("#/list/2", {}),
        ("#/list/x", {}),
        ("#", ROOT),
        ("#/", {}),
        ("#/$defs/none", {}),
        ("#/$defs/A/properties/a/type", {}),
        ("#/$defs/A/properties/a/type/x", {}),
        ("other.json#/$defs/A", {}),
        ("A", {}),
        ("", {}),
        (5, {}),
        (None, {}),
    ],
)
def test_a_reference_is_followed_within_the_schema(reference: object, found: Schema) -> None:
    """RFC 6901, with the escapes of a URI fragment."""
    assert follow(ROOT, reference) == found


@pytest.mark.parametrize(
    ("node", "names"),
    [
        (A, ["a"]),
        ({"allOf": [A, B]}, ["a", "b"]),
        ({"anyOf": [A, B]}, ["a", "b"]),
        ({"oneOf": [A, {"allOf": [B]}]}, ["a", "b"]),
        ({"if": A, "then": B}, ["a", "b"]),
        ({"if": {}, "else": A}, ["a"]),
        ({"dependentSchemas": {"x": A, "y": B}}, ["a", "b"]),
        ({"$ref": "#/$defs/A"}, ["a"]),
        ({"$ref": "#/$defs/A", **B}, ["b", "a"]),
        ({"allOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/x~1y~0z"}]}, ["a", "b"]),
        ({"$ref": "#/$defs/none"}, []),
        ({"not": A}, []),
        ({"items": A}, []),
        ({"allOf": A}, []),
        ({"allOf": [True, 5, A]}, ["a"]),
        ({"dependentSchemas": [A]}, []),
        ({"properties": ["a"]}, []),
        ({}, []),
    ],
)
def test_an_object_declares_what_any_schema_says_that_applies_to_it(node: Schema, names: list[str]) -> None:
    assert list(declared(ROOT, node)) == names


def test_the_first_declaration_of_a_name_counts_and_a_circle_ends() -> None:
    first, second = {"type": "string"}, {"type": "integer"}
    node = {"properties": {"a": first}, "allOf": [{"properties": {"a": second, "b": second}}]}
    assert declared({}, node) == {"a": first, "b": second}
    root: Schema = {"$ref": "#/$defs/R", "$defs": {"R": {"allOf": [{"$ref": "#"}, A]}}}
    assert list(declared(root, root)) == ["a"]


@pytest.mark.parametrize(
    ("node", "has"),
    [
        ({"patternProperties": {"^x": {}}}, True),
        ({"patternProperties": {}}, False),
        ({"allOf": [{"patternProperties": {"^x": {}}}]}, True),
        ({"$ref": "#/$defs/P"}, True),
        ({"properties": {"a": {"patternProperties": {"^x": {}}}}}, False),
        ({}, False),
    ],
)
def test_names_may_be_declared_by_a_pattern(node: Schema, has: bool) -> None:
    root = {"$defs": {"P": {"patternProperties": {"^x": {}}}}}
    assert has_patterns(root, node) is has


INNER: Schema = {"type": "string", "minLength": 3}
WHOLE: Schema = {"allOf": [{"$ref": "#/$defs/I"}], "title": "whole"}
TREE: Schema = {
    "properties": {"p": WHOLE, "q": {"items": INNER}, "r": {"prefixItems": [{}, INNER]}},
    "patternProperties": {"^x": INNER},
    "additionalProperties": INNER,
    "if": {"minProperties": 1},
    "dependentSchemas": {"p": {"required": ["q"]}},
    "$defs": {"I": INNER},
}


@pytest.mark.parametrize(
    ("place", "owned_by", "governed_by"),
    [
        (("required",), TREE, TREE),
        ((), TREE, TREE),
        (("properties", "p", "type"), WHOLE, WHOLE),
        (("properties", "p", "allOf", 0, "$ref", "minLength"), INNER, WHOLE),
        (("properties", "q", "items", "minLength"), INNER, INNER),
        (("properties", "r", "prefixItems", 1, "minLength"), INNER, INNER),
        (("patternProperties", "^x", "minLength"), INNER, INNER),
        (("additionalProperties", "minLength"), INNER, INNER),
        (("if", "minProperties"), TREE["if"], TREE),
        (("dependentSchemas", "p", "required"), TREE["dependentSchemas"]["p"], TREE),
        (("properties", "none", "type"), {}, {}),
        (("properties", "r", "prefixItems", 7, "type"), {}, {}),
        (("nothing", "type"), {}, {}),
    ],
)
def test_a_fault_is_about_the_schema_of_its_value(place: Any, owned_by: Schema, governed_by: Schema) -> None:
    """The one that has the keyword, and the one that the whole value has to fit."""
    assert owner(TREE, place) == owned_by
    assert governing(TREE, place) == governed_by


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), ""),
        (("a",), "a"),
        (("a", "b"), "a.b"),
        (("a", 0, "b", 12), "a[0].b[12]"),
        ((0, "a"), "[0].a"),
        (("x" * 60,), "x" * 60),
    ],
)
def test_a_place_is_written_as_people_do(path: Any, text: str) -> None:
    assert spelled(path) == text


def test_a_long_name_is_cut() -> None:
    assert len(spelled(("x" * 61,))) <= 61
    assert spelled(("x" * 200,)).startswith("x" * 50)
    assert spelled(("x" * 200,)) != "x" * 200


@pytest.mark.parametrize(
    ("value", "path", "text"),
    [
        ("short", (), '"short"'),
        (5, ("a",), "5"),
        ([1, 2], (), "[1,2]"),
        (None, (), "null"),
        (True, (), "true"),
        ("x" * 38, (), '"' + "x" * 38 + '"'),
        ("x" * 39, (), "a string of 39 characters"),
        ("x" * 41, (), "a string of 41 characters"),
        (["x" * 38], (), "an array of 1"),
        (Decimal("1.5"), (), "a number"),
        (10**60, (), "an integer"),
        ("short", ("api_key",), "a string of 5 characters"),
        ("x", ("a", "password", 0), "a string of 1 character"),
        (5, ("token",), "an integer"),
        ({"secret": "x"}, (), "an object"),
        ({"plain": "x"}, (), '{"plain":"x"}'),
        (['{"secret":1}'], (), "an array of 1"),
        ('{"secret":1}', (), "a string of 12 characters"),
        ("a secret", (), '"a secret"'),
    ],
)
def test_a_value_is_shown_if_it_is_short_and_seems_to_be_no_secret(value: Any, path: Any, text: str) -> None:
    assert printed(value, path) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "null"), (False, "a boolean"), ("", "a string of 0 characters"), ("a", "a string of 1 character"),
     ({}, "an object"), ([1], "an array of 1"), ([], "an array of 0"), (1, "an integer"), (1.5, "a number"),
     (Decimal(1), "a number")],
)  # fmt: skip
def test_a_value_has_a_kind(value: Any, text: str) -> None:
    assert kind_of(value) == text


@pytest.mark.parametrize(
    ("items", "most", "longest", "text"),
    [
        ([], 12, 200, ""),
        (["a"], 12, 200, "a"),
        (["a", "b"], 2, 200, "a, b"),
        (["a", "b", "c"], 2, 200, "a, b, … (3 in all)"),
        (["aaaa", "bbbb", "cccc"], 12, 8, "aaaa, bbbb, … (3 in all)"),
        (["aaaa", "bbbb", "cccc"], 12, 7, "aaaa, … (3 in all)"),
        (["aaaa", "bbbb", "cccc"], 12, 12, "aaaa, bbbb, cccc"),
    ],
)
def test_items_beyond_a_number_or_a_length_are_counted(items: list[str], most: int, longest: int, text: str) -> None:
    assert listed(items, most=most, longest=longest) == text
