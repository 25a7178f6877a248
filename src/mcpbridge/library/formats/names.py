"""The formats that model APIs speak, and the names that tools may have there. Pure.

A wire name that a format takes is its name there. Any other is spelled with what the format takes, and ends in a
hash of the whole, so that no two tools share one. A wire name that looks as if it ended in such a hash gets one too:
no server can choose a name that another server's tool has in a format.
"""

import re
from typing import Literal, get_args

from msgspec import Struct

from mcpbridge.catalog.names import fingerprint
from mcpbridge.errors import FormatError, nearest

__all__ = ["FORMATS", "Format", "known_format", "name_in"]

Format = Literal["openai", "openai-responses", "anthropic", "gemini", "mcp"]
"""OpenAI's chat completions, its responses, Anthropic's messages, Gemini's contents, and MCP's sampling with tools."""
FORMATS: tuple[Format, ...] = get_args(Format)

_HASH_LENGTH = 12
_MARK = "_0"
_HASHED = re.compile(r"_0[a-z2-7]{12}\Z")


class _Rule(Struct, frozen=True):
    fits: re.Pattern[str]
    foreign: re.Pattern[str]
    longest: int
    starts: re.Pattern[str]
    """What the first character has to be."""


def _rule(characters: str, longest: int, first: str | None = None) -> _Rule:
    first = characters if first is None else first
    fits = re.compile(rf"[{first}][{characters}]{{0,{longest - 1}}}\Z")
    return _Rule(fits, re.compile(rf"[^{characters}]"), longest, re.compile(f"[{first}]"))


_OPENAI = _rule("a-zA-Z0-9_-", 64)
_RULES: dict[Format, _Rule | None] = {
    "openai": _OPENAI,
    "openai-responses": _OPENAI,
    "anthropic": _rule("a-zA-Z0-9_-", 128),
    "gemini": _rule("a-zA-Z0-9_.:-", 64, "a-zA-Z_"),  # 128 by its newest reference; older models take 64
    "mcp": None,
}


def known_format(api: str) -> Format:
    """The format of that name.

    Raises:
        FormatError: there is none; names the nearest.
    """
    for known in FORMATS:
        if api == known:
            return known
    meant = nearest(api, FORMATS)
    hint = f'; "{meant[0]}" is' if meant else ""
    raise FormatError(f'"{api}" is no format of a model API{hint}. There are: {", ".join(FORMATS)}')


def name_in(api: Format, wire: str) -> str:
    """The name of a tool in a format. A function of its wire name alone: different tools have different names."""
    rule = _RULES[api]
    if rule is None or (rule.fits.match(wire) and not _HASHED.search(wire)):
        return wire
    spelled = rule.foreign.sub("_", wire)
    if not rule.starts.match(spelled):
        spelled = f"_{spelled}"
    room = rule.longest - len(_MARK) - _HASH_LENGTH
    return f"{spelled[:room]}{_MARK}{fingerprint(wire, length=_HASH_LENGTH)}"
