"""Servers of one tool with a schema that says much; they check nothing and answer with the arguments as they arrived.

The first argument is the era, `legacy` or `modern`.
"""

import sys
from typing import Any

from modern import Modern
from plain import Result, Server

BOOK = {
    "name": "book",
    "description": "Books a table.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "guests": {"type": "integer", "minimum": 1, "maximum": 12, "description": "How many people come."},
            "area": {"enum": ["Inside", "Terrace"], "default": "Inside"},
            "wishes": {"type": "array", "items": {"type": "string"}},
            "contact": {
                "type": "object",
                "properties": {"phone": {"type": "string"}, "call_first": {"type": "boolean", "default": False}},
                "required": ["phone"],
            },
        },
        "required": ["guests"],
        "additionalProperties": False,
    },
}

ELSEWHERE = {
    "name": "elsewhere",
    "inputSchema": {"type": "object", "properties": {"guests": {"$ref": "http://127.0.0.1:9/guests.json"}}},
}


class _Booking(Server):
    """The tools, whichever era the server speaks."""

    def __init__(self) -> None:
        super().__init__()
        self.tools = [*self.tools, BOOK, ELSEWHERE]

    def tool_book(self, id_: object, arguments: dict[str, Any]) -> Result:
        return self.tool_raw_arguments(id_, arguments)

    def tool_elsewhere(self, id_: object, arguments: dict[str, Any]) -> Result:
        return self.tool_raw_arguments(id_, arguments)


class _ModernBooking(_Booking, Modern):
    pass


if __name__ == "__main__":
    (_ModernBooking if sys.argv[1] == "modern" else _Booking)().run()
