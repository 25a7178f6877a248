"""The opening of a WebSocket: its request, and what an answer other than 101 means. No I/O."""

from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

import httpx2
from websockets.exceptions import InvalidHandshake
from websockets.http11 import Request, Response
from websockets.uri import WebSocketURI

from mcpbridge.errors import BridgeError, ConfigError, UpstreamHttpError, UpstreamUnavailable
from mcpbridge.logs import get_logger
from mcpbridge.wire.http_problems import failure_of_status
from mcpbridge.wire.http_requests import check_header
from mcpbridge.wire.same_origin import redirect_target
from mcpbridge.wire.websocket_messages import WsProtocol

__all__ = ["Upgrade"]

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
                log.info("server names no WebSocket subprotocol; taking it for `mcp`", upstream=self._name)
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
            said = f"it answers with HTTP {status} instead of opening a WebSocket: is the URL right?"
            return UpstreamHttpError(self._name, status, said)
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
