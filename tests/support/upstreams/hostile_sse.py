"""An HTTP+SSE server (2024-11-05) that is well until one moment, and then does one thing wrong.

The moment is `GET` (the stream), or a method of the bridge's. Faults of the POST come as its answer; those of the
stream, whose names begin with `stream:`, as what is said on it. It is `HostileServer` otherwise.
"""

import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from support.upstreams.hostile_http import LARGE, SECRET, Message, result_of, status
from support.upstreams.hostile_http import HostileServer as HttpServer
from support.upstreams.scripted_http import Ask, chunk, events_head, http_server, reply

__all__ = ["SSE_FAULTS", "HostileSse", "hostile_sse"]


class HostileSse(HttpServer):
    """The server's side, and the stream that it answers on."""

    def __init__(self, moment: str, fault: str) -> None:
        super().__init__(moment, fault)
        self.said: Ask | None = None
        """The GET whose answer is the stream."""

    async def answer(self, ask: Ask) -> bytes | None:
        moment = "GET" if ask.method == "GET" else ask.message.get("method", "answer")
        if moment == "tools/call":
            self.calls += 1
        if not self.is_well and moment == self.moment:
            self.strikes += 1
            self.struck.set()
            return await SSE_FAULTS[self.fault](self, ask)
        return await self.well(ask)

    async def well(self, ask: Ask) -> bytes | None:
        """The good answer: events on the stream, and 202 to a POST."""
        if ask.method == "GET":
            self.said = ask
            await ask.say(events_head(), chunk(b"event: endpoint\ndata: /messages?s=1\n\n"))
            await ask.gone()
            return None
        if "id" in ask.message and "method" in ask.message:
            await self.say(self.event(ask))
        return reply(status=202)

    async def say(self, *parts: bytes) -> None:
        """Say this on the stream."""
        assert self.said is not None
        with suppress(ConnectionError):
            await self.said.say(*parts)

    def event(self, ask: Ask, **changes: Any) -> bytes:
        """The good answer as an event, with other members."""
        return said_event(self.message(ask, **changes))


def said_event(message: Message) -> bytes:
    """A message as an event of the stream."""
    return chunk(b"event: message\ndata: " + json.dumps(message).encode() + b"\n\n")


Fault = Callable[[HostileSse, Ask], Awaitable[bytes | None]]


def on_stream(make: Callable[[HostileSse, Ask], bytes]) -> Fault:
    """These bytes on the stream in place of the answer; the POST is taken."""

    async def act(server: HostileSse, ask: Ask) -> bytes:
        await server.say(make(server, ask))
        return reply(status=202)

    return act


def ends_stream(make: Callable[[HostileSse, Ask], bytes], *, resets: bool = False) -> Fault:
    """The same, and the end of the stream."""

    async def act(server: HostileSse, ask: Ask) -> bytes:
        await server.say(make(server, ask))
        assert server.said is not None
        if resets:
            sock = server.said.writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            server.said.writer.transport.abort()
        else:
            server.said.writer.close()
        return reply(status=202)

    return act


def opens_with(data: bytes, *, ends: bool = False, head: bytes = b"") -> Fault:
    """An event stream that begins so."""

    async def act(server: HostileSse, ask: Ask) -> None:
        await ask.say(head or events_head(), data)
        if ends:
            ask.writer.close()
        else:
            await ask.gone()

    return act


async def _silent(server: HostileSse, ask: Ask) -> None:
    await ask.gone()


async def _post_silent(server: HostileSse, ask: Ask) -> None:
    await server.say(server.event(ask))
    await ask.gone()


async def _post_closed(server: HostileSse, ask: Ask) -> None:
    ask.writer.close()


async def _post_closed_answered(server: HostileSse, ask: Ask) -> None:
    await server.say(server.event(ask))
    ask.writer.close()


async def _in_body(server: HostileSse, ask: Ask) -> bytes:
    return reply(server.message(ask))


SSE_FAULTS: dict[str, Fault] = {
    **{f"status {number}": status(number) for number in (301, 400, 401, 403, 404, 405, 410, 429, 500, 502, 503, 504)},
    "status 429 with Retry-After": status(429, retry_after="7"),
    "a web page": lambda server, ask: _page(),
    "silent": _silent,
    "closes before the answer": _post_closed,
    "garbage": opens_with(b"", head=bytes(range(256)), ends=True),
    "no endpoint": opens_with(b""),
    "no endpoint, and the end": opens_with(b"", ends=True),
    "another event than the endpoint": opens_with(chunk(b"event: message\ndata: {}\n\n")),
    "an endpoint elsewhere": opens_with(chunk(b"event: endpoint\ndata: http://203.0.113.9/messages\n\n")),
    "an endpoint that is no URL": opens_with(chunk(b"event: endpoint\ndata: http://[::1\n\n")),
    "an endless line": opens_with(chunk(b"data: " + b"x" * LARGE)),
    "never answers the POST, but on the stream": _post_silent,
    "closes the POST, and answers on the stream": _post_closed_answered,
    "answers in the body of the POST": _in_body,
    "stream: nothing": on_stream(lambda server, ask: b""),
    "stream: answer twice": on_stream(lambda server, ask: server.event(ask) * 2),
    "stream: comments before": on_stream(lambda server, ask: chunk(b": ping\n\n") + server.event(ask)),
    "stream: text before": on_stream(lambda server, ask: chunk(b"data: hello\n\n") + server.event(ask)),
    "stream: no JSON": on_stream(lambda server, ask: chunk(b"data: {jsonrpc\n\n")),
    "stream: cut off": on_stream(
        lambda server, ask: chunk(b"data: " + json.dumps(server.message(ask)).encode()[:-3] + b"\n\n")
    ),
    "stream: too large": on_stream(lambda server, ask: server.event(ask, x="y" * LARGE)),
    "stream: id of another": on_stream(lambda server, ask: server.event(ask, id=987_654)),
    "stream: id as text": on_stream(lambda server, ask: server.event(ask, id=str(ask.id))),
    "stream: id missing": on_stream(lambda server, ask: server.event(ask, id=...)),
    "stream: result null": on_stream(lambda server, ask: server.event(ask, result=None)),
    "stream: error": on_stream(
        lambda server, ask: server.event(ask, result=..., error={"code": -32000, "message": "out of order"})
    ),
    "stream: revision unknown": on_stream(
        lambda server, ask: server.event(
            ask, result={**(result_of("initialize") or {}), "protocolVersion": "2031-01-01"}
        )
    ),
    "stream: ends": ends_stream(lambda server, ask: chunk(b"")),
    "stream: is cut": ends_stream(lambda server, ask: b""),
    "stream: is cut in an event": ends_stream(lambda server, ask: chunk(b"data: {")),
    "stream: is reset": ends_stream(lambda server, ask: b"", resets=True),
    "stream: answers, and is reset": ends_stream(lambda server, ask: server.event(ask), resets=True),
}
"""What may go wrong in place of an answer."""


async def _page() -> bytes:
    return reply(f"<title>Sign in {SECRET}</title>".encode(), content_type="text/html")


@asynccontextmanager
async def hostile_sse(moment: str, fault: str) -> AsyncIterator[HostileSse]:
    """A running one."""
    server = HostileSse(moment, fault)

    async def script(ask: Ask) -> bytes | None:
        return await server.answer(ask)

    async with http_server(script) as serving:
        server.url = serving.url
        yield server
