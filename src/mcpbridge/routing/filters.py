"""`server:NAME` and `tag:NAME` in a query: which tools it is about at all."""

import re
from fnmatch import translate
from functools import lru_cache

from msgspec import Struct

from mcpbridge.routing.tool_text import ServerText, ToolText

__all__ = ["Filters", "Scope", "parse_filters"]

_FILTER = re.compile(r'(?<!\S)(server|tag):(?:"([^"\s][^"]{0,199})"|([^\s"]{1,200}))(?!\S)', re.IGNORECASE)
_MOST = 16
"""Filters of a query that are obeyed."""
_WILDCARDS = 8
"""Wildcards that a glob may have: more are no name, and slow."""


class Scope(Struct, frozen=True):
    """What filters look at in a tool, in lower case."""

    server: str
    tags: frozenset[str]

    @classmethod
    def of(cls, server: ServerText, tool: ToolText) -> "Scope":
        """A tool has its server's tags too."""
        return cls(server.name.casefold(), frozenset(tag.casefold() for tag in (*server.tags, *tool.tags)))


class Filters(Struct, frozen=True):
    """The filters of a query: several of a kind are alternatives, both kinds must fit."""

    servers: tuple[re.Pattern[str], ...] = ()
    tags: tuple[re.Pattern[str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.servers or self.tags)

    def passes(self, scope: Scope) -> bool:
        """Whether a tool is one of those that the query is about."""
        if self.servers and not any(pattern.match(scope.server) for pattern in self.servers):
            return False
        return not self.tags or any(pattern.match(tag) for tag in scope.tags for pattern in self.tags)


def parse_filters(query: str) -> tuple[Filters, str]:
    """The filters of a query, and what it says besides. Globs; cases do not matter; a name with blanks in quotes."""
    if ":" not in query:
        return Filters(), query
    servers: list[re.Pattern[str]] = []
    tags: list[re.Pattern[str]] = []
    for kind, quoted, bare in _FILTER.findall(query):
        if len(servers) + len(tags) < _MOST:
            (servers if kind.lower() == "server" else tags).append(_glob((quoted or bare).casefold()))
    return Filters(tuple(servers), tuple(tags)), _FILTER.sub(" ", query)


@lru_cache(256)
def _glob(text: str) -> re.Pattern[str]:
    if text.count("*") + text.count("?") + text.count("[") > _WILDCARDS:
        return re.compile(re.escape(text) + r"\Z")
    return re.compile(translate(text))
