"""Tools that are said step by step, with schemas by hand, or that wait for people."""

import json
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any, TypedDict

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from mcpbridge import Bridge, CallContext, Context, ToolBuilder, ToolCall, adapt_function, human_tool, manual_tool
from mcpbridge.base.errors import ArgumentsRefused, CallFailed, ConfigError
from mcpbridge.library.define_tools.schemas import JSON_TYPES
from mcpbridge.tools.human_in_the_loop.functions import Pause
from mcpbridge.tools.python.output import check_of


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    """Somewhere."""

    x: int
    y: int = 0


class Order(BaseModel):
    """What is ordered."""

    item: str
    count: int = 1
    at: Point | None = None


@dataclass
class Receipt:
    total: float


class Search(TypedDict):
    query: str


@asynccontextmanager
async def bridge_with(tmp_path: Path, *tools: Any) -> AsyncGenerator[Bridge]:
    """A bridge with these tools and nothing else."""
    config = {"store": {"path": str(tmp_path / "store.db")}, "approval": {"ask": ["client"]}}
    with anyio.fail_after(60):
        async with Bridge.open(config, tools=tools, remember=False, environ={}) as bridge:
            yield bridge


async def test_a_tool_is_said_step_by_step(tmp_path: Path) -> None:
    def look_up(city: str, day: date, colour: Colour, place: Point, *, unit: str, days: int) -> str:
        """Look the weather up.

        Args:
            city: Not this one, as it is said.
            days: How many days.
        """
        assert isinstance(day, date)
        assert isinstance(place, Point)
        return f"{city} {day:%d} {colour.name} {place.x} {unit} {days}"

    built = (
        ToolBuilder("weather")
        .description("The weather.")
        .param("city", "string", "Name of a city.")
        .param("day", date)
        .param("colour", Colour, default=Colour.RED)
        .param("place", Point, required=False, default=Point(x=5))
        .param("unit", str, enum=["C", "F"], default="C")
        .param("days", {"type": "integer", "minimum": 1}, default=3)
        .risk_level("low")
        .timeout("20s")
        .requires_approval(False)
        .tags("weather")
        .tags("data")
        .annotations(readOnlyHint=True)
        .options(max_concurrent=2)
        .output(str)
        .handler(look_up)
        .build()
    )
    schema = built.definition["inputSchema"]
    assert schema["required"] == ["city", "day"]
    assert schema["additionalProperties"] is False
    properties = schema["properties"]
    assert properties["city"] == {"type": "string", "description": "Name of a city."}
    assert properties["unit"] == {"type": "string", "enum": ["C", "F"], "default": "C"}
    assert properties["days"] == {"type": "integer", "minimum": 1, "description": "How many days.", "default": 3}
    assert properties["colour"] == {"type": "string", "enum": ["red", "blue"], "default": "red"}
    assert properties["place"]["properties"].keys() == {"x", "y"}
    assert properties["place"]["default"] == {"x": 5, "y": 0}
    assert built.definition["outputSchema"]["properties"] == {"result": {"type": "string"}}
    settings = built.given()[1].settings
    assert (settings.risk, settings.call_timeout, settings.tags) == ("low", 20, ["weather", "data"])
    assert (settings.permission, settings.max_concurrent) == (None, 2)
    async with bridge_with(tmp_path, built) as bridge:
        result = await bridge.call(built.call_with({"city": "X", "day": "2020-01-02"}))
        assert result.value == "X 02 RED 5 C 3"
        assert result.structured == {"result": "X 02 RED 5 C 3"}
        refused = await bridge.call(built.call_with({"city": "X", "day": "2020-01-02", "unit": "K"}))
        assert refused.is_error
        assert "unit" in refused.text
        no_date = await bridge.call(built.call_with({"city": "X", "day": "someday"}))
        assert "Invalid arguments: day: " in no_date.text


async def test_what_is_none_by_default_may_be_none(tmp_path: Path) -> None:
    def show(when: date | None, unit: str | None) -> str:
        return f"{when!r} {unit!r}"

    builder = ToolBuilder("show").param("when", date, default=None).param("unit", "string", default=None)
    built = builder.handler(show).build()
    async with bridge_with(tmp_path, built) as bridge:
        assert (await bridge.call(built.call_with({}))).text == "None None"
        assert (await bridge.call(built.call_with({"when": None, "unit": "C"}))).text == "None 'C'"
        found = await bridge.call(built.call_with({"when": "2020-01-02"}))
        assert found.text == "datetime.date(2020, 1, 2) None"


