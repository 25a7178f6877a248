"""Functions as tools of a program: what clients see of them, what calls of them give, and who has to agree."""

import asyncio
import functools
import json
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager
from datetime import date
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from pydantic import BaseModel, Field

from mcpbridge import Bridge, CallContext, Context, Result, ToolCall, ToolResult, tool
from mcpbridge.base.errors import ArgumentsRefused, CallFailed, ConfigError
from mcpbridge.library.define_tools.define import all_given, given_of
from mcpbridge.pipeline.approvals.approvers import ApprovalHandler
from mcpbridge.pipeline.approvals.request import ApprovalRequest
from mcpbridge.tools.python.signature import signature_of


class Place(BaseModel):
    """Where."""

    city: str
    country: str = "DE"


class Forecast(TypedDict):
    high: float
    low: float


class Unit(Enum):
    C = "celsius"
    F = "fahrenheit"


@asynccontextmanager
async def bridge_with(
    tmp_path: Path, *tools: Any, approver: ApprovalHandler | None = None, **config: Any
) -> AsyncGenerator[Bridge]:
    """A bridge with these tools and nothing else."""
    config = {"store": {"path": str(tmp_path / "store.db")}, **config}
    with anyio.fail_after(60):
        async with Bridge.open(config, tools=tools, approver=approver, remember=False, environ={}) as bridge:
            yield bridge


async def definition_of(bridge: Bridge, name: str) -> Mapping[str, Any]:
    return next(one for one in (await bridge.request("tools/list", {}))["tools"] if one["name"] == name)


