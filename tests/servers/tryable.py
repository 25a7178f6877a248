"""A server to try tools of by hand: one whose schema has every kind of argument, and one that takes its time."""

import json
from typing import Any

from plain import Server, text

PLACE = {
    "type": "object",
    "description": "Where it goes.",
    "properties": {"city": {"type": "string"}, "zip": {"type": "string"}},
    "required": ["city"],
}
ORDER = {
    "type": "object",
    "properties": {
        "count": {"type": "integer", "minimum": 1, "default": 1},
        "size": {"enum": ["small", "large"], "description": "How large."},
        "to": {"$ref": "#/$defs/place"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "lines": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"item": {"type": "string"}, "gift": {"type": "boolean"}},
                "required": ["item"],
            },
        },
        "note": {"oneOf": [{"type": "string"}, {"type": "object"}], "description": "Anything."},
    },
    "required": ["count", "size"],
    "$defs": {"place": PLACE},
}


class Tryable(Server):
    """Says what it was given; `wait` reports progress, and answers when it is told to, or never."""

    def __init__(self) -> None:
        super().__init__()
        self.tools = [
            {"name": "order", "description": "Order something to a place.", "inputSchema": ORDER},
            {"name": "wait", "description": "Takes its time.", "inputSchema": {"type": "object"}},
            {"name": "withdrawn", "description": "How many calls were withdrawn.", "inputSchema": {"type": "object"}},
        ]

    def tool_order(self, id_: object, arguments: dict[str, Any]) -> None:
        self.answer(id_, text("ordered: " + json.dumps(arguments, sort_keys=True)))

    def on_tools_call(self, id_: object, params: dict[str, Any]) -> Any:
        if params["name"] != "wait":
            return super().on_tools_call(id_, params)
        token = params.get("_meta", {}).get("progressToken")
        if token is not None:
            self.notify("notifications/progress", progressToken=token, progress=1, total=4, message="a quarter is done")
        return None

    def tool_withdrawn(self, id_: object, arguments: dict[str, Any]) -> None:
        gone = sum(one.get("method") == "notifications/cancelled" for one in self.journal)
        self.answer(id_, text(f"{gone} withdrawn"))


if __name__ == "__main__":
    Tryable().run()
