"""One HTTP request and its response, on the plain ASGI interface.

There is no framework in between: a request through the bridge costs about as much as reading its headers. What does
not depend on the request (a parsed `Accept`, a list of headers) is computed once and kept.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping, Sequence
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from msgspec import Struct

from mcpbridge.base.errors import BadRequest
from mcpbridge.core.identity import Identity
from mcpbridge.downstream.http.body_deadline import Deadline
from mcpbridge.protocol.jsonrpc import Frame, encode_error
from mcpbridge.protocol.payload import Pieces

if TYPE_CHECKING:  # loaded where there are trusted proxies
    from mcpbridge.downstream.auth.trusted_proxies import Forwarded

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = tuple[tuple[bytes, bytes], ...]

Challenge = Callable[[str, frozenset[str]], Headers]
"""Takes the path of the endpoint, and all scopes that are needed."""

NO_HEADERS: Headers = ()

_JSON = (b"content-type", b"application/json")
_CLOSE = (b"connection", b"close")
_EVENT_STREAM: Headers = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)

_PART = 1 << 18
"""Bytes of a large answer that are sent in one go."""
_PATIENCE = 4
"""How many times the limit of a body is read, to be thrown away."""


Kind = Literal["mcp", "sse", "ws"]
"""`mcp`: streamable HTTP; `sse`: HTTP+SSE of revision 2024-11-05; `ws`: WebSocket."""


class Endpoint(NamedTuple):
    """One place that clients connect to."""

    kind: Kind
    view: str
    """See `Client.view`."""
    profile: str = ""
    """See `Client.profile_name`."""


MERGED = Endpoint("mcp", "")
"""Streamable HTTP with all servers merged."""


class Refused(BadRequest):
    """An HTTP request got an HTTP error. The body is a JSON-RPC error, so that MCP clients can show the reason."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: int = -32600,
        data: object = None,
        id_: bytes = b"",
        headers: Headers = NO_HEADERS,
        close: bool = False,
    ) -> None:
        """`id_` is the raw id of the request where it is known; `close` ends the connection with the response."""
        super().__init__(code, message, data)
        self.status = status
        self.id = id_
        self.headers = (*headers, _CLOSE) if close else headers


class ClientLeft(Exception):
    """The client closed the connection before its request was complete."""


class Accepts(Struct, frozen=True):
    """What the client can read."""

    json: bool
    events: bool
    prefers_events: bool = False
    """Of the two it names event streams first."""


class Admission(Struct, frozen=True):
    """What the rules say of a POST on the MCP route by its head alone: the same for each request with the same head.

    Only of one that is let in and may be answered without a task.
    """

    principal: str
    extra: Headers
    """See `Exchange.extra`."""
    version: str | None
    """See `Exchange.version`."""
    session: bytes
    """The id of its legacy session; empty: it is of the modern era."""
    identity: Identity | None = None
    """See `Exchange.identity`."""
    until: float | None = None
    """Seconds since 1970, from which on its token is to be looked at again; None: it has no end."""
    generation: int = 0
    """See `AccessTokens.generation`."""


@lru_cache(maxsize=256)
def read_accept(header: bytes) -> Accepts:
    """What a header `Accept` says."""
    ranges: dict[bytes, None] = {}
    for part in header.lower().split(b","):
        media, *parameters = (piece.strip() for piece in part.split(b";"))
        if not any(_is_zero_weight(parameter) for parameter in parameters):
            ranges[media] = None
    named = [media for media in ranges if media in (b"application/json", b"text/event-stream")]
    return Accepts(
        json=not ranges.keys().isdisjoint((b"application/json", b"application/*", b"*/*")),
        events=not ranges.keys().isdisjoint((b"text/event-stream", b"text/*", b"*/*")),
        prefers_events=named[:1] == [b"text/event-stream"],
    )


def _is_zero_weight(parameter: bytes) -> bool:
    name, _, weight = parameter.partition(b"=")
    return name.strip() == b"q" and weight.strip().strip(b"0.") == b"" and weight.strip() != b""


@lru_cache(maxsize=256)
def is_json(content_type: bytes) -> bool:
    """Whether this `Content-Type` is JSON; parameters such as a charset do not matter."""
    return content_type.partition(b";")[0].strip().lower() == b"application/json"