@tool
def add(a: int, b: int = 2) -> int:
    """Add two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


async def test_types_defaults_and_the_docstring_make_the_schema(tmp_path: Path) -> None:
    async with bridge_with(tmp_path, add) as bridge:
        shown = await definition_of(bridge, "add")
        assert add.definition["inputSchema"] == {**shown["inputSchema"], "additionalProperties": False}
        assert shown["description"] == "Add two numbers."
        assert shown["inputSchema"]["properties"] == {
            "a": {"description": "The first.", "type": "integer"},
            "b": {"default": 2, "description": "The second.", "type": "integer"},
        }
        assert shown["inputSchema"]["required"] == ["a"]
        assert (await bridge.request("tools/call", {"name": "add", "arguments": {"a": 1}}))["content"][0]["text"] == "3"


def test_a_decorated_function_stays_the_function_that_it_was() -> None:
    assert add(1, b=5) == 6
    assert add.__name__ == "add"
    assert add.__doc__ is not None
    assert add.__doc__.startswith("Add")
    assert repr(add) == "<ToolFunction add>"

    @tool
    async def later() -> int:
        return 1

    @tool
    def steps() -> Generator[str, None, int]:
        yield "one"
        return 1

    assert asyncio.run(later()) == 1
    assert list(steps()) == ["one"]


async def test_values_of_results_are_of_the_type_that_the_function_returns(tmp_path: Path) -> None:
    @tool
    async def when(day: date, unit: Unit, limit: Decimal) -> date:
        assert (unit, limit) == (Unit.F, Decimal("1.50"))
        return day

    @tool
    def where(place: Place) -> Place:
        return Place(city=place.city.upper())

    @tool
    def forecast() -> Forecast:
        return {"high": 3, "low": 1.5}

    @tool
    def several(many: list[int], *, flag: bool = False) -> list[Place]:
        return [Place(city=str(one)) for one in many] if flag else []

    @tool
    def nothing() -> None:
        """Nothing."""

    @tool
    def perhaps(text: str | None) -> str | None:
        return text

    @tool
    def rows() -> set[int]:
        return {1, 2}

    async with bridge_with(tmp_path, when, where, forecast, several, nothing, perhaps, rows, add) as bridge:
        assert (await bridge.call(when.call(date(2020, 1, 2), Unit.F, limit=Decimal("1.50")))).value == date(2020, 1, 2)
        assert (await bridge.call(where.call(Place(city="x")))).value == Place(city="X")
        assert (await bridge.call(forecast.call())).value == {"high": 3, "low": 1.5}
        assert (await bridge.call(several.call([1, 2], flag=True))).value == [Place(city="1"), Place(city="2")]
        assert (await bridge.call(several.call([1]))).value == []
        assert (await bridge.call(nothing.call())).value is None
        assert (await bridge.call(perhaps.call("null"))).value == "null"
        assert (await bridge.call(perhaps.call("12"))).value == "12"
        assert (await bridge.call(perhaps.call(None))).value is None
        assert (await bridge.call(rows.call())).value == {1, 2}
        assert (await bridge.call(add.call(1))).value == 3


async def test_a_value_of_another_type_is_an_error_that_says_so(tmp_path: Path) -> None:
    @tool
    def lies() -> int:
        return "no number"  # pyright: ignore[reportReturnType]

    @tool
    def image() -> bytes:
        return b"\x89PNG\r\n\x1a\n"

    async with bridge_with(tmp_path, lies, image) as bridge:
        found = await bridge.call(lies.call())
        with pytest.raises(CallFailed, match=r"The tool 'lies' is at fault: .* expected int"):
            _ = found.value
        with pytest.raises(CallFailed, match="bytes, which are in `content`"):
            _ = (await bridge.call(image.call())).value


async def test_the_value_of_a_generator_is_what_it_returns(tmp_path: Path) -> None:
    @tool
    def walk(steps: int) -> Generator[dict[str, int], None, Forecast]:
        for step in range(steps):
            yield {"progress": step + 1}
        return {"high": steps, "low": 0}

    @tool
    async def fly() -> AsyncGenerator[str | Result[list[int]]]:
        yield "up"
        yield Result([1])

    @tool
    async def fly_with_papers() -> AsyncGenerator[str | Result[list[int]]]:
        yield Result(ToolResult([1], artifacts=["papers"]))

    heard: list[Mapping[str, Any]] = []
    async with bridge_with(tmp_path, walk, fly, fly_with_papers) as bridge:
        found = await bridge.call_tool("walk", {"steps": 2}, on_progress=heard.append)
        assert [one["progress"] for one in heard] == [1, 2]
        assert found.structured == {"high": 2, "low": 0}
        assert (await bridge.call(walk.call(1))).value == {"high": 1, "low": 0}
        assert (await bridge.call(fly.call())).value == [1]
        with_papers = await bridge.call(fly_with_papers.call())
        assert (with_papers.value, list(with_papers.artifacts)) == ([1], ["papers"])


async def test_contexts_are_no_part_of_calls_that_are_made_of_arguments(tmp_path: Path) -> None:
    @tool
    def first(context: CallContext, x: int) -> str:
        return f"{x} {context.run}"

    @tool(context_init=lambda call: {"begun": call.run})
    def keeps(context: Context, x: int) -> str:
        return f"{x} {context.value['begun']}"

    async with bridge_with(tmp_path, first, keeps) as bridge:
        assert (await bridge.call(first.call(1), run="r")).value == "1 r"
        assert (await bridge.call(keeps.call(x=2), run="s")).value == "2 s"
    with pytest.raises(ConfigError, match="no parameter that is annotated as `Context"):
        tool(name="x", context_init=lambda _: 1)(lambda x: x)


async def test_one_parameter_that_stands_for_all_arguments_gets_them(tmp_path: Path) -> None:
    @tool(input_schema={"type": "object", "properties": {"x": {"type": "integer"}}})
    def whole(arguments: dict[str, Any]) -> str:
        return json.dumps(arguments)

    @tool
    def rest(first: str, /, **others: date) -> str:
        return f"{first} {sorted(others.items())}"

    assert whole.call({"x": 1}).arguments == {"x": 1}
    assert rest.call("a", b=date(2020, 1, 2)).arguments == {"first": "a", "b": "2020-01-02"}
    async with bridge_with(tmp_path, whole, rest) as bridge:
        assert (await bridge.call(whole.call({"x": 1}))).value == '{"x": 1}'
        assert "2020, 1, 2" in (await bridge.call(rest.call("a", b=date(2020, 1, 2)))).value


def test_arguments_that_the_function_does_not_take_are_no_call() -> None:
    with pytest.raises(TypeError, match="missing a required argument: 'a'"):
        add.call()  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="unexpected keyword argument 'c'"):
        add.call(1, c=2)  # pyright: ignore[reportCallIssue]

    @tool(input_schema={"type": "object"})
    def anything(one: Any) -> None:
        """Anything."""

    with pytest.raises(ArgumentsRefused, match="no JSON"):
        anything.call(object())


numbers = st.integers(-(2**53), 2**53)
places = st.builds(Place, city=st.text(), country=st.text())


@tool
def takes(
    number: int,
    ratio: float,
    text: str,
    data: bytes,
    days: list[date],
    places: dict[str, Place],
    choice: Literal["a", "b"] | None = None,
    *,
    many: tuple[int, ...] = (),
    unit: Unit = Unit.C,
) -> None:
    """Take values of many types."""


@given(
    st.tuples(
        numbers,
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(),
        st.text().map(str.encode),
        st.lists(st.dates()),
        st.dictionaries(st.text(), places),
    ),
    st.fixed_dictionaries(
        {}, optional={"choice": st.sampled_from(["a", "b", None]), "many": st.tuples(numbers), "unit": st.just(Unit.F)}
    ),
)
def test_arguments_of_calls_arrive_as_what_they_were(positional: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Promise of the library: `tool.call(...)` by way of JSON is `tool(...)`."""
    arguments = json.dumps(takes.call(*positional, **named).arguments).encode()
    bound = signature_of(takes.__wrapped__).bind(arguments, None)
    names = ["number", "ratio", "text", "data", "days", "places"]
    expected = {"choice": None, "many": (), "unit": Unit.C, **dict(zip(names, positional, strict=True)), **named}
    assert {"choice": None, "many": (), "unit": Unit.C, **bound.named} == expected


