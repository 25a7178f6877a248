"""Servers whose lists are odd: long, endless, faulty, growing; the first argument says which."""

import sys
from typing import Any, ClassVar

from plain import Result, Server, text, tool


class BadTools(Server):
    """Good tools among definitions that no client can read."""

    def __init__(self) -> None:
        super().__init__()
        self.tools = [
            tool("first"),
            {"name": "array_schema", "inputSchema": []},
            {"name": "string_schema", "inputSchema": {"type": "string"}},
            {"name": 42, "inputSchema": {"type": "object"}},
            {"description": "no name", "inputSchema": {"type": "object"}},
            "no object at all",
            None,
            tool("last"),
        ]  # pyright: ignore[reportAttributeAccessIssue]


class Pages(Server):
    """Three pages of tools; the second cursor is empty, which is a valid cursor."""

    cursors: ClassVar[dict[str | None, str | None]] = {None: "page two", "page two": "", "": None}

    def on_tools_list(self, _id: object, params: dict[str, Any]) -> Result:
        cursor = params.get("cursor")
        number = list(self.cursors).index(cursor)
        page: Result = {"tools": [tool(f"tool_{number}_{n}") for n in range(2)]}
        after = self.cursors[cursor]
        return page if after is None else {**page, "nextCursor": after}


class Cycle(Server):
    """Pages whose cursors lead back to the first."""

    def on_tools_list(self, _id: object, params: dict[str, Any]) -> Result:
        first = params.get("cursor") != "b"
        return {"tools": [tool("one" if first else "two")], "nextCursor": "b" if first else "a"}


class Grows(Server):
    """Has one more tool after each call of `grow`, and says so."""

    def __init__(self) -> None:
        super().__init__()
        self.tools = [tool("grow"), tool("journal"), tool("storm")]

    def tool_grow(self, _id: object, _arguments: dict[str, Any]) -> Result:
        self.tools.append(tool(f"grown_{len(self.tools) - 2}"))
        self.notify("notifications/tools/list_changed")
        return text(str(len(self.tools)))

    def tool_storm(self, _id: object, _arguments: dict[str, Any]) -> Result:
        """Says it without end, and means nothing by it."""
        for _ in range(5000):
            self.notify("notifications/tools/list_changed")
        return text("calm again")


if __name__ == "__main__":
    {"bad-tools": BadTools, "cycle": Cycle, "grows": Grows, "pages": Pages}[sys.argv[1]]().run()
