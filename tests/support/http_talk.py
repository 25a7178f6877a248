"""A client of the HTTP front without sockets: its connections are in memory, so each byte has its turn of the loop."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, cast

import httptools

from mcpbridge.downstream.auth.bearer_tokens import Authenticator
from mcpbridge.downstream.http.app import HttpFront
from mcpbridge.downstream.http.connection import Connections, Http1Connection
from mcpbridge.downstream.settings import HttpSettings
from support.in_process_bridge import BridgeToScripts
from support.lane_steps import Message, Talk, envelope, turns

__all__ = ["HttpTalk", "Wire"]

BOTH = "application/json, text/event-stream"


class Wire(asyncio.Transport):
    """One connection, and what came on it."""

    def __init__(self, connections: Connections, hear: Callable[[bytes], None]) -> None:
        super().__init__()
        self.protocol: Http1Connection = connections.connect()
        self.hear = hear
        self.responses: list[tuple[int, str]] = []
        """Status and content type of each response that is complete."""
        self.written: list[bytes] = []
        """Each write."""
        self.waits = 0
        """Requests without a whole response."""
        self.is_closed = False
        self.session = ""
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._body = b""
        self.protocol.connection_made(self)

    # What the client does

    def send(self, data: bytes) -> None:
        """Send bytes of requests."""
        self.protocol.data_received(data)

    def leave(self) -> None:
        """Close it."""
        if not self.is_closed:
            self.is_closed = True
            self.protocol.connection_lost(None)

    # What the front does with it

    def write(self, data: Any) -> None:
        if not self.is_closed:
            self.written.append(bytes(data))
            self._parser.feed_data(bytes(data))

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    abort = close

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    # What its parser finds

    def on_message_begin(self) -> None:
        self._headers, self._body = {}, b""

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode().lower()] = value.decode()

    def on_headers_complete(self) -> None:
        self.session = self._headers.get("mcp-session-id", self.session)

    def on_body(self, body: bytes) -> None:
        self._body += body
        if self._headers["content-type"] == "text/event-stream":
            *events, self._body = self._body.split(b"\n\n")
            for event in events:
                data = b"".join(line[6:] for line in event.split(b"\n") if line.startswith(b"data: "))
                if data:
                    self.hear(data)

    def on_message_complete(self) -> None:
        kind = self._headers.get("content-type", "")
        self.responses.append((self._parser.get_status_code(), kind))
        self.waits -= 1
        if self._body and kind == "application/json":
            self.hear(self._body)


class HttpTalk(Talk):
    """One client that speaks streamable HTTP, with a legacy session: each message goes on a connection that is free."""

    def __init__(self, bridge: BridgeToScripts, *, accept: str = BOTH, http: HttpSettings | None = None) -> None:
        super().__init__(bridge)
        self.conversation.close()  # its messages have another way
        self._server, self._accept = bridge.server, accept
        self.version = ""
        self.front = HttpFront(bridge, http or HttpSettings(), Authenticator([]))
        self.connections = Connections(self.front, self.front.take)
        self.wires: list[Wire] = []
        self.of: dict[str, Wire] = {}
        """The connection of each request, by its id."""
        self._places: dict[str, int] = {}

    @property
    def session(self) -> str:
        """The id of its session."""
        return next((wire.session for wire in self.wires if wire.session), "")

    def request(self, message: Message | None, method: str = "POST") -> bytes:
        """The bytes of a request."""
        body = b"" if message is None else json.dumps({"jsonrpc": "2.0", **message}).encode()
        lines = [f"{method} /mcp HTTP/1.1", "host: localhost", f"accept: {self._accept}"]
        lines += ["content-type: application/json", f"content-length: {len(body)}"]
        lines += [f"mcp-session-id: {self.session}"] if self.session else []
        lines += [f"mcp-protocol-version: {self.version}"] if self.version else []
        return "\r\n".join([*lines, "", ""]).encode() + body

    def free(self) -> Wire:
        """A connection on which nothing is waited for."""
        for wire in self.wires:
            if not wire.waits and not wire.is_closed:
                return wire
        self.wires.append(Wire(self.connections, self._take))
        return self.wires[-1]

    def say(self, *messages: Message) -> None:
        """Send these at once, each on a connection of its own."""
        for message in messages:
            wire = self.free()
            if "id" in message and "method" in message:
                self.of[json.dumps(message["id"])] = wire
                self._places[json.dumps(message["id"])] = len(wire.responses)
            wire.waits += 1
            wire.send(self.request(message))

    async def begin(self, version: str = "2025-06-18", capabilities: Message | None = None) -> None:
        """Introduce itself, and call each tool once."""
        await super().begin(version, capabilities)
        self.version = version if version > "2025-03-26" else ""
        [self.client] = self._server.listeners.clients

    async def end(self) -> None:
        """End the session, and close all connections."""
        if self.session:
            wire = self.free()
            wire.waits += 1
            wire.send(self.request(None, "DELETE"))
        await turns()
        for wire in self.wires:
            wire.leave()
        await self.front.stop(0.02)
        await self.connections.close(0.02)

    @property
    def responses(self) -> dict[str, list[tuple[int, str]]]:
        """Status and content type of the response to each request, by its id; an empty list: there was none."""
        return {id_: self.of[id_].responses[place : place + 1] for id_, place in self._places.items()}


class ModernHttpTalk(HttpTalk):
    """One client of 2026-07-28: each request stands alone, and says who sends it."""

    def __init__(self, bridge: BridgeToScripts, *, accept: str = BOTH, http: HttpSettings | None = None) -> None:
        super().__init__(bridge, accept=accept, http=http)
        self.version = "2026-07-28"
        self._envelope: Message = {}

    def request(self, message: Message | None, method: str = "POST") -> bytes:
        """The bytes of a request, with its envelope, and the headers that repeat it."""
        if message is None or "method" not in message:
            return super().request(message, method)
        params: Message = message.get("params", {})
        said: Any = params.get("_meta", {})
        meta: object = {**self._envelope, **cast("Message", said)} if isinstance(said, dict) else said
        head, _, body = super().request({**message, "params": {**params, "_meta": meta}}, method).partition(b"\r\n\r\n")
        lines = [head, b"mcp-method: " + message["method"].encode()]
        lines += [b"mcp-name: " + params["name"].encode()] if "name" in params else []
        return b"\r\n".join([*lines, b"", b""]) + body

    async def begin(self, version: str = "", capabilities: Message | None = None) -> None:
        """Call each tool once, so that its plan is there."""
        self._envelope = envelope(capabilities)
        for tool in ("up__echo", "up__other"):
            self.say(self.call(f"warm {tool}", tool=tool))
            await self.answer(f"warm {tool}")
