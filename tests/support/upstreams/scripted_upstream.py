"""Upstream servers inside the test process: the `Transport` protocol with a script behind it.

What a server answers to a method stands in its script: a result, a `Refusal`, an error of the bridge (the transport
failed), `SILENCE`, or a function of the params that returns one of these. Nothing here knows more of MCP than that.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import anyio
from msgspec import Raw

from mcpbridge.base.errors import BridgeError, UpstreamGone
from mcpbridge.core.elicitation import ClientCapabilities, Elicitor, Question, Unreachable
from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import decode_frame
from mcpbridge.protocol.transport import Outgoing, Receiver, TransportKind
from mcpbridge.upstream.pool import Pool
from mcpbridge.upstream.session.listings import Lists
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.supervisor import Upstream

__all__ = [
    "LEGACY_SERVER",
    "MODERN_SERVER",
    "SILENCE",
    "Line",
    "Refusal",
    "ScriptedTransport",
    "Someone",
    "Watcher",
    "call_of",
    "pool_of",
    "supervised",
]

Message = dict[str, Any]

SILENCE: Final = "silence"
"""No answer at all."""


@dataclass(frozen=True)
class Refusal:
    """A JSON-RPC error."""

    code: int = -32601
    message: str = "Method not found"
    data: Any = None


Reply = Message | Refusal | BridgeError | str
Script = Mapping[str, Any]
"""By method, what is answered. `send METHOD`: the error that sending it raises, or a function that makes it."""

LEGACY_SERVER: Script = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {"listChanged": True}},
        "serverInfo": {"name": "scripted", "version": "1"},
        "instructions": "be kind",
    },
    "ping": {},
    "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
    "tools/call": {"content": [{"type": "text", "text": "done"}]},
}

MODERN_SERVER: Script = {
    "server/discover": {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {"listChanged": True}, "resources": {"subscribe": True}},
        "instructions": "be modern",
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "scripted", "version": "2"}},
    },
    "tools/list": LEGACY_SERVER["tools/list"],
    "resources/list": {"resources": []},
    "resources/templates/list": {"resourceTemplates": []},
    "tools/call": LEGACY_SERVER["tools/call"],
    "subscriptions/listen": SILENCE,
}


class Line:
    """One connection: a `Channel` to the script."""

    def __init__(self, transport: "ScriptedTransport", receiver: Receiver) -> None:
        self._transport, self.receiver = transport, receiver
        self.heard: list[Message] = []
        """All that was sent to the server, in order."""
        self.versions: list[str] = []
        self.is_open = True

    def send(self, message: Outgoing) -> None:
        if not self.is_open:
            raise UpstreamGone("up", "the connection has ended")
        refuse = self._transport.script.get(f"send {message.method}")
        if refuse is not None and (error := refuse() if callable(refuse) else refuse) is not None:
            raise error  # the channel is full, or the like
        parsed = json.loads(message.data)
        assert parsed.get("method", "") == message.method
        self.heard.append(parsed)
        if "id" in parsed and "method" in parsed:
            asyncio.get_running_loop().call_soon(self._answer, parsed, message.id)
        self._transport.news()

    def withdraw(self, id_: bytes) -> bool:
        return False

    def negotiated(self, version: str) -> None:
        self.versions.append(version)

    def says(self, method: str, **params: Any) -> None:
        """A notification of the server."""
        self.gives({"jsonrpc": "2.0", "method": method, "params": params})

    def gives(self, message: Message) -> None:
        """Any message of the server."""
        if self.is_open:
            self.receiver.frame(decode_frame(json.dumps(message).encode()), b"")

    def ends(self, reason: str) -> None:
        """The server goes away by itself."""
        self.is_open = False
        self.receiver.closed(reason)

    def asked(self, method: str) -> list[Message]:
        """The messages with this method."""
        return [message for message in self.heard if message.get("method") == method]

    def _answer(self, request: Message, id_: bytes) -> None:
        reply = self._transport.script.get(request["method"], Refusal())
        if callable(reply):
            reply = reply(request.get("params", {}))
        match reply:
            case BridgeError():
                self.receiver.failed(id_, reply, sent=True)
            case Refusal(code, message, data):
                error = {"code": code, "message": message, **({} if data is None else {"data": data})}
                self.gives({"jsonrpc": "2.0", "id": request["id"], "error": error})
            case dict():
                self.gives({"jsonrpc": "2.0", "id": request["id"], "result": reply})
            case _:
                assert reply is SILENCE


class ScriptedTransport:
    """Connects to the script, as often as it is asked to. Change `script` at any time."""

    def __init__(self, script: Script, **more: Reply | Callable[[Message], Reply]) -> None:
        self.script: dict[str, Any] = {**script, **more}
        self.lines: list[Line] = []
        """All connections, the newest last."""
        self.refuses: list[Exception] = []
        """Errors of the next attempts to connect."""
        self.attempts = 0
        self.kind: TransportKind = "stdio"
        """Which rules to find out the era by."""
        self.words = ""
        """What the server last wrote to standard error."""
        self._news = asyncio.Event()

    @asynccontextmanager
    async def connect(self, receiver: Receiver) -> AsyncIterator[Line]:
        self.attempts += 1
        self.news()
        if self.refuses:
            raise self.refuses.pop(0)
        line = Line(self, receiver)
        self.lines.append(line)
        try:
            yield line
        finally:
            line.is_open = False

    def last_words(self) -> str:
        return self.words

    @property
    def line(self) -> Line:
        """The newest connection."""
        return self.lines[-1]

    def asked(self, method: str) -> list[Message]:
        """The messages with this method on all connections."""
        return [message for line in self.lines for message in line.asked(method)]

    async def hears(self, method: str, times: int = 1) -> Message:
        """Return the message when this method has been heard so many times, now or later."""
        with anyio.fail_after(30):
            while len(found := self.asked(method)) < times:
                await self._news.wait()
        return found[times - 1]

    async def answer(self, id_: object) -> Message:
        """The answer to a request of the server with this id, now or later."""
        with anyio.fail_after(30):
            while True:
                for message in [message for line in self.lines for message in line.heard]:
                    if "method" not in message and message["id"] == id_:
                        return message
                await self._news.wait()

    async def tries(self, times: int) -> None:
        """Return when so many attempts to connect were made."""
        with anyio.fail_after(30):
            while self.attempts < times:
                await self._news.wait()

    def news(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


class Someone:
    """An `Elicitor` behind calls, who can be asked `form`, `sampling`, `roots`, and answers once `answer` is set."""

    relays = False

    def __init__(self, *, home: object = None, project: str = "", **profile: bool) -> None:
        capabilities: Message = {"sampling": {}} if profile.get("sampling") else {}
        capabilities |= {"roots": {}} if profile.get("roots") else {}
        capabilities |= {"elicitation": {}} if profile.get("form") else {}
        self.capabilities = ClientCapabilities.declared(capabilities, "2025-11-25")
        self.owner: object = self
        self.principal = ""
        self.home = self if home is None else home
        self.answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self.asked: list[Question] = []
        self.is_away = False
        self._project = project

    async def ask(self, question: Question) -> Raw:
        if self.is_away:
            raise Unreachable("away")
        self.asked.append(question)
        return Raw(json.dumps(await asyncio.shield(self.answer)).encode())

    def finished(self, question: Question) -> None:
        pass

    def give_way(self, server: str) -> bool:
        return False

    async def project(self) -> str:
        return self._project


class Watcher:
    """An `Observer` that keeps what it is told, and lets a test wait for it."""

    def __init__(self) -> None:
        self.states: list[str] = []
        self.reasons: list[str] = []
        self.offers: list[Lists] = []
        self.updated: list[Message] = []
        self.logs: list[Message] = []
        self.completed: list[Message] = []
        self.bystander: Elicitor | None = None
        """Who can be asked outside of any call."""
        self._news = asyncio.Event()

    def offered(self, upstream: Upstream, lists: Lists) -> None:
        self.offers.append(lists)
        self._news.set()

    def introduced(self, upstream: Upstream) -> tuple[str, str]:
        return upstream.own_instructions, upstream.own_title

    def resource_updated(self, upstream: Upstream, params: Raw) -> None:
        self.updated.append(json.loads(bytes(params)))
        self._news.set()

    def logged(self, upstream: Upstream, params: Raw) -> None:
        self.logs.append(json.loads(bytes(params)))
        self._news.set()

    def elicitation_completed(self, upstream: Upstream, params: Raw) -> None:
        self.completed.append(json.loads(bytes(params)))
        self._news.set()

    def beside(self, upstream: Upstream) -> Elicitor | None:
        return self.bystander

    def stepped(self, upstream: Upstream) -> None:
        self.states.append(upstream.status.state)
        self.reasons.append(upstream.status.reason)
        self._news.set()

    async def until(self, is_true: Callable[[], object]) -> None:
        """Return once this is true; looked at whenever the upstream told something."""
        with anyio.fail_after(30):
            while not is_true():
                self._news.clear()
                await self._news.wait()

    async def reaches(self, state: str, times: int = 1) -> None:
        """Return once the upstream has come to this state so many times."""
        await self.until(lambda: self.states.count(state) >= times)


@asynccontextmanager
async def supervised(transport: ScriptedTransport, **settings: Any) -> AsyncIterator[tuple[Upstream, Watcher]]:
    """An upstream with its owner task, and who watches it."""
    watcher = Watcher()
    how = ServerSettings.model_validate({"command": "scripted", **settings})
    upstream = Upstream("up", how, transport, watcher, client_info={"name": "mcpbridge", "version": "1"})
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(upstream.run)
            yield upstream, watcher
            tasks.cancel_scope.cancel()


def pool_of(transports: dict[str, ScriptedTransport], watcher: Watcher | None = None, **settings: Any) -> Pool:
    """A pool of these; `settings` are by name."""
    servers = {name: ServerSettings.model_validate({"command": "x", **settings.get(name, {})}) for name in transports}
    return Pool(servers, lambda name, _: transports[name], watcher or Watcher(), client_info={"name": "b"})


def call_of(name: str = "echo", **more: Any) -> Call:
    """A call of a tool."""
    params = Body(json.dumps({"name": name, "arguments": {}}).encode())
    return Call("tools/call", "up", name, params, **more)
