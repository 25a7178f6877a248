"""Reading the URL of what is to be fetched, and refusing what is not written plainly; pure.

What no honest page uses (user names, other spellings of IPv4 addresses, characters that cannot be seen) is how filters
are passed by: two parsers read it differently. Here one parser reads it, and what it read is what is asked for.
"""

import re
from ipaddress import IPv6Address, ip_address

import httpx2
from msgspec import Struct

from mcpbridge.errors import AddressRefused

__all__ = ["Target", "check_text", "read", "shown"]

_LONGEST = 8192
"""Characters of a URL."""
_SHOWN = 200
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
        raise AddressRefused(f"{shown(text)}: only http:// and https:// are fetched")
    if "@" in beginning[1]:
        raise AddressRefused(f"{shown(text)}: a URL with a user name or password is not fetched")
    if not _AUTHORITY.fullmatch(beginning[1]):
        raise AddressRefused(f"{shown(text)}: its host or port cannot be read")
    try:
        url = httpx2.URL(text)
    except (httpx2.InvalidURL, ValueError):  # ValueError: a host name that cannot be encoded
        raise AddressRefused(f"{shown(text)}: its host or port cannot be read") from None
    host = url.raw_host.decode("ascii").lower().removesuffix(".")
    if url.userinfo or not host:
        raise AddressRefused(f"{shown(text)}: its host or port cannot be read")
    port = url.port if url.port is not None else 443 if url.scheme == "https" else 80
    if port == 0:
        raise AddressRefused(f"{shown(text)}: there is no port 0")
    address = _address_of(host, text, is_dotted=url.raw_host.endswith(b"."))
    return Target(url, address or host, port, address, is_trusted)


def check_text(text: str) -> None:
    """Refuse a URL, or a part of one, by its characters.

    Raises:
        AddressRefused: it is too long, or has some that no URL has.
    """
    if len(text) > _LONGEST:
        raise AddressRefused(f"{shown(text)}: longer than {_LONGEST} characters")
    if "\\" in text or any(char == " " or not char.isprintable() for char in text):
        raise AddressRefused(f"{shown(text)}: a URL has no spaces, backslashes or characters that cannot be seen")


def shown(url: str) -> str:
    """A URL as messages name it: without its query and whoever is in it, without what cannot be seen, and short."""
    text = re.split(r"[?#]", url, maxsplit=1)[0]
    scheme, separator, rest = text.partition("//") if "//" in text else ("", "", text)
    authority, slash, path = rest.partition("/")
    text = scheme + separator + authority.rpartition("@")[2] + slash + path
    text = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _address_of(host: str, text: str, *, is_dotted: bool) -> str:
    """The address that a host is, in its usual spelling; empty when it is a name."""
    if ":" in host:
        try:
            return str(IPv6Address(host))
        except ValueError:
            raise AddressRefused(f"{shown(text)}: its host cannot be read") from None
    labels = host.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        try:
            if is_dotted:
                raise ValueError
            return str(ip_address(host))
        except ValueError:
            raise AddressRefused(f"{shown(text)}: an address is written with four plain numbers") from None
    if len(host) > 253 or not all(map(_LABEL.fullmatch, labels)):
        raise AddressRefused(f"{shown(text)}: its host is no name of a host")
    return ""
