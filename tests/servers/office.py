"""A server with the tools that its arguments name. Each says that it ran; one named `get_…` only reads."""

import sys
from typing import Any

from plain import Result, Server, text, tool


class Office(Server):
    def __init__(self, *names: str) -> None:
        super().__init__()
        hints = {"annotations": {"readOnlyHint": True}}
        self.tools = [{**tool(name), **(hints if name.startswith("get") else {})} for name in names]

    def on_tools_call(self, id_: object, params: dict[str, Any]) -> Result | None:
        return text(f"ran {params['name']}")


if __name__ == "__main__":
    Office(*sys.argv[1:]).run()
