"""The schema of a function, and its arguments from JSON."""

import datetime
import enum
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from mcpbridge.base.errors import ArgumentsRefused
from mcpbridge.core.context import CallContext
from mcpbridge.tools.python.output import Result
from mcpbridge.tools.python.signature import Unusable, signature_of


class Unit(enum.Enum):
    CELSIUS = "C"
    KELVIN = "K"


@dataclass
class Place:
    name: str
    height: int = 0


class Node(BaseModel):
    """A tree."""

    children: list["Node"] = []


class Weather(TypedDict):
    high: float
    note: NotRequired[str]


def bound(function: Callable[..., Any], given: dict[str, Any], **known: Any) -> Any:
    """What the function returns for these arguments."""
    signature = signature_of(function, **known)
    arguments = signature.bind(msgspec.json.encode(given), "context")  # type: ignore[arg-type]
    return function(*arguments.positional, **arguments.named)


GOOGLE = """Tell it.

    At length.

    Args:
        city: Where, over
            two lines.
        days (int, optional): How many.

    Returns:
        It.
    """
NUMPY = """Tell it.

    At length.

    Parameters
    ----------
    city : str
        Where, over
        two lines.
    days : int
        How many.

    Returns
    -------
    str
        It.
    """
SPHINX = """Tell it.

    At length.

    :param city: Where, over
        two lines.
    :param int days: How many.
    :returns: It.
    """


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_docstrings_of_every_usual_style_describe_the_tool_and_its_parameters(text: str) -> None:
    def tell(city: str, days: int = 1) -> str:
        return ""

    tell.__doc__ = text
    found = signature_of(tell)
    assert found.description == "Tell it.\n\nAt length."
    assert found.input_schema == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Where, over two lines."},
            "days": {"type": "integer", "default": 1, "description": "How many."},
        },
        "required": ["city"],
        "additionalProperties": False,
    }


def test_what_an_annotation_says_comes_before_the_docstring() -> None:
    def tell(city: Annotated[str, Field(description="Own.", min_length=1)], count: int = Field(3, ge=1)) -> None:
        """Tell it.

        Args:
            city: Other.
            count: Of it.
        """

    properties = signature_of(tell).input_schema["properties"]
    assert properties["city"] == {"type": "string", "description": "Own.", "minLength": 1}
    assert properties["count"] == {"type": "integer", "description": "Of it.", "default": 3, "minimum": 1}


def test_arguments_arrive_as_what_they_are_annotated() -> None:
    def take(
        first: int,
        /,
        day: datetime.date,
        place: Place,
        places: list[Place],
        unit: Unit = Unit.KELVIN,
        pair: tuple[int, str] = (1, "a"),
        weather: Weather | None = None,
        mode: Literal["a", "b"] = "a",
        node: Node | None = None,
        schema: Any = None,
        *,
        model_dump: int = 0,
        **rest: int,
    ) -> Any:
        return locals()

    taken = bound(
        take,
        {
            "first": 1,
            "day": "2026-02-03",
            "place": {"name": "Ulm"},
            "places": [{"name": "Rome", "height": 37}],
            "unit": "C",
            "pair": [2, "b"],
            "weather": {"high": 3},
            "node": {"children": [{}]},
            "schema": {"x": [1]},
            "model_dump": 7,
            "more": 5,
        },
    )
    assert taken["first"] == 1
    assert taken["day"] == datetime.date(2026, 2, 3)
    assert taken["place"] == Place("Ulm")
    assert taken["places"] == [Place("Rome", 37)]
    assert taken["unit"] is Unit.CELSIUS
    assert taken["pair"] == (2, "b")
    assert taken["weather"] == {"high": 3.0}
    assert taken["node"] == Node(children=[Node()])
    assert taken["schema"] == {"x": [1]}
    assert (taken["model_dump"], taken["rest"], taken["mode"]) == (7, {"more": 5}, "a")


