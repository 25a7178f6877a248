"""A server whose tools read, write, destroy and pay, with and without annotations; it says what it did."""

import json
from typing import Any

from plain import Result, Server, text, tool

PAY: dict[str, Any] = tool("pay", amount="integer", to="string")
PAY["inputSchema"]["properties"]["currency"] = {"type": "string", "default": "EUR"}


class Deeds(Server):
    """Every tool answers with its name and arguments; `grow` also makes a tool of the name it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.tools = [
            tool("get_note", note="string"),
            tool("delete_note", note="string"),
            PAY,
            {**tool("peek"), "annotations": {"readOnlyHint": True}},
            {**tool("wipe"), "annotations": {"destructiveHint": True}},
            tool("grow", called="string"),
        ]

    def on_tools_call(self, id_: object, params: dict[str, Any]) -> Result | None:
        arguments: dict[str, Any] = params.get("arguments") or {}
        if params["name"] == "grow":
            self.tools.append(tool(arguments["called"]))
            self.notify("notifications/tools/list_changed")
        return text(f"did {params['name']} {json.dumps(arguments)}")


if __name__ == "__main__":
    Deeds().run()
