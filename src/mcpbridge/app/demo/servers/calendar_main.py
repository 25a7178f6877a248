"""The demo's server `calendar`: questions about dates."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

from mcpbridge.app.demo.servers.mcp_server import Server, integer, text

server = Server("calendar", "Dates, weeks and working days.")

_DAY = {"pattern": "^\\d{4}-\\d{2}-\\d{2}$"}
_SATURDAY = 5


@server.tool("Tell the date and the time now, in UTC.", reads=True)
def current_time() -> str:
    """The time now."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@server.tool(
    "Count the working days (Monday to Friday) between two dates, both included.",
    reads=True,
    start=text("The first day, such as 2026-03-02.", **_DAY),
    end=text("The last day.", **_DAY),
)
def working_days(start: str, end: str) -> str:
    """How many working days there are."""
    first, last = date.fromisoformat(start), date.fromisoformat(end)
    days = (first + timedelta(days=passed) for passed in range((last - first).days + 1))
    return f"{sum(day.weekday() < _SATURDAY for day in days)} working days from {start} to {end}"


@server.tool(
    "Add days to a date, or take them away.",
    reads=True,
    day=text("The date to start at.", **_DAY),
    days=integer("How many days to add; below 0 they are taken away."),
)
def add_days(day: str, days: int) -> str:
    """Another date."""
    return (date.fromisoformat(day) + timedelta(days=days)).isoformat()


@server.tool("Tell the ISO week, the weekday and the quarter of a date.", reads=True, day=text("The date.", **_DAY))
def describe_day(day: str) -> dict[str, Any]:
    """Facts about a day."""
    found = date.fromisoformat(day)
    return {"week": found.isocalendar().week, "weekday": f"{found:%A}", "quarter": (found.month + 2) // 3}


if __name__ == "__main__":
    server.run()
