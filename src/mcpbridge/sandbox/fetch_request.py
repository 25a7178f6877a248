"""One request of a fetch as it goes out, and what of it follows a redirect; pure."""

from collections.abc import Mapping

from msgspec import Struct

from mcpbridge._version import __version__
from mcpbridge.errors import AddressRefused
from mcpbridge.sandbox.address_reading import Target, shown

__all__ = ["REDIRECTS", "Ask", "redirected", "written"]

REDIRECTS = frozenset({301, 302, 303, 307, 308})
"""Statuses that lead elsewhere, by the `location` header."""
_HARMLESS = frozenset({"accept", "accept-language", "user-agent"})
"""Headers that go to another origin as well; any other may be a credential."""
_OURS = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "accept-encoding", "te", "trailer", "upgrade"}
    | {"keep-alive", "expect", "proxy-authorization", "proxy-connection"}
)
"""Headers that are of the connection."""


class Ask(Struct, frozen=True):
    """One request."""

    method: str
    headers: Mapping[str, str]
    content: bytes


def written(target: Target, ask: Ask) -> bytes:
    """Request line, headers and body, as bytes.

    Raises:
        AddressRefused: a header, or the method, would be read as something else.
    """
    host = f"[{target.host}]" if ":" in target.host else target.host
    netloc = host if target.url.port is None else f"{host}:{target.port}"
    lines = [f"{ask.method} {target.url.raw_path.decode('ascii')} HTTP/1.1", f"host: {netloc}"]
    headers = {"accept": "*/*", "user-agent": f"mcpbridge/{__version__}", **ask.headers}
    lines += [f"{name}: {value}" for name, value in headers.items() if name not in _OURS]
    lines += ["accept-encoding: gzip", "connection: close"]
    if ask.content or ask.method in ("POST", "PUT", "PATCH"):
        lines.append(f"content-length: {len(ask.content)}")
    is_method = ask.method.isascii() and ask.method.isalpha()
    if not is_method or any("\r" in line or "\n" in line or "\0" in line for line in lines):
        raise AddressRefused(f"{shown(str(target.url))}: a header holds a line break, or the method is none")
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + ask.content


def redirected(ask: Ask, status: int, *, is_same: bool) -> Ask:
    """The request that follows a redirect (RFC 9110, 15.4). `is_same`: to the same origin."""
    headers = ask.headers if is_same else {name: value for name, value in ask.headers.items() if name in _HARMLESS}
    if ask.method == "HEAD":
        return Ask("HEAD", headers, b"")
    if ask.method != "GET" and status in (307, 308):
        return Ask(ask.method, headers, ask.content)
    return Ask("GET", {name: value for name, value in headers.items() if name != "content-type"}, b"")
