"""Which addresses may be fetched on a model's behalf; pure.

`target_of` looks at a URL and the name in it, `check_answers` at the addresses that the name was resolved to. A single
bad one refuses all, since whoever answers for a name may say something else the next time.
"""

from collections.abc import Callable, Sequence
from ipaddress import IPv6Address, ip_address, ip_network

import httpx2

from mcpbridge.errors import AddressRefused
from mcpbridge.sandbox.address_reading import Target, check_text, read, shown
from mcpbridge.sandbox.address_settings import GuardSettings
from mcpbridge.wire.addresses import Reach, reach_of

__all__ = ["Guard"]

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
        """What a URL asks for, in as far as that can be told without resolving its host.

        `is_trusted`: a person wrote it, so any port, name and address is good, if it is written plainly.

        Raises:
            AddressRefused: it is not to be fetched.
        """
        target = read(text, is_trusted=is_trusted)
        if is_trusted:
            return target
        if target.port not in self._ports:
            ports = ", ".join(map(str, sorted(self._ports)))
            raise AddressRefused(f"{shown(text)}: port {target.port} is not fetched from, only {ports}")
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
            raise AddressRefused(f"{shown(str(here.url))} redirects to what is no URL") from None
        try:
            is_same = here.is_trusted and read(text, is_trusted=True).origin[1:] == here.origin[1:]
            target = self.target_of(text, is_trusted=is_same)
        except AddressRefused as refused:
            raise AddressRefused(f"{shown(str(here.url))} redirects elsewhere: {refused}") from None
        if here.is_tls and not target.is_tls:
            raise AddressRefused(f"{shown(str(here.url))} redirects to {shown(text)}, which is not encrypted")
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
                raise AddressRefused(f"{shown(str(target.url))} is on the list of what is not fetched (`deny`)")
            if self._allow.has_address(address):
                continue
            reach, why = _judged(address)
            if not why and is_own(address):
                reach, why = Reach.LOOPBACK, _WHAT[Reach.LOOPBACK]
            if why and not (is_allowed and reach in (Reach.PRIVATE, Reach.LOOPBACK)):
                leads = "is" if target.address else "leads to an address that is"
                raise AddressRefused(f"{shown(str(target.url))} {leads} {why}")
        if self._only and not self._only.has_host(target.host) and not all(map(self._only.has_address, found)):
            raise AddressRefused(f"{shown(str(target.url))} is not on the list of what may be fetched (`only`)")
        return list(dict.fromkeys(found))

    def _check_literal(self, target: Target) -> None:
        """Refuse what is told by the address as it is written; `check_answers` judges it further."""
        if self._deny.has_address(target.address) or self._allow.has_address(target.address):
            return
        if isinstance(ip_address(target.address), IPv6Address) and _carries(IPv6Address(target.address)):
            raise AddressRefused(f"{shown(str(target.url))} hides an IPv4 address in an IPv6 one")

    def _check_name(self, target: Target) -> None:
        host, what = target.host, shown(str(target.url))
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
