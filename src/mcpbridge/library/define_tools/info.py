"""Tools as programs see them in a list, and which ones: all, by name, or found by a search. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct

from mcpbridge.base.errors import UnknownName
from mcpbridge.base.suggestions import nearest
from mcpbridge.catalog.snapshot import ToolRef


class ToolInfo(Struct, frozen=True):
    """One tool of the catalog. Every way of naming it (`id` or `name`) can be called."""

    id: str
    """`server/tool`: what people write in configurations and rules. A tool of the program itself is `tools/NAME`."""
    name: str
    """What clients and models see: `server__tool`, letters, digits, `_` and `-`."""
    server: str
    """Name of the server, or of the backend; `tools` for single tools, `builtin`, `mcpbridge` for the bridge's own."""
    description: str
    input_schema: Mapping[str, Any]
    """JSON Schema of the arguments, as it is listed: shorter than the server's own where that is configured."""
    output_schema: Mapping[str, Any] | None
    """JSON Schema of the structured result; None: it promises none."""
    annotations: Mapping[str, Any]
    """What it says of itself: `readOnlyHint`, `destructiveHint`, …"""
    definition: Mapping[str, Any]
    """All of it as `tools/list` shows it."""


def info_of(ref: ToolRef, definition: bytes | None = None) -> ToolInfo:
    """A tool of the catalog. `definition`: as it is listed where that is not as in the catalog."""
    listed: dict[str, Any] = msgspec.json.decode(definition or ref.published_modern)
    return ToolInfo(
        ref.id,
        ref.wire,
        ref.server,
        str(listed.get("description") or ""),
        listed.get("inputSchema") or {"type": "object"},
        listed.get("outputSchema"),
        listed.get("annotations") or {},
        listed,
    )


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
