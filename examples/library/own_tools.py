"""Tools of a program in every way that there is, called with types; no server is needed."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import Field

from mcpbridge import Bridge, Context, ToolBuilder, ToolResult, adapt_function, tool


@dataclass
class Order:
    """What was ordered."""

    item: str
    count: int
    price: float


@tool
def order(
    item: str,
    count: Annotated[int, Field(ge=1, le=99)] = 1,
    packing: Literal["box", "bag"] = "box",
) -> Order:
    """Order something.

    Args:
        item: What it is called.
        count: How many of it.
        packing: What it comes in.
    """
    return Order(f"{item} in a {packing}", count, 4.5 * count)


@tool(annotations={"readOnlyHint": True}, timeout="2m")
def count_stock(shelves: int) -> Iterator[dict[str, Any]]:
    """Count what is in stock."""
    for shelf in range(1, shelves + 1):
        yield {"message": f"shelf {shelf}", "progress": shelf, "total": shelves}
    return ToolResult(f"{shelves * 12} things", artifacts=[{"shelf": n, "things": 12} for n in range(1, shelves + 1)])


def send_refund(order_id: str, francs: float, reason: str = "") -> str:
    return f"{francs} francs for {order_id}{reason and ', ' + reason}"


refund = (
    ToolBuilder("refund")
    .description("Pay an order back.")
    .param("order_id", str, "as on the bill", required=True)
    .param("francs", float, "how much", required=True)
    .param("reason", str, "why", enum=["broken", "late"], default="late")
    .risk_level("high")
    .timeout("10s")
    .requires_approval(lambda arguments: f"{arguments['francs']} francs" if arguments["francs"] > 50 else False)
    .handler(send_refund)
    .build()
)

meant = adapt_function(
    get_close_matches,  # of another library: its annotations do not say what models should know
    name="meant",
    description="Find the words that a mistyped word may have meant.",
    input_schema={
        "type": "object",
        "properties": {
            "word": {"type": "string"},
            "possibilities": {"type": "array", "items": {"type": "string"}, "description": "words that there are"},
        },
        "required": ["word", "possibilities"],
    },
    returns=list[str],
)


@dataclass
class Basket:
    """What `fill` keeps of a run."""

    items: list[str]


async def begin(_: object) -> Basket:
    return Basket(["a bag"])  # asked of a database, say: once a run


@tool(context_init=begin)
def fill(basket: Context[Basket], item: str) -> str:
    """Put something into the basket."""
    basket.update(items=[*basket.value.items, item])
    basket.shared.update(last=item)
    return f"{len(basket.value.items)} things for {basket.user or 'nobody'}"


def may_pay(request: Any) -> bool:
    print("asked about", request.tool, request.reason)
    return "refund" in request.tool


async def main() -> None:
    tools = [order, count_stock, refund, meant, fill]
    async with Bridge.open({}, tools=tools, approver=may_pay) as bridge:
        result = await bridge.call(order.call("tea", count=2))  # checked by type checkers, as `order` itself
        print(result.value.price)  # an `Order`

        counted = await bridge.call_tool("count_stock", {"shelves": 2}, on_progress=lambda told: print(told["message"]))
        print(counted.text, counted.artifacts)

        print((await bridge.call_tool("refund", {"order_id": "A7", "francs": 80})).text)
        mistyped = meant.call_with({"word": "sugr", "possibilities": ["tea", "sugar"]})
        print((await bridge.call(mistyped)).value)

        wrong = await bridge.call_tool("order", {"item": "tea", "count": 100})
        print(wrong.is_error, wrong.text.splitlines()[0])

        for item in ("tea", "milk"):
            await bridge.call(fill.call(item), run="r1", user="ann")
        print(await bridge.get_context("r1", "fill", kind=Basket, user="ann"))
        print(await bridge.get_context("r1", user="ann"))


if __name__ == "__main__":
    asyncio.run(main())
