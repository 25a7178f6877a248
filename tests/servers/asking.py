"""Servers that ask back as their caller says: `asking.py legacy|modern [http]`.

The legacy one has the tool `play`, whose argument is what it does meanwhile, step by step:

    {"send": MESSAGE}    any message; "$call" in it becomes the id of the call, "$token" its progress token
    {"await": [IDS]}     wait until these requests of ours are answered
    {"answer": RESULT}   the answer to the call; left out: all the answers that came, by id, as JSON
    {"refuse": ERROR}    an error as the answer
    {"refuse_once": ERROR}   the same, the first time that this is done; and no further step

The modern one has the tool `rounds`, whose argument says what it answers each time: `input_required` results, in which
`requestState` is the number of the round, then the answers of the last round with its state.

Both do the same for the prompt `play` or `rounds`, whose argument is the JSON of that, and for the resource `memo://it`,
which asks who is there.

With `http` it prints its URL on the first line of standard output. With `journal=PATH` all that every instance is sent
goes there too, a line each: [instance, message]. Standard library only.
"""

import contextlib
import http.server
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from modern import Modern
from plain import Result, Server, text, tool

Message = dict[str, Any]
Send = Callable[..., None]
"""Takes messages; several go out in one piece, so that they arrive as those of a server that asks all at once."""


class Play:
    """One call of `play` under way."""

    def __init__(self, id_: object, params: Message, send: Send, refused: set[str]) -> None:
        """`refused`: what was refused before."""
        self.send, self.refused = send, refused
        token = (params.get("_meta") or {}).get("progressToken")
        words = json.dumps(params["arguments"]["steps"])
        words = words.replace('"$call"', json.dumps(id_)).replace('"$token"', json.dumps(token))
        self.steps: list[Message] = json.loads(words)
        self.id = id_
        self.asked: set[str] = set()
        self.answers: Message = {}
        self.is_over = self.is_answered = False

    def go_on(self) -> None:
        """All steps that can be done now."""
        while self.steps and not self.is_over:
            step = self.steps[0]
            if any(json.dumps(id_) not in self.answers for id_ in step.get("await", [])):
                return
            if "send" in step:
                self.say()
                continue
            self.steps.pop(0)
            if "refuse" in step:
                self.finish(error=step["refuse"])
            elif "answer" in step:
                self.finish(result=step["answer"])
            elif "refuse_once" in step and (key := json.dumps(step)) not in self.refused:
                self.refused.add(key)
                self.steps.clear()
                self.finish(error=step["refuse_once"])
        self.is_over = True
        if not self.is_answered:
            self.finish(result=text(json.dumps(self.answers)))

    def say(self) -> None:
        """What is to be sent next."""
        said: list[Message] = []
        while self.steps and "send" in self.steps[0]:
            said.append({"jsonrpc": "2.0", **self.steps.pop(0)["send"]})
            self.asked.add(json.dumps(said[-1].get("id")))
        self.send(*said)

    def finish(self, **outcome: Any) -> None:
        self.is_answered = True
        self.send({"jsonrpc": "2.0", "id": self.id, **outcome})

    def answered(self, message: Message) -> None:
        if (id_ := json.dumps(message["id"])) in self.asked:
            self.answers[id_] = message.get("result", {"error": message.get("error")})
            self.go_on()


def note(instance: object, line: bytes) -> None:
    """Write into the common journal."""
    for word in sys.argv:
        if word.startswith("journal="):
            with Path(word.removeprefix("journal=")).open("ab") as journal:
                journal.write(b"[%b,%b]\n" % (json.dumps(instance).encode(), line.strip()))


WHO: Message = {"method": "elicitation/create", "params": {"message": "Who is there?", "requestedSchema": {}}}
IT: Message = {"uri": "memo://it", "name": "it"}
CONTENTS: Message = {"contents": [{"uri": "memo://it", "text": "it"}]}


