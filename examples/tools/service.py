"""A small service for the examples: weather, tasks, and an agent that speaks A2A. `python service.py [PORT]`."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TASKS = [{"id": 1, "title": "mend the sail", "done": False}, {"id": 2, "title": "buy rope", "done": True}]


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    def do_GET(self) -> None:
        """Weather, tasks, the agent's card."""
        path, _, query = self.path.partition("?")
        head, _, last = path.rpartition("/")
        if path == "/healthz":
            self.answer({"ok": True})
        elif head == "/weather":
            self.answer({"city": last, "now": {"degrees": 50 if "imperial" in query else 10, "sky": "clear"}})
        elif path == "/tasks":
            self.answer([task for task in TASKS if "done=true" not in query or task["done"]])
        elif head == "/tasks" and last.isdecimal() and 0 < int(last) <= len(TASKS):
            self.answer(TASKS[int(last) - 1])
        elif path == "/.well-known/agent-card.json":
            self.answer(self.card())
        else:
            self.answer({"error": f"there is nothing at {path}"}, 404)

    def do_POST(self) -> None:
        """A new task, or a message to the agent."""
        said = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path == "/tasks":
            TASKS.append({"id": len(TASKS) + 1, "title": said["title"], "done": said["done"]})
            self.answer(TASKS[-1], 201)
        elif self.path == "/agent" and said["method"] == "message/send":
            wish = said["params"]["message"]["parts"][0]["text"]
            parts = [{"kind": "text", "text": f"A plan for {wish}: take the night train."}]
            message = {"kind": "message", "role": "agent", "messageId": "1", "parts": parts}
            self.answer({"jsonrpc": "2.0", "id": said["id"], "result": message})
        else:
            self.answer({"error": "not that"}, 404)

    def card(self) -> dict[str, Any]:
        """What the agent says of itself."""
        skill = {"id": "plan", "name": "Plan a trip", "description": "Plans a trip by train.", "tags": ["travel"]}
        return {
            "protocolVersion": "0.3.0",
            "name": "Travel",
            "description": "Plans trips by train.",
            "url": f"http://{self.headers['host']}/agent",
            "preferredTransport": "JSONRPC",
            "version": "1",
            "capabilities": {"streaming": False},
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "skills": [skill],
        }

    def answer(self, value: Any, status: int = 200) -> None:
        """Answer with JSON."""
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
        """Nothing is logged."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if sys.argv[1:] else 8765), Handler)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
