"""The form of a tool's arguments: made from any schema, and what is filled in comes back (issue 20, Catalog)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.app.console.arguments_form import (
    FormProblem,
    arguments_of,
    as_given,
    can_hold,
    controls,
    read_json,
    with_defaults,
    with_values,
)
from mcpbridge.app.console.schema_fields import Field, fields_of


def form_of(schema: Any) -> Field:
    form = fields_of(schema)
    assert form is not None
    return form


def an_object(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def field(form: Field, key: str) -> Field:
    return next(one for one in form.fields if one.key == key)


def filled(form: Field, **values: str) -> dict[str, Any]:
    """The arguments, where controls of the form are filled in by name of argument."""
    return arguments_of(form, {field(form, key).name: text for key, text in values.items()})


# -- schemas of every kind, with values that fit


def _texts() -> st.SearchStrategy[str]:
    return st.text("abc äß\n<>&\"'", min_size=1, max_size=8).filter(str.strip)


def _scalars() -> st.SearchStrategy[tuple[Any, st.SearchStrategy[Any]]]:
    integers = st.integers(-(10**20), 10**20)
    return st.sampled_from(
        [
            ({"type": "string"}, _texts()),
            ({"type": "string", "format": "date"}, st.just("2026-11-28")),
            ({"type": "integer"}, integers),
            ({"type": ["integer", "null"]}, integers),
            ({"type": "number"}, st.floats(allow_nan=False, allow_infinity=False)),
            ({"type": "boolean"}, st.booleans()),
            ({"enum": ["a", 1, None, {"x": []}]}, st.sampled_from(["a", 1, None, {"x": []}])),
            ({"const": 7}, st.just(7)),
            ({"anyOf": [{"type": "string"}, {"type": "null"}]}, _texts()),
            ({"oneOf": [{"const": "x", "title": "Ex"}, {"const": "y"}]}, st.sampled_from(["x", "y"])),
            ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, st.integers() | st.lists(st.integers())),
            ({}, st.dictionaries(st.text(max_size=3), st.integers(), max_size=2)),
            ({"type": "object"}, st.dictionaries(st.text(max_size=3), st.booleans(), max_size=2)),
            ({"type": "array", "prefixItems": [{}, {}]}, st.lists(st.integers(), max_size=2)),
        ]
    )


Kinds = tuple[Any, st.SearchStrategy[Any]]
"""A schema, and values that fit it."""


@st.composite
def kinds(draw: st.DrawFn, depth: int = 3) -> Kinds:
    kind = draw(st.sampled_from(["scalar", "object", "list"] if depth else ["scalar"]))
    if kind == "scalar":
        return draw(_scalars())
    if kind == "list":
        schema, values = draw(kinds(depth=depth - 1))
        return {"type": "array", "items": schema}, st.lists(values, max_size=3)
    return draw(objects(depth=depth - 1))


@st.composite
def objects(draw: st.DrawFn, depth: int = 2) -> Kinds:
    keys = draw(st.lists(st.text(min_size=0, max_size=5), min_size=1, max_size=4, unique=True))
    parts = {key: draw(kinds(depth=depth)) for key in keys}
    required = draw(st.sets(st.sampled_from(keys)))
    schema = {"type": "object", "properties": {key: part for key, (part, _) in parts.items()}, "required": [*required]}
    values = {key: value for key, (_, value) in parts.items()}
    optional = {key: value for key, value in values.items() if key not in required}
    return schema, st.fixed_dictionaries({key: values[key] for key in required}, optional=optional)


@given(objects(), st.data())
def test_what_a_form_holds_comes_back_as_it_is(kind: Kinds, data: st.DataObject) -> None:
    schema, values = kind
    form, arguments = form_of(schema), data.draw(values)
    sent = dict(controls(with_values(form, arguments)))
    assert arguments_of(form, sent) == arguments
    assert can_hold(form, arguments)
    assert arguments_of(form, dict(controls(as_given(form, sent, {})))) == arguments


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(
                    [
                        *("type", "properties", "items", "required", "enum", "const", "anyOf", "oneOf", "allOf"),
                        *("$ref", "$defs", "minItems", "title", "default", "enumNames", "x"),
                    ]
                ),
                inner,
                max_size=5,
            )
        ),
        max_leaves=25,
    ),
    st.dictionaries(st.from_regex(r"a(\.[0-9]{1,2}){0,3}", fullmatch=True), st.text(max_size=5), max_size=6),
)
def test_a_schema_may_be_anything(schema: Any, given_: dict[str, str]) -> None:
    """Schemas come from servers; also what a browser sends may be anything."""
    form = fields_of(schema if isinstance(schema, dict) else {})
    if form is None:
        return
    list(controls(with_defaults(form)))
    try:
        assert isinstance(arguments_of(form, given_), dict)
    except FormProblem as problem:
        as_given(form, given_, problem.problems)


def test_arguments_that_lead_back_to_themselves_have_a_box() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "name": {"type": "string"}}}
    form = form_of({"type": "object", "properties": {"start": {"$ref": "#/$defs/node"}}, "$defs": {"node": node}})
    names = [name for name, _ in controls(with_values(form, {"start": {"name": "a", "next": {"name": "b"}}}))]
    assert len(names) < 20
    assert can_hold(form, {"start": {"name": "a", "next": {"name": "b"}}})


def test_references_alternatives_and_nulls_get_plain_controls() -> None:
    schema = an_object(
        by_ref={"$ref": "#/$defs/size"},
        nullable={"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
        several={"oneOf": [{"const": 1, "title": "one"}, {"const": 2}]},
        either={"anyOf": [{"type": "string"}, {"type": "object"}]},
    ) | {"$defs": {"size": {"type": "string", "enum": ["s", "m"]}}}
    form = form_of(schema)
    kinds = {one.key: one.kind for one in form.fields}
    assert kinds == {"by_ref": "choice", "nullable": "integer", "several": "choice", "either": "json"}
    assert [choice.label for choice in field(form, "several").choices] == ["one", "2"]
    assert filled(form, by_ref='"m"', several="2", either='"x"') == {"by_ref": "m", "several": 2, "either": "x"}


def test_what_is_blank_is_left_out_and_what_is_required_is_asked_for() -> None:
    address = an_object("city", city={"type": "string"}, zip={"type": "string"})
    form = form_of(an_object("name", name={"type": "string"}, age={"type": "integer"}, address=address))
    assert filled(form, name="Ada") == {"name": "Ada"}
    with pytest.raises(FormProblem) as caught:
        filled(form, age="4")
    assert caught.value.problems == {field(form, "name").name: "is required"}
    zip_ = field(field(form, "address"), "zip").name
    with pytest.raises(FormProblem) as caught:
        arguments_of(form, {field(form, "name").name: "Ada", zip_: "1"})
    assert list(caught.value.problems) == [field(field(form, "address"), "city").name]


def test_what_must_be_there_and_may_be_null_is_null_when_it_is_blank() -> None:
    form = form_of(an_object("a", a={"type": ["string", "null"]}))
    assert filled(form) == {"a": None}
    inner = form_of(an_object(o=an_object("a", a={"type": ["string", "null"]})))
    assert filled(inner) == {}, "an object of blanks is left out"


@pytest.mark.parametrize(
    ("schema", "text", "problem"),
    [
        ({"type": "integer"}, "1.5", "whole number"),
        ({"type": "integer"}, "x", "whole number"),
        ({"type": "integer"}, "true", "whole number"),
        ({"type": "number"}, '"1"', "must be a number"),
        ({"type": "number"}, "NaN", "must be a number"),
        ({"enum": ["a"]}, '"b"', "none of the choices"),
        ({}, "{", "must be JSON"),
        ({}, "NaN", "must be JSON"),
        ({}, "[" * 5000, "must be JSON"),
    ],
)
def test_what_is_wrong_is_said_beside_its_control(schema: Any, text: str, problem: str) -> None:
    form = form_of(an_object(x=schema))
    name = field(form, "x").name
    with pytest.raises(FormProblem) as caught:
        arguments_of(form, {name: text})
    assert problem in caught.value.problems[name]
    shown = as_given(form, {name: text}, caught.value.problems)
    assert (field(shown, "x").value, field(shown, "x").problem) == (text, caught.value.problems[name])


def test_numbers_stay_as_they_were_typed() -> None:
    form = form_of(an_object(n={"type": "integer"}, x={"type": "number"}))
    assert filled(form, n="123456789012345678901234567890")["n"] == 123456789012345678901234567890
    assert str(filled(form, x="1e400")["x"]) == "1E+400"


def test_defaults_are_filled_in_and_required_lists_begin_with_as_many_items_as_they_need() -> None:
    schema = an_object(
        "tags",
        unit={"type": "string", "default": "metric"},
        days={"type": "integer", "default": 3},
        deep={"type": "boolean", "default": False},
        tags={"type": "array", "items": {"type": "string"}, "minItems": 2},
        many={"type": "array", "items": {"type": "integer"}, "default": [1, 2]},
        where={"type": "object", "properties": {"city": {"type": "string"}}, "default": {"city": "Rome"}},
    )
    form = with_defaults(form_of(schema))
    assert len(field(form, "tags").fields) == 2
    assert arguments_of(form_of(schema), dict(controls(form))) == {
        "unit": "metric",
        "days": 3,
        "deep": False,
        "tags": [],
        "many": [1, 2],
        "where": {"city": "Rome"},
    }


def test_items_may_be_added_and_taken_out_anywhere() -> None:
    """What the page does: items keep their numbers, and gaps do not matter."""
    people = {"type": "array", "items": an_object("name", name={"type": "string"}, age={"type": "integer"})}
    form = form_of(an_object(people=people))
    of = field(form, "people")
    assert of.item is not None
    name, age = (field(of.item, key).name.removeprefix(of.item_name) for key in ("name", "age"))
    given_ = {
        f"{of.name}.7{name}": "Bo",
        f"{of.name}.2{name}": "Al",
        f"{of.name}.2{age}": "4",
        f"{of.name}.x{name}": "-",
    }
    assert arguments_of(form, given_) == {"people": [{"name": "Al", "age": 4}, {"name": "Bo"}]}


def test_a_text_that_a_page_would_change_is_not_put_into_a_control() -> None:
    """Characters that cannot be seen are shown as their codes, so a control with them would send something else."""
    form = form_of(an_object(q={"type": "string", "default": "a\u202eb"}))
    assert field(with_defaults(form), "q").value == ""
    assert not can_hold(form, {"q": "a\u202eb"})
    assert not can_hold(form, {"q": "a", "more": 1})
    assert not can_hold(form, {"q": ""})
    assert can_hold(form, {"q": "a\nb"})


def test_too_many_arguments_for_a_form_are_left_to_the_box() -> None:
    many = {f"a{number}": {"type": "string"} for number in range(300)}
    assert fields_of({"type": "object", "properties": many}) is None


def test_the_box_takes_an_object() -> None:
    assert read_json(' {"a": 1e400, "b": [null]} ')["b"] == [None]
    assert read_json("  ") == {}
    for text in ("[1]", "{", "nul", '{"a": NaN}', "1", "\ud800"):
        with pytest.raises(FormProblem):
            read_json(text)
