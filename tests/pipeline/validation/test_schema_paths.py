"""Schemas that make much work of little: they are not checked, or not that deep."""

import json
from typing import Any

import pytest

from mcpbridge.pipeline.validation.schema_check import Uncheckable, compiled
from mcpbridge.pipeline.validation.schema_paths import MAX_PARTS, levels_to_check

Schema = dict[str, Any]


def doubling(times: int, keyword: str = "anyOf", place: str = "#/$defs/d") -> Schema:
    """A schema whose references each lead to two others, so many times."""
    shared: Schema = {"d0": {"type": "integer", "$anchor": "d0"}}
    for number in range(1, times + 1):
        reference = {"$ref": f"{place}{number - 1}"}
        shared[f"d{number}"] = {keyword: [reference, reference], "$anchor": f"d{number}"}
    return {"type": "object", "properties": {"n": {"$ref": f"{place}{times}"}}, "$defs": shared}


@pytest.mark.parametrize("keyword", ["anyOf", "allOf", "oneOf", "prefixItems"])
def test_references_that_double_are_not_followed_far(keyword: str) -> None:
    """A million parts in two kilobytes: one call would hold up all servers."""
    assert levels_to_check(doubling(5, keyword)) == 0
    with pytest.raises(Uncheckable, match="unfold too far"):
        levels_to_check(doubling(30, keyword))


def test_nor_where_a_parameter_is_called_as_the_place_of_definitions() -> None:
    schema = doubling(30)
    schema["properties"] = {"definitions": {"properties": {"$defs": schema["properties"]["n"]}}}
    with pytest.raises(Uncheckable, match="unfold too far"):
        levels_to_check(schema)


def test_references_by_other_names_cannot_hide_it() -> None:
    with pytest.raises(Uncheckable, match="too many"):
        levels_to_check(doubling(30, place="#d"))
    hidden: Schema = {"type": "object", "properties": {"n": {"$id": "http://inner.example/", **doubling(30)}}}
    hidden["$defs"] = {f"d{number}": {} for number in range(31)}
    with pytest.raises(Uncheckable, match="too many"):
        levels_to_check(hidden)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"next": {"$ref": "#"}}},
        {"$ref": "#/$defs/T", "$defs": {"T": {"properties": {"in": {"items": {"$ref": "#/$defs/T"}}}}}},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}, "b": {"$ref": "#/$defs/A"}}, "$defs": {"A": {}}},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/missing"}}},
        {"type": "object", "properties": {"a": {"default": {"$ref": "#"}, "enum": [{"$ref": "#"}]}}},
    ],
)  # fmt: skip
def test_what_ordinary_schemas_refer_to_is_checked_at_any_depth(schema: Schema) -> None:
    assert levels_to_check(schema) == 0


def filters(ways: int) -> Schema:
    """A schema of conditions within conditions, with so many ways to nest them."""
    inner = {f"way{number}": {"$ref": "#/$defs/F"} for number in range(ways)}
    either = [{"type": "object", "properties": {**inner, "n": {"type": "integer"}}}, {"type": "null"}]
    return {"type": "object", "properties": {"f": {"$ref": "#/$defs/F"}}, "$defs": {"F": {"anyOf": either}}}


def nested(levels: int, leaf: object) -> Schema:
    value: Schema = {"n": leaf}
    for _ in range(levels):
        value = {"way0": value}
    return {"f": value}


@pytest.mark.parametrize(("ways", "levels"), [(1, 200), (2, 15), (4, 6), (50, 2)])
def test_what_leads_back_to_itself_in_several_ways_is_checked_some_levels_deep(ways: int, levels: int) -> None:
    schema = filters(ways)
    check = compiled(schema, levels_to_check(schema))
    assert check.is_valid(nested(levels, 5))
    assert not check.is_valid(nested(levels, "x"))
    assert check.faults(nested(levels, "x"), 1000)
    if ways > 1:
        deep = nested(100, "x")
        for look in (check.is_valid, lambda value: check.faults(value, len(json.dumps(value)))):
            with pytest.raises(ValueError, match="nested too deeply"):
                look(deep)


def test_an_enum_of_many_objects_is_not_compared_with_each_value() -> None:
    words = {"properties": {"enum": {"enum": [str(number) for number in range(3000)]}}}
    assert levels_to_check(words) == 0
    with pytest.raises(Uncheckable, match="enum"):
        levels_to_check({"properties": {"n": {"items": {"enum": [[number] for number in range(3000)]}}}})


@pytest.mark.parametrize("pattern", ["((((a{30}){30}){30}){3})", "^([a-zA-Z0-9_-]x?){1,2048}$", "^(.b?){0,500}$"])
def test_a_pattern_that_unfolds_far_is_left_out_and_the_rest_is_checked(pattern: str) -> None:
    schema = {"properties": {"name": {"pattern": pattern, "minLength": 1}, "pattern": {"type": "integer"}}}
    check = compiled(schema)
    assert check.is_valid({"name": "a" * 100_000, "pattern": 1})
    assert not check.is_valid({"name": ""})
    assert not check.is_valid({"pattern": "1"})


def test_a_pattern_that_is_none_breaks_its_schema() -> None:
    with pytest.raises(Uncheckable):
        compiled({"properties": {"name": {"pattern": "("}}})


@pytest.mark.parametrize(("share", "is_checked"), [(0.95, True), (1.05, False)])
def test_what_references_unfold_to_is_counted_part_by_part(share: float, is_checked: bool) -> None:
    """Each schema counts, and each table of schemas by name, as often as it is referred to."""
    one = {"properties": {f"p{at}": {"type": "string"} for at in range(98)}}
    times = int(MAX_PARTS * share / 101)  # the reference, what it leads to, its table, and what is in that
    schema = {"$defs": {"one": one}, "properties": {f"x{at}": {"$ref": "#/$defs/one"} for at in range(times)}}
    if is_checked:
        assert levels_to_check(schema) == 0
    else:
        with pytest.raises(Uncheckable, match="unfold too far"):
            levels_to_check(schema)
