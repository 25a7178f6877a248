"""The orders of the demo's shop: the same each time, so that what the scenes say can be checked."""

from typing import Any

COUNT = 340

STATES = ["delivered", "delivered", "delivered", "shipped", "shipped", "open", "cancelled"]
PRODUCTS = {
    "desk lamp": 39.90,
    "office chair": 189.00,
    "notebook": 4.50,
    "standing desk": 549.00,
    "monitor arm": 79.00,
}
"""What is sold, at which price."""
CUSTOMERS = {
    "Ada Byron": "ada@example.com",
    "Grace Hopper": "grace@example.com",
    "Alan Turing": "alan@example.com",
    "Mary Jackson": "mary@example.com",
    "Edsger Dijkstra": "edsger@example.com",
}
"""Who buys, by name: the address."""
_NOTES = ["", "", "", "gift wrap", "leave at the door", "call first", "damaged on the way, sent again"]

Order = dict[str, Any]


def order(index: int) -> Order:
    """One order, of those from 0 to `COUNT` - 1."""
    product, price = list(PRODUCTS.items())[index * 7 % 11 % 5]
    name, email = list(CUSTOMERS.items())[index * 3 % 13 % 5]
    count = index * 5 % 7 % 3 + 1
    return {
        "id": 48_200_000 + index * 37,
        "placed": f"2026-{index // 28 % 12 + 1:02}-{index % 28 + 1:02}T{index % 24:02}:15:00Z",
        "customer": {"name": name, "email": email, "country": ["DE", "FR", "US"][index * 11 % 17 % 3]},
        "state": STATES[index * 13 % 19 % 7],
        "items": [{"product": product, "count": count, "price": price}],
        "total": round(price * count, 2),
        "note": _NOTES[index * 17 % 23 % 7],
    }


def all_orders() -> list[Order]:
    """All of them, oldest first."""
    return [order(index) for index in range(COUNT)]
