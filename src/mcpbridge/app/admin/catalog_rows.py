"""What there is in the catalog, in rows: tools, prompts, resources and templates, a page at a time.

Tools that are switched off are among them, so that they can be switched on again; clients do not see them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

from mcpbridge.app.admin.tool_views import listing_of
from mcpbridge.catalog.snapshot import PromptRef, ResourceRef, Snapshot, TemplateRef, ToolRef
from mcpbridge.catalog.tool_info import tokens_sent
from mcpbridge.core.model import BRIDGE, TOOLS
from mcpbridge.core.source_settings import OfferSettings
from mcpbridge.library.bridge import Bridge
from mcpbridge.results.token_count import Counter

RowKind = Literal["tools", "prompts", "resources", "templates"]
KINDS: tuple[RowKind, ...] = ("tools", "prompts", "resources", "templates")

_DESCRIPTION = 300


class CatalogRow(Struct, frozen=True):
    """One thing that the catalog has."""

    id: str
    """`server/tool`, `server/prompt`, or the URI."""
    server: str
    name: str
    """What clients see."""
    description: str = ""
    tokens: int = 0
    """Of a tool, as its server sent it."""
    is_off: bool = False
    listing: str = ""
    """`pin`, `hide`, or nothing."""
    hints: tuple[str, ...] = ()
    """What a tool says of itself: `reads`, `destroys`, `for apps`."""
    is_own: bool = False
    """It is the bridge's own: it cannot be switched."""


class RowPage(Struct, frozen=True):
    """Some of them."""

    rows: Sequence[CatalogRow]
    total: int
    """Those that were asked for, on all pages."""
    counts: Mapping[RowKind, int]
    """All that there are."""
    servers: Sequence[str]
    """That have something of this kind."""


def catalog_page(
    bridge: Bridge, kind: RowKind, *, server: str = "", contains: str = "", start: int = 0, limit: int, count: Counter
) -> RowPage:
    """The rows from `start` on: of one server, or with a text in their names, if that is asked for.

    Of the last catalog (see `Catalog.flush`). May be called in a thread.
    """
    snapshot = bridge.catalog.snapshot
    found = list(_entries(bridge, snapshot, kind))
    servers = sorted({one[0] for one in found})
    wanted = contains.casefold()
    chosen = [
        make
        for owner, name, make in found
        if (not server or owner == server) and (not wanted or wanted in name.casefold())
    ]
    counts: dict[RowKind, int] = {
        "tools": len(snapshot.tools) + len(snapshot.unlisted) + len(list(switched_off(bridge))),
        "prompts": len(snapshot.prompts),
        "resources": len(snapshot.resources),
        "templates": len(snapshot.templates),
    }
    return RowPage([make(count) for make in chosen[start : start + limit]], len(chosen), counts, servers)


_Entry = tuple[str, str, Callable[[Counter], CatalogRow]]
"""Server, name, and what makes the row."""


def _entries(bridge: Bridge, snapshot: Snapshot, kind: RowKind) -> Iterator[_Entry]:
    if kind == "tools":
        refs = [*snapshot.tools.values(), *snapshot.unlisted.values()]
        rows: list[_Entry] = [(ref.server, f"{ref.id} {ref.wire}", _tool_row(bridge, ref)) for ref in refs]
        rows += [(owner, f"{owner}/{name}", _off_row(owner, name)) for owner, name in switched_off(bridge)]
        yield from sorted(rows, key=lambda row: (row[0] == BRIDGE, row[1]))
    elif kind == "prompts":
        for prompt in snapshot.prompts.values():
            yield prompt.server, f"{prompt.id} {prompt.wire}", _plain_row(prompt, prompt.id, prompt.wire)
    elif kind == "resources":
        for resource in snapshot.resources.values():
            uri = resource.published_uri
            yield resource.server, uri, _plain_row(resource, uri, uri)
    else:
        for template in snapshot.templates.values():
            uri = template.published_template
            yield template.server, uri, _plain_row(template, uri, uri)


def switched_off(bridge: Bridge) -> Iterator[tuple[str, str]]:
    """Server and name of each tool that the settings switch off by itself."""
    for server, settings in bridge.settings.servers.items():
        if not settings.disabled:
            yield from ((server, name) for name in _off_tools(settings))
    for name, settings in bridge.settings.tools.items():
        if settings.disabled:
            yield TOOLS, name
        else:
            yield from ((name, tool) for tool in _off_tools(settings))


def _off_tools(settings: OfferSettings) -> Iterator[str]:
    return (name for name, own in settings.tool.items() if own.disabled)


def tool_of(bridge: Bridge, id_: str) -> ToolRef | None:
    """The tool with this id that can be called; None: there is none."""
    bridge.catalog.flush()
    snapshot = bridge.catalog.snapshot
    return next((ref for ref in (*snapshot.tools.values(), *snapshot.unlisted.values()) if ref.id == id_), None)


def definition_of_off(bridge: Bridge, server: str, name: str) -> bytes:
    """The definition of a tool that is switched off, as its server sent it; empty: it is not known."""
    upstream = bridge.pool.upstreams.get(server)
    for definition in upstream.lists.get("tools", ()) if upstream is not None else ():
        if _members(definition).get("name") == name:
            return definition
    return b""


def entry_of(bridge: Bridge, kind: RowKind, id_: str) -> PromptRef | ResourceRef | TemplateRef | None:
    """The prompt, resource or template with this id."""
    snapshot = bridge.catalog.snapshot
    if kind == "prompts":
        return next((one for one in snapshot.prompts.values() if one.id == id_), None)
    refs: Mapping[str, Any] = snapshot.resources if kind == "resources" else snapshot.templates
    return refs.get(id_)


def _tool_row(bridge: Bridge, ref: ToolRef) -> Callable[[Counter], CatalogRow]:
    def make(count: Counter) -> CatalogRow:
        return CatalogRow(
            ref.id,
            ref.server,
            ref.wire,
            description_of(ref.definition),
            tokens_sent(ref, count),
            listing=listing_of(bridge, ref.id)[0],
            hints=tuple(_hints(ref)),
            is_own=ref.server == BRIDGE,
        )

    return make


def _off_row(server: str, name: str) -> Callable[[Counter], CatalogRow]:
    return lambda count: CatalogRow(f"{server}/{name}", server, name, is_off=True)


def _plain_row(ref: PromptRef | ResourceRef | TemplateRef, id_: str, name: str) -> Callable[[Counter], CatalogRow]:
    return lambda count: CatalogRow(id_, ref.server, name, description_of(ref.definition))


def _hints(ref: ToolRef) -> Iterator[str]:
    if ref.hints.read_only:
        yield "says that it only reads"
    elif ref.hints.destructive:
        yield "says that it may destroy"
    if ref.app_only:
        yield "for apps only"


def description_of(definition: bytes) -> str:
    """What a definition says of itself, or its title, on one line."""
    members = _members(definition)
    for key in ("description", "title"):
        if isinstance(text := members.get(key), str) and text.strip():
            return " ".join(text[: 2 * _DESCRIPTION].split())[:_DESCRIPTION]
    return ""


def _members(definition: bytes) -> Mapping[str, Any]:
    try:
        found: object = msgspec.json.decode(definition)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    return cast("Mapping[str, Any]", found) if isinstance(found, dict) else {}
