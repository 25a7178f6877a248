"""A server with the tools that its first argument describes, as JSON: names, or names with descriptions."""

import json
import sys
from typing import Any

from plain import Server


class Described(Server):
    """Lists them; they cannot be called."""

    def __init__(self, tools: "dict[str, str | dict[str, Any]]") -> None:
        super().__init__()
        self.tools = [
            {"name": name, "inputSchema": {"type": "object"}}
            | ({"description": told} if isinstance(told, str) else told)
            for name, told in tools.items()
        ]


if __name__ == "__main__":
    Described(json.loads(sys.argv[1])).run()