async def test_steps_leave_the_builder_as_it_was(tmp_path: Path) -> None:
    base = ToolBuilder("base").param("x", int).tags("common")
    one, two = base.handler(lambda x: x), base.param("y", int).tags("more").handler(lambda x, y: x + y)
    assert one.build().definition["inputSchema"]["properties"].keys() == {"x"}
    assert two.build().given()[1].settings.tags == ["common", "more"]
    assert base.function is None


async def test_output_and_events_are_enforced(tmp_path: Path) -> None:
    def steps(n: int) -> Generator[Any, None, Any]:
        yield {"at": n} if n != 1 else "text"
        return n if n != 2 else "two"

    built = ToolBuilder("steps").param("n", "integer").output(int).events(dict[str, int]).handler(steps).build()
    receipt = ToolBuilder("receipt").output(Receipt).handler(lambda: Receipt(2.5)).build()
    by_hand = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    hand = ToolBuilder("hand").output(by_hand).handler(lambda: {"ok": "yes"}).build()
    async with bridge_with(tmp_path, built, receipt, hand) as bridge:
        assert (await bridge.call(built.call_with({"n": 5}))).value == 5
        assert "does not fit the event schema" in (await bridge.call(built.call_with({"n": 1}))).text
        assert "does not fit the output schema" in (await bridge.call(built.call_with({"n": 2}))).text
        assert (await bridge.call(receipt.call_with({}))).value == Receipt(2.5)
        assert "does not fit the output schema" in (await bridge.call(hand.call_with({}))).text


async def test_handlers_may_take_contexts_and_all_arguments_at_once(tmp_path: Path) -> None:
    def begin(call: CallContext) -> dict[str, str]:
        return {"begun": call.run}

    def kept(context: Context, x: int) -> str:
        return f"{x} {context.value['begun']}"

    def whole(arguments: dict[str, Any], context: CallContext) -> str:
        assert isinstance(arguments["d"], date)
        return f"{arguments['x']} {context.run}"

    one = ToolBuilder("one").param("x", int).context(begin).handler(kept).build()
    two = ToolBuilder("two").param("x", int).param("d", date).handler(whole).build()
    rest = ToolBuilder("rest").param("x", int).handler(lambda **named: str(named)).build()
    async with bridge_with(tmp_path, one, two, rest) as bridge:
        assert (await bridge.call(one.call_with({"x": 1}), run="r")).text == "1 r"
        assert (await bridge.call(two.call_with({"x": 2, "d": "2020-01-01"}), run="s")).text == "2 s"
        assert (await bridge.call(rest.call_with({"x": 3}))).text == "{'x': 3}"


