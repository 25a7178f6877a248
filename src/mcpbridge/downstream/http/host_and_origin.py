"""Which `Host` and `Origin` headers are accepted: the rules against DNS rebinding and foreign web pages. Pure.

Any web page that the user visits can send requests to loopback addresses. If it rebinds its own name to 127.0.0.1, it
can even read the answers. Its `Origin` and its `Host` give it away (MCP, transports: an `Origin` that is present and
not allowed gets 403). Who is calling is checked in `bearer_tokens.py`.
"""

import ipaddress
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Literal
from urllib.parse import urlsplit

from mcpbridge.downstream.http.exchange import NO_HEADERS, Headers, Refused

Reach = Literal["loopback", "network", "path"]
"""From where the front can be reached: this machine, other machines too, or only through the file system.

No web page can open a path, so any `Host` is right there: programs make one up, and a proxy passes on its clients'.
"""

_SINGLE = frozenset(
    {b"host", b"origin", b"authorization", b"content-type", b"content-length", b"mcp-session-id", b"last-event-id"}
)
"""Headers that two readers of a request would read differently if they came twice."""


def is_loopback(host: str) -> bool:
    """Whether a host name or address (without port or brackets) means this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class HostCheck:
    """Decides by `Host` and `Origin`. Knows no methods and no paths."""

    def __init__(self, *, reach: Reach, allowed_hosts: Sequence[str], allowed_origins: Sequence[str]) -> None:
        self._reach = reach
        self._hosts = frozenset(host.lower() for host in allowed_hosts)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in allowed_origins)
        # The same few values come with every request.
        self._is_host_allowed = lru_cache(maxsize=256)(self._decide_host)
        self._is_origin_allowed = lru_cache(maxsize=256)(self._decide_origin)

    def check(self, headers: Mapping[bytes, bytes], count: int, raw: Sequence[tuple[bytes, bytes]]) -> Headers:
        """Let the request pass and return the headers its response must carry, or refuse it.

        `count` is the number of different names in `raw`.

        Raises:
            Refused: 400, 403 or 421.
        """
        if count != len(raw):
            _refuse_repeated(raw)
        if not self._is_host_allowed(headers.get(b"host", b"")):
            raise Refused(421, "This Host header is not allowed here; see `http.allowed_hosts`", close=True)
        origin = headers.get(b"origin")
        if origin is None:
            return NO_HEADERS
        if not self._is_origin_allowed(origin):
            raise Refused(403, "This Origin is not allowed here; see `http.allowed_origins`", close=True)
        return (
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", b"Mcp-Session-Id, WWW-Authenticate"),
            (b"vary", b"Origin"),
        )

    def _decide_host(self, value: bytes) -> bool:
        text = value.decode("latin-1").strip().lower()
        name = _without_port(text)
        if is_loopback(name) or text in self._hosts or name in self._hosts:
            return True
        # On other addresses the names that lead here are the operator's to know: no list, no check. What
        # rebinding could reach there is behind a token, or deliberately open.
        return self._reach != "loopback" and not self._hosts

    def _decide_origin(self, value: bytes) -> bool:
        text = value.decode("latin-1").strip().lower()
        if text in self._origins:
            return True
        if self._reach == "network":
            return False
        try:
            parts = urlsplit(text)
            host = parts.hostname
        except ValueError:
            return False
        return parts.scheme in ("http", "https") and host is not None and is_loopback(host)


def preflight_headers(headers: Mapping[bytes, bytes]) -> Headers | None:
    """The answer to a browser's question before a request of a web page (CORS); None when this is none."""
    if b"origin" not in headers or b"access-control-request-method" not in headers:
        return None
    wanted = headers.get(b"access-control-request-headers", b"")
    return (
        (b"access-control-allow-methods", b"GET, POST, DELETE"),
        (b"access-control-allow-headers", wanted),
        (b"access-control-max-age", b"600"),
    )


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name, _, port = host.rpartition(":")
    return name if port.isdigit() else host


def _refuse_repeated(raw: Sequence[tuple[bytes, bytes]]) -> None:
    seen: set[bytes] = set()
    for name, _ in raw:
        if name in _SINGLE:
            if name in seen:
                raise Refused(400, f"The header {name.decode()} came more than once", close=True)
            seen.add(name)
