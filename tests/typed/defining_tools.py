# pyright: strict, reportUnnecessaryTypeIgnoreComment=true
"""What type checkers know of tools that programs define. An `ignore` here is an error that must be there."""

from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict, assert_type

from pydantic import BaseModel

from mcpbridge import (
    Bridge,
    CallContext,
    CallResult,
    Context,
    Result,
    Tool,
    ToolBuilder,
    ToolCall,
    ToolResult,
    adapt_function,
    human_tool,
    manual_tool,
    tool,
)


class Order(BaseModel):
    item: str
    count: int = 1


@dataclass
class Receipt:
    total: float


class Search(TypedDict):
    query: str


# -- functions keep their own signature, and their calls have it


@tool
def add(a: int, b: int = 2) -> int:
    return a + b


@tool(name="look_up", risk_level="low", requires_approval=lambda arguments: "limit" in arguments)
async def find(query: str, *, limit: int = 5) -> list[str]:
    return [query] * limit


assert_type(add(1, 2), int)
assert_type(add.call(1), ToolCall[dict[str, Any], int])
assert_type(add.call(1, b=3), ToolCall[dict[str, Any], int])
_ = assert_type(find("x", limit=1), Coroutine[Any, Any, list[str]])
assert_type(find.call("x", limit=1), ToolCall[dict[str, Any], list[str]])

add.call("x")  # pyright: ignore[reportArgumentType]
add.call()  # pyright: ignore[reportCallIssue]
add.call(1, c=2)  # pyright: ignore[reportCallIssue]
add("x")  # pyright: ignore[reportArgumentType]
find.call("x", 1)  # pyright: ignore[reportCallIssue]
tool(risk_level="huge")  # pyright: ignore[reportArgumentType]
tool(time_out=3)  # pyright: ignore[reportCallIssue]


# -- what comes of generators, of `ToolResult`, of functions that may return anything


@tool
def walk(steps: int) -> Generator[str, None, float]:
    yield "begun"
    return steps / 2


@tool
async def fly(to: str) -> AsyncGenerator[str | Result[Receipt]]:
    yield "up"
    yield Result(ToolResult(Receipt(1.0), artifacts=["ticket"]))
    yield Result(Receipt(2.0))
    yield Result(3)  # pyright: ignore[reportReturnType]


@tool
async def sail(to: str) -> AsyncIterator[str | Result[Receipt]]:
    yield "off"
    yield Result(Receipt(2.0))


@tool
async def drift() -> AsyncIterator[str]:
    yield "somewhere"


@tool
async def roam() -> AsyncGenerator[str]:
    yield "somewhere"


@tool
async def stray() -> AsyncIterator[str | Result[Any]]:
    yield "somewhere"


@tool
async def wander() -> AsyncIterator[Any]:
    yield "somewhere"


@tool
def stroll(steps: int) -> Iterator[str]:
    yield "begun"


@tool
def hike(steps: int) -> Iterator[str | Result[Receipt]]:
    yield "begun"
    yield Result(Receipt(2.0))


@tool
def march(steps: int) -> Iterable[str]:
    yield "begun"


@tool
def pace(steps: int) -> Generator[str]:
    yield "begun"


@tool
def rows() -> list[Order] | None: ...


@tool
def by_name() -> dict[str, Order]: ...


@tool
def ordered_by() -> Order: ...


@tool
def perhaps_ordered() -> Order | list[str] | None: ...


@tool
def chart(title: str) -> ToolResult[Receipt]:
    return ToolResult(Receipt(1.0), artifacts=[title])


@tool
async def charts(title: str) -> ToolResult[list[int]]:
    return ToolResult([1], artifacts=[title])


@tool
def anything(value: Any, more: int) -> Any:
    return value


@tool
async def nothing() -> None: ...


assert_type(walk(1), Generator[str, None, float])
assert_type(walk.call(1), ToolCall[dict[str, Any], float])
assert_type(fly.call("x"), ToolCall[dict[str, Any], Receipt])
assert_type(sail.call("x"), ToolCall[dict[str, Any], Receipt])
assert_type(sail("x"), AsyncIterator[str | Result[Receipt]])
assert_type(drift.call(), ToolCall[dict[str, Any], Any])
assert_type(roam.call(), ToolCall[dict[str, Any], Any])
assert_type(stray.call(), ToolCall[dict[str, Any], Any])
assert_type(wander.call(), ToolCall[dict[str, Any], Any])
assert_type(stroll(1), Iterator[str])
assert_type(stroll.call(1), ToolCall[dict[str, Any], Any])
assert_type(hike.call(1), ToolCall[dict[str, Any], Any])
assert_type(march(1), Iterable[str])
assert_type(march.call(1), ToolCall[dict[str, Any], Any])
assert_type(pace.call(1), ToolCall[dict[str, Any], None])
assert_type(rows.call(), ToolCall[dict[str, Any], list[Order] | None])
assert_type(by_name.call(), ToolCall[dict[str, Any], dict[str, Order]])
assert_type(ordered_by.call(), ToolCall[dict[str, Any], Order])
assert_type(perhaps_ordered.call(), ToolCall[dict[str, Any], Order | list[str] | None])
assert_type(chart("x"), ToolResult[Receipt])
assert_type(chart.call("x"), ToolCall[dict[str, Any], Receipt])
assert_type(charts.call("x"), ToolCall[dict[str, Any], list[int]])
assert_type(anything(1, 2), Any)
assert_type(anything.call(1, 2), ToolCall[dict[str, Any], Any])
assert_type(nothing.call(), ToolCall[dict[str, Any], None])


