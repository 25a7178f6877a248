"""The head of a request for a proxy, or of one in plain HTTP: where it goes, and as it is passed on. Pure.

A connection carries one request: `connection: close` is set. Otherwise a second request on it could name another host.
"""

import re
from typing import NamedTuple

LONGEST = 32 << 10
"""Bytes of a head."""

_LINE = re.compile(rb"([A-Z]{1,20}) ([^\s\x00-\x1f\x7f]{1,16384}) HTTP/1\.([01])")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\x00]*?)[ \t]*")
_ABSOLUTE = re.compile(rb"http://([^/?#@\s]+)((?:[/?][^#]*)?)", re.IGNORECASE)
_UNFINISHED = re.compile(rb"(?:\r?\n)*[A-Z]{0,20}(?: [^\r\n]{0,16500}\r?)?")
_REQUEST = re.compile(rb"(?:\r?\n)*[A-Z]{1,20} [^\r\n]* HTTP/[0-9.]+[ \t]*\r?\n")
_OF_THE_PROXY = (
    b"proxy-authorization",
    b"proxy-connection",
    b"proxy-authenticate",
    b"connection",
    b"keep-alive",
    b"host",
)


class Head(NamedTuple):
    """The head of one request."""

    method: str
    host: str
    port: int
    passed_on: bytes
    """The head as the server gets it; empty for CONNECT."""


def looks_like_http(data: bytes) -> bool | None:
    """Whether the first bytes of a connection begin a request in HTTP/1; None: more of them must be seen."""
    if _REQUEST.match(data):
        return True
    return None if _UNFINISHED.fullmatch(data) else False


def head_for_proxy(head: bytes) -> Head:
    """The request that a program sent to the proxy. `head` ends with the empty line.

    Raises:
        ValueError: it is not one that a proxy can answer.
    """
    method, target, headers = _parts(head)
    if method == b"CONNECT":
        host, port = _host_and_port(target, 0)
        return Head("CONNECT", host, port, b"")
    found = _ABSOLUTE.fullmatch(target)
    if found is None:
        raise ValueError("a proxy is asked with CONNECT, or for an http:// address")
    host, port = _host_and_port(found[1], 80)
    path = found[2] if found[2].startswith(b"/") else b"/" + found[2]
    return Head(method.decode(), host, port, _rewritten(method, path, found[1], headers))


def head_on_connection(head: bytes, port: int) -> Head:
    """A request in plain HTTP on a connection to a port.

    Raises:
        ValueError: it cannot be read, or names no host.
    """
    method, target, headers = _parts(head)
    absolute = _ABSOLUTE.fullmatch(target)
    hosts = {value for name, value in headers if name.lower() == b"host"}
    if absolute is not None:
        hosts.add(bytes(absolute[1]))
    if len(hosts) != 1:
        raise ValueError("a request names one host")
    [named] = hosts
    host, named_port = _host_and_port(named, port)
    return Head(method.decode(), host, named_port, _rewritten(method, target, named, headers))


def _parts(head: bytes) -> tuple[bytes, bytes, list[tuple[bytes, bytes]]]:
    first, *lines = head.lstrip(b"\r\n").removesuffix(b"\r\n\r\n").split(b"\r\n")
    line = _LINE.fullmatch(first)
    if line is None:
        raise ValueError("its first line cannot be read")
    headers: list[tuple[bytes, bytes]] = []
    for text in lines:
        header = _HEADER.fullmatch(text)
        if header is None:
            raise ValueError("one of its headers cannot be read")
        headers.append((bytes(header[1]), bytes(header[2])))
    return line[1], line[2], headers


def _rewritten(method: bytes, target: bytes, host: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
    kept = [(name, value) for name, value in headers if name.lower() not in _OF_THE_PROXY]
    upgrades = any(name.lower() == b"upgrade" for name, _ in kept)
    ending = b"Upgrade, close" if upgrades else b"close"
    lines = [b"%s %s HTTP/1.1" % (method, target), b"Host: " + host, *(b"%s: %s" % pair for pair in kept)]
    return b"\r\n".join([*lines, b"Connection: " + ending, b"", b""])


def _host_and_port(text: bytes, default: int) -> tuple[str, int]:
    written = text.decode("ascii", "replace")
    host, colon, port = written.rpartition(":")
    if not colon or written.endswith("]"):
        host, port = written, str(default)
    if not port.isascii() or not port.isdecimal() or len(port) > 5 or not host or not 0 < int(port) < 65536:
        raise ValueError("its host or port cannot be read")
    return host, int(port)