def test_a_model_s_call_is_known_again_by_each_of_its_names() -> None:
    for name in ("add", "tools/add", "tools__add"):
        assert add.is_call(ToolCall(name, {}))
    assert not add.is_call(ToolCall("other__add", {}))
    parsed = add.parse(ToolCall("tools/add", {"a": 1}, id="c1"))
    assert (parsed.id, parsed.arguments) == ("c1", {"a": 1})
    assert parsed.returns is not None
    assert parsed.returns("7") == 7
    with pytest.raises(ArgumentsRefused, match='"a" is a required property'):
        add.parse(ToolCall("add", {}))
    with pytest.raises(ArgumentsRefused, match="not of add"):
        add.parse(ToolCall("sub", {"a": 1}))
    with pytest.raises(ArgumentsRefused, match="cut off"):
        add.parse(ToolCall("add", {}, problem="it is cut off"))
    with pytest.raises(ArgumentsRefused, match="no JSON object"):
        add.parse(ToolCall("add", [1]))


async def test_options_become_settings_of_the_tool(tmp_path: Path) -> None:
    internal = tool(tags=["internal"], risk_level="high")

    @internal(
        name="look_up",
        description="Look something up.",
        timeout="5s",
        annotations={"readOnlyHint": True},
        retry=2,
        cache=60,
        rate_limit="30/min",
        max_concurrent=3,
        examples=[{"key": "a"}],
    )
    def find(key: Annotated[str, Field(description="What to find.", min_length=1)]) -> str:
        return key

    name, given = find.given()
    settings = given.settings
    assert name == "look_up"
    assert (settings.risk, settings.call_timeout, settings.cache, settings.max_concurrent) == ("high", 5, 60, 3)
    assert (settings.tags, settings.examples, settings.permission) == (["internal"], [{"key": "a"}], None)
    assert settings.retry is not None
    assert settings.retry.tries == 2
    async with bridge_with(tmp_path, find) as bridge:
        shown = await definition_of(bridge, "look_up")
        assert shown["annotations"] == {"readOnlyHint": True}
        assert shown["description"] == "Look something up."
        assert shown["inputSchema"]["properties"]["key"]["description"] == "What to find."
        refused = await bridge.call_tool("look_up", {"key": ""})
        assert refused.is_error


async def test_schemas_given_by_hand_are_enforced(tmp_path: Path) -> None:
    row = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    @tool(input_schema=row, output_schema=row, event_schema={"type": "string"})
    def hand(n: Any) -> Generator[Any, None, Any]:
        yield "begun" if n != 2 else 5
        return {"n": n if n != 3 else "three"}

    async with bridge_with(tmp_path, hand) as bridge:
        assert (await bridge.call_tool("hand", {"n": 1})).structured == {"n": 1}
        assert "does not fit the event schema" in (await bridge.call_tool("hand", {"n": 2})).text
        assert "does not fit the output schema" in (await bridge.call_tool("hand", {"n": 3})).text
        assert "must be an integer" in (await bridge.call_tool("hand", {"n": "x"})).text


