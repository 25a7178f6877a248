"""The opening of a WebSocket, and its frames to whole messages, on the sans-I/O core of `websockets`. No I/O.

A message over the limit is skipped while it arrives, as on stdio: only its ends are kept, to find out whose answer it
was, and the connection lives on. The library alone would end it, and every call on it.
"""

import logging
from collections.abc import Callable, Generator, Mapping
from urllib.parse import urlsplit

import httpx2
from msgspec import Struct
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.streams import StreamReader
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI

from mcpbridge.base.errors import BridgeError, ConfigError, UpstreamHttpError, UpstreamUnavailable
from mcpbridge.base.log import get_logger
from mcpbridge.protocol.http.responses import failure_of_status
from mcpbridge.protocol.http.same_origin import redirect_target
from mcpbridge.upstream.transports.http_requests import check_header

_KEPT = 4096
"""Bytes kept of each end of a message that is too large."""
_SILENT = logging.Logger("mcpbridge.websocket.frames", logging.CRITICAL + 1)
"""The library logs headers and payloads at the debug level; they may hold secrets."""
_MEANINGS = {
    1000: "normal closure",
    1001: "going away",
    1002: "protocol error",
    1003: "unsupported data",
    1005: "no code",
    1007: "invalid data",
    1008: "policy violation",
    1009: "message too big",
    1010: "extension missing",
    1011: "internal error",
    1012: "restarting",
    1013: "try again later",
    1014: "bad gateway",
}


class _Ends(bytearray):
    """The two ends of a payload that was too large, with a line break between."""


class _SkippingReader(StreamReader):
    """Gives the ends of what is larger than the limit instead of all of it."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def read_exact(self, n: int) -> Generator[None, None, bytearray]:
        if n <= self._limit:
            return (yield from super().read_exact(n))
        end = min(_KEPT, n // 2)
        ends = _Ends((yield from super().read_exact(end)))
        left = n - 2 * end
        while left:
            skipped = min(left, len(self.buffer))
            del self.buffer[:skipped]
            left -= skipped
            if left:
                if self.eof:
                    raise EOFError("the stream ended within a frame")
                yield
        ends += b"\n"
        ends += yield from super().read_exact(end)
        return ends


class WsProtocol(ClientProtocol):
    """A client's side of one connection. It offers no compression: large JSON would cost more time than it saves."""

    def __init__(self, uri: WebSocketURI, limit: int) -> None:
        self._limit = limit
        super().__init__(uri, subprotocols=[Subprotocol("mcp")], max_size=None, logger=_SILENT)

    def parse(self) -> Generator[None]:
        """Parse what arrives, as the library's own, from a reader that skips."""
        self.reader = _SkippingReader(self._limit)  # here, since the parser takes hold of it when it starts
        yield from super().parse()


class Message(Struct, frozen=True):
    """One message, text or binary."""

    data: bytes
    is_whole: bool = True
    """False: it was too large, and `data` is the beginning and the end of it."""


