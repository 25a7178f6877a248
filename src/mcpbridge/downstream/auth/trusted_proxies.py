"""What proxies say of a request that they pass on: who its client is, and what it asked for. Pure.

Anybody can write these headers. So they count only where the connection comes from a proxy of `http.trusted_proxies`,
and only those of the one family that these proxies set (`http.proxy_headers`): many pass on what a client wrote into
the other. The end of a header counts, since proxies add to the end: of a chain of addresses the last one that is no
such proxy. `Host` is replaced only where the proxies set the host in these headers (`http.proxy_sets_host`).
"""

import ipaddress
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal

from msgspec import Struct

Family = Literal["x-forwarded", "forwarded"]
"""`X-Forwarded-For`, `-Proto` and `-Host`, or `Forwarded` (RFC 7239)."""

_FOR, _PROTO, _HOST_OF = b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host"
_FORWARDED = b"forwarded"
_HOST = re.compile(rb"[A-Za-z0-9._:\[\]-]{1,255}")
_LONGEST = 4096
"""Bytes of a header that are read, from its end."""
_LONGEST_ADDRESS = 64
"""Bytes of an address with a port."""
_MOST_HOPS = 32
"""Proxies that a request may come through."""


class Forwarded(Struct, frozen=True):
    """What counts of a request."""

    client: str
    """The address of the client; empty: unknown (a Unix socket without a proxy's word)."""
    scheme: str = ""
    """`http` or `https`; empty: no proxy says."""
    host: bytes = b""
    """The `Host` that the client asked for; empty: no proxy says."""


class TrustedProxies:
    """The proxies of a front."""

    def __init__(
        self,
        entries: Sequence[str],
        *,
        trusts_path: bool = False,
        family: Family = "x-forwarded",
        sets_host: bool = False,
    ) -> None:
        """`entries`: addresses and networks. `trusts_path`: who comes without an address is one, by a Unix socket.

        `family`: the headers that they set. `sets_host`: they set the host there, too.
        """
        self._networks = [ipaddress.ip_network(entry, strict=False) for entry in entries]
        self._trusts_path = trusts_path and bool(entries)
        self._is_standard, self._sets_host = family == "forwarded", sets_host
        self._names = frozenset({_FORWARDED} if self._is_standard else {_FOR, _PROTO, _HOST_OF})
        self._is_trusted = lru_cache(maxsize=1024)(self._decide)

    def heed(self, peer: str, raw_headers: list[tuple[bytes, bytes]]) -> tuple[Forwarded, list[tuple[bytes, bytes]]]:
        """What counts of a request from this address, and its headers with the `Host` that its client asked for."""
        if not self._is_trusted(peer):
            return Forwarded(peer), raw_headers
        said: dict[bytes, list[bytes]] = {}
        for name, value in raw_headers:
            if name in self._names:
                said.setdefault(name, []).append(value)
        values = {name: _elements(b",".join(several)) for name, several in said.items()}
        forwarded = self._standard(peer, values) if self._is_standard else self._usual(peer, values)
        if forwarded.host:
            others = [header for header in raw_headers if header[0] != b"host"]
            raw_headers = [(b"host", forwarded.host), *others]
        return forwarded, raw_headers

    def heed_checked(
        self,
        peer: str,
        headers: dict[bytes, bytes],
        raw_headers: list[tuple[bytes, bytes]],
        check_host: Callable[[dict[bytes, bytes], int, list[tuple[bytes, bytes]]], object],
    ) -> tuple[Forwarded, dict[bytes, bytes], list[tuple[bytes, bytes]]]:
        """As `heed`. Where the proxies name another `Host`, the one that they themselves sent must be right as well.

        `headers`: the same by name, as in the answer. `check_host` raises `Refused` for a host that is not ours.
        """
        forwarded, seen = self.heed(peer, raw_headers)
        if seen is raw_headers:
            return forwarded, headers, raw_headers
        check_host(headers, len(headers), raw_headers)
        return forwarded, dict(seen), seen

    def _standard(self, peer: str, values: dict[bytes, list[bytes]]) -> Forwarded:
        hops = [_pairs(element) for element in values.get(_FORWARDED, ())]
        at, client = self._client(peer, [hop.get(b"for", b"") for hop in hops])
        last = hops[at] if at >= 0 else {}
        return self._counted(client, last.get(b"proto", b""), last.get(b"host", b""))

    def _usual(self, peer: str, values: dict[bytes, list[bytes]]) -> Forwarded:
        _, client = self._client(peer, values.get(_FOR, ()))
        scheme, host = (values.get(name, [b""])[-1] for name in (_PROTO, _HOST_OF))
        return self._counted(client, scheme, host)

    def _counted(self, client: str, scheme: bytes, host: bytes) -> Forwarded:
        return Forwarded(client, _scheme(scheme), _host(host) if self._sets_host else b"")

    def _client(self, peer: str, chain: Sequence[bytes]) -> tuple[int, str]:
        """Where in the chain the client is, and its address: the last that is no proxy."""
        client, place = peer, -1
        for at in range(len(chain) - 1, -1, -1):
            address = _address(chain[at])
            if not address:
                break  # what is before it cannot be judged
            client, place = address, at
            if not self._is_trusted(address):
                break
        return place, client

    def _decide(self, address: str) -> bool:
        if not address:
            return self._trusts_path
        found = ipaddress.ip_address(address)
        mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
        return any((mapped or found) in network for network in self._networks)


def _elements(header: bytes) -> list[bytes]:
    """The last elements of a header that is a list, at least one."""
    elements = _split(header[-_LONGEST:], b",")
    if len(header) > _LONGEST and len(elements) > 1:
        elements = elements[1:]  # the first is the end of one
    return elements[-_MOST_HOPS:]


def _split(text: bytes, separator: bytes) -> list[bytes]:
    """The parts between separators, those in quotes left alone.

    Quotes are paired from the end: one that a client left open takes nothing in that a proxy wrote after it.
    """
    pieces = text.split(b'"')
    for at in range(len(pieces) - 2, -1, -2):
        pieces[at] = b"x" * len(pieces[at])
    parts: list[bytes] = []
    start = 0
    for masked in b'"'.join(pieces).split(separator):
        parts.append(text[start : start + len(masked)])
        start += len(masked) + len(separator)
    return parts


def _pairs(element: bytes) -> dict[bytes, bytes]:
    """What an element of `Forwarded` says; nothing, if two readers could read it differently."""
    found: dict[bytes, bytes] = {}
    for pair in _split(element, b";"):
        name, equals, value = pair.strip().partition(b"=")
        if value[:1] == value[-1:] == b'"' and len(value) > 1:
            value = value[1:-1]
        if not pair.strip():
            continue
        if not equals or b'"' in value or b"\\" in value or name.lower() in found:
            return {}
        found[name.lower()] = value
    return found


def _address(text: bytes) -> str:
    """An IP address, with or without a port; empty: it is none (`unknown`, a name that hides one)."""
    name = text.strip()[: _LONGEST_ADDRESS + 1].decode("latin-1").strip('"')
    if len(name) > _LONGEST_ADDRESS or "%" in name:
        return ""
    if name.startswith("["):
        name = name[1:].partition("]")[0]
    elif name.count(":") == 1:
        name = name.partition(":")[0]
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return ""


def _scheme(value: bytes) -> str:
    scheme = value.strip().lower()
    return scheme.decode() if scheme in (b"http", b"https") else ""


def _host(value: bytes) -> bytes:
    host = value.strip()
    return host if _HOST.fullmatch(host) else b""
