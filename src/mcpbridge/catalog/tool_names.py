"""The names that clients see, made from (server, tool); the only code that joins names, and nothing splits them.

Names of the bridge's own tools are reserved: they mean these tools or nothing. A server's tool that is called so, or so
that a reader would take it for one of them, is listed as `server__tool` whatever the prefix mode.

MCP 2026-07-28, Tools, Tool Names, asks proxies to distinguish equal names of several servers. Here that is
`server__tool`, from the letters that every client accepts, short enough for the prefix that clients add themselves.
What had to be cut, or would be ambiguous, gets a hash of the full identity.
"""

import re
from base64 import b32encode
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Literal

from mcpbridge.core.model import BRIDGE, BUILTIN, OWN

Prefix = Literal["always", "on-collision", "never"]
"""Which names begin with their server's: all, those that would be ambiguous, or none (an ambiguous one gets a hash)."""

NAME_LENGTH, SHORTEST_NAME_LENGTH = 48, 16
"""Characters of the longest tool name: the default, and the least, which leaves room for a hash and some text."""

_SEPARATOR = "__"
_TRANSFORM = "|"
_HASH_LENGTH = 6
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")

_Owner = tuple[str, str]

RESERVED = frozenset(
    {"find_tools", "describe_tools", "call_tool", "run_code", "recall", "brief", "pulse", "context-status",
     "task-complete", "final-answer"}
)  # fmt: skip
"""Names of the bridge's own tools, whether or not they are there. So are all that begin with `mcpbridge`."""


def wire_names(
    owners: Iterable[_Owner], *, limit: int = NAME_LENGTH, prefix: Prefix = "always", are_tools: bool = True
) -> dict[_Owner, str]:
    """A unique name for each (server, tool): `^[A-Za-z][A-Za-z0-9_-]*$`, at most `limit` characters.

    A pure function of the set of owners, whatever their order. All names that would be the same get a hash, not
    just the later ones, so that no server can take over the name of another's tool. An owner whose name nobody
    else comes near keeps it, whoever else is there. `are_tools`: names of the bridge's own tools are not given away;
    False for prompts.
    """
    if limit < SHORTEST_NAME_LENGTH:
        raise ValueError(f"a tool name needs at least {SHORTEST_NAME_LENGTH} characters, not {limit}")
    every = sorted(set(owners))
    reserved = _Reserved(every) if are_tools else None
    others: dict[_Owner, tuple[int, Prefix]] = {
        owner: (limit, _prefix_of(owner, prefix, reserved)) for owner in every if owner[0] != BRIDGE
    }
    names = _settled({}, others, reserved)
    return names | {owner: owner[1] for owner in every if owner[0] == BRIDGE}


def own_names(owners: Iterable[_Owner], *, are_tools: bool = True) -> dict[_Owner, str]:
    """Every name as it is, for the owners of one server; but not a reserved one."""
    every = sorted(set(owners))
    reserved = _Reserved(every) if are_tools else None
    how: tuple[int, Prefix] = NAME_LENGTH, "always"
    others = {owner: how for owner in every if owner[0] != BRIDGE and reserved is not None and reserved.has(owner)}
    return _settled({owner: owner[1] for owner in every if owner not in others}, others, reserved)


class _Reserved:
    """The names that no server's tool gets."""

    def __init__(self, owners: Iterable[_Owner]) -> None:
        own = {*RESERVED, *(tool for server, tool in owners if server in (BRIDGE, BUILTIN))}
        alike = set(map(look_of, own))
        self._alike = frozenset({*alike, *(look_of(BRIDGE) + one for one in alike)})
        self._of_all = frozenset(map(look_of, RESERVED))
        self._beginnings = frozenset(one[:end] for one in self._alike for end in range(len(one)))

    def has(self, owner: _Owner) -> bool:
        """Whether this tool of a server may not be listed by its bare name."""
        server, tool = owner
        look = look_of(tool)
        if server == BUILTIN:
            return look in self._of_all
        return look in self._alike or look.startswith(look_of(BRIDGE))

    def has_name(self, server: str, name: str) -> bool:
        """Whether this whole name, of a tool of this server, would be taken for one of the bridge's own."""
        if name.startswith(server) and look_of(server) not in self._beginnings:
            return False
        return look_of(name) in self._alike


def bare_names(server: str, tool: str, servers: Collection[str] = ()) -> tuple[str, ...]:
    """The names without a server that may mean this tool: none that means one of the bridge's own, or nothing.

    `servers`: all that there are. A name that begins as the names of another one's tools do is none of this one's,
    also while that other one lists nothing. Nor does one that has a transform: it is a call of the tool before it.
    """
    if server == BRIDGE:
        return tool, f"{BRIDGE}{_SEPARATOR}{tool}"
    if _ALWAYS_RESERVED.has((server, tool)) or _TRANSFORM in tool:
        return ()
    beginnings = {tool.partition(mark)[0] for mark in (_SEPARATOR, "/", ".")} - {tool, server}
    return () if any(one in servers for one in beginnings) else (tool,)


