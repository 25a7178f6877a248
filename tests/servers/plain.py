"""A plain MCP server over stdio, and the base of the hostile ones beside it.

Standard library only, and no site packages (`python -ES`), so that it starts in 20 ms. It speaks the
legacy revisions, one message at a time, and keeps all that it was sent for the tool `journal`.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any, ClassVar

Result = dict[str, Any]

LEGACY = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")

_raw = json.JSONDecoder(parse_int=str, parse_float=str)


def handler_name(message: dict[str, Any]) -> str:
    """The method of a server that answers this message."""
    return "on_" + message["method"].replace("/", "_").lower()


def text(words: str) -> Result:
    """A tool result of one text."""
    return {"content": [{"type": "text", "text": words}]}


def tool(name: str, **properties: str) -> dict[str, Any]:
    """A tool definition whose properties have the types given."""
    return {
        "name": name,
        "description": f"The tool {name}.",
        "inputSchema": {"type": "object", "properties": {key: {"type": kind} for key, kind in properties.items()}},
    }


def members(raw: str) -> dict[str, str]:
    """The members of a JSON object, each as the very text that stands there."""
    found: dict[str, str] = {}
    at = _blank(raw, raw.index("{") + 1)
    while raw[at] != "}":
        key, at = _raw.raw_decode(raw, at)
        start = _blank(raw, raw.index(":", at) + 1)
        _, at = _raw.raw_decode(raw, start)
        found[key] = raw[start:at]
        at = _blank(raw, at)
        if raw[at] == ",":
            at = _blank(raw, at + 1)
    return found


def _blank(raw: str, at: int) -> int:
    while raw[at] in " \t\r\n":
        at += 1
    return at


class Server:
    """Answers the handshake, `ping` and the tools; a subclass adds `on_<method>` or `tool_<name>`."""

    capabilities: ClassVar[Result] = {"tools": {"listChanged": True}}

    def __init__(self, newest: str = LEGACY[-1]) -> None:
        self.newest = newest
        """The newest revision that it speaks."""
        self.line = b""
        """The message under way, as it came."""
        self.journal: list[dict[str, Any]] = []
        self.held: list[Any] = []
        self.tools = [
            tool("echo", text="string"),
            tool("journal"),
            tool("raw_arguments"),
            tool("raw_result", raw="string"),
            tool("hold"),
            tool("release"),
        ]

    def run(self) -> None:
        """Serve until standard input ends."""
        for line in sys.stdin.buffer:
            self.take(line)

    def take(self, line: bytes) -> None:
        """Handle one message."""
        if not line.strip():
            return
        self.line = line
        message = json.loads(line, parse_int=_number)
        self.journal.append(message)
        if "method" not in message:
            return
        handler: Callable[..., Result | None] | None = getattr(self, handler_name(message), None)
        params = message.get("params") or {}
        if "id" not in message:
            if handler is not None:
                handler(None, params)
        elif handler is None:
            self.unknown(message)
        else:
            result = handler(message["id"], params)
            if result is not None:
                self.answer(message["id"], result)

    def unknown(self, message: dict[str, Any]) -> None:
        """A request for a method that this server does not have."""
        self.refuse(message["id"], -32601, f"Method not found: {message['method']}")

    def answer(self, id_: object, result: Result) -> None:
        """Send a result."""
        self.send({"jsonrpc": "2.0", "id": id_, "result": result})

    def refuse(self, id_: object, code: int, message: str) -> None:
        """Send an error."""
        self.send({"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": message}})

    def notify(self, method: str, **params: object) -> None:
        """Send a notification."""
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def send(self, message: object) -> None:
        """Send any message."""
        self.write(json.dumps(message).encode() + b"\n")

    def write(self, data: bytes) -> None:
        """Send bytes as they are."""
        view = memoryview(data)
        while view:
            view = view[os.write(1, view) :]

    def on_initialize(self, _id: object, params: dict[str, Any]) -> Result:
        asked = params["protocolVersion"]
        return {
            "protocolVersion": min(asked, self.newest) if asked in LEGACY else self.newest,
            "capabilities": self.capabilities,
            "serverInfo": {"name": type(self).__name__.lower(), "version": "1"},
        }

    def on_ping(self, _id: object, _params: dict[str, Any]) -> Result:
        return {}

    def on_tools_list(self, _id: object, _params: dict[str, Any]) -> Result:
        return {"tools": self.tools}

    def on_tools_call(self, id_: object, params: dict[str, Any]) -> Result | None:
        run = getattr(self, "tool_" + params["name"], None)
        if run is None:
            self.refuse(id_, -32602, f"Unknown tool: {params['name']}")
            return None
        return run(id_, params.get("arguments") or {})

    def tool_echo(self, _id: object, arguments: dict[str, Any]) -> Result:
        return text(arguments.get("text", ""))

    def tool_journal(self, _id: object, _arguments: dict[str, Any]) -> Result:
        """All that this server was sent, as JSON."""
        return text(json.dumps(self.journal))

    def tool_raw_arguments(self, _id: object, _arguments: dict[str, Any]) -> Result:
        """The arguments as the text that arrived."""
        return text(members(members(self.line.decode())["params"])["arguments"])

    def tool_raw_result(self, id_: object, arguments: dict[str, Any]) -> None:
        """Whatever text was asked for, as the result."""
        self.write(b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (json.dumps(id_).encode(), arguments["raw"].encode()))

    def tool_hold(self, id_: object, _arguments: dict[str, Any]) -> None:
        """No answer before `release` is called."""
        self.held.append(id_)

    def tool_release(self, _id: object, _arguments: dict[str, Any]) -> Result:
        """Answers every call that is held; tells how many."""
        held, self.held = self.held, []
        for id_ in held:
            self.answer(id_, text("released"))
        return text(str(len(held)))


def _number(digits: str) -> int | str:
    return int(digits) if len(digits) < 1000 else digits  # Python refuses to read more than 4,300 digits


if __name__ == "__main__":
    Server(*sys.argv[1:]).run()
