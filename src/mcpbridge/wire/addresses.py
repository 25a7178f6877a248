"""Which networks an IP address leads into; pure.

`ipaddress` alone does not tell: a forbidden IPv4 address may be carried inside an IPv6 one, and a few addresses of
cloud providers lie in public ranges.
"""

from collections.abc import Iterator
from enum import IntEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

__all__ = ["Reach", "reach_of"]


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
