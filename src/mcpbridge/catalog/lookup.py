"""Which of many names somebody may have meant, found quickly.

Comparing two names well costs 20 to 50 µs, and one wrong name must not hold up the calls of all others: so the
comparison sees only the names that share most pairs of letters with the wrong one.

From what a client calls to what it means: the wire name, or one of the aliases that are never listed.

`server/tool`, `server.tool`, and the bare tool name where exactly one server has it: apps in a client call tools by
their bare names (ext-apps issues 745 and 753). Names come out of tables that were filled from the list; none is split.

Settings that name tools which there are not. No I/O.

A deny rule with a typo lets everything pass, and a guarding hook with one guards nothing. So whoever runs the bridge is
told which globs of rules and hooks, and which tables of tools, match nothing that the servers list. A server that has
not listed yet may still have the tool: until then nothing is said of it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from mcpbridge.base.errors import UnknownName, nearest
from mcpbridge.core.source_settings import OfferSettings
from mcpbridge.pipeline.permissions.settings import ToolGlobs

_LONGEST = 200
"""Characters of a name that gets a suggestion; nobody misspells a longer one."""

_LENGTH_APART = 32
_COMPARED = 100


def likely_meant(name: str, known: Iterable[str]) -> list[str]:
    """The known names closest to `name`, best first; few or none."""
    if not name or len(name) > _LONGEST:
        return []
    folded = name.casefold()
    pairs = {folded[i : i + 2] for i in range(len(folded) - 1)}
    alike = [other for other in known if abs(len(other) - len(name)) <= _LENGTH_APART]
    if len(alike) > _COMPARED:
        common = [(sum(pair in form for pair in pairs), other) for other in alike for form in (other.casefold(),)]
        common.sort(key=lambda item: -item[0])
        alike = [other for _, other in common[:_COMPARED]]
    return nearest(name, alike)


_Ref = TypeVar("_Ref")

_CANDIDATES = 8


class Listed(NamedTuple, Generic[_Ref]):
    """One thing that has a name: how it is listed, whose it is, what it is called there, and what it stands for."""

    wire: str
    server: str
    name: str
    ref: _Ref


class NameIndex(Generic[_Ref]):
    """All tools (or all prompts) by all their names."""

    def __init__(self, kind: str, listed: Iterable[Listed[_Ref]]) -> None:
        """`kind` is the word for error messages. Wire names are unique; the rest may be ambiguous."""
        self._kind = kind
        wires: dict[str, _Ref] = {}
        ids, dotted, bare = (defaultdict[str, list[str]](list) for _ in range(3))
        for wire, server, name, ref in listed:
            wires[wire] = ref
            ids[f"{server}/{name}"].append(wire)
            dotted[f"{server}.{name}"].append(wire)
            bare[name].append(wire)
        self.by_wire: Mapping[str, _Ref] = wires
        """What has a wire name, hidden or not. Not to be changed."""
        self._aliases = (ids, dotted, bare)
        self._hidden: frozenset[str] = frozenset()

    @property
    def wires(self) -> Mapping[str, _Ref]:
        """What is listed, by wire name, in the order in which it came."""
        hidden = self._hidden
        if not hidden:
            return MappingProxyType(self.by_wire)
        return MappingProxyType({wire: ref for wire, ref in self.by_wire.items() if wire not in hidden})

    def hiding(self, wires: frozenset[str]) -> "NameIndex[_Ref]":
        """The same names for the same things, of which these are not listed and not guessed."""
        other = copy(self)
        other._hidden = self._hidden | wires  # noqa: SLF001 - it is one of us
        return other

    def find(self, name: str) -> _Ref:
        """What `name` means.

        Raises:
            UnknownName: nothing, or more than one thing; says which names would work.
        """
        ref = self.by_wire.get(name)
        if ref is not None:
            return ref
        for aliases in self._aliases:
            wires = aliases.get(name)
            if wires is not None and len(wires) == 1:
                return self.by_wire[wires[0]]
            if wires is not None:
                shown = [wire for wire in wires if wire not in self._hidden]
                raise UnknownName(self._kind, name, candidates=shown[:_CANDIDATES], ambiguous=True)
        raise UnknownName(self._kind, name, candidates=lambda: self._guesses(name))

    def _guesses(self, name: str) -> list[str]:
        """Wire names close to `name`, or whose bare name is."""
        _, _, bare = self._aliases
        known = {**self.by_wire, **bare}
        if self._hidden:
            shown = {name: [wire for wire in wires if wire not in self._hidden] for name, wires in bare.items()}
            bare = {name: wires for name, wires in shown.items() if wires}
            known = {**self.wires, **bare}
        guesses: dict[str, None] = {}
        for guess in likely_meant(name, known):
            guesses |= dict.fromkeys([guess] if guess in self.by_wire else bare[guess][:_CANDIDATES])
        return list(guesses)[:_CANDIDATES] or self._guesses_of_ids(name)

    def _guesses_of_ids(self, name: str) -> list[str]:
        """Wire names of what `name` may be the id of: few of them look like it where they are bare names."""
        ids, _, _ = self._aliases
        shown = {id_: [wire for wire in wires if wire not in self._hidden] for id_, wires in ids.items()}
        meant = likely_meant(name.replace("__", "/", 1), [id_ for id_, wires in shown.items() if wires])
        return [wire for id_ in meant for wire in shown[id_]][:_CANDIDATES]


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
        self._told: set[tuple[str, tuple[str, ...]]] = set()

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
        fresh = [one for one in self.found() if (one.where, one.names) not in self._told]
        self._told |= {(one.where, one.names) for one in fresh}
        return fresh

    def found(self) -> list[Unmatched]:
        """All that matches nothing, as far as it is known."""
        return [*self._tables(), *(one for selector in self._selectors if (one := selector.found(self._listed)))]

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

    def found(self, listed: Mapping[str, Sequence[str]]) -> Unmatched | None:
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
