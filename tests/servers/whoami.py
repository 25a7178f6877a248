"""A server that says with which variable it was started; without `USER_TOKEN` it does not start."""

import os
import sys
from typing import Any

from plain import Server, text, tool


class WhoAmI(Server):
    """One tool."""

    def __init__(self) -> None:
        super().__init__()
        self.tools = [tool("whoami")]

    def tool_whoami(self, id_: object, arguments: dict[str, Any]) -> None:
        self.answer(id_, text(f"{os.environ['USER_TOKEN']} {os.getpid()}"))


if __name__ == "__main__":
    if not os.environ.get("USER_TOKEN"):
        sys.exit("USER_TOKEN is not set")
    WhoAmI().run()
