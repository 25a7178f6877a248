"""The cheapest MCP server that Python can be, over stdio: the measured work is the bridge's.

upstream_stdio.py [TOOLS]      serves TOOLS tools (at least two): `echo` returns `text`; `rows` returns n records as a
                               JSON array; the rest are dummies of an ordinary size. A call with the argument
                               `progress` says how far it is before its result, if it has a token for that.

Answers are encoded once and kept, so that a 1 MB result costs this server next to nothing from its second call on.
"""

import os
import sys
from functools import cache
from typing import Any

import orjson

__all__ = ["answer", "set_tools"]


def _tool(name: str, description: str, properties: dict[str, Any], required: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": [required]}
    return {"name": name, "description": description, "inputSchema": schema}


_TOOLS = [
    _tool("echo", "Return the text unchanged.", {"text": {"type": "string"}}, "text"),
    _tool("rows", "Return n records as a JSON array.", {"n": {"type": "integer"}}, "n"),
]


def set_tools(count: int) -> None:
    """Add dummies until there are `count` tools."""
    for i in range(count - len(_TOOLS)):
        properties = {
            "path": {"type": "string", "description": "Path of the file"},
            "limit": {"type": "integer", "description": "How many to return", "default": 10},
        }
        about = f"Dummy tool number {i} that does thing {i * 7919 % 104729}."
        _TOOLS.append(_tool(f"tool_{i}", about, properties, "path"))


@cache
def _listing() -> bytes:
    return orjson.dumps({"tools": _TOOLS})


@cache
def _rows(count: int) -> bytes:
    rows = [
        {
            "id": i,
            "sha": f"{i * 2654435761 % 2**32:08x}" * 5,
            "author": f"user{i % 17}",
            "message": f"commit number {i} fixes issue {i * 31 % 977}",
        }
        for i in range(count)
    ]
    return _text(orjson.dumps(rows).decode())


def _text(text: str) -> bytes:
    return orjson.dumps({"content": [{"type": "text", "text": text}], "isError": False})


def answer(message: dict[str, Any]) -> bytes:
    """The whole response to a request, encoded."""
    match message["method"]:
        case "tools/call":
            params = message["params"]
            arguments = params.get("arguments") or {}
            result = _rows(arguments.get("n", 10)) if params["name"] == "rows" else _text(arguments.get("text", ""))
        case "tools/list":
            result = _listing()
        case "initialize":
            asked = message["params"].get("protocolVersion", "2025-06-18")
            result = orjson.dumps(
                {
                    "protocolVersion": min(asked, "2025-11-25"),
                    "capabilities": {"tools": {"listChanged": False}},
                    "serverInfo": {"name": "bench-upstream", "version": "1"},
                }
            )
        case "ping":
            result = b"{}"
        case _:
            error = b'{"code":-32601,"message":"Method not found"}'
            return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (orjson.dumps(message["id"]), error)
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (orjson.dumps(message["id"]), result)


def _progress(message: dict[str, Any]) -> bytes:
    params = message.get("params") or {}
    token = (params.get("_meta") or {}).get("progressToken")
    if token is None or not (params.get("arguments") or {}).get("progress"):
        return b""
    said = {"progressToken": token, "progress": 1}
    return orjson.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": said}) + b"\n"


def main() -> None:
    rest = b""
    while chunk := os.read(0, 1 << 20):
        *lines, rest = (rest + chunk).split(b"\n")
        messages = [orjson.loads(line) for line in lines if line.strip()]
        data = b"".join(
            _progress(message) + answer(message) + b"\n"
            for message in messages
            if "id" in message and "method" in message
        )
        while data:
            data = data[os.write(1, data) :]


if __name__ == "__main__":
    set_tools(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
    main()