class Exchange:
    """One request under way. Exactly one of the sending methods opens the response.

    This one is served by any ASGI server; `Http1Exchange` is the one of our own.
    """

    __slots__ = (
        *(
            "_receive",
            "_scope",
            "_send",
            "accepts",
            "challenge",
            "early_body",
            "endpoint",
            "extra",
            "forwarded",
            "frame",
            "guest",
        ),
        *(
            "headers",
            "identity",
            "is_forwarded",
            "method",
            "path",
            "principal",
            "query",
            "raw_headers",
            "sender",
            "taken",
            "version",
        ),
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._begin(scope["method"], scope["path"], scope.get("query_string", b""), scope["headers"])
        self._scope = scope
        self._receive = receive
        self._send = send

    def _begin(self, method: str, path: str, query: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        self.method: str = method
        self.path: str = path
        self.query: bytes = query
        self.raw_headers: list[tuple[bytes, bytes]] = headers
        """As they came, with names in lower case."""
        self.headers: dict[bytes, bytes] = dict(headers)
        """By lower-case name; of a repeated one the last."""
        self.accepts: Accepts = read_accept(self.headers.get(b"accept", b"*/*"))
        self.principal: str = ""
        self.identity: Identity | None = None
        """What its token says, if an issuer of `[auth]` issued it."""
        self.challenge: Challenge | None = None
        """The headers of a 403 for a token that lacks some of these scopes; None: it is no token of an issuer."""
        self.forwarded: Forwarded | None = None
        """What trusted proxies say of it; None: there are none."""
        self.is_forwarded: bool = False
        """It came by way of another bridge of the fleet, which looked at its `Host` and `Origin`."""
        self.guest: Sequence[Frame] = ()
        """What its session was opened with, where that is at the bridge of the fleet which handed it on."""
        self.version: str | None = None
        """What the header `MCP-Protocol-Version` says, on the MCP route."""
        self.endpoint: Endpoint = MERGED
        self.extra: Headers = NO_HEADERS
        """Headers that every response to this request carries."""
        self.sender: object = None
        """What its front keeps for the next request with the same head."""
        self.early_body: bytes | None = None
        """Its body, where that was read already."""
        self.frame: Frame | None = None
        """The message in its body, where that was read already."""

    def _begin_again(self, former: "Exchange") -> None:
        """The same as of the former request, which has the same head."""
        self.method, self.path, self.query = former.method, former.path, former.query
        self.raw_headers, self.headers, self.accepts = former.raw_headers, former.headers, former.accepts
        self.principal, self.identity, self.version, self.endpoint = "", None, None, MERGED
        self.challenge, self.extra, self.frame, self.sender = None, NO_HEADERS, None, former.sender
        self.forwarded, self.is_forwarded, self.early_body, self.guest = former.forwarded, False, None, ()

    @property
    def peer(self) -> str:
        """The address that the connection comes from; empty for a Unix socket."""
        client = self._scope.get("client")
        return str(client[0]) if client else ""

    @property
    def address(self) -> str:
        """The address of the client, as far as it is known."""
        return self.peer if self.forwarded is None else self.forwarded.client

    @property
    def scope(self) -> Scope:
        """The request as other ASGI applications take it."""
        return self._scope

    async def receive(self) -> MutableMapping[str, Any]:
        """The next message of the client's, for another ASGI application."""
        return await self._receive()

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Take a message of another ASGI application's."""
        await self._send(message)

    def header(self, name: bytes) -> str | None:
        """A header as text, or None. httptools keeps trailing blanks (RFC 9110 5.5 excludes them): they go here."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1").strip(" \t")

    async def body(self, limit: int, deadline: Deadline) -> bytes:
        """The whole request body.

        Raises:
            Refused: it is larger than `limit` bytes (413) or took too long to come (408).
            ClientLeft: the connection ended before it was complete.
        """
        declared = self.headers.get(b"content-length")
        if declared is not None and int(declared) > limit * _PATIENCE:
            raise too_large(limit)
        try:
            return await deadline.within(self._read(limit))
        except TimeoutError:
            text = f"The request was not complete within {deadline.seconds:g} s"
            raise Refused(408, text, close=True) from None

    async def _read(self, limit: int) -> bytes:
        body, is_complete = await self._receive_part()
        if is_complete and len(body) <= limit:
            return body
        parts = [body]
        size = len(body)
        while not is_complete:
            part, is_complete = await self._receive_part()
            size += len(part)
            if size <= limit:
                parts.append(part)
                continue
            # Closing now would reset the connection, and most clients would never see why. So the rest of a body
            # that is only somewhat too large is read and thrown away.
            parts.clear()
            if size > limit * _PATIENCE:
                break
        if size > limit:
            raise too_large(limit)
        return b"".join(parts)

    async def _receive_part(self) -> tuple[bytes, bool]:
        message = await self.receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        return message.get("body", b""), not message.get("more_body", False)

    async def until_client_leaves(self) -> None:
        """Return when the client has closed the connection, or the response is complete."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def send_json(self, data: bytes | Pieces, status: int = 200, headers: Headers = NO_HEADERS) -> None:
        """Answer with one JSON document."""
        length = (b"content-length", b"%d" % len(data))
        await self.start(status, (_JSON, length, *headers, *self.extra))
        if isinstance(data, Pieces):
            for part in data.views(_PART):  # each waits until the client takes more, and others have their turn
                await self.write(bytes(part))
                await asyncio.sleep(0)
            data = b""
        await self.finish(data)

    async def send_empty(self, status: int, headers: Headers = NO_HEADERS) -> None:
        """Answer without a body."""
        length = () if status == 204 else ((b"content-length", b"0"),)
        await self.start(status, (*length, *headers, *self.extra))
        await self.finish()

    async def refuse(self, refused: Refused, id_: bytes = b"") -> None:
        """Answer with an error. `id_`: the raw id of the request, where `refused` does not know it."""
        body = encode_error(refused.id or id_, refused.code, str(refused), refused.data)
        await self.send_json(body, refused.status, refused.headers)

    async def start_stream(self, headers: Headers = NO_HEADERS) -> None:
        """Open an event stream; `write` continues and `end_stream` ends it."""
        await self.start(200, (*_EVENT_STREAM, *headers, *self.extra))

    async def end_stream(self) -> None:
        """The stream is complete."""
        await self.finish()

    async def start(self, status: int, headers: Headers) -> None:
        """Open the response; waits while the client does not read."""
        await self._send({"type": "http.response.start", "status": status, "headers": list(headers)})

    async def write(self, chunk: bytes) -> None:
        """Send a part of the body; waits while the client does not read."""
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def finish(self, data: bytes = b"") -> None:
        """Send the last part of the body."""
        await self._send({"type": "http.response.body", "body": data})

    def break_off(self) -> None:
        """Leave the response as it is, in a way that the client does not take it for whole.

        Raises:
            ConnectionAbortedError: so it is done where another ASGI server has the connection.
        """
        raise ConnectionAbortedError("the rest of the answer does not come")


class WithoutTask(Protocol):
    """What answers a request without a task of its own."""

    def continue_call(self) -> None:
        """Continue in a task."""
        ...


class DirectExchange(Exchange):
    """One whose body is there whole, and that may be answered without a task."""

    __slots__ = ("admission", "express")

    admission: Admission | None
    """What the rules say by its head; None: they were not asked, or refuse it, or it is to have a task."""
    express: WithoutTask | None
    """What answers it without a task."""

    @property
    def whole_body(self) -> bytes:
        """The body. It can still be read."""
        raise NotImplementedError

    def send_now(self, data: bytes, headers: Headers = NO_HEADERS) -> None:
        """Answer with one JSON document in one write, whether or not the client takes it: one that is not large."""
        raise NotImplementedError

    def run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Continue in a task, which takes its first step in any case. It is to answer the request."""
        raise NotImplementedError


@lru_cache(maxsize=64)
def status_line(status: int) -> bytes:
    """The first line of a response; without a phrase for a status that has none."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return b"HTTP/1.1 %d %b\r\n" % (status, phrase.encode())


def refusal(refused: Refused) -> bytes:
    """A whole response that refuses and ends the connection, for where no exchange is: before an upgrade."""
    body = encode_error(refused.id, refused.code, str(refused), refused.data)
    length = (b"content-length", b"%d" % len(body))
    headers = dict((_JSON, length, *refused.headers, _CLOSE))
    lines = b"".join(b"%b: %b\r\n" % header for header in headers.items())
    return b"%b%b\r\n%b" % (status_line(refused.status), lines, body)


def too_large(limit: int) -> Refused:
    """The refusal of a body."""
    return Refused(413, f"The request is larger than the limit of {limit} bytes (`http.max_body`)", close=True)