@lru_cache(maxsize=8192)
def look_of(name: str) -> str:
    """What names have in common that a reader may take for each other: without case, separators and accents.

    Letters that are drawn alike count as one, as in Unicode TS #39, Confusable Detection.
    """
    if not name.isascii():
        import unicodedata  # loaded with the first name that is not of ASCII

        # Drawn letters first: compatibility makes some of them others, as `ϲ` a sigma.
        apart = unicodedata.normalize("NFKD", name.casefold().translate(DRAWN_ALIKE)).casefold()
        name = apart.translate(DRAWN_ALIKE).encode("ascii", "ignore").decode()
    return name.translate(_PLAIN).replace("rn", "m").replace("vv", "w")


_ASCII_ALIKE = {"0": "o", "1": "l", "i": "l", "I": "l", "|": "l", "!": "l"}
_PLAIN = str.maketrans(
    {char: _ASCII_ALIKE.get(char, char.lower() if char.isalnum() else "") for char in map(chr, range(128))}
)
"""ASCII without case and separators."""
_LIKE_LATIN = {
    "a": "аαɑᴀꓮᎪ", "b": "вβʙьꓐᏼ", "c": "сϲᴄꓚᏟ", "d": "ԁđᴅꓓᎠ", "e": "еεᴇєꓰᎬ", "f": "ƒꜰꓝ", "g": "ɡɢցꓖᏀᏻ", "h": "һнʜհꓧᎻ",
    "i": "іιıɪɩꓲᎥ",
    "j": "јϳᴊյꓙᎫ", "k": "кκᴋĸꓗᏦ", "l": "ӏłʟǀꓡᏞ", "m": "мᴍꓟᎷ", "n": "пηɴոꓠ", "o": "оοᴏøօσꓳ", "p": "рρᴘꓑᏢ",
    "q": "ԛզ", "r": "гʀꓣᎡ", "s": "ѕꜱꓢᏚ", "t": "тτᴛꓔᎢ", "u": "υᴜսμꓴ", "v": "ѵνᴠꓦᏙ", "w": "ԝωᴡꓪᎳ", "x": "хχꓫ",
    "y": "уγʏꓬ", "z": "ᴢꓜᏃ",
}  # fmt: skip
"""Letters of other scripts, folded, that are drawn like Latin ones and that Unicode does not take apart."""
DRAWN_ALIKE = str.maketrans({char: letter for letter, chars in _LIKE_LATIN.items() for char in chars})


def _prefix_of(owner: _Owner, prefix: Prefix, reserved: _Reserved | None) -> Prefix:
    """Tools that no server offers are called what their user called them, unless a server's is called so too."""
    if reserved is not None and reserved.has(owner):
        return "always"
    return "on-collision" if owner[0] in OWN and prefix == "always" else prefix


def _settled(
    fixed: Mapping[_Owner, str], others: Mapping[_Owner, tuple[int, Prefix]], reserved: _Reserved | None
) -> dict[_Owner, str]:
    """The fixed names, and for the others (limit, prefix mode) names that are nobody else's."""
    attempts = dict.fromkeys(others, 0)
    names = dict(fixed) | {owner: _name(owner, 0, *how) for owner, how in others.items()}
    while clashing := [owner for owner in _not_free(names, reserved) if owner in attempts]:
        for owner in clashing:
            attempts[owner] += 1
            names[owner] = _name(owner, attempts[owner], *others[owner])
    return names


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


def _not_free(names: Mapping[_Owner, str], reserved: _Reserved | None) -> list[_Owner]:
    """Those that have a name together, or a reserved one."""
    sharing = defaultdict[str, list[_Owner]](list)
    for owner, name in names.items():
        sharing[name].append(owner)
    clashing = [owner for group in sharing.values() if len(group) > 1 for owner in group]
    if reserved is None:
        return clashing
    return clashing + [
        owner
        for name, (owner, *others) in sharing.items()
        if not others and owner[0] not in (BRIDGE, BUILTIN) and reserved.has_name(owner[0], name)
    ]


_ALWAYS_RESERVED = _Reserved(())


def names_of_others(tools: Mapping[str, Collection[str]]) -> dict[str, frozenset[str]]:
    """By server, the names of tools that only other servers have. `tools`: each server's own names for its tools."""
    return {
        server: frozenset(name for other, names in tools.items() if other != server for name in names).difference(own)
        for server, own in tools.items()
    }
