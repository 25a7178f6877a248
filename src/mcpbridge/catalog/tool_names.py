"""The names that clients see, made from (server, tool); the only code that joins names, and nothing splits them.

MCP 2026-07-28, Tools, Tool Names, asks proxies to tell equal names of several servers apart. Here that is
`server__tool`, from the letters that every client accepts, short enough for the prefix that clients add themselves.
What had to be cut, or would be ambiguous, gets a hash of the full identity.
"""

import re
from base64 import b32encode
from collections import defaultdict
from collections.abc import Iterable, Mapping
from hashlib import sha256
from itertools import chain, count
from typing import Literal

from mcpbridge.core.model import BRIDGE, OWN

Prefix = Literal["always", "on-collision", "never"]
"""Which names begin with their server's: all, those that would be ambiguous, or none (an ambiguous one gets a hash)."""

NAME_LENGTH, SHORTEST_NAME_LENGTH = 48, 16
"""Characters of the longest tool name: the default, and the least, which leaves room for a hash and some text."""

_SEPARATOR = "__"
_HASH_LENGTH = 6
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")

_Owner = tuple[str, str]


def wire_names(owners: Iterable[_Owner], *, limit: int = NAME_LENGTH, prefix: Prefix = "always") -> dict[_Owner, str]:
    """A unique name for each (server, tool): `^[A-Za-z][A-Za-z0-9_-]*$`, at most `limit` characters.

    A pure function of the set of owners, whatever their order. All names that would be the same get a hash, not
    just the later ones, so that no server can take over the name of another's tool. An owner whose name nobody
    else comes near keeps it, whoever else is there.
    """
    if limit < SHORTEST_NAME_LENGTH:
        raise ValueError(f"a tool name needs at least {SHORTEST_NAME_LENGTH} characters, not {limit}")
    every = sorted(set(owners))
    attempts = dict.fromkeys((owner for owner in every if owner[0] != BRIDGE), 0)
    names = {owner: _name(owner, 0, limit, _prefix_of(owner, prefix)) for owner in attempts}
    while clashing := _not_alone(names):
        for owner in clashing:
            attempts[owner] += 1
            names[owner] = _name(owner, attempts[owner], limit, _prefix_of(owner, prefix))
    return names | _of_the_bridge(every, names)


def own_names(owners: Iterable[_Owner]) -> dict[_Owner, str]:
    """Every name as it is, for the owners of one server."""
    every = list(owners)
    names = {owner: owner[1] for owner in every if owner[0] != BRIDGE}
    return names | _of_the_bridge(every, names)


def _prefix_of(owner: _Owner, prefix: Prefix) -> Prefix:
    """Tools that no server offers are called what their user called them, unless a server's is called so too."""
    return "on-collision" if owner[0] in OWN and prefix == "always" else prefix


def _of_the_bridge(owners: Iterable[_Owner], names: Mapping[_Owner, str]) -> dict[_Owner, str]:
    """The bridge's own tools: their plain names, unless a server has a tool that is called so; they give way to all."""
    taken = {*names.values(), *(tool for _, tool in names)}
    found: dict[_Owner, str] = {}
    for owner in owners:
        if owner[0] == BRIDGE:
            plain = f"{BRIDGE}{_SEPARATOR}{owner[1]}"
            further = (f"{plain}_{number}" for number in count(2))
            found[owner] = next(name for name in chain((owner[1], plain), further) if name not in taken)
            taken.add(found[owner])
    return found


def fingerprint(*parts: str, length: int = _HASH_LENGTH) -> str:
    """Lower-case base32 characters of the SHA-256 of the parts, joined by NUL."""
    digest = sha256("\0".join(parts).encode("utf-8", "surrogatepass")).digest()
    return b32encode(digest).decode().lower()[:length]


def _name(owner: _Owner, attempt: int, limit: int, prefix: Prefix) -> str:
    """The plain name at first; with a hash when it is too long or was not unique; with a longer one after that.

    Where the server's name is left out, it comes in with the second attempt, or only with a hash.
    """
    server, tool = (_FOREIGN.sub("_", part) for part in owner)
    if not server[:1].isalpha():
        server = f"s{server}"  # some clients want a letter first
    if prefix != "always":
        if attempt == 0 and len(tool) <= limit and tool[:1].isalpha():
            return tool
        attempt = max(0, attempt - 1) if prefix == "on-collision" else attempt
    plain = f"{server}{_SEPARATOR}{tool}"
    if attempt == 0 and len(plain) <= limit:
        return plain
    # A hash that clashed too is met by nobody by chance; who works for it gets another, longer one each time.
    hashed = fingerprint(*owner) if attempt < 2 else fingerprint(*owner, str(attempt), length=limit // 2)
    if prefix == "never" and tool[:1].isalpha():
        return f"{tool[: limit - len(hashed) - 1]}_{hashed}"
    return f"{_head(server, tool, limit - len(hashed) - 1)}_{hashed}"


def _head(server: str, tool: str, room: int) -> str:
    """As much as fits: the whole server name where that leaves the tool half of the room."""
    for_tool = min(len(tool), max(room - len(server) - len(_SEPARATOR), (room - len(_SEPARATOR)) // 2))
    for_server = room - len(_SEPARATOR) - for_tool
    return f"{server[:for_server]}{_SEPARATOR}{tool[:for_tool]}"[:room]


def _not_alone(names: dict[_Owner, str]) -> list[_Owner]:
    sharing = defaultdict[str, list[_Owner]](list)
    for owner, name in names.items():
        sharing[name].append(owner)
    return [owner for group in sharing.values() if len(group) > 1 for owner in group]
