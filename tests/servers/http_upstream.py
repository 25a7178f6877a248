"""A streamable HTTP server, legacy revisions, whose tool `fail` goes wrong in every way that HTTP can.

Prints its URL on the first line of standard output. Standard library only.
"""

import http.server
import json
import signal
import sys
import threading
import zlib
from typing import Any

from plain import LEGACY, Result, text, tool

BOMB = 200_000_000
"""Bytes that the compressed body unpacks to."""

TOOLS = [
    tool("echo", text="string"),
    tool("journal"),
    tool("fail", how="string"),
    tool("forget_sessions"),
    tool("note", text="string"),
]


class State:
    """What all requests share."""

    def __init__(self) -> None:
        self.sessions: set[str] = set()
        self.notes: dict[str, list[str]] = {}
        """What each session keeps."""
        self.forgets = False
        """No session outlives the request that began it."""
        self.count = 0
        self.journal: list[Any] = []
        self.stopped = threading.Event()


STATE = State()


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class's name
        pass

    def do_GET(self) -> None:
        self.reply(405, b"", allow="POST, DELETE")

    def do_DELETE(self) -> None:
        session = self.headers.get("mcp-session-id", "")
        STATE.journal.append({"method": "DELETE", "session": session})
        STATE.sessions.discard(session)
        self.reply(200, b"")

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        STATE.journal.append(message)
        session = self.headers.get("mcp-session-id", "")
        if message.get("method") == "initialize":
            STATE.count += 1
            session = f"session-{STATE.count}"
            if not STATE.forgets:
                STATE.sessions.add(session)
        elif message.get("method") == "server/discover":
            self.reply(400, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no session"}}')
            return
        elif message.get("method") != "notifications/initialized" and session not in STATE.sessions:
            self.reply(404, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}')
            return
        if "id" not in message or "method" not in message:
            self.reply(202, b"")
        elif (result := self.result(message)) is not None:
            self.answer(message["id"], result, **{"mcp-session-id": session})

    def result(self, message: dict[str, Any]) -> Result | None:
        """The result of a request; None when the answer is already given."""
        params = message.get("params") or {}
        match message["method"]:
            case "initialize":
                asked = params["protocolVersion"]
                version = asked if asked in LEGACY else LEGACY[-1]
                info = {"name": "http", "version": "1"}
                return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
            case "tools/list":
                return {"tools": TOOLS}
            case "tools/call":
                return self.call(message["id"], params["name"], params.get("arguments") or {})
            case _:
                return {}

    def call(self, id_: Any, name: str, arguments: dict[str, Any]) -> Result | None:
        match name:
            case "echo":
                return text(arguments["text"])
            case "journal":
                return text(json.dumps(STATE.journal))
            case "note":
                session = self.headers["mcp-session-id"]
                STATE.notes.setdefault(session, []).append(arguments["text"])
                return text(json.dumps([session, *STATE.notes[session]]))
            case "forget_sessions":
                STATE.sessions.clear()
                STATE.forgets = bool(arguments.get("for_good"))
                return text("forgotten")
            case _:
                return self.fail(id_, arguments["how"])

    def fail(self, id_: Any, how: str) -> None:
        """Go wrong."""
        good = json.dumps({"jsonrpc": "2.0", "id": id_, "result": text("readable")}).encode()
        kind = how.split()[0]
        match kind:
            case "status":
                self.reply(int(how.split()[1]), b"the reason in words", **{"retry-after": "7"})
            case "gzip-bomb":
                self.reply(200, bomb(id_), **{"content-type": "application/json", "content-encoding": "gzip"})
            case "gzip-broken":
                headers = {"content-type": "application/json", "content-encoding": "gzip"}
                self.reply(200, b"\x1f\x8b\x08\x00 this is not gzip", **headers)
            case "malformed":
                self.reply(200, good[:-10], **{"content-type": "application/json"})
            case "html":
                self.reply(200, b"<html>Sign in, please</html>", **{"content-type": "text/html"})
            case "empty":
                self.reply(200, b"", **{"content-type": "application/json"})
            case "redirect":
                self.reply(302, b"", location="http://203.0.113.1/elsewhere")
            case "sse-good":
                self.stream(b": hello\n\nevent: message\ndata: " + good + b"\n\n")
            case "sse-cut":
                self.stream(b"event: message\ndata: " + good[:20])
            case "sse-malformed":
                self.stream(b"event: message\ndata: " + good[:-10] + b"\n\n")
            case "sse-endless":
                self.stream(b"event: message\ndata: " + good + b"\n\n", then_wait=True)
            case "sse-silent":
                self.stream(b": nothing yet\n\n", then_wait=True)
            case "cut":
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", "1000")
                self.end_headers()
                self.wfile.write(good)
                self.close_connection = True
            case "hang-up":
                self.close_connection = True
            case _:
                raise ValueError(how)

    def answer(self, id_: Any, result: Result, **headers: str) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": id_, "result": result}).encode()
        self.reply(200, body, **{"content-type": "application/json", **headers})

    def reply(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def stream(self, data: bytes, *, then_wait: bool = False) -> None:
        """Send events; then end, or stay open for ever."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()
        self.close_connection = True
        if then_wait:
            STATE.stopped.wait()


def bomb(id_: Any) -> bytes:
    """A small gzip body that unpacks to 200 MB of proper JSON."""
    packer = zlib.compressobj(1, wbits=31)
    head = f'{{"jsonrpc":"2.0","id":{json.dumps(id_)},"result":{{"content":[{{"type":"text","text":"'.encode()
    body = packer.compress(head)
    block = b"x" * 1_000_000
    for _ in range(BOMB // len(block)):
        body += packer.compress(block)
    return body + packer.compress(b'"}]}}') + packer.flush()


def main() -> None:
    """Serve until standard input ends."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}/mcp", flush=True)
    sys.stdin.read()
    STATE.stopped.set()


if __name__ == "__main__":
    main()