# -- contexts are no arguments of calls; functions themselves want theirs


@tool
def with_context(context: CallContext, x: int) -> str:
    return f"{context.run} {x}"


@tool
def keeps(context: Context[Search], x: int = 1) -> str:
    assert_type(context.value, Search)
    context.set({"query": "x"})
    context.set({"question": "x"})  # pyright: ignore[reportArgumentType]
    return f"{x}"


@tool
async def perhaps(x: int, context: CallContext | None = None) -> str:
    return f"{x}"


assert_type(with_context.call(1), ToolCall[dict[str, Any], str])
assert_type(keeps.call(x=1), ToolCall[dict[str, Any], str])
assert_type(perhaps.call(1), ToolCall[dict[str, Any], str])
assert_type(keeps(Context.of(Search(query="x")), 1), str)
with_context.call("x")  # pyright: ignore[reportArgumentType]
keeps.call("x")  # pyright: ignore[reportArgumentType, reportCallIssue]
with_context(1)  # pyright: ignore[reportCallIssue]


# -- what comes of calls


async def calls(bridge: Bridge, wanted: ToolCall[Any, Any]) -> None:
    assert_type(await bridge.call(add.call(1, 2)), CallResult[int])
    assert_type((await bridge.call(add.call(1, 2))).value, int)
    assert_type((await bridge.call(find.call("x"))).value, list[str])
    assert_type((await bridge.call(chart.call("x"))).value, Receipt)
    assert_type((await bridge.call(nothing.call())).value, None)
    if add.is_call(wanted):
        assert_type(wanted, ToolCall[dict[str, Any], int])
        assert_type((await bridge.call(wanted)).value, int)
    elif ordered.is_call(wanted):
        assert_type(wanted.arguments, Order)
        assert_type(ordered.parse(wanted).arguments.count, int)
    number: str = (await bridge.call(add.call(1))).value  # pyright: ignore[reportAssignmentType]
    del number


# -- callables with schemas by hand


def order(what: Order) -> Receipt:
    return Receipt(2.5 * what.count)


ordered = adapt_function(order, args=Order, returns=Receipt)
assert_type(ordered, Tool[Order, Receipt])
assert_type(ordered.call_with(Order(item="x")), ToolCall[Order, Receipt])
assert_type(adapt_function(order), Tool[dict[str, Any], Any])
assert_type(adapt_function(max, input_schema={"type": "object"}, returns=int), Tool[dict[str, Any], int])
assert_type(adapt_function(order, args=Search), Tool[Search, Any])
ordered.call_with({"item": "x"})  # pyright: ignore[reportArgumentType]
adapt_function(order, args=Search).call_with({"question": "x"})  # pyright: ignore[reportArgumentType]
adapt_function(order, risk="low")  # pyright: ignore[reportCallIssue]


def needs_receipts(given: Tool[Any, Receipt]) -> None: ...


needs_receipts(ordered)
needs_receipts(add)  # pyright: ignore[reportArgumentType]


# -- tools that are said step by step


def count(text: str) -> int:
    return len(text)


async def count_later(text: str) -> ToolResult[int]:
    return ToolResult(len(text))


def count_slowly(text: str) -> Generator[str, None, int]:
    yield "counting"
    return len(text)


async def count_events(text: str) -> AsyncGenerator[Result[int]]:
    yield Result(len(text))


def is_long(arguments: Mapping[str, Any]) -> bool | str:
    return len(arguments["text"]) > 10 and "it is long"


counting = ToolBuilder("count").param("text", str, "What to count.").requires_approval(is_long).output(int)
assert_type(counting.handler(count).build(), Tool[dict[str, Any], int])
assert_type(counting.handler(count_later).build(), Tool[dict[str, Any], int])
assert_type(counting.handler(count_slowly).build(), Tool[dict[str, Any], int])
assert_type(counting.handler(count_events).build(), Tool[dict[str, Any], int])
assert_type(counting.output({"type": "integer"}).handler(count).build(), Tool[dict[str, Any], Any])
assert_type(ToolBuilder("count").handler(count).build(), Tool[dict[str, Any], Any])
assert_type(counting.manual().build(), Tool[dict[str, Any], int])
counting.handler(order)  # pyright: ignore[reportArgumentType]
counting.output(str).handler(count_later)  # pyright: ignore[reportArgumentType]
counting.risk_level("huge")  # pyright: ignore[reportArgumentType]


# -- tools that wait for people


def ask(amount: int) -> str | None:
    return None if amount > 10 else "small"


async def answered(response: bool) -> str:
    return "yes" if response else "no"


def counted(response: list[int]) -> int:
    return len(response)


def booked(response: bool) -> ToolResult[Receipt]:
    return ToolResult(Receipt(1.0), artifacts=[response])


async def booked_later(response: bool) -> ToolResult[Receipt]:
    return booked(response)


assert_type(manual_tool("x", args=Order, returns=Receipt), Tool[Order, Receipt])
assert_type(manual_tool("x"), Tool[dict[str, Any], Any])
assert_type(human_tool(ask, answered).call(3), ToolCall[dict[str, Any], str])
assert_type(human_tool(ask, counted).call(3), ToolCall[dict[str, Any], int])
assert_type(human_tool(ask, booked).call(3), ToolCall[dict[str, Any], Receipt])
assert_type(human_tool(ask, booked_later).call(3), ToolCall[dict[str, Any], Receipt])
human_tool(ask, answered).call("x")  # pyright: ignore[reportArgumentType]
