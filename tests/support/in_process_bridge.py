"""A real bridge in the test process, in front of scripted servers, and clients that call its core directly."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
from msgspec import Raw

from mcpbridge.config.schema import Settings
from mcpbridge.downstream.client import Client
from mcpbridge.downstream.revisions.request_meta import modern_client
from mcpbridge.downstream.server import Server
from mcpbridge.library.bridge import Bridge
from mcpbridge.protocol.jsonrpc import Frame, decode_frame
from mcpbridge.protocol.transport import Transport
from mcpbridge.storage.settings import RunMode
from mcpbridge.upstream.settings import ServerSettings
from support.upstreams.scripted_upstream import ScriptedTransport

__all__ = ["BridgeToScripts", "Ear", "bridged", "envelope"]

Message = dict[str, Any]


def envelope(**meta: Any) -> Message:
    """The `_meta` of a modern request."""
    prefix = "io.modelcontextprotocol/"
    return {prefix + "protocolVersion": "2026-07-28", prefix + "clientCapabilities": {}, **meta}


class BridgeToScripts(Bridge):
    """A bridge whose servers are scripts."""

    def __init__(
        self, settings: Settings, transports: dict[str, ScriptedTransport], *, mode: RunMode = "embedded", **more: Any
    ) -> None:
        super().__init__(settings, mode=mode, **more)
        self.transports = transports

    def _make_transport(self, name: str, settings: ServerSettings) -> Transport:
        return self.transports[name]


@asynccontextmanager
async def bridged(
    transports: dict[str, ScriptedTransport],
    *,
    servers: Message | None = None,
    settle: bool = True,
    mode: RunMode = "embedded",
    redact: Callable[[str], str] | None = None,
    **sections: Any,
) -> AsyncIterator[BridgeToScripts]:
    """A running bridge; `servers` are settings of single servers by name. `mode`, `redact`: see `Engine`.

    Results pass as they come unless a test says otherwise: most tests are about what crosses unchanged.
    """
    sections = {"results": {"strategy": "off"}, **sections}
    how = {name: {"command": "scripted", **(servers or {}).get(name, {})} for name in transports}
    settings = Settings.model_validate({"servers": how, **sections})
    with anyio.fail_after(300):  # ends a test that hangs; one with 5,000 tools took 60 s on a busy machine
        async with BridgeToScripts(settings, transports, mode=mode, redact=redact) as bridge:
            if settle:
                assert await bridge.settled(30)
            yield bridge


class Ear:
    """One client of the core: asks, and keeps what it is told beside its answers."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.client = Client(push=self.take)
        self.told: list[Message] = []
        """What came outside any request."""
        self.meanwhile: list[Message] = []
        """What belonged to requests."""
        self._news = asyncio.Event()
        server.open(self.client)

    async def initialize(self, version: str = "2025-11-25") -> Message:
        """The handshake."""
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "ear", "version": "1"}}
        answer = await self.ask("initialize", params)
        self.tell("notifications/initialized")
        return answer["result"]

    async def raw(self, frame: Frame) -> bytes:
        """Ask, as a legacy client; returns the answer's bytes."""
        return (await self.server.answer(self.client, frame, self.hear)).data

    async def ask(self, method: str, params: Message | None = None, id_: bytes = b"1") -> Message:
        """Ask, as a legacy client."""
        return json.loads(await self.raw(frame_of(method, params, id_)) or b"{}")

    async def ask_modern(self, method: str, params: Message | None = None, id_: bytes = b"1", **meta: Any) -> Message:
        """Ask, as a modern client, on the same channel."""
        frame = frame_of(method, {**(params or {}), "_meta": envelope(**meta)}, id_)
        answer = await self.server.answer(modern_client(frame), frame, self.hear, cancel_as=self.client)
        return json.loads(answer.data or b"{}")

    def tell(self, method: str, params: Message | None = None) -> None:
        """A notification."""
        self.server.notification(self.client, frame_of(method, params, b""))

    def leave(self) -> None:
        """The client goes away."""
        self.server.close(self.client)

    def take(self, message: bytes) -> None:
        self.told.append(json.loads(message))
        self._news.set()

    def hear(self, message: bytes) -> None:
        self.meanwhile.append(json.loads(message))
        self._news.set()

    async def hears(self, method: str, times: int = 1) -> Message:
        """The message with this method, beside a request or in it, now or later."""
        with anyio.fail_after(30):
            while True:
                found = [message for message in [*self.told, *self.meanwhile] if message["method"] == method]
                if len(found) >= times:
                    return found[times - 1]
                self._news.clear()
                await self._news.wait()


def frame_of(method: str, params: Any = None, id_: bytes = b"1") -> Frame:
    """A message of a client."""
    if isinstance(params, Raw):
        return Frame(id=Raw(id_), method=method, params=params)
    message = {"method": method} if params is None else {"method": method, "params": params}
    frame = decode_frame(json.dumps(message).encode())
    frame.id = Raw(id_)
    return frame
