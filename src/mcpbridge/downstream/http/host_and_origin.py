"""Which `Host` and `Origin` are accepted: the rules against DNS rebinding and foreign web pages. Pure.

Any web page that the user visits can send requests to loopback addresses. If it rebinds its own name to 127.0.0.1, it
can even read the answers. Its `Host`, its `Origin` and its `Sec-Fetch-Site` give it away (MCP, transports: an `Origin`
that is present and not allowed gets 403). Who is calling is checked in `bearer_tokens.py`.

On loopback, in this order:

1. `Host` names this machine, with the port that is served or none (no browser leaves it out), or is in
   `http.allowed_hosts`; else 421.
2. `Origin`, if there is one, is the very address that is served: scheme, name and port. Another port of this machine
   is another program's, whose pages are as foreign as any. Or it is in `http.allowed_origins`; else 403.
3. `Sec-Fetch-Site`, if there is one, says `same-origin`, or `none` (the user typed the address). A browser sends it
   with every request, also with those that have no `Origin`; else 403. An allowed `Origin` may be of any site.

Elsewhere than on loopback the names that lead here are the operator's to know: without `http.allowed_hosts` any `Host`
is right there, and only listed origins are.
"""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from mcpbridge.downstream.http.exchange import NO_HEADERS, Headers, Refused

Reach = Literal["loopback", "network", "path"]
"""From where the front can be reached: this machine, other machines too, or only through the file system.

No web page can open a path, so any `Host` is right there: programs make one up, and a proxy passes on its clients'.
"""

_SINGLE = frozenset(
    {
        *(b"host", b"origin", b"sec-fetch-site", b"authorization", b"content-type", b"content-length"),
        *(b"mcp-session-id", b"last-event-id"),
    }
)
"""Headers that two readers of a request would read differently if they came twice."""

_AUTHORITY = re.compile(r"(\[[0-9a-f.]*:[0-9a-f:.]*\]|[^\s/?#@:\[\]]+)(?::([1-9][0-9]{0,4})?)?")
"""A host with or without a port, in lower case: nothing before or after it (RFC 9110, Host)."""
_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://(.+)")
_DEFAULT_PORTS: Mapping[str, int] = {"http": 80, "https": 443}
_OUR_SITES = frozenset({b"same-origin", b"none"})
_NAVIGATED = ("/connections", "/approvals")
"""Pages that a browser is sent to from other sites: by a link of a client, and back by an identity provider."""
_LONGEST_SHOWN = 100


class _Authority(NamedTuple):
    """A host and a port."""

    host: str
    """Without brackets."""
    port: int | None
    """None: none is named."""


def is_loopback(host: str) -> bool:
    """Whether a host name or address (without port or brackets) means this machine only."""
    if host == "localhost":
        return True
    try:
        return "%" not in host and ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class HostCheck:
    """Decides by `Host`, `Origin` and `Sec-Fetch-Site`. Knows no methods and no paths."""

    def __init__(
        self,
        *,
        reach: Reach,
        allowed_hosts: Sequence[str],
        allowed_origins: Sequence[str],
        address: str = "",
        port: int | None = None,
        scheme: str = "http",
    ) -> None:
        """`address`, `port`, `scheme`: what is listened on; a `port` of None is not known, so any will do."""
        self._scheme = scheme
        self._reach, self._port = reach, port
        self._own_names = {"localhost", address} - {""}
        self._hosts = frozenset(filter(None, map(_read_allowed, allowed_hosts)))
        self._lists_hosts = bool(allowed_hosts)
        self._origins = frozenset(_normal(origin.lower().rstrip("/")) for origin in allowed_origins)
        # The same few values come with every request.
        self._is_host_allowed = lru_cache(maxsize=256)(self._decide_host)
        self._is_origin_listed = lru_cache(maxsize=256)(self._decide_listed)
        self._is_own_origin = lru_cache(maxsize=256)(self._decide_own)

    def check(self, headers: Mapping[bytes, bytes], count: int, raw: Sequence[tuple[bytes, bytes]]) -> Headers:
        """Let the request pass and return the headers its response must carry, or refuse it.

        `count` is the number of different names in `raw`.

        Raises:
            Refused: 400, 403 or 421.
        """
        if count != len(raw):
            _refuse_repeated(raw)
        host = headers.get(b"host", b"")
        if not self._is_host_allowed(host):
            raise Refused(421, self._host_refusal(host), close=True)
        origin, site = headers.get(b"origin"), headers.get(b"sec-fetch-site")
        if origin is None:
            if site is not None:
                _require_own_site(site)
            return NO_HEADERS
        if not self._is_origin_listed(origin):
            if not self._is_own_origin(origin, host):
                raise Refused(403, _origin_refusal(origin), close=True)
            if site is not None:
                _require_own_site(site)
        return (
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", b"Mcp-Session-Id, WWW-Authenticate"),
            (b"vary", b"Origin"),
        )

    def check_host(self, headers: Mapping[bytes, bytes], count: int, raw: Sequence[tuple[bytes, bytes]]) -> None:
        """Let a request pass that pages of any origin may make. The rest is as for `check`.

        Raises:
            Refused: 400 or 421.
        """
        if count != len(raw):
            _refuse_repeated(raw)
        host = headers.get(b"host", b"")
        if not self._is_host_allowed(host):
            raise Refused(421, self._host_refusal(host), close=True)

    def _decide_host(self, value: bytes) -> bool:
        at = _read_authority(_text(value))
        if at is not None:
            if at in self._hosts or at._replace(port=None) in self._hosts:
                return True
            if is_loopback(at.host) and (at.port is None or self._is_own_port(at.port)):
                return True
        # What rebinding could reach on other addresses is behind a token, or deliberately open.
        return self._reach != "loopback" and not self._lists_hosts

    def _host_refusal(self, value: bytes) -> str:
        shown = _printable(value) or "none"
        served = f"; port {self._port} is served" if self._port is not None else ""
        why = f"This Host header is not allowed here ({shown}){served}"
        return f"{why}. If it leads here (a published port, a proxy), add it to `http.allowed_hosts`"

    def _decide_listed(self, value: bytes) -> bool:
        return _normal(_text(value)) in self._origins

    def _decide_own(self, value: bytes, host: bytes) -> bool:
        """Whether an origin is the address that is served, as `host` names it or by a name of its own."""
        if self._reach == "network":
            return False
        match = _ORIGIN.fullmatch(_text(value))
        at = _read_authority(match[2]) if match is not None else None
        if match is None or at is None or not is_loopback(at.host):
            return False
        if self._reach == "path":  # through a proxy, whose port nobody here knows
            return match[1] in _DEFAULT_PORTS and _same(at, _read_authority(_text(host)), _DEFAULT_PORTS[match[1]])
        default = _DEFAULT_PORTS[self._scheme]
        is_own_name = at.host in self._own_names or _same(at, _read_authority(_text(host)), default)
        return match[1] == self._scheme and is_own_name and self._is_own_port(at.port or default)

    def _is_own_port(self, port: int) -> bool:
        return self._reach != "loopback" or self._port in (None, port)


