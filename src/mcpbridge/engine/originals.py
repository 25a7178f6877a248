"""The definitions as their servers sent them, beside what clients are given of them. Pure.

Where the bridge changes something on purpose (names, hidden characters, schemas that clients cannot read, descriptions
of the configuration) or leaves it out, the original can be had here.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, cast

import msgspec
from msgspec import Struct

from mcpbridge.catalog.definitions.check import KINDS, Kind
from mcpbridge.catalog.pins.server_pins import name_of
from mcpbridge.catalog.snapshot import Snapshot


class Original(Struct, frozen=True):
    """One definition of a server. Whatever is in it is the server's word."""

    server: str
    kind: Kind
    name: str
    """What the server calls it: the name, URI or template; empty: it has none that can be read."""
    sent: Any
    """As the server sent it."""
    given: Any
    """As clients get it, before it is shortened for some of them; None: they do not get it."""
    changed: tuple[str, ...]
    """The members that differ, in order; none if clients do not get it."""
    reasons: tuple[str, ...]
    """Why it is not given, or what was changed in it, as far as the bridge says so."""


def originals(
    lists: Mapping[str, Mapping[str, Iterable[bytes]]], snapshot: Snapshot, kinds: Collection[Kind] = KINDS
) -> list[Original]:
    """Every definition of these servers. `lists`: by server and kind, each definition as it came."""
    given = _given(snapshot)
    reasons: dict[tuple[str, Kind, str], list[str]] = {}
    for one in snapshot.dropped:
        told = f"{one.field}: {one.reason}" if one.field else one.reason
        reasons.setdefault((one.server, one.kind, one.name), []).append(told)
    found: list[Original] = []
    for server, of_server in lists.items():
        for kind in KINDS:
            for raw in of_server.get(kind, ()) if kind in kinds else ():
                name = name_of(kind, raw)
                published = given.get((server, kind, name))
                sent, shown = _value(raw), None if published is None else _value(published)
                why = tuple(reasons.get((server, kind, name[:_LONGEST]), ()))
                found.append(Original(server, kind, name, sent, shown, _changed(sent, shown), why))
    return found


_LONGEST = 200
"""Characters of a name to which `Dropped` shortens it."""


def _given(snapshot: Snapshot) -> dict[tuple[str, Kind, str], bytes]:
    """What clients get, by server, kind and the server's name of it."""
    given: dict[tuple[str, Kind, str], bytes] = {}
    for tool in snapshot.by_wire.values():
        given[tool.server, "tools", tool.name] = tool.published
    for prompt in snapshot.prompts.values():
        given[prompt.server, "prompts", prompt.name] = prompt.published
    for resource in snapshot.resources.values():
        given[resource.server, "resources", resource.uri] = resource.published
    for template in snapshot.templates.values():
        given[template.server, "templates", template.template] = template.published
    return given


def _value(raw: bytes) -> Any:
    """The JSON value; what cannot be read is its text."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return bytes(raw).decode("utf-8", "replace")


def _changed(sent: object, given: object) -> tuple[str, ...]:
    if not isinstance(sent, dict) or not isinstance(given, dict):
        return ()
    before, after = cast("dict[str, object]", sent), cast("dict[str, object]", given)
    return tuple(member for member in {**before, **after} if before.get(member, ...) != after.get(member, ...))
