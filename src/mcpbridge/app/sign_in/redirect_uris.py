"""Where people may be sent back to after they signed in. Pure.

An address is compared character by character with those that the client has named; only the port of a loopback address
may differ, or be left out, since programs take any that is free (RFC 8252, 7.3; RFC 9700, 2.1). Documents of clients in
use name theirs without one.
"""

import re
from urllib.parse import SplitResult, urlsplit

LONGEST = 2000
"""Characters."""
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_FORBIDDEN = frozenset(
    {
        "javascript",
        "data",
        "file",
        "vbscript",
        "about",
        "blob",
        "filesystem",
        "ws",
        "wss",
        "ftp",
        "mailto",
        "tel",
        "urn",
    }
)
"""Schemes that lead to no program which waits for an answer, or that run something."""
_PORT = re.compile(r":[0-9]+\Z")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")


def problem_of(uri: str) -> str:
    """Why nobody may be sent there; empty: one may."""
    if len(uri) > LONGEST or not uri.isascii() or not uri.isprintable() or set(uri) & set(' "<>\\^`{|}'):
        return "it is no plain URL"
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        return "it is no URL"
    if not _SCHEME.fullmatch(parts.scheme):
        return "it has no scheme"
    if parts.fragment or "#" in uri:
        return "it has a fragment"
    if parts.username is not None or parts.password is not None:
        return "it has a user name"
    if parts.scheme in _FORBIDDEN:
        return f"{parts.scheme}: leads to no program"
    if parts.scheme == "https":
        return "" if parts.hostname else "it has no host"
    if parts.scheme == "http":
        return "" if is_loopback(parts) else "http:// is for this machine alone: use https://"
    return ""  # a scheme of the program's own: `cursor://…`, `com.example.app:/…`


def is_loopback(parts: SplitResult) -> bool:
    """Whether it leads to a program on the person's own machine."""
    return parts.hostname in _LOOPBACK


def is_registered(uri: str, registered: str) -> bool:
    """Whether `uri` is the registered one."""
    if uri == registered:
        return True
    try:
        given, known = urlsplit(uri), urlsplit(registered)
        _ = given.port, known.port
    except ValueError:
        return False
    if known.scheme != "http" or not is_loopback(known):
        return False
    return _without_port(given) == _without_port(known)


def _without_port(parts: SplitResult) -> str:
    """The URL, spelled without its port; another spelling of the rest is another URL."""
    return parts._replace(netloc=_PORT.sub("", parts.netloc)).geturl()


def target_name(uri: str) -> str:
    """Where it leads, in the words of the page that asks: a host, this computer, or the program of a scheme."""
    parts = urlsplit(uri)
    if parts.scheme == "http" and is_loopback(parts):
        return "a program on this computer"
    if parts.scheme in ("http", "https"):
        return parts.netloc
    return f"the program that opens {parts.scheme}: links on this computer"