class Asking(Server):
    """Legacy, on standard input and output."""

    capabilities: ClassVar[Result] = {"tools": {"listChanged": True}, "prompts": {}, "resources": {}}

    def __init__(self, instance: object = None) -> None:
        super().__init__()
        self.tools += [tool("play", steps="array"), tool("where")]
        self.plays: list[Play] = []
        self.refused: set[str] = set()
        self.instance = instance or os.getpid()

    def send(self, *messages: object) -> None:
        self.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    def tool_where(self, _id: object, _arguments: Message) -> Result:
        """Which instance this is, and where it works."""
        return text(json.dumps([self.instance, str(Path.cwd())]))

    def take(self, line: bytes) -> None:
        note(self.instance, line)
        super().take(line)
        message = json.loads(line)
        if "method" not in message:
            for play in list(self.plays):
                play.answered(message)
        self.plays = [play for play in self.plays if not play.is_over]

    def on_tools_call(self, id_: object, params: Message) -> Result | None:
        if params["name"] != "play":
            return super().on_tools_call(id_, params)
        self.play(id_, params)
        return None

    def on_prompts_list(self, _id: object, _params: Message) -> Result:
        return {"prompts": [{"name": "play", "arguments": [{"name": "steps"}]}]}

    def on_prompts_get(self, id_: object, params: Message) -> None:
        self.play(id_, {**params, "arguments": {"steps": json.loads(params["arguments"]["steps"])}})

    def on_resources_list(self, _id: object, _params: Message) -> Result:
        return {"resources": [IT]}

    def on_resources_read(self, id_: object, params: Message) -> None:
        steps = [{"send": {"id": "who", **WHO}}, {"await": ["who"]}, {"answer": CONTENTS}]
        self.play(id_, {**params, "arguments": {"steps": steps}})

    def play(self, id_: object, params: Message) -> None:
        play = Play(id_, params, self.send, self.refused)
        self.plays.append(play)
        play.go_on()

    def on_notifications_cancelled(self, _id: object, params: Message) -> None:
        self.plays = [play for play in self.plays if play.id != params["requestId"]]


class AskingInRounds(Modern):
    """Modern, on standard input and output."""

    def __init__(self) -> None:
        super().__init__()
        self.tools += [tool("rounds", rounds="array"), tool("say", messages="array")]

    def take(self, line: bytes) -> None:
        note(os.getpid(), line)
        super().take(line)

    def on_tools_call(self, id_: object, params: Message) -> Result | None:
        if params["name"] != "rounds":
            return super().on_tools_call(id_, params)
        return rounds(params)

    def on_server_discover(self, id_: object, params: Message) -> Result:
        found = super().on_server_discover(id_, params)
        return {**found, "capabilities": {**found["capabilities"], "prompts": {}, "resources": {}}}

    def on_prompts_list(self, _id: object, _params: Message) -> Result:
        return {"prompts": [{"name": "rounds", "arguments": [{"name": "rounds"}]}], "ttlMs": 1, "cacheScope": "public"}

    def on_prompts_get(self, _id: object, params: Message) -> Result:
        result = rounds({**params, "arguments": {"rounds": json.loads(params["arguments"]["rounds"])}})
        return {"messages": []} if "content" in result else result

    def on_resources_list(self, _id: object, _params: Message) -> Result:
        return {"resources": [IT], "ttlMs": 1, "cacheScope": "public"}

    def on_resources_read(self, _id: object, params: Message) -> Result:
        result = rounds({**params, "arguments": {"rounds": [{"inputRequests": {"who": WHO}}]}})
        return {**CONTENTS, "ttlMs": 1, "cacheScope": "public"} if "content" in result else result

    def tool_say(self, _id: object, arguments: Message) -> Result:
        """Sends these messages, which it may not, and then answers."""
        for message in arguments["messages"]:
            self.send({"jsonrpc": "2.0", **message})
        return text("said")


def rounds(params: Message) -> Result:
    """What the tool `rounds` answers."""
    planned = params["arguments"]["rounds"]
    number = int(params.get("requestState", "0"))
    if number < len(planned):
        return {"resultType": "input_required", "requestState": str(number + 1), **planned[number]}
    return text(json.dumps({"answers": params.get("inputResponses"), "state": params.get("requestState")}))


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


if __name__ == "__main__":
    if "http" in sys.argv:
        Handler.is_modern = "modern" in sys.argv
        serve_http()
    elif "modern" in sys.argv:
        AskingInRounds().run()
    else:
        Asking().run()