def as_navigation(headers: Mapping[bytes, bytes], path: str) -> Mapping[bytes, bytes]:
    """The headers without the site, where a browser follows a link from another one to a whole page that is for that.

    What pages of other sites ask for besides is judged as ever.
    """
    is_page = headers.get(b"sec-fetch-mode") == b"navigate" and headers.get(b"sec-fetch-dest") == b"document"
    if not is_page or not path.startswith(_NAVIGATED):
        return headers
    return {name: value for name, value in headers.items() if name != b"sec-fetch-site"}


def _text(value: bytes) -> str:
    return value.decode("latin-1").strip(" \t").lower()


def _read_authority(text: str) -> _Authority | None:
    """None: it is no host with or without a port."""
    match = _AUTHORITY.fullmatch(text) if text.isascii() else None
    if match is None:
        return None
    port = int(match[2]) if match[2] else None
    return _Authority(match[1].strip("[]"), port) if (port or 0) < 65536 else None


def _read_allowed(entry: str) -> _Authority | None:
    text = entry.strip().lower()
    return _read_authority(text) or _read_authority(f"[{text}]")  # an IPv6 address may stand there without brackets


def _same(one: _Authority, other: _Authority | None, default: int) -> bool:
    return other is not None and (one.host, one.port or default) == (other.host, other.port or default)


def _normal(origin: str) -> str:
    """An origin without the port that its scheme has anyway."""
    match = _ORIGIN.fullmatch(origin)
    default = _DEFAULT_PORTS.get(match[1]) if match is not None else None
    return origin.removesuffix(f":{default}") if default is not None else origin


def _require_own_site(site: bytes) -> None:
    """Raise Refused for what a browser says another site asked for. Another port of a host is the same site only."""
    if site.strip().lower() not in _OUR_SITES:
        said = _printable(site)
        raise Refused(
            403, f"A web page of another origin asks for this (Sec-Fetch-Site: {said}); see `http.allowed_origins`"
        )


def _origin_refusal(value: bytes) -> str:
    return f"This Origin is not allowed here ({_printable(value) or 'none'}); see `http.allowed_origins`"


def _printable(value: bytes) -> str:
    text = value[:_LONGEST_SHOWN].decode("latin-1")
    return "".join(char if char.isascii() and char.isprintable() else "?" for char in text)


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


def _refuse_repeated(raw: Sequence[tuple[bytes, bytes]]) -> None:
    seen: set[bytes] = set()
    for name, _ in raw:
        if name in _SINGLE:
            if name in seen:
                raise Refused(400, f"The header {name.decode()} came more than once", close=True)
            seen.add(name)
