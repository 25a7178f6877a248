"""Answers a program's questions for names: an allowed one gets an address at which the bridge listens. Pure.

Nothing is asked of any other server here. So questions carry nothing outside, and a program that knows nothing of
proxies reaches the bridge when it connects to the name. The addresses look like public ones, since some programs refuse
hosts that lead to a loopback address; in the network of the program they lead to its own loopback interface.
"""

import struct
from ipaddress import IPv4Address

NETWORK = "33.64.0.0/16"
"""Where the addresses of names are. No host on the internet answers there."""
_FIRST = int(IPv4Address("33.64.0.1"))
MOST_NAMES = 4096
"""Names that get an address; wildcards allow any number."""

_A, _AAAA, _IN = 1, 28, 1
_RESPONSE, _AUTHORITATIVE, _RECURSION = 0x8000, 0x0400, 0x0180
_NO_ERROR, _FORMAT_ERROR, _NO_SUCH_NAME = 0, 1, 3
_SECONDS = 60
_LONGEST_LABEL = 63
_LEAST_SIZE = 12


class Names:
    """The address of each name, the other way round too."""

    def __init__(self) -> None:
        self._addresses: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def address_of(self, name: str) -> str:
        """The address of a name, a new one if it has none; empty: there are too many names."""
        if name not in self._addresses:
            if len(self._addresses) >= MOST_NAMES:
                return ""
            address = str(IPv4Address(_FIRST + len(self._addresses)))
            self._addresses[name], self._names[address] = address, name
        return self._addresses[name]

    def name_of(self, address: str) -> str:
        """The name that has this address; empty: none."""
        return self._names.get(address, "")


def question_of(query: bytes) -> tuple[str, int] | None:
    """The name in lower case and the type that a query asks for; None: it is no plain query."""
    if len(query) < _LEAST_SIZE:
        return None
    _, flags, questions, answers, *_ = struct.unpack("!6H", query[:_LEAST_SIZE])
    if flags & 0xF800 or questions != 1 or answers:
        return None
    labels, place = list[str](), _LEAST_SIZE
    while True:
        length = query[place] if place < len(query) else _LONGEST_LABEL + 1
        place += 1
        if length == 0:
            break
        if length > _LONGEST_LABEL or place + length > len(query):
            return None
        labels.append(query[place : place + length].decode("latin-1").lower())
        place += length
    if len(query) < place + 4:
        return None
    kind, class_ = struct.unpack("!2H", query[place : place + 4])
    return (".".join(labels), kind) if class_ == _IN else None


def answer_to(query: bytes, address: str | None) -> bytes:
    """The answer to a query for one name. `address`: the one of the name; None: there is no such name."""
    if len(query) < _LEAST_SIZE:
        return b""
    asked = question_of(query)
    id_, flags = struct.unpack("!2H", query[:4])
    code = _FORMAT_ERROR if asked is None else _NO_SUCH_NAME if address is None else _NO_ERROR
    flags = _RESPONSE | _AUTHORITATIVE | flags & _RECURSION | 0x80 | code
    if asked is None:
        return struct.pack("!6H", id_, flags, 0, 0, 0, 0)
    end = query.index(0, _LEAST_SIZE) + 5 if asked[0] else _LEAST_SIZE + 5
    question = query[_LEAST_SIZE:end]
    if address is None or asked[1] != _A:
        return struct.pack("!6H", id_, flags, 1, 0, 0, 0) + question
    record = struct.pack("!3HIH", 0xC00C, _A, _IN, _SECONDS, 4) + IPv4Address(address).packed
    return struct.pack("!6H", id_, flags, 1, 1, 0, 0) + question + record