class Thing:
    def method(self, x: int) -> int:
        return x

    async def do(self, x: int) -> int:
        return x + 1


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: tool(lambda x: x), "'<lambda>' is no name for a tool"),
        (lambda: tool(name="a b")(lambda x: x), "'a b' is no name for a tool"),
        (lambda: tool(name="x", risk_level="huge")(lambda x: x), "`risk_level`: Input should be 'low'"),
        (lambda: tool(name="x", timeout=-1)(lambda x: x), "`timeout`: "),
        (lambda: tool(name="x", time_out=1)(lambda x: x), "no option `time_out` of tools\n  Did you mean `timeout`"),
        (lambda: tool(name="x", requires_approval="yes")(lambda x: x), "expected a bool or a function"),
        (lambda: tool(name="x", output_schema={"type": "strin"})(lambda x: x), "its output schema is none"),
        (lambda: tool("name"), "made of a function, not of str"),
        (lambda: tool(Thing.method), "'method' is a method"),
        (lambda: tool(name="x")(lambda *many: many), "no name by which a tool could take it"),
    ],
    ids=["no-name", "blank", "risk", "timeout", "unknown", "approval", "schema", "no-function", "method", "many"],
)
def test_what_cannot_be_a_tool_is_told_when_it_is_made(make: Callable[[], object], match: str) -> None:
    with pytest.raises(ConfigError, match=match.replace("(", r"\(")):
        make()


async def test_whatever_can_be_called_is_a_tool(tmp_path: Path) -> None:
    thing = Thing()

    def plain(x: int) -> int:
        return x

    tools = [tool(thing.method), tool(thing.do), functools.partial(plain, x=5), given_of(tool(name="mine")(plain))]
    async with bridge_with(tmp_path, *tools) as bridge:
        assert {one.name for one in await bridge.list_tools()} - {"recall"} == {"method", "do", "plain", "mine"}
        assert (await bridge.call_tool("do", {"x": 1})).value == "2"
        assert (await bridge.call_tool("plain", {})).value == "5"


def test_what_is_no_tool_is_told() -> None:
    from mcpbridge import ToolBuilder

    for thing, match in (
        (ToolBuilder("x"), "is not built"),
        (tool(name="x"), "decorates nothing here"),
        (Thing, "the class Thing is no tool"),
        (3, "a int is no tool"),
        (("x", 3), "a tuple is no tool"),
        ((), "a tuple is no tool"),
    ):
        with pytest.raises(ConfigError, match=match):
            given_of(thing)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="two tools are called 'add'"):
        all_given([add, tool(name="add")(lambda x: x)])


