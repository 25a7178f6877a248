"""The servers of `asking.py` over HTTP. Standard library only."""

import contextlib
import http.server
import json
import signal
import sys
import threading

from asking import Asking, AskingInRounds, Message
from plain import Server


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection to the server over HTTP."""

    protocol_version = "HTTP/1.1"
    is_modern = False
    lock = threading.RLock()
    said = threading.Condition(lock)
    """Something came in."""
    sessions = 0
    server_for: dict[str, Server] = {}  # noqa: RUF012  # shared by all connections on purpose
    """By session; one for all of them in the modern era."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class's name
        pass

    def do_GET(self) -> None:
        self.reply(405, b"")

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # clients may leave at any time
            super().handle()

    def do_DELETE(self) -> None:
        self.reply(200, b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        message = json.loads(body)
        with self.lock:
            session = self.session_of(message)
            server = self.server_for.setdefault(session, AskingInRounds() if self.is_modern else Asking(session))
        if message.get("method") == "server/discover" and not self.is_modern:
            error = {"code": -32600, "message": "no session"}
            self.reply(400, json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode())
        elif "id" not in message or "method" not in message:
            with self.lock:
                server.send = lambda *messages: None  # type: ignore[method-assign]
                server.take(body)
                self.said.notify_all()
            self.reply(202, b"")
        else:
            self.stream(server, message, body, session)

    def session_of(self, message: Message) -> str:
        if self.is_modern:
            return ""
        if message.get("method") == "initialize":
            Handler.sessions += 1
            return f"session-{Handler.sessions}"
        return self.headers.get("mcp-session-id", "")

    def stream(self, server: Server, message: Message, body: bytes, session: str) -> None:
        """Answer with events, which end with the answer."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("mcp-session-id", session)
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        answered = threading.Event()

        def send(*messages: Message) -> None:
            try:
                events = [f"event: message\ndata: {json.dumps(said)}\n\n" for said in messages]
                self.wfile.write("".join(events).encode())
                self.wfile.flush()
            except OSError:
                answered.set()
            if any(said.get("id") == message["id"] and "method" not in said for said in messages):
                answered.set()

        with self.lock:
            server.send = send  # type: ignore[method-assign]
            server.take(body)
            while not answered.is_set() and not self.is_cancelled(server, message["id"]):
                self.said.wait()

    @staticmethod
    def is_cancelled(server: Server, id_: object) -> bool:
        return any(
            said.get("method") == "notifications/cancelled" and said["params"]["requestId"] == id_
            for said in server.journal
        )

    def reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def serve_http() -> None:
    """Serve until standard input ends."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}/mcp", flush=True)
    sys.stdin.read()
