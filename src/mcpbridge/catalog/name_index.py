"""Find what a called name means: the wire name, or one of the aliases, which are never listed.

`server/tool`, `server.tool`, and the bare tool name where exactly one server has it: apps in a client call tools by
their bare names (ext-apps issues 745 and 753). Names come out of tables that were filled from the list; none is split.
For a name that means nothing there are suggestions. Comparing two names well costs 20 to 50 µs, and one wrong name must
not hold up the calls of all others: so only the names that share most pairs of letters with it are compared.
"""

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from functools import cached_property
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

from mcpbridge.base.errors import UnknownName
from mcpbridge.base.suggestions import nearest

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
_Wires = dict[str, tuple[str, ...]]
"""What a name may mean, in the order in which it came."""


class Names(NamedTuple):
    """Whose something is, and what it is called there."""

    server: str
    name: str
    bare: tuple[str, ...] | None = None
    """Names without a server that mean it where nothing else has them; None: `name`."""


class _Aliases(Generic[_Ref]):
    """What is no wire name, made when somebody asks for such a name: for thousands of tools that takes a megabyte."""

    def __init__(self, by_wire: Mapping[str, _Ref], names_of: Callable[[_Ref], Names]) -> None:
        self._by_wire, self._names_of = by_wire, names_of

    @cached_property
    def tables(self) -> tuple[_Wires, _Wires, _Wires]:
        """By `server/name`, by `server.name`, and by the bare names."""
        ids, dotted, bare = _Wires(), _Wires(), _Wires()
        for wire, ref in self._by_wire.items():
            server, name, bare_names = self._names_of(ref)
            one = (wire,)  # nearly every name means one thing, and thousands of lists of one take a megabyte
            for alias, names in (
                (f"{server}/{name}", ids),
                (f"{server}.{name}", dotted),
                *[(bare_name, bare) for bare_name in ((name,) if bare_names is None else bare_names)],
            ):
                names[alias] = names[alias] + one if alias in names else one
        return ids, dotted, bare


class NameIndex(Generic[_Ref]):
    """All tools (or all prompts) by all their names."""

    def __init__(self, kind: str, by_wire: Mapping[str, _Ref], names_of: Callable[[_Ref], Names]) -> None:
        """`kind` is the word for error messages. Wire names are unique; the rest may be ambiguous.

        `names_of` is asked when the first name comes that is no wire name; its answers must not change until then.
        """
        self._kind = kind
        self.by_wire = by_wire
        """What has a wire name, hidden or not. Not to be changed."""
        self._names_of = names_of
        self._aliases = _Aliases(by_wire, names_of)
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

    def without(self, wires: frozenset[str]) -> "NameIndex[_Ref]":
        """The same without these: their names mean what they would mean if nothing had them."""
        kept = {wire: ref for wire, ref in self.by_wire.items() if wire not in wires}
        return NameIndex(self._kind, kept, self._names_of).hiding(self._hidden)

    def find(self, name: str) -> _Ref:
        """What `name` means.

        Raises:
            UnknownName: nothing, or more than one thing; says which names would work.
        """
        ref = self.by_wire.get(name)
        if ref is not None:
            return ref
        for aliases in self._aliases.tables:
            wires = aliases.get(name)
            if wires is not None and len(wires) == 1:
                return self.by_wire[wires[0]]
            if wires is not None:
                shown = [wire for wire in wires if wire not in self._hidden]
                raise UnknownName(self._kind, name, candidates=shown[:_CANDIDATES], ambiguous=True)
        raise UnknownName(self._kind, name, candidates=lambda: self._guesses(name))

    def _guesses(self, name: str) -> list[str]:
        """Wire names close to `name`, or whose bare name is."""
        _, _, bare = self._aliases.tables
        known = {**self.by_wire, **bare}
        if self._hidden:
            shown = {name: tuple(wire for wire in wires if wire not in self._hidden) for name, wires in bare.items()}
            bare = {name: wires for name, wires in shown.items() if wires}
            known = {**self.wires, **bare}
        guesses: dict[str, None] = {}
        for guess in likely_meant(name, known):
            guesses |= dict.fromkeys([guess] if guess in self.by_wire else bare[guess][:_CANDIDATES])
        return list(guesses)[:_CANDIDATES] or self._guesses_of_ids(name)

    def _guesses_of_ids(self, name: str) -> list[str]:
        """Wire names of what `name` may be the id of: few of them look like it where they are bare names."""
        ids, _, _ = self._aliases.tables
        shown = {id_: [wire for wire in wires if wire not in self._hidden] for id_, wires in ids.items()}
        meant = likely_meant(name.replace("__", "/", 1), [id_ for id_, wires in shown.items() if wires])
        return [wire for id_ in meant for wire in shown[id_]][:_CANDIDATES]
