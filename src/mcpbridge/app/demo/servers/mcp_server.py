"""A small MCP server over stdio, for the demo: tools that are functions.

Standard library only, since five of these start at once, and a demo should begin in a moment. It speaks the revisions
with a handshake; the bridge translates for newer clients.
"""

import json
import sys
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

Message = Mapping[str, Any]
Schema = dict[str, Any]
Send = Callable[[Message], None]
"""Sends a notification to the client, while a call runs."""

Steps = Generator[tuple[int, int], None, str]
"""What a tool that takes its time returns: yields how much is done, of how much; its text is returned."""

F = TypeVar("F", bound=Callable[..., object])

_REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")


class ToolFailed(Exception):
    """What the caller gets instead of a result."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool: how it is listed, and what it does."""

    definition: Message
    run: Callable[..., object]


def text(about: str, **more: Any) -> Schema:
    """A text as a parameter. With a `default` it may be left out, as with the others below."""
    return {"type": "string", "description": about, **more}


def integer(about: str, **more: Any) -> Schema:
    """A whole number as a parameter."""
    return {"type": "integer", "description": about, **more}


def number(about: str, **more: Any) -> Schema:
    """A number as a parameter."""
    return {"type": "number", "description": about, **more}


def one_of(about: str, *values: str, **more: Any) -> Schema:
    """One of some texts as a parameter."""
    return {"type": "string", "enum": list(values), "description": about, **more}


class Server:
    """The tools of one server, and its answers to messages."""

    def __init__(self, name: str, instructions: str) -> None:
        self._name, self._instructions = name, instructions
        self._tools: dict[str, Tool] = {}

    def tool(self, about: str, *, reads: bool = False, **parameters: Schema) -> Callable[[F], F]:
        """Offer a function under its name. `reads`: it changes nothing."""

        def add(function: F) -> F:
            definition = {
                "name": function.__name__,
                "description": about,
                "inputSchema": {
                    "type": "object",
                    "properties": parameters,
                    "required": [name for name, schema in parameters.items() if "default" not in schema],
                    "additionalProperties": False,
                },
                "annotations": {"readOnlyHint": reads},
            }
            self._tools[function.__name__] = Tool(definition, function)
            return function

        return add

    def answer(self, message: Message, send: Send) -> Message | None:
        """The response to a request; None for what wants none."""
        if "id" not in message or "method" not in message:
            return None
        result = self._result(message["method"], message.get("params") or {}, send)
        said: Message = (
            {"error": {"code": -32601, "message": "Method not found"}} if result is None else {"result": result}
        )
        return {"jsonrpc": "2.0", "id": message["id"], **said}

    def run(self) -> None:
        """Serve on standard input and output until the input ends."""

        def send(message: Message) -> None:
            sys.stdout.write(json.dumps(message) + "\n")
            sys.stdout.flush()

        for line in sys.stdin:
            answered = self.answer(json.loads(line), send)
            if answered is not None:
                send(answered)

    def _result(self, method: str, params: Message, send: Send) -> Message | None:
        if method == "initialize":
            asked = params.get("protocolVersion")
            return {
                "protocolVersion": asked if asked in _REVISIONS else _REVISIONS[-1],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": self._name, "version": "1.0.0"},
                "instructions": self._instructions,
            }
        if method == "tools/list":
            return {"tools": [tool.definition for tool in self._tools.values()]}
        if method == "tools/call":
            return self._called(params, send)
        return {} if method == "ping" else None

    def _called(self, params: Message, send: Send) -> Message:
        try:
            tool = self._tools[params["name"]]
            said = tool.run(**_with_defaults(tool, params.get("arguments") or {}))
            if isinstance(said, Generator):
                meta: Message = params.get("_meta") or {}
                said = _followed(cast("Steps", said), meta.get("progressToken"), send)
        except (ToolFailed, OSError, ValueError, KeyError, TypeError) as error:
            return {"content": [{"type": "text", "text": f"{type(error).__name__}: {error}"}], "isError": True}
        shown = said if isinstance(said, str) else json.dumps(said, indent=2, ensure_ascii=False)
        return {"content": [{"type": "text", "text": shown}]}


def _with_defaults(tool: Tool, arguments: Message) -> Message:
    properties: Mapping[str, Schema] = tool.definition["inputSchema"]["properties"]
    defaults = {name: schema["default"] for name, schema in properties.items() if "default" in schema}
    return {**defaults, **arguments}


def _followed(steps: Steps, token: object, send: Send) -> str:
    """The text of a tool that takes its time; its progress goes to a client that asked for it."""
    while True:
        try:
            done, total = next(steps)
        except StopIteration as end:
            return end.value
        if token is not None:
            params = {"progressToken": token, "progress": done, "total": total}
            send({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
