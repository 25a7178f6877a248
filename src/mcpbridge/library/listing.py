"""Which tools a program is told of: all, those of some names, or those that a search finds. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from types import MappingProxyType

from mcpbridge.catalog.snapshot import ToolRef
from mcpbridge.errors import UnknownName, nearest

__all__ = ["chosen", "first"]

_GLOB = frozenset("*?[")


def chosen(
    refs: Mapping[str, ToolRef], only: Sequence[str], unlisted: Mapping[str, ToolRef] = MappingProxyType({})
) -> dict[str, ToolRef]:
    """Those that are named, by wire name, in the order of the names; globs (`github/*`) stand for all that match.

    `unlisted`: tools that are in no list and may be named all the same, such as `mcpbridge/find_tools`.

    Raises:
        UnknownName: a name that is no glob is none of them.
    """
    found: dict[str, ToolRef] = {}
    for name in only:
        matching = {wire: ref for wire, ref in refs.items() if _is_meant(ref, name)}
        if not matching:
            matching = {wire: ref for wire, ref in unlisted.items() if name in (ref.id, ref.wire)}
        if not matching and not _GLOB.intersection(name):
            raise UnknownName("tool", name, candidates=nearest(name, [ref.id for ref in refs.values()]))
        found |= {wire: ref for wire, ref in matching.items() if wire not in found}
    return found


def _is_meant(ref: ToolRef, name: str) -> bool:
    return name in (ref.id, ref.wire) or fnmatchcase(ref.id, name) or name == ref.id.partition("/")[2]


def first(refs: Iterable[ToolRef], limit: int | None) -> list[ToolRef]:
    """At most so many."""
    return list(refs if limit is None else islice(refs, max(0, limit)))
