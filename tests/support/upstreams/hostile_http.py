"""A streamable HTTP server that is well until one moment, and then does one thing wrong.

The moment is a method of the bridge's, `GET` (the session's own stream), or `all` for every request. It runs in the
test process on real sockets, and says each answer byte by byte.
"""

import asyncio
import gzip
import json
import socket
import ssl
import struct
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import trustme

from support.upstreams.scripted_http import Ask, chunk, closed_port, event, events_head, http_server, reply

__all__ = ["FAULTS", "SECRET", "TEXT", "HostileServer", "hostile_http", "result_of"]

Message = dict[str, Any]

TEXT = "hostile and well"
"""What a call answers that is answered."""
SECRET = "sk-hostile-0123456789abcdef"
"""What the bridge sends as a header, and what faulty servers repeat."""
LARGE = 2 << 20
"""Bytes of a message that is over the limit of the tests."""
_SESSIONS = {"GET", "DELETE"}


def result_of(method: str) -> Message | None:
    """What a good server of the handshake era answers."""
    return {
        "initialize": {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "hostile", "version": "1"},
        },
        "tools/list": {"tools": [{"name": "work", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": TEXT}]},
        "ping": {},
    }.get(method)


class HostileServer:
    """The server's side: what it has seen, and whether it is well again."""

    def __init__(self, moment: str, fault: str) -> None:
        self.moment, self.fault = moment, fault
        self.is_well = False
        self.has_stream = False
        """The session has a stream of its own: GET is answered."""
        self.calls = 0
        """How often a `tools/call` has come."""
        self.strikes = 0
        """How often the fault has shown."""
        self.struck = asyncio.Event()
        self.sessions: set[str] = set()
        self.count = 0
        self.stream: asyncio.Queue[bytes] = asyncio.Queue()
        """What is to be said on the session's own stream."""
        self.url = ""

    async def answer(self, ask: Ask) -> bytes | None:
        """Answer a request, or go wrong."""
        moment = ask.method if ask.method in _SESSIONS else ask.message.get("method", "answer")
        if moment == "tools/call":
            self.calls += 1
        if not self.is_well and self.moment in (moment, "all"):
            self.strikes += 1
            self.struck.set()
            return await FAULTS[self.fault](self, ask)
        return await self.well(ask)

    async def well(self, ask: Ask) -> bytes | None:
        """The good answer."""
        if ask.method == "GET":
            return await self._tell(ask) if self.has_stream else reply(status=405)
        if ask.method == "DELETE":
            return reply(status=200)
        method = ask.message.get("method", "")
        if method == "server/discover":
            error = {"code": -32600, "message": "no session"}
            return reply({"jsonrpc": "2.0", "id": None, "error": error}, 400)
        session = ask.headers.get("mcp-session-id", "")
        if method != "initialize" and self.sessions and session not in self.sessions:
            return reply({"jsonrpc": "2.0", "id": None, "error": {"code": -32001, "message": "Session not found"}}, 404)
        if "id" not in ask.message or not method:
            return reply(status=202)
        if method == "initialize":
            return reply(self.message(ask), mcp_session_id=self.begin())
        return reply(self.message(ask))

    def begin(self) -> str:
        """A new session."""
        self.count += 1
        session = f"session-{self.count}"
        self.sessions.add(session)
        return session

    def message(self, ask: Ask, **changes: Any) -> Message:
        """The good answer's message, with other members; `...` leaves one out."""
        asked: Message = ask.message if ask.body else {"id": 987_654, "method": "tools/call"}
        result = result_of(asked.get("method", ""))
        message: Message = {"jsonrpc": "2.0", "id": asked.get("id")}
        if result is None:
            message["error"] = {"code": -32601, "message": "Method not found"}
        else:
            message["result"] = result
        return {name: value for name, value in {**message, **changes}.items() if value is not ...}

    def body(self, ask: Ask, **changes: Any) -> bytes:
        """The same as bytes."""
        return json.dumps(self.message(ask, **changes)).encode()

    async def _tell(self, ask: Ask) -> bytes | None:
        await ask.say(events_head())
        while True:
            await ask.say(await self.stream.get())


Fault = Callable[[HostileServer, Ask], Awaitable[bytes | None]]


def said(make: Callable[[HostileServer, Ask], bytes]) -> Fault:
    """These bytes in place of the answer."""

    async def act(server: HostileServer, ask: Ask) -> bytes:
        return make(server, ask)

    return act


def json_with(**headers: str) -> Fault:
    """The good answer with other headers."""
    return said(lambda server, ask: reply(server.body(ask), **headers))


def altered(**changes: Any) -> Fault:
    """The answer with other members."""
    return said(lambda server, ask: reply(server.body(ask, **changes)))


def raw(make: Callable[[bytes], bytes], **headers: str) -> Fault:
    """The good answer's bytes, made into others."""
    return said(lambda server, ask: reply(make(server.body(ask)), **headers))


def status(number: int, **headers: str) -> Fault:
    """A status, with the secret in its words."""
    words = f"no entry with the key {SECRET}".encode()
    return said(lambda server, ask: reply(words, number, content_type="text/plain", **headers))


def redirect(number: int, where: str) -> Fault:
    """`where` may hold `{port}`."""

    def make(server: HostileServer, ask: Ask) -> bytes:
        port = server.url.rpartition(":")[2].partition("/")[0]
        return reply(status=number, location=where.format(port=port))

    return said(make)


def moved(number: int) -> Fault:
    """A redirect to another path of the same server, where the answer is."""

    async def act(server: HostileServer, ask: Ask) -> bytes | None:
        return reply(status=number, location="/moved") if ask.path == "/mcp" else await server.well(ask)

    return act


def then_close(make: Callable[[HostileServer, Ask], bytes]) -> Fault:
    """These bytes, and the end of the connection."""

    async def act(server: HostileServer, ask: Ask) -> None:
        await ask.say(make(server, ask))
        ask.writer.close()

    return act


def then_reset(make: Callable[[HostileServer, Ask], bytes]) -> Fault:
    """These bytes, and a reset of the connection."""

    async def act(server: HostileServer, ask: Ask) -> None:
        await ask.say(make(server, ask))
        sock = ask.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        ask.writer.transport.abort()

    return act


def then_wait(make: Callable[[HostileServer, Ask], bytes]) -> Fault:
    """These bytes, and nothing more until the client leaves."""

    async def act(server: HostileServer, ask: Ask) -> None:
        await ask.say(make(server, ask))
        await ask.gone()

    return act


def dripping(make: Callable[[HostileServer, Ask], bytes], size: int = 1) -> Fault:
    """These bytes, some at a time, each in a packet of its own."""

    async def act(server: HostileServer, ask: Ask) -> None:
        data = make(server, ask)
        for place in range(0, len(data), size):
            await ask.say(data[place : place + size])
            await asyncio.sleep(0.0005)

    return act


def stream(*parts: Callable[[HostileServer, Ask], bytes], ends: bool = True) -> Fault:
    """An event stream of these; `ends` in good order, or stays open."""

    async def act(server: HostileServer, ask: Ask) -> None:
        await ask.say(events_head(), *(part(server, ask) for part in parts))
        if ends:
            await ask.say(chunk(b""))
        else:
            await ask.gone()

    return act


def answered(server: HostileServer, ask: Ask) -> bytes:
    """The good answer as an event."""
    return event(server.message(ask))


def lines(*parts: bytes) -> Callable[[HostileServer, Ask], bytes]:
    """Lines of an event stream as they are; `ANSWER` in them is the good answer."""
    return lambda server, ask: chunk(b"".join(parts).replace(b"ANSWER", server.body(ask)))


def _head(server: HostileServer, ask: Ask) -> bytes:
    return reply(server.body(ask)).partition(b"\r\n\r\n")[0] + b"\r\n\r\n"


def _cut(server: HostileServer, ask: Ask) -> bytes:
    return reply(server.body(ask), content_length="100000")


def _bomb(server: HostileServer, ask: Ask) -> bytes:
    packer = zlib.compressobj(1, wbits=31)
    head, _, tail = server.body(ask).partition(TEXT.encode() if TEXT.encode() in server.body(ask) else b"hostile")
    body = packer.compress(head)
    for _ in range(30):
        body += packer.compress(b"x" * 1_000_000)
    return reply(body + packer.compress(tail) + packer.flush(), content_encoding="gzip")


async def _resumed(server: HostileServer, ask: Ask) -> None:
    """Ends the stream after an id; the answer comes to a GET that names it."""
    server.moment = "GET"
    message = server.message(ask)

    async def on_get(server: HostileServer, again: Ask) -> bytes | None:
        if again.headers.get("last-event-id") != "7":
            return reply(status=405)
        await again.say(events_head(), event(message, id="8"), chunk(b""))
        return None

    FAULTS["resumed"] = on_get
    server.fault = "resumed"
    await ask.say(events_head(), event(id="7", retry=1), chunk(b""))


def _broken_off(on_get: Fault | None, *, retry: int | None = 1) -> Fault:
    """Ends the stream after an id; `on_get` is what comes of the resumption."""

    async def act(server: HostileServer, ask: Ask) -> None:
        if on_get is not None:
            FAULTS["resumption"] = on_get
            server.moment, server.fault = "GET", "resumption"
        await ask.say(events_head(), event(id="7", retry=retry), chunk(b""))

    return act


async def _elsewhere(server: HostileServer, ask: Ask) -> None:
    """The answer comes on the session's own stream; the request's own stays open."""
    await ask.say(events_head())
    server.stream.put_nowait(answered(server, ask))
    await ask.gone()


async def _elsewhere_202(server: HostileServer, ask: Ask) -> bytes:
    server.stream.put_nowait(answered(server, ask))
    return reply(status=202)


async def _forgets_once(server: HostileServer, ask: Ask) -> bytes | None:
    server.is_well = True
    server.sessions.clear()
    server.sessions.add("none")
    server.calls = 0  # this one was refused, so it was not run
    return await server.well(ask)


async def _forgets(server: HostileServer, ask: Ask) -> bytes:
    server.calls = 0  # it was refused, so it was not run
    return reply({"jsonrpc": "2.0", "id": None, "error": {"code": -32001, "message": "Session not found"}}, 404)


async def _closes_unused(server: HostileServer, ask: Ask) -> bytes | None:
    """Answers, and closes the connection afterwards without having said so."""
    answer = await server.well(ask)
    await ask.say(answer or b"")
    ask.writer.close()
    return None


def _with_session(value: str) -> Fault:
    async def act(server: HostileServer, ask: Ask) -> bytes:
        server.sessions.clear()
        return reply(server.body(ask), mcp_session_id=value)

    return act


async def _session_changes(server: HostileServer, ask: Ask) -> bytes:
    return reply(server.body(ask), mcp_session_id=server.begin())


async def _silent(server: HostileServer, ask: Ask) -> None:
    await ask.gone()


_REDIRECTS = {
    "another path of its own": "",
    "itself": "/mcp",
    "another server": "http://localhost:{port}/mcp",
    "https": "https://127.0.0.1:{port}/mcp",
    "a file": "file:///etc/passwd",
    "nowhere": "",
}

FAULTS: dict[str, Fault] = {
    **{
        f"status {number}": status(number)
        for number in (400, 401, 402, 403, 404, 405, 406, 408, 409, 410, 413, 415, 418, 421, 422, 429)
    },
    **{f"status {number}": status(number) for number in (500, 501, 502, 503, 504, 599, 999)},
    "status 429 with Retry-After": status(429, retry_after="7"),
    "status 503 with Retry-After": status(503, retry_after="7"),
    "status 429 with an unreadable Retry-After": status(429, retry_after="soon"),
    "status 401 with a bearer challenge": status(401, www_authenticate='Bearer realm="x"'),
    "status 401 with an unreadable challenge": status(401, www_authenticate='===;"'),
    "status 403 with missing rights": status(403, www_authenticate='Bearer error="insufficient_scope", scope="write"'),
    "status 500 with a JSON-RPC error": said(
        lambda server, ask: reply(server.body(ask, result=..., error={"code": -32000, "message": "out of order"}), 500)
    ),
    "status 400 with a JSON-RPC error": said(
        lambda server, ask: reply(server.body(ask, result=..., error={"code": -32000, "message": "out of order"}), 400)
    ),
    "status 400 that does not know the revision": said(
        lambda server, ask: reply(b"Bad Request: Unsupported protocol version", 400, content_type="text/plain")
    ),
    "status 500 whose body never ends": then_wait(lambda server, ask: reply(b"x", 500, content_length="9")),
    **{
        f"{number} to {where}": moved(number) if where.startswith("another path") else redirect(number, target)
        for number in (301, 302, 303, 307, 308)
        for where, target in _REDIRECTS.items()
    },
    "status 304": said(lambda server, ask: reply(status=304)),
    "a web page": said(
        lambda server, ask: reply(f"<title>Sign in {SECRET}</title>".encode(), content_type="text/html")
    ),
    "plain text": said(lambda server, ask: reply(f"ok {SECRET}".encode(), content_type="text/plain")),
    "JSON called text": json_with(content_type="text/plain"),
    "JSON without a content type": json_with(content_type=""),
    "JSON called an event stream": json_with(content_type="text/event-stream"),
    "an event stream called JSON": said(
        lambda server, ask: reply(b"event: message\ndata: " + server.body(ask) + b"\n\n")
    ),
    "another charset named": json_with(content_type='application/json; charset="utf-16"'),
    "UTF-16": raw(lambda body: body.decode().encode("utf-16"), content_type="application/json; charset=utf-16"),
    "Latin-1": raw(lambda body: body.replace(b"hostile", b"h\xf6stile")),
    "byte order mark": raw(lambda body: b"\xef\xbb\xbf" + body),
    "many lines": raw(lambda body: json.dumps(json.loads(body), indent=2).encode()),
    "batch": raw(lambda body: b"[" + body + b"]"),
    "empty": raw(lambda body: b""),
    "blanks": raw(lambda body: b" \r\n "),
    "status 202": said(lambda server, ask: reply(status=202)),
    "status 204": said(lambda server, ask: b"HTTP/1.1 204 No Content\r\n\r\n"),
    "status 206": said(lambda server, ask: reply(server.body(ask), 206)),
    "cut off": raw(lambda body: body[:-3]),
    "no JSON": raw(lambda body: b"{jsonrpc: 2.0}"),
    "null": raw(lambda body: b"null"),
    "too large": altered(x="y" * LARGE),
    "nested": raw(lambda body: body[:-1] + b', "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "id of another": altered(id=987_654),
    "id as text": said(lambda server, ask: reply(server.body(ask, id=str(ask.id)))),
    "id missing": altered(id=...),
    "id null": altered(id=None),
    "neither result nor error": altered(result=...),
    "result null": altered(result=None),
    "result a string": altered(result="done"),
    "error": altered(result=..., error={"code": -32603, "message": "out of order"}),
    "error a string": altered(result=..., error="boom"),
    "a length that is too long": then_close(_cut),
    "a length that is too short": said(lambda server, ask: reply(server.body(ask), content_length="20")),
    "two lengths": then_close(
        lambda server, ask: reply(server.body(ask)).replace(b"\r\n\r\n", b"\r\ncontent-length: 7\r\n\r\n", 1)
    ),
    "a length that is no number": then_close(lambda server, ask: reply(server.body(ask), content_length="many")),
    "chunks that end early": then_close(
        lambda server, ask: (
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
            + chunk(server.body(ask))[:-9]
        )
    ),
    "chunks without the last": then_close(
        lambda server, ask: (
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
            + chunk(server.body(ask))
        )
    ),
    "a chunk whose size is no number": then_close(
        lambda server, ask: b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"
    ),
    "no length, and the end": then_close(
        lambda server, ask: b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n" + server.body(ask)
    ),
    "closes before the answer": then_close(lambda server, ask: b""),
    "closes within the head": then_close(lambda server, ask: b"HTTP/1.1 200 OK\r\ncontent-ty"),
    "resets before the answer": then_reset(lambda server, ask: b""),
    "resets within the head": then_reset(lambda server, ask: b"HTTP/1.1 200 OK\r\ncontent-ty"),
    "resets within the body": then_reset(_cut),
    "garbage": then_close(lambda server, ask: bytes(range(256)) * 8),
    "another protocol": then_close(lambda server, ask: b"SSH-2.0-OpenSSH_9.6\r\n"),
    "HTTP/1.0": then_close(lambda server, ask: reply(server.body(ask)).replace(b"HTTP/1.1", b"HTTP/1.0", 1)),
    "HTTP/2": then_close(lambda server, ask: reply(server.body(ask)).replace(b"HTTP/1.1", b"HTTP/2", 1)),
    "a head without end": then_wait(lambda server, ask: b"HTTP/1.1 200 OK\r\n" + b"x-filler: 0123456789\r\n" * 20_000),
    "100 Continue before": said(lambda server, ask: b"HTTP/1.1 100 Continue\r\n\r\n" + reply(server.body(ask))),
    "status 101": then_wait(
        lambda server, ask: b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n"
    ),
    "answers twice": said(lambda server, ask: reply(server.body(ask)) * 2),
    "head drips": dripping(lambda server, ask: reply(server.body(ask)), size=1),
    "body drips": dripping(lambda server, ask: reply(server.body(ask)), size=7),
    "silent": _silent,
    "a head and no body": then_wait(_head),
    "half a body": then_wait(_cut),
    "says continue for ever": then_wait(lambda server, ask: b"HTTP/1.1 100 Continue\r\n\r\n" * 3),
    "closes the connection afterwards": _closes_unused,
    "gzip": raw(gzip.compress, content_encoding="gzip"),
    "gzip bomb": said(_bomb),
    "broken gzip": raw(lambda body: b"\x1f\x8b\x08\x00 this is not gzip", content_encoding="gzip"),
    "gzip cut off": raw(lambda body: gzip.compress(body)[:-12], content_encoding="gzip"),
    "gzip that is none": raw(lambda body: body, content_encoding="gzip"),
    "unknown encoding": raw(lambda body: body, content_encoding="zpaq"),
    "unknown encoding of binary": raw(lambda body: bytes(range(128, 256)) * 8, content_encoding="zpaq"),
    "brotli": raw(lambda body: b"\x0b\x02\x80" + body[:20], content_encoding="br"),
    "events: answer": stream(answered),
    "events: answer, and no end": stream(answered, ends=False),
    "events: answer twice": stream(answered, answered),
    "events: comments and pings before": stream(lines(b": hello\n\n", b"event: ping\ndata: {}\n\n"), answered),
    "events: no JSON before": stream(lines(b"data: hello\n\n"), answered),
    "events: a spoiled notification before": stream(
        lines(b'data: {"jsonrpc":"2.0","method":"notifications/message","params":{"a":}}\n\n'), answered
    ),
    "events: CR ends": stream(lines(b"event: message\rdata: ANSWER\r\r")),
    "events: byte order mark": stream(lines(b"\xef\xbb\xbfdata: ANSWER\n\n")),
    "events: unknown fields": stream(lines(b"data\nfoo: bar\n:\nretry: x\nid: \0\ndata: ANSWER\n\n")),
    "events: unknown kind": stream(lines(b"event: endpoint\ndata: ANSWER\n\n")),
    "events: no blank line at the end": stream(lines(b"data: ANSWER\n")),
    "events: none": stream(),
    "events: none, and no end": stream(ends=False),
    "events: notifications without end": stream(
        *[lambda server, ask: event({"jsonrpc": "2.0", "method": "notifications/message", "params": {}})] * 50,
        ends=False,
    ),
    "events: cut within an event": then_close(
        lambda server, ask: events_head() + chunk(b"data: " + server.body(ask)[:20])
    ),
    "events: reset": then_reset(lambda server, ask: events_head() + chunk(b"data: " + server.body(ask)[:20])),
    "events: no JSON": stream(lines(b"data: {jsonrpc\n\n")),
    "events: too large": stream(lambda server, ask: event(server.message(ask, x="y" * LARGE))),
    "events: too large, without end": stream(lambda server, ask: chunk(b"data: " + b"y" * LARGE), ends=False),
    "events: id of another": stream(lambda server, ask: event(server.message(ask, id=987_654))),
    "events: id of another, and no end": stream(lambda server, ask: event(server.message(ask, id=987_654)), ends=False),
    "events: id missing": stream(lambda server, ask: event(server.message(ask, id=...))),
    "events: id as text": stream(lambda server, ask: event(server.message(ask, id=str(ask.id)))),
    "events: result null": stream(lambda server, ask: event(server.message(ask, result=None))),
    "events: broken off, answered at the resumption": _resumed,
    "events: broken off, the resumption refused": _broken_off(status(405)),
    "events: broken off, the resumption unknown": _broken_off(status(404)),
    "events: broken off, the resumption fails": _broken_off(status(503)),
    "events: broken off, the resumption empty": _broken_off(stream()),
    "events: broken off, the resumption silent": _broken_off(_silent),
    "events: broken off, the resumption without end": _broken_off(stream(ends=False)),
    "answers on the session's stream": _elsewhere,
    "status 202, answers on the session's stream": _elsewhere_202,
    "no session id": _with_session(""),
    "a session id with illegal characters": _with_session("sess\xf6on 1"),
    "a session id of 5,000 characters": _with_session("s" * 5_000),
    "a session id with each answer": _session_changes,
    "forgets the session once": _forgets_once,
    "forgets each session": _forgets,
    "revision unknown": altered(result={**(result_of("initialize") or {}), "protocolVersion": "2031-01-01"}),
    "revision of the other era": altered(result={**(result_of("initialize") or {}), "protocolVersion": "2026-07-28"}),
    "revision missing": altered(result={"capabilities": {}}),
    "capabilities a list": altered(result={"protocolVersion": "2025-06-18", "capabilities": []}),
    "tools a string": altered(result={"tools": "none"}),
}
"""What may go wrong in place of an answer."""


@asynccontextmanager
async def hostile_http(moment: str, fault: str) -> AsyncIterator[HostileServer]:
    """A running one; at the moment `connect`, one that cannot be connected to."""
    server = HostileServer(moment, fault)
    server.has_stream = "session's stream" in fault
    certificate = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    if fault in {"expects TLS", "a certificate that nobody trusts"}:
        trustme.CA().issue_cert("127.0.0.1").configure_cert(certificate)
        options: dict[str, Any] = {"ssl": certificate}
    else:
        options = {}

    async def script(ask: Ask) -> bytes | None:
        return await server.answer(ask)

    async with http_server(script, **options) as serving:
        server.url = serving.url
        if fault == "expects TLS":
            server.url = server.url.replace("https", "http")
        elif fault == "expects no TLS":
            server.url = server.url.replace("http", "https")
        elif fault == "listens no more":
            with closed_port() as port:
                server.url = f"http://127.0.0.1:{port}/mcp"
                yield server
                return
        yield server
