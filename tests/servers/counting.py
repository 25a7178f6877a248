"""A server whose results tell how often it was asked, so that a result out of a cache shows.

The names count as reading (`get_`), writing (`set_`), or neither.
"""

from typing import Any, ClassVar

from plain import Result, Server, text, tool


class Counting(Server):
    """Counts the calls of each tool."""

    capabilities: ClassVar[Result] = {"tools": {"listChanged": True}}

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[str, int] = {}
        self.tools += [
            tool("get_count", of="string"),
            tool("get_held", of="string"),
            tool("get_released"),
            tool("get_number", of="string"),
            tool("get_failed"),
            tool("get_error"),
            tool("get_large", size="integer"),
            tool("get_meta"),
            tool("get_waiting"),
            tool("set_mark", of="string"),
            tool("set_held"),
            tool("guess", of="string"),
            tool("get_more_tools"),
        ]

    def on_tools_call(self, id_: object, params: dict[str, Any]) -> Result | None:
        name = params["name"]
        self.counts[name] = self.counts.get(name, 0) + 1
        return super().on_tools_call(id_, params)

    def count(self, name: str) -> Result:
        """A result that tells how often this tool was called."""
        return text(f"{name} {self.counts[name]}")

    def tool_get_count(self, _id: object, _arguments: dict[str, Any]) -> Result:
        return self.count("get_count")

    def tool_guess(self, _id: object, _arguments: dict[str, Any]) -> Result:
        return self.count("guess")

    def tool_set_mark(self, _id: object, _arguments: dict[str, Any]) -> Result:
        return self.count("set_mark")

    def tool_get_held(self, id_: object, _arguments: dict[str, Any]) -> None:
        """No answer before `get_released`."""
        self.held.append((id_, f"get_held {self.counts['get_held']}"))

    def tool_set_held(self, id_: object, _arguments: dict[str, Any]) -> None:
        self.held.append((id_, f"set_held {self.counts['set_held']}"))

    def tool_get_waiting(self, _id: object, _arguments: dict[str, Any]) -> Result:
        return text(str(len(self.held)))

    def tool_get_released(self, _id: object, _arguments: dict[str, Any]) -> Result:
        """Answers what is held; tells how much."""
        held, self.held = self.held, []
        for id_, words in held:
            self.answer(id_, text(words))
        return text(str(len(held)))

    def on_notifications_cancelled(self, _id: object, params: dict[str, Any]) -> None:
        self.counts["cancelled"] = self.counts.get("cancelled", 0) + 1
        self.held = [(id_, words) for id_, words in self.held if id_ != params["requestId"]]

    def tool_get_number(self, _id: object, arguments: dict[str, Any]) -> Result:
        """How often a tool was called."""
        return text(str(self.counts.get(arguments["of"], 0)))

    def tool_get_failed(self, _id: object, _arguments: dict[str, Any]) -> Result:
        return {**self.count("get_failed"), "isError": True}

    def tool_get_error(self, id_: object, _arguments: dict[str, Any]) -> None:
        self.refuse(id_, -32000, f"error {self.counts['get_error']}")

    def tool_get_large(self, _id: object, arguments: dict[str, Any]) -> Result:
        return text(f"{self.counts['get_large']} " + "x" * arguments["size"])

    def tool_get_meta(self, _id: object, _arguments: dict[str, Any]) -> Result:
        return {**self.count("get_meta"), "_meta": {"server/own": 1}, "structuredContent": {"big": 2**70}}

    def tool_get_more_tools(self, _id: object, _arguments: dict[str, Any]) -> Result:
        self.tools.append(tool(f"grown{len(self.tools)}"))
        self.notify("notifications/tools/list_changed")
        return text("grown")


if __name__ == "__main__":
    Counting().run()
