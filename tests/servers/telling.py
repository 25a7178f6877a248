"""A server that fails with any text, in any of the ways in which servers fail.

Standard library only.
"""

import os
from typing import Any

from plain import Result, Server, text, tool


class Telling(Server):
    """Says what it is told to say."""

    def __init__(self) -> None:
        super().__init__()
        self.capabilities = {"tools": {"listChanged": True}, "logging": {}}  # type: ignore[misc]
        self.tools += [tool("fail", how="string", text="string")]

    def on_logging_setlevel(self, _id: object, _params: dict[str, Any]) -> Result:
        return {}

    def tool_fail(self, id_: object, arguments: dict[str, Any]) -> Result | None:
        how, words = arguments["how"], arguments["text"]
        if how == "error":
            self.send(
                {"jsonrpc": "2.0", "id": id_, "error": {"code": -32000, "message": words, "data": {"why": words}}}
            )
            return None
        if how == "result":
            return {**text(words), "structuredContent": {"why": words}, "isError": True}
        if how == "stderr":
            os.write(2, words.encode() + b"\n")
        if how == "log":
            self.notify("notifications/message", level="error", data={"why": words})
        if how == "exit":
            os.write(2, words.encode() + b"\n")
            os._exit(3)
        return text(words)


if __name__ == "__main__":
    Telling().run()
