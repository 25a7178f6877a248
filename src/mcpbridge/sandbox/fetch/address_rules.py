"""Which addresses may be fetched on a model's behalf: URLs, host names, private and reserved networks.

A URL that is not written plainly is refused. What no honest page uses (user names, other spellings of IPv4 addresses,
characters that cannot be seen) is how filters are passed by: two parsers read it differently. Here one parser reads
it, and what it read is what is asked for.

`ipaddress` alone does not show where an address leads: a forbidden IPv4 address may be carried inside an IPv6 one, and
a few addresses of cloud providers lie in public ranges.

`Guard.target_of` judges a URL and its host, `Guard.check_answers` the addresses that the host was resolved to. A
single bad one refuses all, since whoever answers for a name may say something else the next time.
"""

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from enum import IntEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import httpx2
from msgspec import Struct

from mcpbridge.base.errors import AddressRefused
from mcpbridge.sandbox.fetch.settings import GuardSettings

_LONGEST = 8192
"""Characters of a URL."""
_DISPLAY_LENGTH = 200
_BEGINNING = re.compile(r"https?://([^/?#]*)", re.IGNORECASE)
_AUTHORITY = re.compile(r"(\[[^\[\]%]*\]|[^\[\]@:%]+)(:[0-9]{0,5})?")
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
"""A last label that makes resolvers read the whole as an IPv4 address."""


