"""A server of revision 2026-07-28 that asks before it acts: `rounds.py JOURNAL HOST`, with a line for each action.

It is over HTTP, and prints its port: so any bridge may continue what another one began.
"""

import http.server
import json
import os
import sys
import time
from typing import Any, ClassVar

from modern import Modern
from plain import Result, text, tool

FORM = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}


class Rounds(Modern):
    """`ask(id)` asks for a word in its first round, and acts in the second."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.tools = [tool("ask", id="string")]
        self._file = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.sent = b""

    def write(self, data: bytes) -> None:
        self.sent = data

    def on_server_discover(self, id_: object, params: dict[str, Any]) -> Result:
        return {**super().on_server_discover(id_, params), "capabilities": {"tools": {}}}

    def tool_ask(self, _id: object, arguments: dict[str, Any]) -> Result:
        name, params = str(arguments["id"]), self.journal[-1]["params"]
        if params.get("requestState") != name:
            question = {"method": "elicitation/create", "params": {"message": name, "requestedSchema": FORM}}
            return {"resultType": "input_required", "requestState": name, "inputRequests": {"word": question}}
        os.write(self._file, f"{name} {time.monotonic()}\n".encode())
        word = params["inputResponses"]["word"].get("content", {}).get("word", "")
        return text(json.dumps([name, os.getpid(), word]))


class Handler(http.server.BaseHTTPRequestHandler):
    """One request after the other."""

    protocol_version = "HTTP/1.1"
    timeout = 1
    """Seconds after which a connection that is kept gives way to others."""
    server_for: ClassVar[Rounds]

    def do_POST(self) -> None:
        self.server_for.sent = b""
        self.server_for.take(self.rfile.read(int(self.headers["content-length"])))
        body = self.server_for.sent
        self.send_response(200 if body else 202)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.send_error(405)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class's name
        pass


if __name__ == "__main__":
    Handler.server_for = Rounds(sys.argv[1])
    with http.server.HTTPServer((sys.argv[2], 0), Handler) as listening:
        print(listening.server_port, flush=True)
        listening.serve_forever()
