"""A request before it is sent, and an answer after it was read. Pure."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from mcpbridge._version import __version__
from mcpbridge.backends.http_decoding import CODINGS

if TYPE_CHECKING:
    import httpx2

__all__ = ["Answer", "Outgoing", "Part", "Shown", "request_of"]

CONNECT_SECONDS = 10.0
"""Seconds in which a connection must be there."""


class Part(Struct, frozen=True):
    """One part of a multipart body."""

    name: str
    data: bytes
    media_type: str = ""
    is_file: bool = False


class Outgoing(Struct, frozen=True):
    """A request."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    """In lower case; those of the settings come before them."""
    content: bytes = b""
    parts: tuple[Part, ...] | None = None
    """The body as `multipart/form-data`; None: `content` is the body."""


class Answer(Struct, frozen=True):
    """What came back."""

    status: int
    headers: "httpx2.Headers"
    body: bytes
    url: str
    """The address that answered."""
    is_cut: bool = False
    """It was larger than it may be; this is the beginning."""


class Shown(Struct, frozen=True):
    """What is added to a request."""

    headers: tuple[tuple[str, str], ...] = ()
    query: str = ""
    """Encoded; empty: nothing."""


def request_of(outgoing: Outgoing, shown: Shown, given: Mapping[str, str]) -> "httpx2.Request":
    """Headers of the settings and credentials count before those of the call."""
    import httpx2

    headers = {
        "accept": "application/json, */*;q=0.8",
        "accept-encoding": CODINGS,
        "user-agent": f"mcpbridge/{__version__}",
    }
    headers |= dict(outgoing.headers)
    cookies = [headers.pop("cookie", ""), given.get("cookie", "")]
    headers |= {**given} | {name: value for name, value in shown.headers if name != "cookie"}
    cookies += [value for name, value in shown.headers if name == "cookie"]
    if cookie := "; ".join(filter(None, cookies)):
        headers["cookie"] = cookie
    url = outgoing.url
    if shown.query:
        url = f"{url}{'&' if '?' in url else '?'}{shown.query}"
    encoded = [(name.encode("ascii"), value.encode()) for name, value in headers.items()]
    # Only the connection has a time of its own: that of the whole is kept by whoever calls.
    timeout = {"timeout": {"connect": CONNECT_SECONDS, "read": None, "write": None, "pool": None}}
    if outgoing.parts is None:
        content = outgoing.content or (b"" if outgoing.method in ("POST", "PUT", "PATCH") else None)
        return httpx2.Request(outgoing.method, url, headers=encoded, content=content, extensions=timeout)
    files = [(part.name, _file(part)) for part in outgoing.parts]
    return httpx2.Request(outgoing.method, url, headers=encoded, files=files, extensions=timeout)


def _file(part: Part) -> tuple[str | None, bytes] | tuple[str | None, bytes, str]:
    name = part.name if part.is_file else None
    return (name, part.data, part.media_type) if part.media_type else (name, part.data)
