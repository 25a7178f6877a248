"""Arguments in addresses and headers: each stays one piece of where it stands. Pure.

Tool arguments are written by a model, often after something that it read. In a path an argument is one segment however
it is spelled, in a query one value, in a header one line; none can reach another host, path or header (CVE-2026-29791,
CVE-2026-32871). What is made of them is looked at once more as a whole before it is sent.
"""

import json
import re
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from mcpbridge.errors import ArgumentsRefused

__all__ = ["check_url", "header_text", "origin_of", "query_text", "refuse_dots", "segment", "text_of"]

_UNRESERVED = "-._~"
_DECODED = 4
"""How often servers and proxies in a row may decode a path; nobody writes an honest name that needs more."""
_SLASHES = re.compile(r"[/\\]")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_PORTS = {"http": 80, "https": 443}


def text_of(value: Any, name: str) -> str:
    """An argument as text: as it is, else as JSON.

    Raises:
        ArgumentsRefused: it cannot be encoded.
    """
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ArgumentsRefused(f"`{name}` is no valid Unicode text: it has half of a surrogate pair") from None
    return text


def query_text(text: str) -> str:
    """Percent-encoded as the name or value of a query, or of a form."""
    return quote(text, safe=_UNRESERVED)


def segment(text: str, name: str) -> str:
    """Percent-encoded as a part of one segment of a path.

    Raises:
        ArgumentsRefused: a server that decodes it would look elsewhere.
    """
    refuse_dots(text, name)
    return quote(text, safe=_UNRESERVED)


def refuse_dots(text: str, name: str) -> None:
    """Refuse what becomes `.` or `..` between slashes, be it encoded itself: nothing protects those (RFC 3986, 5.2.4).

    Raises:
        ArgumentsRefused: it does.
    """
    for _ in range(_DECODED):
        if _CONTROL.search(text) or "\t" in text:
            raise ArgumentsRefused(f"`{name}` is a part of the path, so it must not have control characters")
        # `;` begins parameters of a segment, which some servers cut off before they look at the dots.
        if any(part.partition(";")[0] in (".", "..") for part in _SLASHES.split(text)):
            raise ArgumentsRefused(f"`{name}` leads to another path: `.` and `..` are not allowed in it")
        decoded = unquote(text)
        if decoded == text:
            return
        text = decoded
    raise ArgumentsRefused(f"`{name}` is percent-encoded many times over; give it as plain text")


def header_text(text: str, name: str) -> str:
    """Text for the value of a header.

    Raises:
        ArgumentsRefused: it would end the header.
    """
    if _CONTROL.search(text):
        raise ArgumentsRefused(f"`{name}` is sent in a header, so it must not have line breaks or control characters")
    return text


def origin_of(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port of an address.

    Raises:
        ValueError: it is none.
    """
    parts = urlsplit(url)
    return parts.scheme.lower(), (parts.hostname or "").lower(), parts.port or _PORTS.get(parts.scheme.lower())


def check_url(url: str, base: str, slashes: int | None = None) -> str:
    """The address, if it is one below `base` that means the same to all who read it.

    `slashes`: how many its path must have.

    Raises:
        ArgumentsRefused: the arguments have made another address of it.
    """
    import httpx2

    beginning = urlsplit(base)
    try:
        parts, read = urlsplit(url), httpx2.URL(url)
        is_same = origin_of(url) == origin_of(base) and read.host.lower() == (beginning.hostname or "").lower()
    except (ValueError, httpx2.InvalidURL):
        raise ArgumentsRefused("These arguments make no address that can be asked") from None
    asked = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
    is_below = f"{parts.path}/".startswith(f"{beginning.path.rstrip('/')}/")
    is_kept = read.raw_path.decode("ascii") == asked and not parts.fragment and not parts.username
    if not (is_same and is_below and is_kept) or slashes not in (None, parts.path.count("/")):
        raise ArgumentsRefused("These arguments would lead to another address than that of the tool")
    if any(unquote(part) in (".", "..") for part in parts.path.split("/")):
        raise ArgumentsRefused("These arguments would lead to another path than that of the tool")
    return url
