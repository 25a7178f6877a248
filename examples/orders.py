"""A server whose answers are large, for docs/explanation/results.md: a shop with 240 orders. Standard library only."""

import json
import sys
from typing import Any

NOTES = ["", "", "", "gift wrap", "leave at the door", "call first", "damaged on the way, sent again"]
STATES = ["delivered", "delivered", "delivered", "shipped", "shipped", "open", "cancelled"]
PRODUCTS = [("desk lamp", 39.90), ("office chair", 189.00), ("notebook", 4.50), ("standing desk", 549.00)]
CUSTOMERS = ["Ada Byron", "Grace Hopper", "Alan Turing", "Mary Jackson", "Edsger Dijkstra"]

ORDERS: dict[str, Any] = {"type": "array", "items": {"type": "object"}}
TOOLS: list[dict[str, Any]] = [
    {"name": "list_orders", "description": "All orders of the shop.", "inputSchema": {"type": "object"}},
    {
        "name": "add_up",
        "description": "How many orders these are, and what they come to.",
        "inputSchema": {"type": "object", "properties": {"orders": ORDERS}, "required": ["orders"]},
    },
]


def order(number: int) -> dict[str, Any]:
    """One order; the same each time."""
    product, price = PRODUCTS[number * 7 % 11 % 4]
    count = number * 5 % 7 % 3 + 1
    return {
        "id": 900719925474099300 + number * 37,
        "placed": f"2026-{number // 28 % 12 + 1:02}-{number % 28 + 1:02}T{number % 24:02}:15:00Z",
        "customer": {"name": CUSTOMERS[number * 3 % 13 % 5], "country": ["DE", "FR", "US"][number * 11 % 17 % 3]},
        "state": STATES[number * 13 % 19 % 7],
        "items": [{"product": product, "count": count, "price": price}],
        "total": round(price * count, 2),
        "note": NOTES[number * 17 % 23 % 7],
    }


def called(name: str, arguments: dict[str, Any]) -> str:
    """What a tool says."""
    if name == "list_orders":
        return json.dumps([order(number) for number in range(240)], indent=2)
    orders = arguments["orders"]
    return f"{len(orders)} orders, {sum(one['total'] for one in orders):.2f} in all"


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """The result of a request; None: there is no such method."""
    if method == "initialize":
        info = {"name": "shop", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": called(params["name"], params.get("arguments") or {})}]}
    return {} if method == "ping" else None


def main() -> None:
    """Answer until standard input ends."""
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            result = answer(message["method"], message.get("params") or {})
            said = {"error": {"code": -32601, "message": "no such method"}} if result is None else {"result": result}
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}), flush=True)


if __name__ == "__main__":
    main()
