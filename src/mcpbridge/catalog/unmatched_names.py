"""Settings that name tools which do not exist. No I/O.

A deny rule with a typo lets everything pass, and a guarding hook with one guards nothing. So whoever runs the bridge is
warned which globs of rules and hooks, and which tables of tools, match nothing that the servers list. A server that has
not listed yet may still have the tool: until then nothing is said of it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

import msgspec
from msgspec import Struct

from mcpbridge.catalog.name_index import likely_meant
from mcpbridge.core.source_settings import OfferSettings
from mcpbridge.pipeline.permissions.settings import ToolGlobs

_WILD = frozenset("*?[")


class Selector(Struct, frozen=True):
    """What somebody wrote to name tools."""

    where: str
    """`rule 1 of permissions`."""
    tools: Sequence[str]
    """Globs on ids (`server/tool`), or without a slash on the tool's own name; one must match."""
    servers: Sequence[str] = ("*",)
    """Globs on servers; one of these must match too."""


class Unmatched(Struct, frozen=True):
    """Names that match nothing."""

    where: str
    names: tuple[str, ...]
    """As they were written."""
    meant: tuple[str, ...] = ()
    """What they may have been meant to be."""

    def __str__(self) -> str:
        text = f"{self.where}: there is no tool {', '.join(f'`{name}`' for name in self.names)}"
        return f"{text} (did you mean {', '.join(f'`{name}`' for name in self.meant)}?)" if self.meant else text


class _Named(msgspec.Struct):
    """The one member of a definition that is looked at."""

    name: str


_name_of = msgspec.json.Decoder(_Named).decode


class UnmatchedNames:
    """Compares what was written with what is listed, each server's list once when it comes."""

    def __init__(self, selectors: Iterable[Selector], servers: Mapping[str, OfferSettings]) -> None:
        """`servers` that are switched off do not count: rules about them stay for when they are on."""
        self._settings = {name: server.tool for name, server in servers.items() if not server.disabled}
        self._selectors = [
            _Selector(one, self._settings) for one in selectors if any(glob != "*" for glob in one.tools)
        ]
        self._is_needed = bool(self._selectors) or any(self._settings.values())
        self._listed: dict[str, list[str]] = {}
        self._reported: set[tuple[str, tuple[str, ...]]] = set()

    def listed(self, server: str, definitions: Sequence[bytes]) -> list[Unmatched]:
        """A server listed its tools. Returns what is certain now to match nothing, each once."""
        if not self._is_needed or server not in self._settings:
            return []
        names = [name for definition in definitions if (name := _read(definition))]
        self._listed[server] = names
        tables = self._settings[server]
        renamed = {own: (own, table.rename) for own, table in tables.items() if table.rename}
        for selector in self._selectors:
            selector.compare(server, names, renamed)
        fresh = [one for one in self.unmatched() if (one.where, one.names) not in self._reported]
        self._reported |= {(one.where, one.names) for one in fresh}
        return fresh

    def unmatched(self) -> list[Unmatched]:
        """All that matches nothing, as far as it is known."""
        return [*self._tables(), *(one for selector in self._selectors if (one := selector.unmatched(self._listed)))]

    def _tables(self) -> Iterator[Unmatched]:
        for server, names in self._listed.items():
            known = set(names)
            for own in self._settings[server]:
                if own not in known:
                    yield Unmatched(f"servers.{server}.tool", (own,), tuple(likely_meant(own, names)[:1]))


class _Selector:
    """One selector, and which servers have a tool that its globs match."""

    def __init__(self, written: Selector, servers: Iterable[str]) -> None:
        self._written = written
        among = [name for name in servers if any(fnmatchcase(name, glob) for glob in written.servers)]
        self._possible: dict[str, list[str]] = {}
        """By glob, the servers that it can be about."""
        self._matched: dict[str, set[str]] = {glob: set() for glob in written.tools}
        self._globs = {glob: ToolGlobs([glob]) for glob in written.tools}
        for glob in written.tools:
            server, slash, _ = glob.partition("/")
            self._possible[glob] = [name for name in among if not slash or fnmatchcase(name, server)]

    def compare(self, server: str, names: Sequence[str], renamed: Mapping[str, tuple[str, ...]]) -> None:
        """A server has tools of these names; `renamed`: all names of those that have several."""
        for glob, possible in self._possible.items():
            if server in possible:
                has_it = any(self._globs[glob].match(server, renamed.get(own, (own,))) for own in names)
                (self._matched[glob].add if has_it else self._matched[glob].discard)(server)

    def unmatched(self, listed: Mapping[str, Sequence[str]]) -> Unmatched | None:
        """What of it matches nothing: all of it, or names without wildcards, which were meant for one tool."""
        certain = {
            glob: bool(possible) and not self._matched[glob] and all(server in listed for server in possible)
            for glob, possible in self._possible.items()
        }
        names = tuple(glob for glob, is_void in certain.items() if is_void)
        if not all(certain.values()):
            names = tuple(glob for glob in names if not _WILD.intersection(glob))
        if not names:
            return None
        meant = (one for glob in names for one in self._meant(glob, listed))
        return Unmatched(self._written.where, names, tuple(dict.fromkeys(meant)))

    def _meant(self, glob: str, listed: Mapping[str, Sequence[str]]) -> list[str]:
        own = glob.partition("/")[2] if "/" in glob else glob
        if _WILD.intersection(own):
            return []
        ids = {name: f"{server}/{name}" for server in self._possible[glob] for name in listed[server]}
        return [ids[name] for name in likely_meant(own, ids)[:1]]


def _read(definition: bytes) -> str:
    try:
        return _name_of(definition).name
    except (msgspec.DecodeError, RecursionError):
        return ""