def test_what_is_left_out_is_left_to_the_function() -> None:
    marker = object()

    def take(first: Any = marker, second: int = None, third: int = Field(4)) -> Any:  # noqa: RUF013
        return first, second, third

    assert bound(take, {}) == (marker, None, 4)
    assert bound(take, {"second": None}) == (marker, None, 4)


def test_the_context_is_given_and_not_shown() -> None:
    def take(number: int, ctx: "CallContext | None" = None) -> Any:
        return number, ctx

    assert bound(take, {"number": 1}) == (1, "context")
    found = signature_of(take)
    assert list(found.input_schema["properties"]) == ["number"]


def test_further_arguments_are_refused_or_checked_or_taken() -> None:
    def none(a: int = 1) -> None: ...
    def any_(**rest: Any) -> Any:
        return rest

    def numbers(**rest: int) -> Any:
        return rest

    assert signature_of(none).input_schema["additionalProperties"] is False
    assert signature_of(any_).input_schema["additionalProperties"] is True
    assert signature_of(numbers).input_schema["additionalProperties"] == {"type": "integer"}
    assert bound(any_, {"p0": 1, "x": [2]}) == {"p0": 1, "x": [2]}
    with pytest.raises(ArgumentsRefused, match="Invalid arguments: b"):
        bound(none, {"b": 1})
    with pytest.raises(ArgumentsRefused, match="Invalid arguments: b"):
        bound(numbers, {"b": "x"})


def test_a_refusal_names_places_and_no_values() -> None:
    def take(place: Place, secret: int) -> None: ...

    with pytest.raises(ArgumentsRefused) as refused:
        bound(take, {"place": {}, "secret": "hunter2"})
    assert str(refused.value).startswith("Invalid arguments: place.name: Field required; secret: Input should be")
    assert "hunter2" not in str(refused.value)


def test_one_parameter_for_all_arguments() -> None:
    def take(inputs: dict[str, Any]) -> Any:
        return inputs

    assert signature_of(take).input_schema == {"type": "object"}
    assert bound(take, {"a": [1]}) == {"a": [1]}


def test_a_schema_given_by_hand_stands_and_values_arrive_as_they_are() -> None:
    def take(day: datetime.date) -> Any:
        return day

    schema = {"type": "object", "properties": {"day": {"type": "string"}}}
    assert signature_of(take, input_schema=schema).input_schema == schema
    assert bound(take, {"day": "2026-02-03"}, input_schema=schema) == "2026-02-03"
    with pytest.raises(ArgumentsRefused, match="do not fit the function"):
        bound(take, {"week": 3}, input_schema=schema)


def test_functions_come_in_all_shapes() -> None:
    class Counter:
        def __call__(self, number: int) -> int:
            return number + 1

        def method(self, number: int) -> int:
            return number + 2

        @classmethod
        def of_class(cls, number: int) -> int:
            return number + 3

    def add(one: int, number: int) -> int:
        return one + number

    for function, expected in [
        (Counter(), 2),
        (Counter().method, 3),
        (Counter.of_class, 4),
        (partial(add, 4), 5),
        (lambda number: number, 1),
    ]:
        assert bound(function, {"number": 1}) == expected
    assert bound(Place, {"name": "Ulm"}) == Place("Ulm")


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (Weather, {"high", "note"}),
        (Place, {"name", "height"}),
        (Node, {"$ref"}),
        (Generator[int, None, Place], {"name", "height"}),
        (AsyncGenerator[int | Result[Place], None], {"name", "height"}),
        (dict[str, int], {"*"}),
        (str, None),
        (dict[str, Any], None),
        (list[Place], None),
        (int | None, None),
        (None, None),
        (Any, None),
        (object, None),
        (Callable[[], int], None),
    ],
)
def test_what_is_returned_has_a_schema_where_it_is_an_object(hint: Any, expected: set[str] | None) -> None:
    def give() -> None: ...

    give.__annotations__["return"] = hint
    found = signature_of(give).output_schema
    if expected is None:
        assert found is None
        return
    assert found is not None
    assert found["type"] == "object"
    jsonschema_rs.validator_for(found)
    names = set(found.get("properties", {})) | ({"$ref"} & found.keys())
    assert (names or {"*"}) == expected