def takes(x: int, context: CallContext | None = None) -> int:
    return x


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: ToolBuilder("x").build(), r"x: this tool has no handler\n.*`\.manual\(\)`"),
        (lambda: ToolBuilder("x y").handler(takes).build(), "'x y' is no name for a tool"),
        (lambda: ToolBuilder("x").param("a").param("a"), "x: a: this parameter exists already"),
        (lambda: ToolBuilder("x").param("a", required=True, default=1), "what has a default can be left out"),
        (lambda: ToolBuilder("x").param("a", enum=[]), "`enum` is empty"),
        (lambda: ToolBuilder("x").param("a", "int").handler(takes).build(), "'int' is no type\n.*'integer'"),
        (lambda: ToolBuilder("x").param("a", "strin").handler(takes).build(), "Did you mean 'string'"),
        (lambda: ToolBuilder("x").param("a", object()).handler(takes).build(), "is no type that a JSON Schema"),
        (lambda: ToolBuilder("x").param("a", {"type": 3}).handler(takes).build(), "this is no JSON Schema"),
        (lambda: ToolBuilder("x").param("x", int, default="no").handler(takes).build(), "its default is not"),
        (lambda: ToolBuilder("x").param("x", int, enum=["a"]).handler(takes).build(), "`enum` has what its type"),
        (lambda: ToolBuilder("x").param("x", int, enum=[1], default=2).handler(takes).build(), "its default is not"),
        (lambda: ToolBuilder("x").param("x", default=object()).handler(takes).build(), "is no JSON"),
        (lambda: ToolBuilder("x").param("y").handler(takes).build(), "does not take the parameter 'y'; it takes x"),
        (lambda: ToolBuilder("x").handler(takes).build(), "the handler needs 'x', which is no parameter of the tool"),
        (
            lambda: ToolBuilder("x").param("x", int, required=False).handler(takes).build(),
            "the handler needs 'x', which may be left out",
        ),
        (lambda: ToolBuilder("x").handler(lambda *many: 1).build(), r"takes `\*many`"),
        (lambda: ToolBuilder("x").handler(takes).manual(), "the executor was set before"),
        (lambda: ToolBuilder("x").handler(3), "a handler is a function, not int"),  # type: ignore[arg-type]
        (lambda: ToolBuilder("x").manual().events("string").build(), "what has no handler yields no events"),
        (lambda: ToolBuilder("x").options(tag=["a"]).manual().build(), "no option `tag` of tools"),
        (lambda: ToolBuilder("x").output("nothing").manual().build(), "'nothing' is no type"),
        (lambda: adapt_function(takes, input_schema={"type": "array"}), "arguments are an object, not 'array'"),
        (lambda: adapt_function(takes, args=int), "arguments are an object, not 'integer'"),
        (lambda: adapt_function(3), "made of a callable, not of int"),  # type: ignore[arg-type]
        (lambda: adapt_function(takes, output_schema={"type": 1}), "output_schema: this is no JSON Schema"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_does_not_fit_together_is_told_when_it_is_built(make: Callable[[], object], match: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){match}"):
        make()


names = st.from_regex(r"[a-z_][a-z0-9_]{0,10}", fullmatch=True)
json_values = st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.text(), st.lists(st.integers(0, 9)))
TYPES: dict[str, type] = {"null": type(None), "boolean": bool, "integer": int, "string": str, "array": list}


def type_of(value: object) -> str:
    return next(name for name, kind in TYPES.items() if isinstance(value, kind))


@given(st.dictionaries(names, st.tuples(st.sampled_from(JSON_TYPES), st.text(), st.booleans()), max_size=6))
def test_schemas_say_what_was_said(said: dict[str, tuple[str, str, bool]]) -> None:
    builder = ToolBuilder("any")
    for name, (kind, description, required) in said.items():
        builder = builder.param(name, kind, description, required=required)
    schema = builder.handler(lambda **_: None).build().definition["inputSchema"]
    assert {name: one["type"] for name, one in schema["properties"].items()} == {n: k for n, (k, _, _) in said.items()}
    assert set(schema.get("required", ())) == {name for name, (_, _, required) in said.items() if required}
    for name, (_, description, _) in said.items():
        assert schema["properties"][name].get("description", "") == description
    check_of(schema)


@given(st.dictionaries(names, st.tuples(json_values, st.lists(json_values, max_size=3)), max_size=4))
def test_defaults_and_choices_are_what_the_schema_allows(said: dict[str, tuple[Any, list[Any]]]) -> None:
    builder = ToolBuilder("any")
    for name, (default, others) in said.items():
        choices = [default, *(one for one in others if type_of(one) == type_of(default))]
        builder = builder.param(name, type_of(default), enum=choices, default=default)
    schema = builder.handler(lambda **_: None).build().definition["inputSchema"]
    defaults = {name: one["default"] for name, one in schema["properties"].items()}
    assert defaults == {name: default for name, (default, _) in said.items()}
    assert check_of(schema)(defaults) == ""


# -- a callable with schemas by hand


