"""Tools and servers that a query names outright, which then come first whatever else fits."""

import re
from collections.abc import Iterable, Sequence

from mcpbridge.routing.words import name_key

__all__ = ["NameIndex"]

_NAME = re.compile(
    r"[`'\"“‘]([^`'\"”’\s]{2,128})[`'\"”’]"  # in quotes
    r"|(?<![\w./@-])(\w{1,64}(?:[_./-]+\w{1,64}){1,8})"  # get_weather, github/list-issues
    r"|\b([a-z]{2,32}[A-Z]\w{1,64})"  # getWeather
)
_MOST = 32
"""Names in a query that are looked up."""


class NameIndex:
    """All names of a catalog, in any spelling: letters and digits count, signs and cases do not."""

    def __init__(self, tools: Iterable[tuple[str, str, str]], servers: Iterable[tuple[str, str, range]]) -> None:
        """Of each tool its id, name and server; of each server its name, title and the numbers of its tools."""
        self._tools: dict[str, list[int]] = {}
        for number, (one, name, server) in enumerate(tools):
            for key in {name_key(one), name_key(name), name_key(server + name)}:
                self._tools.setdefault(key, []).append(number)
        self._servers: dict[str, list[int]] = {}
        for name, title, numbers in servers:
            for key in {name_key(name), name_key(title)}:
                self._servers.setdefault(key, []).extend(numbers)
        self._tools.pop("", None)
        self._servers.pop("", None)

    def named(self, query: str) -> Sequence[int]:
        """Numbers of the tools that the query names, or whose server it is the name of; in the order of mention."""
        key = name_key(query)
        found: dict[int, None] = dict.fromkeys(self._tools.get(key, ()))
        for groups in _NAME.findall(query)[:_MOST]:
            found.update(dict.fromkeys(self._tools.get(name_key("".join(groups)), ())))
        found.update(dict.fromkeys(self._servers.get(key, ())))
        return list(found)
