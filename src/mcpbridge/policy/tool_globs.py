"""Which tools a glob of the configuration, of a program or of a command is about: one rule for all of them.

A glob without a slash is about names, `server/name` about both. A tool that the configuration renames goes by either
name, so that who renames a tool takes no rule and no hook off it. Case counts.
"""

import re
from collections.abc import Iterable
from fnmatch import translate

from mcpbridge.model import Tool

__all__ = ["ToolGlobs", "globs", "names_of"]


class ToolGlobs:
    """Globs, of which one must match. Without any, nothing does."""

    def __init__(self, texts: Iterable[str]) -> None:
        texts = list(texts)
        with_server = [text.partition("/") for text in texts if "/" in text]
        self._ids = [(globs([server]), globs([name])) for server, _, name in with_server]
        self._names = globs(text for text in texts if "/" not in text)

    def cover(self, tool: Tool) -> bool:
        """Whether they are about this tool."""
        return self.match(tool.server, names_of(tool))

    def match(self, server: str, names: Iterable[str]) -> bool:
        """The same, for a tool of this server that goes by these names."""
        names = list(names)
        if any(map(self._names.fullmatch, names)):
            return True
        # Server and name each by its own part: a slash inside a name must not make it another server's.
        return any(of.fullmatch(server) and any(map(name.fullmatch, names)) for of, name in self._ids)


def names_of(tool: Tool) -> frozenset[str]:
    """The server's own name of a tool, and the one that the configuration gives it."""
    return frozenset((tool.name, tool.id.removeprefix(f"{tool.server}/")))


def globs(texts: Iterable[str]) -> re.Pattern[str]:
    """One pattern for all, for whole names; where there are none it matches nothing."""
    patterns = [translate(text) for text in texts]
    return re.compile("|".join(patterns)) if patterns else _NOTHING


_NOTHING = re.compile(r"(?!)")
