"""What proxies say of a request that they pass on: who its client is, and what it asked for. Pure.

Anybody can write these headers, so they count only where the connection comes from a proxy of `http.trusted_proxies`.
Of a chain of addresses the last one counts that is no such proxy: others wrote what is before it.
`Forwarded` (RFC 7239) goes before `X-Forwarded-For`, `-Proto` and `-Host`.
"""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from msgspec import Struct

_PAIR = re.compile(rb'\s*([A-Za-z]+)=("(?:[^"\\]|\\.)*"|[^;,\s"]*)\s*(?:;|$)')
_HOST = re.compile(rb"[A-Za-z0-9._:\[\]-]{1,255}")
_HEADERS = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host"})
_LONGEST = 4096
"""Bytes of a header that are read."""


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

    def __init__(self, entries: Sequence[str], *, trusts_path: bool = False) -> None:
        """`entries`: addresses and networks. `trusts_path`: who comes without an address is one, by a Unix socket."""
        self._networks = [ipaddress.ip_network(entry, strict=False) for entry in entries]
        self._trusts_path = trusts_path and bool(entries)
        self._is_trusted = lru_cache(maxsize=1024)(self._decide)

    def heed(self, peer: str, raw_headers: list[tuple[bytes, bytes]]) -> tuple[Forwarded, list[tuple[bytes, bytes]]]:
        """What counts of a request from this address, and its headers with the `Host` that its client asked for."""
        if not self._is_trusted(peer):
            return Forwarded(peer), raw_headers
        said: dict[bytes, bytes] = {}
        for name, value in raw_headers:
            if name in _HEADERS:
                said[name] = b"%b,%b" % (said[name], value) if name in said else value
        forwarded = self.forwarded(peer, said)
        if forwarded.host:
            others = [header for header in raw_headers if header[0] != b"host"]
            raw_headers = [(b"host", forwarded.host), *others]
        return forwarded, raw_headers

    def forwarded(self, peer: str, headers: Mapping[bytes, bytes]) -> Forwarded:
        """What counts of a request from a proxy with these headers (of a repeated one all values, in order)."""
        standard = headers.get(b"forwarded")
        if standard is not None:
            hops = [_pairs(part) for part in _split(standard[:_LONGEST])]
            addresses = [hop.get(b"for", b"") for hop in hops]
            at, client = self._client(peer, addresses)
            last = hops[at] if at >= 0 else {}
            return Forwarded(client, _scheme(last.get(b"proto", b"")), _host(last.get(b"host", b"")))
        chain = headers.get(b"x-forwarded-for", b"")[-_LONGEST:].split(b",")
        _, client = self._client(peer, chain)
        scheme, host = (headers.get(name, b"").split(b",")[-1] for name in (b"x-forwarded-proto", b"x-forwarded-host"))
        return Forwarded(client, _scheme(scheme), _host(host))

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


def _split(header: bytes) -> list[bytes]:
    """The elements of a list, commas in quotes left alone."""
    return [bytes(part) for part in re.findall(rb'(?:[^,"]|"(?:[^"\\]|\\.)*")+', header)]


def _pairs(element: bytes) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for name, value in _PAIR.findall(element):
        found.setdefault(name.lower(), value.strip(b'"'))
    return found


def _address(text: bytes) -> str:
    """An IP address, with or without a port; empty: it is none (`unknown`, a name that hides one)."""
    name = text.decode("latin-1").strip().strip('"')
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
