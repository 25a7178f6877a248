"""The HTTP requests of streamable HTTP: which headers each era wants on which message. No I/O.

Legacy (2025-03-26 to 2025-11-25): session id and version once they are agreed on. Modern (from 2026-07-28): every
message repeats its version, method and name, so that proxies can route by them.
"""

import re
from collections.abc import Mapping

import httpx2
import msgspec

from mcpbridge.base.errors import ConfigError
from mcpbridge.protocol import sdk
from mcpbridge.protocol.revisions import LATEST_MODERN, is_modern
from mcpbridge.protocol.transport import Outgoing

_Pair = tuple[bytes, bytes]

_OURS = frozenset(
    {
        "accept",
        "connection",
        "content-length",
        "content-type",
        "last-event-id",
        "mcp-method",
        "mcp-name",
        "mcp-protocol-version",
        "mcp-session-id",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that the protocol decides; a configured value would break it."""
ACCEPTED_ENCODINGS = frozenset({"gzip", "deflate", "identity"})
"""What an answer may be compressed with."""
_PLAIN = re.compile(r"[A-Za-z0-9_./:-]+")
"""Values that the header codec leaves as they are: for those it need not be loaded."""
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_ONE_LINE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
_SESSION_ID = re.compile(r"[\x21-\x7e]{1,1024}")
_DISCOVER = "server/discover"
_MOST_TARGETS = 1000
_LONGEST_KEPT = 512
"""Names whose headers are kept, and bytes of each: names are the server's to choose, and URIs are anybody's."""


class _Meta(msgspec.Struct):
    version: str = msgspec.field(default=LATEST_MODERN, name="io.modelcontextprotocol/protocolVersion")


class _Params(msgspec.Struct):
    meta: _Meta = msgspec.field(default_factory=_Meta, name="_meta")


class _Envelope(msgspec.Struct):
    params: _Params = msgspec.field(default_factory=_Params)


class PostMaker:
    """Makes the requests to one endpoint, by what has been agreed on so far."""

    def __init__(self, url: str, headers: Mapping[str, str], *, connect_timeout: float, user_agent: str) -> None:
        """`headers` are the configured ones.

        Raises:
            ConfigError: the URL is no HTTP address, or a header cannot be sent.
        """
        self.url = _checked_url(url)
        own = {name: value for name, value in headers.items() if name.lower() not in _OURS}
        for name, value in own.items():
            check_header(name, value)
        names = {name.lower() for name in own}
        self._base: list[_Pair] = [] if "host" in names else [(b"Host", self.url.netloc)]
        self._base += [(name.encode("ascii"), value.encode()) for name, value in own.items()]
        if "user-agent" not in names:
            self._base.append((b"User-Agent", user_agent.encode()))
        if "accept-encoding" not in names:
            self._base.append((b"Accept-Encoding", b"gzip, deflate"))
        self._post_base = [
            *self._base,
            (b"Accept", b"application/json, text/event-stream"),
            (b"Content-Type", b"application/json"),
        ]
        # No limit on reading: how long a call may take is decided above. `dict`, since httpx2 may add to it.
        self._extensions = {"timeout": {"connect": connect_timeout, "read": None, "write": None, "pool": None}}
        self._template: tuple[bytes, bytes] | None = None
        """The head of a POST before and after the length of its body, by what has been agreed on."""
        self._routing: dict[tuple[str, str], bytes] = {}
        """What modern requests repeat in their heads, by method and name."""
        self._version = ""
        self.is_modern = False
        self.session = b""
        """The id of the legacy session; empty when there is none."""

    def agree(self, version: str) -> None:
        """The version was negotiated."""
        self._version = version
        self.is_modern = is_modern(version)
        self._template = None
        self._routing.clear()

    def forget(self) -> None:
        """A new handshake begins."""
        self._version = ""
        self.is_modern = False
        self.session = b""
        self._template = None

    def keep_session(self, value: str) -> None:
        """Take the session id of the answer to `initialize`; one the spec does not allow is no session."""
        self.session = value.encode("ascii") if _SESSION_ID.fullmatch(value) else b""
        self._template = None

    def post_head(self, message: Outgoing) -> bytes:
        """The head of the POST of a message without headers of its own, but for its last, empty line."""
        if self._template is None:
            lines = [b"POST %b HTTP/1.1" % self.url.raw_path, *map(_line, self._post_base)]
            rest = b"" if self.is_modern else b"".join([b"%b\r\n" % _line(pair) for pair in self._legacy()])
            self._template = b"\r\n".join((*lines, b"Content-Length: ")), b"\r\n" + rest
        before, after = self._template
        if self.is_modern:
            target = message.method, message.name
            if (routing := self._routing.get(target)) is None:
                if len(self._routing) >= _MOST_TARGETS:
                    self._routing.clear()
                routing = b"".join([b"%b\r\n" % _line(pair) for pair in self._modern(message)])
                if len(routing) <= _LONGEST_KEPT:
                    self._routing[target] = routing
            after += routing
        return b"%b%d%b" % (before, len(message.data), after)

    def post(self, message: Outgoing, url: httpx2.URL | None = None) -> httpx2.Request:
        """The POST of a message."""
        headers = [*self._post_base, (b"Content-Length", b"%d" % len(message.data))]
        if self.is_modern or message.method == _DISCOVER:
            headers += self._modern(message)
        else:
            headers += self._legacy()
        headers += [(name.encode("ascii"), value.encode()) for name, value in message.headers]
        stream = httpx2.ByteStream(message.data)
        return httpx2.Request("POST", url or self.url, headers=headers, stream=stream, extensions=self._extensions)

    def listen(self, last_event_id: bytes = b"") -> httpx2.Request:
        """The GET that opens the session's stream, or resumes one after an event (legacy)."""
        headers = [*self._base, (b"Accept", b"text/event-stream"), (b"Cache-Control", b"no-store"), *self._legacy()]
        if last_event_id:
            headers.append((b"Last-Event-ID", last_event_id))
        return self._bodiless("GET", headers)

    def end_session(self) -> httpx2.Request:
        """The DELETE that ends the session (legacy)."""
        return self._bodiless("DELETE", [*self._base, *self._legacy()])

    def _bodiless(self, method: str, headers: list[_Pair]) -> httpx2.Request:
        stream = httpx2.ByteStream(b"")
        return httpx2.Request(method, self.url, headers=headers, stream=stream, extensions=self._extensions)

    def _legacy(self) -> list[_Pair]:
        headers: list[_Pair] = []
        if self.session:
            headers.append((b"Mcp-Session-Id", self.session))
        if self._version:
            headers.append((b"MCP-Protocol-Version", self._version.encode("ascii")))
        return headers

    def _modern(self, message: Outgoing) -> list[_Pair]:
        version = self._version if self.is_modern else _version_in(message.data)
        headers = [(b"MCP-Protocol-Version", version.encode("ascii"))]
        if message.method:
            headers.append((b"Mcp-Method", _encoded(message.method)))
        if message.name:
            headers.append((b"Mcp-Name", _encoded(message.name)))
        return headers


def _line(pair: _Pair) -> bytes:
    return b"%b: %b" % pair


def _checked_url(text: str) -> httpx2.URL:
    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL as error:
        raise ConfigError(str(error), key="url") from error
    if url.scheme not in {"http", "https"} or not url.host:
        raise ConfigError("not an HTTP address", key="url", hint="It looks like https://host/mcp")
    return url


def check_header(name: str, value: str) -> None:
    """Refuse a header that cannot be sent.

    Raises:
        ConfigError: names it.
    """
    if not _TOKEN.fullmatch(name):
        raise ConfigError("not a header name", key=f"headers.{name!a}")
    if not _ONE_LINE.fullmatch(value):
        raise ConfigError("the value holds a line break or a control character", key=f"headers.{name}")


def _encoded(value: str) -> bytes:
    return (value if _PLAIN.fullmatch(value) else sdk.encode_header_value(value)).encode("ascii")


_decode_envelope = msgspec.json.Decoder(_Envelope).decode


def _version_in(data: bytes) -> str:
    """The version that a modern message's own envelope names: both must agree (MCP 2026-07-28, Streamable HTTP)."""
    try:
        return _decode_envelope(data).params.meta.version
    except msgspec.DecodeError:
        return LATEST_MODERN
