"""Which pages a server may ask people to open, and how their real host is shown. Pure.

The address is held to the rules for fetched pages (`sandbox/fetch/address_rules.py`): http or https, written plainly,
without a user name, and outside of this machine and its network. Any port may be asked for. Names are not resolved: a
company's sign-in page may have an address inside its network, it is the person's browser that looks it up, and any page
can lead on to any other. Names that say themselves where they lead (`127.0.0.1.nip.io`, `lvh.me`) count as such. The
pages of the bridge itself (`is_own`) need only be written plainly: a sign-in may come back to this machine.

A host beyond ASCII is shown, and sent, in the form that is looked up (`xn--…`); one whose labels mix alphabets is
refused, since it is made to look like another.
"""

import re
import unicodedata
from ipaddress import IPv4Address

from mcpbridge.base.errors import AddressRefused
from mcpbridge.core.elicitation import QuestionRefused
from mcpbridge.protocol.error_codes import INVALID_PARAMS
from mcpbridge.sandbox.fetch.address_rules import Guard, Reach, Target, display_url, is_own_address, reach_of, read
from mcpbridge.sandbox.fetch.settings import GuardSettings

_ALIKE = ("LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC")
"""Alphabets whose letters look like those of one another."""
_INSIDE = frozenset(
    {"svc", "localtest.me", "lvh.me", "vcap.me", "lacolhost.com", "localhost.direct", "local.gd", "fuf.me"}
)
"""Public names whose addresses are this machine's, and the domain of a cluster's services; with all below them."""
_ADDRESS = re.compile(r"(?<![\da-z])(\d{1,3})([.-])(\d{1,3})\2(\d{1,3})\2(\d{1,3})(?![\da-z])")
_HEX_ADDRESS = re.compile(r"(?<![\da-z])([\da-f]{8})(?=\.)")
_TELLS_ADDRESS = ("nip.io", "sslip.io", "xip.io", "traefik.me", "local-ip.co", "local-ip.sh", "backname.io")
"""Domains in which a name leads to the address that is written in it."""


def checked_page(url: str, *, is_own: bool = False) -> Target:
    """The page that this address is of. Its `url` is what is sent to the client.

    Raises:
        QuestionRefused: nobody is to be asked to open it.
    """
    try:
        target = read(url, is_trusted=is_own)
        _check_alphabets(target)
        if not is_own:
            guard = Guard(GuardSettings(ports=[target.port]))
            guard.target_of(url)
            _check_name(target)
            if target.address:
                guard.check_answers(target, [target.address], is_own_address)
    except AddressRefused as refused:
        raise QuestionRefused(f"People are not asked to open this page: {refused}", INVALID_PARAMS) from None
    return target


def display_host(target: Target) -> str:
    """The host as people see it: in the form of a look-up, with a port that is not the usual one."""
    host = f"[{target.host}]" if ":" in target.host else target.host
    usual = 443 if target.is_tls else 80
    place = host if target.port == usual else f"{host}:{target.port}"
    return place if target.is_tls else f"{place}, not encrypted"


def message_of_page(server: str, message: object, target: Target) -> str:
    """What people are asked: which server asks, where the page really is, then the server's own words.

    The host comes first, whatever the server writes itself: it is what people go by.
    """
    own = message.removeprefix(f"[{server}]").lstrip() if isinstance(message, str) else ""
    return f"[{server}] (opens {display_host(target)}) {own}".rstrip()


def plain_url(target: Target, url: str) -> str:
    """The address with its host in ASCII; the very same text where it is that already."""
    return url if url.isascii() else str(target.url)


def _check_name(target: Target) -> None:
    host = f".{target.host}"
    leads_inside = any(host.endswith(f".{name}") for name in _INSIDE)
    if host.endswith(tuple(f".{domain}" for domain in _TELLS_ADDRESS)):
        plain = [".".join(found.group(1, 3, 4, 5)) for found in _ADDRESS.finditer(target.host)]
        plain += [str(IPv4Address(int(found[1], 16))) for found in _HEX_ADDRESS.finditer(target.host)]
        leads_inside = leads_inside or any(_is_inside(address) for address in plain)
    if leads_inside:
        raise AddressRefused(f"{display_url(str(target.url))}: its name leads to this machine, or inside its network")


def _is_inside(address: str) -> bool:
    try:
        return reach_of(address) is not Reach.PUBLIC
    except ValueError:
        return False  # of no address, such as 999.1.1.1


def _check_alphabets(target: Target) -> None:
    for label in target.url.host.split("."):  # as it is read by people
        alphabets = {name for letter in label if not letter.isascii() for name in _alphabets(letter)}
        if any(letter.isascii() and letter.isalpha() for letter in label):
            alphabets.add("LATIN")
        if len(alphabets & frozenset(_ALIKE)) > 1:
            raise AddressRefused(f"{display_url(str(target.url))}: its host mixes alphabets that look alike")


def _alphabets(letter: str) -> tuple[str, ...]:
    return (unicodedata.name(letter, "").partition(" ")[0],) if letter.isalpha() else ()