class Target(Struct, frozen=True):
    """Where a request may go, if its addresses are good too."""

    url: httpx2.URL
    """As it is sent."""
    host: str
    """In ASCII, without brackets, without a dot at the end."""
    port: int
    address: str = ""
    """The host, where it is an address itself; else it has to be resolved."""
    is_trusted: bool = False
    """People wrote it: its addresses may be any."""

    @property
    def is_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.url.scheme == "https"

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port: what credentials are for."""
        return self.url.scheme, self.host, self.port


def read(text: str, *, is_trusted: bool) -> Target:
    """What a URL asks for.

    Raises:
        AddressRefused: it is not http or https, or not written plainly.
    """
    check_text(text)
    beginning = _BEGINNING.match(text)
    if beginning is None:
        raise AddressRefused(f"{display_url(text)}: only http:// and https:// are fetched")
    if "@" in beginning[1]:
        raise AddressRefused(f"{display_url(text)}: a URL with a user name or password is not fetched")
    if not _AUTHORITY.fullmatch(beginning[1]):
        raise AddressRefused(f"{display_url(text)}: its host or port cannot be read")
    try:
        url = httpx2.URL(text)
    except (httpx2.InvalidURL, ValueError):  # ValueError: a host name that cannot be encoded
        raise AddressRefused(f"{display_url(text)}: its host or port cannot be read") from None
    host = url.raw_host.decode("ascii").lower().removesuffix(".")
    if url.userinfo or not host:
        raise AddressRefused(f"{display_url(text)}: its host or port cannot be read")
    port = url.port if url.port is not None else 443 if url.scheme == "https" else 80
    if not 0 < port < 65536:
        raise AddressRefused(f"{display_url(text)}: there is no port {port}")
    address = _address_of(host, text, is_dotted=url.raw_host.endswith(b"."))
    return Target(url, address or host, port, address, is_trusted)


def check_text(text: str) -> None:
    """Refuse a URL, or a part of one, by its characters.

    Raises:
        AddressRefused: it is too long, or has some that no URL has.
    """
    if len(text) > _LONGEST:
        raise AddressRefused(f"{display_url(text)}: longer than {_LONGEST} characters")
    if "\\" in text or any(char == " " or not char.isprintable() for char in text):
        raise AddressRefused(f"{display_url(text)}: a URL has no spaces, backslashes or characters that cannot be seen")


def display_url(url: str) -> str:
    """A URL as messages name it: without its query and whoever is in it, without what cannot be seen, and short."""
    text = re.split(r"[?#]", url, maxsplit=1)[0]
    scheme, separator, rest = text.partition("//") if "//" in text else ("", "", text)
    authority, slash, path = rest.partition("/")
    text = scheme + separator + authority.rpartition("@")[2] + slash + path
    text = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    return text if len(text) <= _DISPLAY_LENGTH else f"{text[: _DISPLAY_LENGTH - 1]}…"


def _address_of(host: str, text: str, *, is_dotted: bool) -> str:
    """The address that a host is, in its usual spelling; empty when it is a name."""
    if ":" in host:
        try:
            return str(IPv6Address(host))
        except ValueError:
            raise AddressRefused(f"{display_url(text)}: its host cannot be read") from None
    labels = host.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        try:
            if is_dotted:
                raise ValueError
            return str(ip_address(host))
        except ValueError:
            raise AddressRefused(f"{display_url(text)}: an address is written with four plain numbers") from None
    if len(host) > 253 or not all(map(_LABEL.fullmatch, labels)):
        raise AddressRefused(f"{display_url(text)}: its host is no name of a host")
    return ""


class Reach(IntEnum):
    """Who can be behind an address, from everybody to what no server should name."""

    PUBLIC = 0
    PRIVATE = 1
    """Another machine of this network: RFC 1918, carrier-grade NAT, unique local."""
    LOOPBACK = 2
    """This machine."""
    RESERVED = 3
    """Link-local (which is where clouds keep their metadata), multicast, unspecified, documentation, reserved."""


def _networks(*texts: str) -> tuple[IPv4Network | IPv6Network, ...]:
    return tuple(ip_network(text) for text in texts)


_CLOUD = _networks("168.63.129.16/32", "100.100.100.200/32", "192.0.0.0/24", "fd00:ec2::/32", "fd20:ce::/32")
"""Addresses in ranges of their own at which clouds keep credentials."""
_LOOPBACK = _networks("127.0.0.0/8", "::1/128")
_PRIVATE = _networks("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
_RESERVED = _networks(
    "0.0.0.0/8",
    "169.254.0.0/16",
    "192.0.2.0/24",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/3",
    "::/128",
    "100::/64",
    "2001:db8::/32",
    "fe80::/10",
    "fec0::/10",
    "ff00::/8",
)
_TAIL = _networks("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96")
"""IPv6 networks that carry an IPv4 address in their last 32 bits: compatible, mapped, translated, NAT64."""
_LOCAL_NAT64 = ip_network("64:ff9b:1::/48")
_6TO4 = ip_network("2002::/16")
_TEREDO = ip_network("2001::/32")


def reach_of(address: str) -> Reach:
    """The reach of an address; of the worst one when it carries others inside. A scope (`%eth0`) is ignored.

    Raises:
        ValueError: it is no IP address.
    """
    return max(map(_reach, _with_carried(ip_address(address.partition("%")[0]))))


def _with_carried(address: IPv4Address | IPv6Address) -> Iterator[IPv4Address | IPv6Address]:
    if isinstance(address, IPv6Address) and int(address) > 1:
        bits = int(address)
        if any(address in network for network in _TAIL):
            yield IPv4Address(bits & 0xFFFFFFFF)
            return  # what the packets reach is the carried one
        if address in _LOCAL_NAT64:
            yield IPv4Address(bits & 0xFFFFFFFF)
        elif address in _6TO4:
            yield IPv4Address(bits >> 80 & 0xFFFFFFFF)
        elif address in _TEREDO:
            yield IPv4Address(~bits & 0xFFFFFFFF)
    yield address


def _reach(address: IPv4Address | IPv6Address) -> Reach:
    for reach, networks in (
        (Reach.RESERVED, _CLOUD),
        (Reach.LOOPBACK, _LOOPBACK),
        (Reach.PRIVATE, _PRIVATE),
        (Reach.RESERVED, _RESERVED),
    ):
        if any(address in network for network in networks if network.version == address.version):
            return reach
    return Reach.PUBLIC


_INSIDE = frozenset(
    {"localhost", "local", "internal", "localdomain", "intranet", "lan", "home", "corp", "private", "arpa"}
)
"""Top-level names that never lead outside."""

_FURTHER = tuple(
    map(
        ip_network,
        [
            *("192.88.99.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.175.48.0/24"),
            *("2001::/23", "2002::/16", "3ffe::/16", "3fff::/20", "2620:4f:8000::/48"),
        ],
    )
)
"""Beside those that `reach_of` knows: relays, assignments of the IETF, documentation, sinks."""
_CARRIERS = tuple(
    map(
        ip_network,
        [
            *("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96"),
            *("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32"),
        ],
    )
)
"""Networks whose addresses have an IPv4 address inside."""
_UNICAST = ip_network("2000::/3")
_NAT64 = ip_network("64:ff9b::/96")
"""What resolvers of networks with IPv6 alone answer for hosts that have IPv4 alone (RFC 6147)."""
_WHAT = {
    Reach.PRIVATE: "inside a private network",
    Reach.LOOPBACK: "this machine itself",
    Reach.RESERVED: "in a reserved range, such as the one of cloud metadata",
}


class Guard:
    """The rules of one configuration."""

    def __init__(self, settings: GuardSettings) -> None:
        self._allow, self._deny, self._only = (_Places(each) for each in (settings.allow, settings.deny, settings.only))
        self._ports = frozenset(settings.ports)

    def target_of(self, text: str, *, is_trusted: bool = False) -> Target:
        """What a URL asks for, as far as that is known without resolving its host.

        `is_trusted`: a person wrote it, so any port, name and address is good, if it is written plainly.

        Raises:
            AddressRefused: it is not to be fetched.
        """
        target = read(text, is_trusted=is_trusted)
        if is_trusted:
            return target
        if target.port not in self._ports:
            ports = ", ".join(map(str, sorted(self._ports)))
            raise AddressRefused(f"{display_url(text)}: port {target.port} is not fetched from, only {ports}")
        if target.address:
            self._check_literal(target)
        else:
            self._check_name(target)
        return target

    def redirected(self, here: Target, location: str) -> Target:
        """What a redirect leads to. A host that people wrote stays trusted; another is not.

        Raises:
            AddressRefused: it is not to be followed.
        """
        check_text(location)
        try:
            text = str(here.url.join(location))
        except httpx2.InvalidURL:
            raise AddressRefused(f"{display_url(str(here.url))} redirects to what is no URL") from None
        try:
            is_same = here.is_trusted and read(text, is_trusted=True).origin[1:] == here.origin[1:]
            target = self.target_of(text, is_trusted=is_same)
        except AddressRefused as refused:
            raise AddressRefused(f"{display_url(str(here.url))} redirects elsewhere: {refused}") from None
        if here.is_tls and not target.is_tls:
            raise AddressRefused(
                f"{display_url(str(here.url))} redirects to {display_url(text)}, which is not encrypted"
            )
        return target

    def check_answers(self, target: Target, answers: Sequence[str], is_own: Callable[[str], bool]) -> list[str]:
        """The addresses of a host, in the spelling in which they are dialled, if every one may be dialled.

        `is_own`: whether an address is one of this machine's.

        Raises:
            AddressRefused: one is not to be.
        """
        found = [str(ip_address(answer.partition("%")[0])) for answer in answers]
        if target.is_trusted:
            return list(dict.fromkeys(answers))
        is_allowed = self._allow.has_host(target.host)
        for address in found:
            if self._deny.has_address(address):
                raise AddressRefused(f"{display_url(str(target.url))} is on the list of what is not fetched (`deny`)")
            if self._allow.has_address(address):
                continue
            reach, why = _judged(address)
            if not why and is_own(address):
                reach, why = Reach.LOOPBACK, _WHAT[Reach.LOOPBACK]
            if why and not (is_allowed and reach in (Reach.PRIVATE, Reach.LOOPBACK)):
                leads = "is" if target.address else "leads to an address that is"
                raise AddressRefused(f"{display_url(str(target.url))} {leads} {why}")
        if self._only and not self._only.has_host(target.host) and not all(map(self._only.has_address, found)):
            raise AddressRefused(f"{display_url(str(target.url))} is not on the list of what may be fetched (`only`)")
        return list(dict.fromkeys(found))

    def _check_literal(self, target: Target) -> None:
        """Refuse what is told by the address as it is written; `check_answers` judges it further."""
        if self._deny.has_address(target.address) or self._allow.has_address(target.address):
            return
        if isinstance(ip_address(target.address), IPv6Address) and _carries(IPv6Address(target.address)):
            raise AddressRefused(f"{display_url(str(target.url))} hides an IPv4 address in an IPv6 one")

    def _check_name(self, target: Target) -> None:
        host, what = target.host, display_url(str(target.url))
        if self._deny.has_host(host):
            raise AddressRefused(f"{what} is on the list of what is not fetched (`deny`)")
        if self._only and not self._only.has_networks and not self._only.has_host(host):
            raise AddressRefused(f"{what} is not on the list of what may be fetched (`only`)")
        if self._allow.has_host(host):
            return
        if "." not in host:
            raise AddressRefused(f"{what}: a name without a dot is one of this machine or network")
        if host.rpartition(".")[2] in _INSIDE:
            raise AddressRefused(f"{what}: names in .{host.rpartition('.')[2]} are of this machine or network")


class _Places:
    """A list of hosts and networks."""

    def __init__(self, entries: Sequence[str]) -> None:
        networks = [entry for entry in entries if "/" in entry]
        self._networks = tuple(map(ip_network, networks))
        self._hosts = frozenset(entries) - frozenset(networks)

    def __bool__(self) -> bool:
        return bool(self._networks or self._hosts)

    @property
    def has_networks(self) -> bool:
        """Some entries cannot be compared before the host is resolved."""
        return bool(self._networks)

    def has_host(self, host: str) -> bool:
        """Whether it stands there by name, or below one that does."""
        if host in self._hosts:
            return True
        labels = host.split(".")
        return any(f"*.{'.'.join(labels[start:])}" in self._hosts for start in range(1, len(labels)))

    def has_address(self, address: str) -> bool:
        """Whether it, or the IPv4 address that it is translated to, is in one of the networks."""
        found = ip_address(address)
        same = [found]
        if found in _NAT64:
            same.append(ip_address(int(found) & 0xFFFFFFFF))
        return any(one in network for one in same for network in self._networks)


def _judged(address: str) -> tuple[Reach, str]:
    """How far inside an address is, and what is wrong with it; empty: nothing."""
    found = ip_address(address)
    reach = reach_of(address)
    if reach is not Reach.PUBLIC:
        return reach, _WHAT[reach]
    if any(found in network for network in _FURTHER):
        return Reach.RESERVED, _WHAT[Reach.RESERVED]
    if isinstance(found, IPv6Address) and found not in _NAT64 and (found not in _UNICAST or _carries(found)):
        return Reach.RESERVED, _WHAT[Reach.RESERVED]
    return reach, ""


def _carries(address: IPv6Address) -> bool:
    """Whether an IPv4 address is inside: compatible, mapped, translated, NAT64, 6to4, Teredo or ISATAP."""
    bits = int(address)
    if bits >> 32 & 0xFDFFFFFF == 0x5EFE:  # RFC 5214: ::0:5efe:a.b.c.d and ::200:5efe:a.b.c.d
        return True
    return any(address in network for network in _CARRIERS)


Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host, for a port. Raises OSError when it is not known."""


async def resolved(host: str, port: int) -> Sequence[str]:
    """What the system's resolver answers; see `Resolve`."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


def is_own_address(address: str) -> bool:
    """Whether an address is one of this machine's, found by trying to bind to it, so no list is out of date."""
    if not _is_bindable(address):
        return False
    # Some systems let programs bind to any address at all (Linux: ip_nonlocal_bind).
    return not _is_bindable("2001:db8::1" if ":" in address else "192.0.2.1") or _is_source(address)


def _is_bindable(address: str) -> bool:
    try:
        with socket.socket(_family(address), socket.SOCK_DGRAM) as sock:
            sock.bind((address, 0))
    except OSError:
        return False
    return True


def _is_source(address: str) -> bool:
    """Whether packets to an address would come from it; none is sent."""
    try:
        with socket.socket(_family(address), socket.SOCK_DGRAM) as sock:
            sock.connect((address, 9))
            return sock.getsockname()[0] == address
    except OSError:
        return False


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
