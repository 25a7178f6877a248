"""The demo's server `shop`: orders, customers and refunds. Its argument is the directory of its refunds."""

import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from mcpbridge.app.demo.servers.mcp_server import Server, Steps, ToolFailed, integer, number, one_of, text
from mcpbridge.app.demo.servers.orders_data import CUSTOMERS, PRODUCTS, STATES, Order, all_orders

server = Server("shop", "Orders, customers and stock of a small shop for office furniture.")

_STATE = sorted(set(STATES))
_STEP = 0.2
"""Seconds that a step of `reconcile_payments` takes."""


def _refunds() -> Path:
    return Path(sys.argv[1]) / "refunds.json"


@server.tool("Return all orders of the shop with customer, items, state, total and note, oldest first.", reads=True)
def list_orders() -> list[Order]:
    """All orders."""
    return all_orders()


@server.tool(
    "Find orders by their state, the country of the customer and the least total. Returns the newest first.",
    reads=True,
    state=one_of("The state that the orders are in.", "any", *_STATE, default="any"),
    country=one_of("The country of the customer.", "any", "DE", "FR", "US", default="any"),
    min_total=number("The least total of an order, in euros.", default=0, minimum=0),
    limit=integer("How many orders to return at most.", default=10, minimum=1, maximum=100),
)
def find_orders(state: str, country: str, min_total: float, limit: int) -> list[Order]:
    """Orders that fit."""
    found = [
        one
        for one in reversed(all_orders())
        if state in ("any", one["state"])
        and country in ("any", one["customer"]["country"])
        and one["total"] >= min_total
    ]
    return found[:limit]


@server.tool("Look up one order by its number.", reads=True, order_id=integer("The number of the order."))
def get_order(order_id: int) -> Order:
    """One order."""
    for one in all_orders():
        if one["id"] == order_id:
            return one
    raise ToolFailed(f"there is no order {order_id}")


@server.tool("List all customers with their addresses and how many orders they have placed.", reads=True)
def list_customers() -> list[dict[str, Any]]:
    """All customers."""
    placed = Counter(one["customer"]["name"] for one in all_orders())
    return [{"name": name, "email": email, "orders": placed[name]} for name, email in CUSTOMERS.items()]


@server.tool(
    "Return the name, the address and the orders of one customer.",
    reads=True,
    email=text("The address of the customer."),
    limit=integer("How many of their orders to return at most.", default=5, minimum=1),
)
def get_customer(email: str, limit: int) -> dict[str, Any]:
    """One customer."""
    orders = [one for one in all_orders() if one["customer"]["email"] == email]
    if not orders:
        raise ToolFailed(f"no customer has the address {email}")
    return {"name": orders[0]["customer"]["name"], "email": email, "orders": orders[-limit:]}


@server.tool("List the products of the shop with their prices in euros.", reads=True)
def list_products() -> list[dict[str, Any]]:
    """All products."""
    return [{"product": product, "price": price} for product, price in PRODUCTS.items()]


@server.tool(
    "Add up the orders of a month: how many there are of each state, and what they come to.",
    reads=True,
    month=text("The month, such as 2026-03.", pattern="^\\d{4}-\\d{2}$"),
)
def monthly_report(month: str) -> dict[str, Any]:
    """Figures of a month."""
    orders = [one for one in all_orders() if one["placed"].startswith(month)]
    states = Counter(one["state"] for one in orders)
    return {"month": month, "orders": len(orders), "states": states, "total": round(sum(o["total"] for o in orders), 2)}


@server.tool(
    "Pay money back to the customer of an order. This moves real money and cannot be undone.",
    order_id=integer("The number of the order."),
    amount=number("How much to pay back, in euros. At most the total of the order.", exclusiveMinimum=0),
    reason=text("Why, in a few words. The customer reads it."),
)
def refund_order(order_id: int, amount: float, reason: str) -> str:
    """A refund; it is written down."""
    total = get_order(order_id)["total"]
    if amount > total:
        raise ToolFailed(f"order {order_id} comes to {total:.2f} only")
    file = _refunds()
    made: list[dict[str, Any]] = json.loads(file.read_text("utf-8")) if file.exists() else []
    file.write_text(json.dumps([*made, {"order": order_id, "amount": amount, "reason": reason}]), "utf-8")
    return f"Paid back {amount:.2f} EUR for order {order_id}."


@server.tool(
    "Compare the payments of the bank with the orders, month by month. Takes a while, and reports its progress.",
    reads=True,
    months=integer("How many months to look at, back from the newest.", default=12, minimum=1, maximum=12),
)
def reconcile_payments(months: int) -> Steps:
    """A tool that takes its time."""
    orders = all_orders()
    for month in range(months):
        time.sleep(_STEP)
        yield month + 1, months
    return f"{len(orders)} orders compared with their payments over {months} months: no differences."


if __name__ == "__main__":
    server.run()
