"""A server that sends notifications as fast as they are read, once `flood` was called, and answers in between."""

import json
import os
import select
import sys
from typing import Any

from plain import Server, text, tool

LINES = 400
"""Notifications between two looks for a message."""


class Flooding(Server):
    """`flood` begins it, `stop` ends it and says how many notifications were sent."""

    def __init__(self) -> None:
        super().__init__()
        self.tools = [tool("echo", text="string"), tool("flood", method="string"), tool("stop")]
        self.flood = b""
        self.sent = 0

    def tool_flood(self, _id: object, arguments: dict[str, Any]) -> dict[str, Any]:
        method = arguments["method"]
        params = {
            "notifications/message": {"level": "info", "data": "x" * 60},
            "notifications/progress": {"progressToken": "nobody's", "progress": 1},
            "notifications/resources/updated": {"uri": "memo://nobody-asked"},
        }[method]
        self.flood = json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode() + b"\n"
        return text("begun")

    def tool_stop(self, _id: object, _arguments: dict[str, Any]) -> dict[str, Any]:
        self.flood = b""
        return text(str(self.sent))

    def run(self) -> None:
        held = b""
        while True:
            if self.flood:
                self.write(self.flood * LINES)
                self.sent += LINES
            if not self.flood or select.select([0], [], [], 0)[0]:
                data = os.read(0, 65536)
                if not data:
                    sys.exit()
                *lines, held = (held + data).split(b"\n")
                for line in lines:
                    self.take(line)


if __name__ == "__main__":
    Flooding().run()