class Assembler:
    """Joins the fragments of messages."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._is_whole = True

    def take(self, frame: Frame) -> Message | None:
        """The message that this frame completes, if it does."""
        if frame.opcode not in {Opcode.TEXT, Opcode.BINARY, Opcode.CONT}:
            return None
        data = bytes(frame.data)
        is_cut = isinstance(frame.data, _Ends)
        if frame.fin and not self._parts:
            return Message(data, not is_cut)
        self._parts.append(data)
        self._size += len(data)
        if is_cut or not self._is_whole or self._size > self._limit:
            self._is_whole = False
            ends = b"".join(self._parts) if self._size <= 2 * _KEPT else self._ends()
            self._parts, self._size = [ends], len(ends)
        if not frame.fin:
            return None
        message = Message(b"".join(self._parts), self._is_whole)
        self._parts, self._size, self._is_whole = [], 0, True
        return message

    def _ends(self) -> bytes:
        head = b"".join(self._parts)
        return head[:_KEPT] + b"\n" + head[-_KEPT:]


def close_text(code: int, reason: str) -> str:
    """A close code in words: `1011 (internal error): out of memory`."""
    meaning = _MEANINGS.get(code, "")
    text = f"{code} ({meaning})" if meaning else str(code)
    words = " ".join(reason.split())
    return f"{text}: {words}" if words else text


log = get_logger("mcpbridge.websocket")

_OURS = frozenset({"connection", "content-length", "transfer-encoding", "upgrade"})
"""Headers that the opening decides, beside all that begin with `Sec-WebSocket-`."""
_SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class Upgrade:
    """Makes the request and judges the answer, for one server."""

    def __init__(
        self, name: str, url: str, headers: Mapping[str, str], *, user_agent: str, redact: Callable[[str], str]
    ) -> None:
        """Build the request's parts.

        Raises:
            ConfigError: the URL is no WebSocket address, or a header cannot be sent.
        """
        self._name = name
        self._redact = redact
        self.url = _checked_url(url)
        self._headers = {
            header: value
            for header, value in headers.items()
            if header.lower() not in _OURS and not header.lower().startswith("sec-websocket-")
        }
        for header, value in self._headers.items():
            check_header(header, value)
        if not any(header.lower() == "user-agent" for header in self._headers):
            self._headers["User-Agent"] = user_agent
        self.challenge = ""
        """What the last refusal said of the credentials it wants (`WWW-Authenticate`)."""

    def protocol(self, url: httpx2.URL, limit: int) -> WsProtocol:
        """The client's side of a connection to `url`; messages over `limit` bytes are cut."""
        target = urlsplit(str(url))
        uri = WebSocketURI(url.scheme == "wss", url.host, _port(url), target.path or "/", target.query, None, None)
        return WsProtocol(uri, limit)

    def request(self, protocol: WsProtocol, token: str = "") -> Request:
        """The request that opens the connection, with a bearer token if there is one."""
        request = protocol.connect()
        for header, value in self._headers.items():
            if header.lower() in request.headers:
                del request.headers[header]  # a configured `Host`
            request.headers[header] = value.encode().decode("latin-1")
        if token:
            request.headers.pop("authorization", None)
            request.headers["Authorization"] = f"Bearer {token}"
        return request

    def judge(self, url: httpx2.URL, protocol: WsProtocol, answer: Response | None) -> httpx2.URL | None:
        """None when the connection is open; an address of the same origin to try instead.

        Raises:
            UpstreamHttpError: refused with a status.
            UpstreamUnavailable: not an answer to a WebSocket opening.
        """
        trouble = protocol.handshake_exc
        if trouble is None and answer is not None:
            if protocol.subprotocol is None:
                log.info("server names no WebSocket subprotocol; assuming `mcp`", upstream=self._name)
            return None
        if answer is None or answer.status_code == 101:
            if trouble is None or isinstance(trouble.__cause__, EOFError):
                raise UpstreamUnavailable(self._name, "the connection was closed before an answer")
            what = str(trouble) if isinstance(trouble, InvalidHandshake) else type(trouble).__name__
            raise UpstreamUnavailable(self._name, f"it does not speak WebSocket: {self._redact(what)[:200]}")
        response = httpx2.Response(
            answer.status_code,
            headers=list(answer.headers.raw_items()),
            request=httpx2.Request("GET", url),
        )
        self.challenge = response.headers.get("www-authenticate", "")
        target = redirect_target(response, _REDIRECTS)
        if target is not None:
            log.info("server redirects; set its url to the new path", upstream=self._name, to=target.path)
            return target
        raise self._refusal(response, bytes(answer.body or b""))

    def _refusal(self, response: httpx2.Response, body: bytes) -> BridgeError:
        status = response.status_code
        if status < 300:
            words = f"it answers with HTTP {status} instead of opening a WebSocket: is the URL right?"
            return UpstreamHttpError(self._name, status, words)
        return failure_of_status(self._name, response, body, had_session=False, redact=self._redact).error


def _checked_url(text: str) -> httpx2.URL:
    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL as error:
        raise ConfigError(str(error), key="url") from error
    scheme = _SCHEMES.get(url.scheme)
    if scheme is None or not url.host:
        raise ConfigError("not a WebSocket address", key="url", hint="It looks like wss://host/mcp")
    return url.copy_with(scheme=scheme, fragment=None)


def _port(url: httpx2.URL) -> int:
    return url.port or (443 if url.scheme == "wss" else 80)
