"""Servers that behave in ways which once froze the bridge or lost something; the first argument says which."""

import os
import sys
import time
from typing import Any, ClassVar

from modern import Modern
from plain import Result, Server, text, tool

CUT = 100_000
"""Bytes of an answer after which a server dies."""

LATER = 0.2
"""Seconds from a line of noise to the answer: longer than any reader waits for the rest of an object."""


class DiesTalking(Server):
    """Dies inside a string that is full of quotes, as answers are that carry JSON as text."""

    def __init__(self) -> None:
        super().__init__()
        self.tools.append(tool("cut"))

    def tool_cut(self, id_: object, _arguments: dict[str, Any]) -> None:
        head = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"' % id_
        self.write((head + rb"\"a\": 1, " * CUT)[:CUT])
        os._exit(3)


class LeavesWriter(Server):
    """Ends, and leaves a child that writes to its standard output for ever; in a session of its own if asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.tools.append(tool("leave", own_session="boolean"))

    def tool_leave(self, _id: object, arguments: dict[str, Any]) -> None:
        if os.fork() == 0:
            if arguments["own_session"]:
                os.setsid()
            while True:
                os.write(1, b"y\n" * 1000)
        os._exit(3)


class Noisy(Server):
    """Prints a line that is no message, and only later the answer. The second argument comes in the handshake."""

    def __init__(self, at_start: str) -> None:
        super().__init__()
        self.at_start = at_start
        self.tools.append(tool("print", line="string"))

    def on_initialize(self, _id: object, params: dict[str, Any]) -> Result:
        if self.at_start:
            self.print_line(self.at_start)
        return super().on_initialize(_id, params)

    def tool_print(self, _id: object, arguments: dict[str, Any]) -> Result:
        self.print_line(arguments["line"])
        return text("unspoiled")

    def print_line(self, line: str) -> None:
        self.write(line.encode() + b"\n")
        time.sleep(LATER)


class HidesPrompts(Server):
    """Declares prompts, and never answers who asks for them."""

    capabilities: ClassVar[Result] = {"tools": {}, "prompts": {}}

    def on_prompts_list(self, _id: object, _params: dict[str, Any]) -> None:
        pass


class BreaksList(Server):
    """Two pages of tools, of which `break_list` breaks one (`first` or `second`) and says that the list changed."""

    def __init__(self) -> None:
        super().__init__()
        self.tools.append(tool("break_list", page="string"))
        self.broken = ""

    def on_tools_list(self, id_: object, params: dict[str, Any]) -> Result | None:
        page = "second" if "cursor" in params else "first"
        if page == self.broken:
            self.refuse(id_, -32603, "the database is locked")
            return None
        return {"tools": [tool("of_page_two")]} if page == "second" else {"tools": self.tools, "nextCursor": "2"}

    def tool_break_list(self, _id: object, arguments: dict[str, Any]) -> Result:
        self.broken = arguments["page"]
        self.notify("notifications/tools/list_changed")
        return text("broken")

    def tool_of_page_two(self, _id: object, _arguments: dict[str, Any]) -> Result:
        return text("here")


class GrowsUnheard(Modern):
    """Has one more tool when the first listen stream opens, which nobody could be told of."""

    def on_subscriptions_listen(self, id_: object, params: dict[str, Any]) -> None:
        if not self.streams:
            self.tools.append(tool("unheard"))
        super().on_subscriptions_listen(id_, params)


class Logs(Server):
    """Logs during calls what the caller says, before it answers."""

    capabilities: ClassVar[Result] = {"tools": {}, "logging": {}}

    def __init__(self) -> None:
        super().__init__()
        self.tools.append(tool("tell", words="string"))

    def on_logging_setlevel(self, _id: object, _params: dict[str, Any]) -> Result:
        return {}

    def tool_tell(self, _id: object, arguments: dict[str, Any]) -> Result:
        self.notify("notifications/message", level="debug", data=arguments["words"])
        return text(arguments["words"])


if __name__ == "__main__":
    {
        "breaks-list": BreaksList,
        "dies-talking": DiesTalking,
        "grows-unheard": GrowsUnheard,
        "hides-prompts": HidesPrompts,
        "leaves-writer": LeavesWriter,
        "logs": Logs,
        "noisy": lambda: Noisy("".join(sys.argv[2:])),
    }[sys.argv[1]]().run()