async def test_a_tool_may_be_in_two_bridges_and_named_in_a_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_decorated.py").write_text(
        "from mcpbridge import tool\n\n@tool(name='x')\nasync def twice(n: int) -> int:\n    return 2 * n\n"
    )
    (tmp_path / "servers.toml").write_text('[tools.double]\nfunction = "my_decorated:twice"\n')
    monkeypatch.delitem(sys.modules, "my_decorated", raising=False)
    (tmp_path / "other").mkdir()
    async with bridge_with(tmp_path, add) as one, bridge_with(tmp_path / "other", add) as other:
        assert (await one.call(add.call(1))).value == (await other.call(add.call(1))).value == 3
    store = {"MCPBRIDGE_STATE": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    async with Bridge.open(tmp_path / "servers.toml", remember=False, environ=store) as bridge:
        shown = await definition_of(bridge, "double")
        assert shown["inputSchema"]["required"] == ["n"]
        assert (await bridge.call_tool("double", {"n": 4})).value == "8"


# -- who has to agree


class Person:
    """Says yes to what is under a hundred, and remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []

    async def __call__(self, request: ApprovalRequest) -> bool:
        arguments = json.loads(request.arguments_json)
        self.asked.append((request.reason, arguments))
        return arguments.get("amount", 0) < 100


async def test_a_function_of_the_arguments_says_who_has_to_agree(tmp_path: Path) -> None:
    def is_much(arguments: Mapping[str, Any]) -> bool | str:
        return f"{arguments['amount']} {arguments['to']} is much" if arguments["amount"] > 10 else False

    paid: list[int] = []

    @tool(requires_approval=is_much)
    def pay(amount: int, to: str = "me") -> str:
        paid.append(amount)
        return "paid"

    @tool(requires_approval=True)
    def always(amount: int = 0) -> str:
        return "done"

    @tool(requires_approval=False)
    def never() -> str:
        return "done"

    person = Person()
    async with bridge_with(tmp_path, pay, always, never, approver=person) as bridge:
        assert (await bridge.call(pay.call(5))).value == "paid"
        assert person.asked == []
        assert (await bridge.call(pay.call(50))).value == "paid"
        assert person.asked == [("50 me is much", {"amount": 50, "to": "me"})]
        refused = await bridge.call(pay.call(500, to="you"))
        assert refused.is_error
        assert "was not approved" in refused.text
        assert paid == [5, 50]
        assert (await bridge.call(always.call())).value == "done"
        assert person.asked[-1][0] == "the policy asks for it"
        assert (await bridge.call(never.call())).value == "done"
        assert len(person.asked) == 3
        coerced = await bridge.call_tool("pay", {"amount": "20"})
        assert not coerced.is_error
        assert person.asked[-1] == ("20 me is much", {"amount": 20, "to": "me"})


async def test_it_may_wait_and_what_fails_in_it_refuses_the_call(tmp_path: Path) -> None:
    async def looked_up(arguments: Mapping[str, Any]) -> bool:
        await asyncio.sleep(0)
        if arguments["amount"] < 0:
            raise ValueError("password=hunter2")
        return arguments["amount"] > 10

    def broken(arguments: Mapping[str, Any]) -> bool:
        raise KeyError(arguments["amount"])

    ran: list[str] = []

    @tool(requires_approval=looked_up)
    def one(amount: int) -> str:
        ran.append("one")
        return "done"

    @tool(requires_approval=broken)
    def two(amount: int) -> None:
        ran.append("two")

    @tool(requires_approval=lambda _: 3)  # type: ignore[arg-type, return-value]
    def three(amount: int) -> None:
        ran.append("three")

    person = Person()
    async with bridge_with(tmp_path, one, two, three, approver=person) as bridge:
        assert (await bridge.call(one.call(1))).value == "done"
        assert (await bridge.call(one.call(20))).value == "done"
        assert person.asked == [("the tool asks for it", {"amount": 20})]
        refused = await bridge.call(one.call(-1))
        assert "its `requires_approval` failed (ValueError)" in refused.text
        assert "hunter2" not in refused.text
        assert "failed (KeyError)" in (await bridge.call(two.call(1))).text
        assert "failed (TypeError)" in (await bridge.call(three.call(1))).text
        twice = await bridge.request("tools/call", {"name": "one", "arguments": Raw(b'{"amount":1,"amount":50}')})
        assert twice["isError"]
        assert "named twice" in twice["content"][0]["text"]
    assert ran == ["one", "one"]


async def test_a_rule_comes_before_what_the_tool_itself_says(tmp_path: Path) -> None:
    @tool(requires_approval=lambda _: True)
    def act() -> str:
        return "done"

    rules = [{"tools": ["act"], "servers": ["tools"], "permission": "allow"}]
    person = Person()
    async with bridge_with(tmp_path, act, approver=person, permissions=rules) as bridge:
        assert (await bridge.call(act.call())).value == "done"
    denied = [{"tools": ["act"], "servers": ["tools"], "permission": "deny"}]
    async with bridge_with(tmp_path, act, approver=person, permissions=denied) as bridge:
        assert (await bridge.call(act.call())).is_error
    assert person.asked == []


async def test_tools_of_a_resolver_ask_as_well(tmp_path: Path) -> None:
    @tool(requires_approval=lambda arguments: f"about {arguments['x']}")
    def extra(x: int) -> str:
        return "done"

    async def resolve(_: object) -> list[Any]:
        return [extra.given()[1].backend]

    person = Person()
    config = {"store": {"path": str(tmp_path / "store.db")}}
    with anyio.fail_after(60):
        async with Bridge.open(config, resolver=resolve, approver=person, remember=False, environ={}) as bridge:
            assert (await bridge.call(extra.call(1))).value == "done"
    assert person.asked == [("about 1", {"x": 1})]