async def test_an_adapted_callable_has_the_schemas_that_are_said(tmp_path: Path) -> None:
    row = {"type": "object", "properties": {"q": {"type": "string"}, "n": {"type": "integer"}}, "required": ["q"]}
    out = {"type": "array", "items": {"type": "string"}}

    def search(q: str, n: int = 2) -> Any:
        """Search."""
        return [q] * n if n < 5 else "many"

    found = adapt_function(search, name="find", input_schema=row, output_schema=out, returns=list)
    sums = adapt_function(max, name="largest", input_schema={"type": "object"}, description="Any.")
    plain = adapt_function(search, name="plain")
    assert found.definition["inputSchema"] == row
    assert found.definition["description"] == "Search."
    assert sums.definition["inputSchema"] == {"type": "object"}
    assert plain.definition["inputSchema"]["required"] == ["q"]
    async with bridge_with(tmp_path, found, plain) as bridge:
        assert (await bridge.call(found.call_with({"q": "a"}))).value == ["a", "a"]
        assert "does not fit the output schema" in (await bridge.call(found.call_with({"q": "a", "n": 5}))).text
        assert (await bridge.call(found.call_with({"n": 5}))).is_error


async def test_types_of_arguments_and_results_flow(tmp_path: Path) -> None:
    def order(what: Order) -> Receipt:
        assert isinstance(what, Order)
        return Receipt(2.5 * what.count)

    def by_name(item: str, count: int, at: Any) -> dict[str, Any]:
        return {"total": count}

    ordered = adapt_function(order, args=Order, returns=Receipt)
    named = adapt_function(by_name, args=Order, returns=Receipt)
    assert ordered.definition["inputSchema"]["properties"].keys() == {"item", "count", "at"}
    assert ordered.definition["outputSchema"]["properties"].keys() == {"total"}
    async with bridge_with(tmp_path, ordered, named) as bridge:
        assert (await bridge.call(ordered.call_with(Order(item="x", count=2)))).value == Receipt(5)
        assert (await bridge.call(named.call_with(Order(item="x")))).value == Receipt(1)
        refused = await bridge.call_tool("order", {"item": "x", "at": {"x": "no"}})
        assert refused.is_error
    parsed = ordered.parse(ToolCall("order", {"item": "x", "at": {"x": 1}}))
    assert parsed.arguments == Order(item="x", at=Point(x=1))
    with pytest.raises(ArgumentsRefused, match="item"):
        ordered.parse(ToolCall("order", {}))
    searching = adapt_function(lambda query: query, name="s", args=Search)
    assert searching.parse(ToolCall("s", {"query": "x"})).arguments == {"query": "x"}


# -- tools that wait for people


async def test_a_manual_tool_has_no_handler(tmp_path: Path) -> None:
    typed = manual_tool("typed", description="Typed.", args=Order, returns=Receipt, reason="How much is it?")
    built = ToolBuilder("built").param("x", int).output(int).manual(expires_in="1h").build()
    assert typed.definition["inputSchema"]["required"] == ["item"]
    asked = ToolBuilder("asked").requires_approval(lambda _: True).manual().build()
    async with bridge_with(tmp_path, typed, built, asked) as bridge:
        paused = await bridge.call(typed.call_with(Order(item="x")))
        assert paused.paused is not None
        assert (paused.paused.kind, paused.paused.reason) == ("manual", "How much is it?")
        with pytest.raises(CallFailed, match="paused"):
            _ = paused.value
        result = await bridge.resume(paused.paused.id, {"total": 3})
        assert result.structured == {"total": 3}
        assert (await bridge.call(asked.call_with({}))).is_error, "nobody is there who could agree"
        other = await bridge.call(built.call_with({"x": 1}))
        assert other.paused is not None
        assert 3000 < other.paused.expires - other.paused.created < 3700


async def test_a_tool_with_a_human_in_the_loop_is_called_as_its_function_is(tmp_path: Path) -> None:
    def ask(amount: int, context: CallContext | None = None) -> str | Pause | None:
        return "small" if amount < 10 else Pause("Is that right?")

    async def answered(response: bool) -> str:
        return "yes" if response else "no"

    human = human_tool(ask, answered, name="transfer", tags=["money"])
    built = ToolBuilder("built").param("amount", "integer").human(ask, answered, reason="Well?").build()
    assert human.given()[1].settings.tags == ["money"]
    async with bridge_with(tmp_path, human, built) as bridge:
        assert (await bridge.call(human.call(1))).value == "small"
        paused = await bridge.call(human.call(amount=50))
        assert paused.paused is not None
        assert paused.paused.reason == "Is that right?"
        assert (await bridge.resume(paused.paused.id, True)).text == "yes"
        assert (await bridge.call(built.call_with({"amount": 5}))).text == "small"
    assert json.dumps(built.definition["inputSchema"])