def test_what_cannot_be_a_tool_says_why() -> None:
    class Strange: ...

    def many(*items: int) -> None: ...
    def strange(thing: Strange) -> None: ...
    def lost(thing: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(Unusable, match=r"`\*items` has no name"):
        signature_of(many)
    with pytest.raises(Unusable, match="Strange"):
        signature_of(strange)
    with pytest.raises(Unusable, match="'Nowhere' is not defined"):
        signature_of(lost)
    with pytest.raises(Unusable, match="input_schema"):
        signature_of(max)


def test_annotations_that_raise_or_lead_back_are_told() -> None:
    def broken(thing: "1/0") -> None: ...  # type: ignore[valid-type]
    def endless(thing: "Endless") -> None: ...

    with pytest.raises(Unusable, match="ZeroDivisionError"):
        signature_of(broken)
    with pytest.raises(Unusable, match="Endless leads back to itself"):
        signature_of(endless)


class Endless(TypedDict):
    inner: NotRequired["Endless"]


def test_a_context_that_only_type_checkers_import_is_known_all_the_same() -> None:
    space: dict[str, Any] = {}
    exec("def take(n: 'int', ctx: 'CallContext'): return n, ctx", space)
    assert bound(space["take"], {"n": 1}) == (1, "context")


def test_typed_dicts_are_read_wherever_they_stand() -> None:
    def take(many: dict[str, list[Weather | None]], one: Annotated[Weather, Field(description="x")]) -> Any:
        return many, one

    given = {"many": {"a": [{"high": 1.0}, None]}, "one": {"high": 2.0, "note": "n"}}
    assert bound(take, given) == (given["many"], given["one"])
    with pytest.raises(ArgumentsRefused, match=r"one\.high"):
        bound(take, {"many": {}, "one": {}})


def test_a_function_that_python_cannot_look_into_takes_a_schema_by_hand() -> None:
    found = signature_of(max, input_schema={"type": "object"})
    assert found.bind(b'{"a":1}', None).named == {"a": 1}
    with pytest.raises(ArgumentsRefused):
        found.bind(b"[]", None)


def test_what_stands_in_order_is_filled_up() -> None:
    def take(a: int = 1, b: int = 2, /, c: int = 3) -> Any:
        return a, b, c

    assert [bound(take, given) for given in ({}, {"b": 5}, {"a": 4, "c": 6})] == [(1, 2, 3), (1, 5, 3), (4, 2, 6)]


_KINDS: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**53), 2**53),
    str: st.text(),
    bool: st.booleans(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    list[int]: st.lists(st.integers(-9, 9), max_size=3),
    dict[str, bool]: st.dictionaries(st.text(max_size=3), st.booleans(), max_size=3),
    int | None: st.none() | st.integers(-9, 9),
    Literal["x", "y"]: st.sampled_from(["x", "y"]),
}


@settings(max_examples=40)
@given(data=st.data(), hints=st.lists(st.sampled_from(list(_KINDS)), min_size=1, max_size=5))
def test_what_the_schema_allows_arrives_as_it_was(data: st.DataObject, hints: list[Any]) -> None:
    """Promise of the module, for values that JSON has itself."""
    names = ["self", "schema", "p0", "_private", "model_config"][: len(hints)]
    source = f"def made({', '.join(names)}): return dict(locals())"
    space: dict[str, Any] = {}
    exec(source, space)
    made = space["made"]
    made.__annotations__.update(zip(names, hints, strict=True))
    values = {name: data.draw(_KINDS[hint]) for name, hint in zip(names, hints, strict=True)}
    jsonschema_rs.validate(signature_of(made).input_schema, values)
    assert bound(made, values) == values
