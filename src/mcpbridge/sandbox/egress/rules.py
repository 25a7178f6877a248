"""The list of hosts and ports that a program may reach: `api.github.com:443`, `*.example.com:443`. Pure.

A name on the list does not allow the private address that it resolves to: that address has to be on the list itself,
with the same port.
"""

import re
from collections.abc import Iterable
from ipaddress import ip_address

from msgspec import Struct

MOST_PORTS = 64
"""Different ports on one list: each is a listening socket."""

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_LONGEST_NAME = 253


class Rule(Struct, frozen=True):
    """One entry of the list."""

    host: str
    """In lower case; an address in its usual spelling; of a wildcard what follows `*.`."""
    port: int
    is_wildcard: bool = False
    is_address: bool = False

    def matches(self, host: str, port: int) -> bool:
        """Whether it allows this host, as `plain_host` returns it."""
        if port != self.port:
            return False
        return host.endswith(f".{self.host}") if self.is_wildcard else host == self.host


def parse_rule(text: str) -> Rule:
    """The entry that was written.

    Raises:
        ValueError: it is none; says what to write.
    """
    host, colon, port_text = text.strip().rpartition(":")
    if not colon or not host or not port_text.isascii() or not port_text.isdecimal() or host.count(":") == 1:
        example = text.strip() if ":" not in text else "api.github.com"
        raise ValueError(f"'{text[:200]}' has no port: write HOST:PORT, such as `{example[:200]}:443`")
    if "://" in text or "/" in text:
        raise ValueError(f"'{text[:200]}' is a URL: write HOST:PORT, such as `api.github.com:443`")
    port = int(port_text) if len(port_text) <= 5 else 0
    if not 0 < port < 65536:
        raise ValueError(f"'{text[:200]}': there is no port {port_text[:20]}")
    is_wildcard = host.startswith("*.")
    name = plain_host(host[2:] if is_wildcard else host)
    if name == "localhost" or name.endswith(".localhost"):
        raise ValueError(f"'{text[:200]}': write the address of this machine, `127.0.0.1:{port}`")
    is_address = _is_address(name)
    if is_address and is_wildcard:
        raise ValueError(f"'{text[:200]}': an address has no wildcard")
    if not is_address and not is_name(name):
        raise ValueError(f"'{text[:200]}': `{host[:200]}` is neither a host name, `*.` and a name, nor an address")
    if is_wildcard and "." not in name:
        raise ValueError(f"'{text[:200]}' would allow too much: name a domain, such as `*.example.com:{port}`")
    return Rule(name, port, is_wildcard, is_address)


def plain_host(host: str) -> str:
    """A host as hosts are compared: in lower case, without brackets and the dot at the end, an address as usual."""
    name = host.lower().removesuffix(".")
    if name[:1] == "[" and name[-1:] == "]":
        name = name[1:-1]
    try:
        return str(ip_address(name))
    except ValueError:
        return name


def is_name(host: str) -> bool:
    """Whether it can be the name of a host, and is not read as an address by anybody."""
    labels = host.split(".")
    return (
        len(host) <= _LONGEST_NAME
        and all(map(_LABEL.fullmatch, labels))
        and not labels[-1].isdecimal()
        and not labels[-1].startswith("0x")
    )


class Rules:
    """The whole list."""

    def __init__(self, entries: Iterable[str]) -> None:
        """Raises: ValueError: see `parse_rule`; or there are too many ports."""
        self._rules = tuple(dict.fromkeys(map(parse_rule, entries)))
        if len(self.ports) > MOST_PORTS:
            raise ValueError(f"it names {len(self.ports)} different ports: there may be {MOST_PORTS}")

    @property
    def ports(self) -> list[int]:
        """All ports of the list."""
        return sorted({rule.port for rule in self._rules})

    @property
    def hosts(self) -> list[str]:
        """The host names that are on the list as they are."""
        return sorted({rule.host for rule in self._rules if not rule.is_wildcard and not rule.is_address})

    def allows(self, host: str, port: int) -> bool:
        """Whether this is on the list. `host`: a name or an address."""
        plain = plain_host(host)
        return any(rule.matches(plain, port) for rule in self._rules)

    def knows(self, host: str) -> bool:
        """Whether the name is on the list with any port."""
        plain = plain_host(host)
        return any(rule.matches(plain, rule.port) for rule in self._rules)

    def addresses(self, port: int | None = None) -> list[str]:
        """The addresses that are on the list themselves; with this port, or any."""
        return [rule.host for rule in self._rules if rule.is_address and port in (None, rule.port)]


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
