"""What annotations promise of results and events is kept to, and is what values are made by."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import StrEnum
from math import inf, nan
from pathlib import Path
from typing import Annotated, Any, Literal, Optional, TypedDict

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, PlainSerializer, TypeAdapter, ValidationError

from mcpbridge import Bridge, CallFailed, Result, ToolBuilder, ToolResult, adapt_function, human_tool, tool
from mcpbridge.tools.python.function import event_promise_of, promise_of


class Row(BaseModel):
    name: str
    count: Annotated[int, Field(serialization_alias="n")] = 1


@dataclass
class Point:
    x: int


class Found(TypedDict):
    rows: list[int]


class Colour(StrEnum):
    RED = "red"


class Title(str):
    __slots__ = ()


class NoType:
    """Of which no schema can be made."""


@asynccontextmanager
async def bridge_with(tmp_path: Path, *tools: Any) -> AsyncGenerator[Bridge]:
    config = {"store": {"path": str(tmp_path / "store.db")}}
    with anyio.fail_after(60):
        async with Bridge.open(config, tools=tools, remember=False, environ={}) as bridge:
            yield bridge


Timestamp = Annotated[date, PlainSerializer(lambda day: day.toordinal(), return_type=int)]

KEPT: list[tuple[Any, Any]] = [
    (int, 1),
    (int, True),
    (int, "1"),  # as `CallResult.value` reads it
    (float, 1),
    (float, nan),
    (list[float], [1.5, nan, -inf]),
    (str, ""),
    (str, Title("x")),
    (str, Colour.RED),
    (str | None, None),
    (str | None, "x"),
    (Optional[int], None),  # noqa: UP045 - the older way too
    (int | list[Row], [Row(name="a")]),
    (list[Row], [{"name": "a"}]),
    (list[Row], [{"name": "a", "n": 2}]),
    (Timestamp, date(2020, 1, 2)),
    (date, "2020-01-02"),
    (Decimal, Decimal("1.50")),
    (set[int], {1}),
    (tuple[int, str], (1, "x")),
    (Annotated[int, Field(ge=1)], 1),
    (Annotated[str, Field(max_length=2)], "ab"),
    (Literal["a", 1], 1),
    (Colour, Colour.RED),
    (bytes, b"\xff"),
    (None, None),
    (ToolResult[int], 1),
    (ToolResult[int] | None, None),
    (Mapping[str, Any], {}),
    (list[Found], [{"rows": [1]}]),
]
BROKEN: list[tuple[Any, Any, str]] = [
    (int, "x", "expected int: Input should be a valid integer"),
    (int, 1.5, "expected int"),
    (str, 5, "expected str: Input should be a valid string"),
    (str, None, "expected str"),
    (str, b"x", "expected str"),
    (str | None, 5, "expected str | None"),
    (Optional[int], "x", "expected Optional[int]"),  # noqa: UP045 - the older way too
    (list[int], ["x"], "expected list[int], at 0: Input should be a valid integer"),
    (list[Row], [{"n": 1}], "expected list[Row], at 0.name: Field required"),
    (list[Point], [Point("x")], "expected list[Point], at 0.x"),  # pyright: ignore[reportArgumentType]
    (list[float], [nan, "x"], "expected list[float]"),
    (Annotated[int, Field(ge=1)], 0, "greater than or equal to 1"),
    (Annotated[str, Field(max_length=2)], "abc", "at most 2 characters"),
    (Literal["a"], "b", "Input should be 'a'"),
    (None, 1, "expected None"),
    (ToolResult[int], "x", "expected int"),
    (ToolResult[int] | None, "x", "expected Optional[int]: Input should be a valid integer"),
    (bytes, [1], "expected bytes"),
]
UNKNOWN: list[Any] = [Any, object, NoType, list[NoType], ToolResult, Generator[str, None, None], AsyncIterator[str]]


@pytest.mark.parametrize(("hint", "value"), KEPT, ids=range(len(KEPT)))
def test_what_is_of_the_type_or_can_be_read_as_it_fits(hint: Any, value: Any) -> None:
    promise = promise_of(hint)
    assert promise is not None
    assert promise(value, None) == ""


@pytest.mark.parametrize(("hint", "value", "told"), BROKEN, ids=range(len(BROKEN)))
def test_what_is_not_is_told_with_the_type_and_the_place(hint: Any, value: Any, told: str) -> None:
    promise = promise_of(hint)
    assert promise is not None
    assert told in promise(value, None)


@pytest.mark.parametrize("hint", UNKNOWN, ids=range(len(UNKNOWN)))
def test_what_says_nothing_promises_nothing(hint: Any) -> None:
    assert promise_of(hint) is None


@given(
    st.sampled_from([int, str, list[int], dict[str, int], int | None, bool, Row, list[str | None], float]),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "n", "x"]), inner),
        max_leaves=4,
    ),
)
def test_what_is_refused_could_not_be_read(hint: Any, value: Any) -> None:
    promise = promise_of(hint)
    assert promise is not None
    if not promise(value, None):
        return
    with pytest.raises(ValidationError):
        TypeAdapter(hint).validate_python(value, strict=True)


def a_generator() -> Iterable[int]:
    yield 1


def a_list() -> Iterable[int]:
    return [1]


@pytest.mark.parametrize(
    ("hint", "fits", "not_so"),
    [
        (Iterator[Row], {"name": "a"}, {"name": 1}),
        (Generator[Row | str, None, int], "x", 5),
        (AsyncGenerator[Row | Result[str]], {"name": "a"}, "x"),
        (AsyncIterator[Result[int] | Literal["begun", "done"]], "done", "x"),
        (Annotated[Iterator[int], "steps"], 1, "x"),
    ],
)
def test_what_is_yielded_is_known_by_the_annotation(hint: Any, fits: Any, not_so: Any) -> None:
    check = event_promise_of(hint)
    assert check is not None
    assert check(fits) == ""
    assert check(not_so) != ""


@pytest.mark.parametrize(
    "hint", [Iterator[str], Iterator[Any], Iterator, AsyncGenerator[str | Result[Row]], AsyncIterator[Result[int]], int]
)
def test_texts_and_anything_are_yielded_unseen(hint: Any) -> None:
    assert event_promise_of(hint) is None


def test_what_is_iterable_are_events_of_generators_alone() -> None:
    assert event_promise_of(Iterable[int], a_generator) is not None
    assert promise_of(Iterable[int], a_generator) is None
    assert event_promise_of(Iterable[int], a_list) is None
    promise = promise_of(Iterable[int], a_list)
    assert promise is not None
    assert promise(["x"], None) != ""


# -- through a bridge


def returns(hint: Any, value: Any) -> Callable[..., Any]:
    def made() -> Any:
        return value

    made.__annotations__["return"] = hint
    return made


async def test_a_tool_that_breaks_its_annotation_is_at_fault_and_no_schema_is_published(tmp_path: Path) -> None:
    @tool
    async def later() -> list[int]:
        return ["x"]  # pyright: ignore[reportReturnType]

    @tool
    def walks() -> Generator[str, None, int]:
        yield "begun"
        return "far"  # pyright: ignore[reportReturnType]

    @tool
    def with_artifacts() -> ToolResult[int]:
        return ToolResult("x", artifacts=[1])  # pyright: ignore[reportArgumentType, reportReturnType]

    @tool
    def says_so() -> ToolResult[int]:
        return ToolResult("it did not work", is_error=True)  # pyright: ignore[reportArgumentType, reportReturnType]

    wrong = returns(int, "x")
    adapted = adapt_function(wrong, name="adapted", input_schema={"type": "object"})
    built = ToolBuilder("built").handler(wrong).build()
    at_fault = [tool(name="plain")(wrong), later, walks, with_artifacts, adapted, built]
    async with bridge_with(tmp_path, *at_fault, says_so) as bridge:
        assert all(one.output_schema is None for one in await bridge.list_tools())
        for one in at_fault:
            found = await bridge.call_tool(one.name)
            assert found.is_error
            assert f"The tool '{one.name}' is at fault: it returned what its annotation does not allow" in found.text
        assert (await bridge.call_tool("says_so")).text == "it did not work"


async def test_what_keeps_to_it_looks_as_it_did(tmp_path: Path) -> None:
    @tool
    def number() -> int:
        return True

    @tool
    def numbers() -> list[float]:
        return [1.0, nan]

    @tool
    def nothing() -> str | None:
        return None

    @tool
    def blocks() -> list[dict[str, str]]:
        return [{"type": "text", "text": "one"}]

    @tool
    def by_hand() -> int:
        return {"any": "thing"}  # pyright: ignore[reportReturnType]

    hand = tool(name="hand", output_schema={"type": "object"})(by_hand.__wrapped__)
    async with bridge_with(tmp_path, number, numbers, nothing, blocks, hand) as bridge:
        raw = {one: await bridge.request("tools/call", {"name": one}) for one in ("number", "numbers", "nothing")}
        text = {one: result["content"][0]["text"] for one, result in raw.items()}
        assert text == {"number": "true", "numbers": "[1.0,null]", "nothing": ""}
        assert "structuredContent" not in raw["number"]
        assert raw["numbers"]["structuredContent"] == {"result": [1.0, None]}
        assert (await bridge.call(blocks.call())).text == "one"
        assert (await bridge.call(hand.call())).structured == {"any": "thing"}  # a schema by hand stands for it


async def test_events_that_are_not_what_is_annotated_end_the_call(tmp_path: Path) -> None:
    @tool
    def walks(step: str) -> Iterator[Row | str]:
        yield "begun"
        yield {"name": step} if step else {"n": 1}  # pyright: ignore[reportReturnType]

    @tool
    async def flies(step: str) -> AsyncGenerator[Row | Result[str]]:
        yield Row(name=step) if step else 5  # pyright: ignore[reportReturnType]
        yield Result("there")

    said = ToolBuilder("said").param("step", str).events(str).handler(walks.__wrapped__).build()
    heard: list[Mapping[str, Any]] = []
    async with bridge_with(tmp_path, walks, flies, said) as bridge:
        for one in (walks, flies):
            assert not (await bridge.call(one.call("x"), on_progress=heard.append)).is_error
            found = await bridge.call(one.call(""))
            assert found.is_error
            assert f"The tool '{one.name}' is at fault: an event of it does not fit the event schema" in found.text
        assert "is not of type" in (await bridge.call_tool("said", {"step": "x"})).text  # what is said stands for it
    assert [one.get("message") for one in heard] == ["begun", '{"name":"x"}', '{"name":"x","n":1}']


async def test_the_value_of_whatever_yields_is_its_result(tmp_path: Path) -> None:
    @tool
    def iterates(n: int) -> Iterator[str]:
        yield "begun"
        return n  # pyright: ignore[reportReturnType]

    @tool
    def iterable(n: int) -> Iterable[str | Result[int]]:
        yield "begun"
        yield Result(n)

    @tool
    def of_what_is_given(n: int) -> Iterable[int]:
        return list(range(n))

    @tool
    async def anything(n: int) -> AsyncIterator[Any]:
        yield "begun"
        yield Result({"n": n})

    @tool
    async def texts(n: int) -> AsyncIterator[str]:
        yield "begun"
        yield f"at {n}"

    @tool
    async def rows(n: int) -> AsyncIterator[str | Result[list[Row]]]:
        yield "begun"
        yield Result(ToolResult([Row(name=str(n))], artifacts=["more"]))

    @tool
    async def any_result(n: int) -> AsyncIterator[str | Result[Any]]:
        yield "begun"
        yield Result(ToolResult(f"{n} rows", artifacts=[n]))

    @tool
    def yields_it(n: int) -> Generator[str | Result[Row]]:
        yield "begun"
        yield Result(Row(name=str(n)))

    @tool
    def nothing(n: int) -> Generator[str]:
        yield "begun"

    tools = [iterates, iterable, of_what_is_given, anything, texts, rows, any_result, yields_it, nothing]
    async with bridge_with(tmp_path, *tools) as bridge:
        found = {one.name: await bridge.call(one.call(3)) for one in tools}
    assert {name: one.value for name, one in found.items()} == {
        "iterates": "3",  # of what nothing is said, the text
        "iterable": 3,
        "of_what_is_given": [0, 1, 2],
        "anything": {"n": 3},
        "texts": "at 3",
        "rows": [Row(name="3")],
        "any_result": "3 rows",
        "yields_it": Row(name="3"),
        "nothing": None,
    }
    assert list(found["rows"].artifacts) == ["more"]


async def test_both_results_of_a_human_tool_keep_to_the_annotation(tmp_path: Path) -> None:
    def asks(what: str) -> Any:
        return None if what == "ask" else what

    def answered(response: str) -> int | None:
        return int(response) if response.isdigit() else response  # pyright: ignore[reportReturnType]

    human = human_tool(asks, answered, name="human")

    def received(response: str):
        return response

    untold = human_tool(returns(str | None, 5), received, name="untold")
    async with bridge_with(tmp_path, human, untold) as bridge:
        assert "expected int | None" in (await bridge.call(human.call("bad"))).text
        assert (await bridge.call(human.call("7"))).value == 7
        paused = (await bridge.call(human.call("ask"))).paused
        assert paused is not None
        with pytest.raises(CallFailed, match=r"is at fault: it returned what its .* The call stays paused"):
            await bridge.resume(paused.id, "bad")
        assert (await bridge.resume(paused.id, "8")).text == "8"
        assert "expected str" in (await bridge.call_tool("untold")).text


async def test_a_value_of_which_no_type_can_be_made_says_so(tmp_path: Path) -> None:
    @tool
    def odd() -> NoType:
        return {"x": 1}  # pyright: ignore[reportReturnType]

    async with bridge_with(tmp_path, odd) as bridge:
        found = await bridge.call(odd.call())
        assert found.structured == {"x": 1}
        with pytest.raises(CallFailed, match=r"the result of odd: no value of .*NoType.* can be made of JSON"):
            _ = found.value
