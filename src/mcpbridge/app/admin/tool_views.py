"""One tool in all its forms: as its server sent it, at each level of slimming, and as each known client is listed it.

What clients are listed is made by the same code that answers them (`catalog/listing/tool_lists.py`), beside requests.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from mcpbridge.catalog.listing.client_quirks import TRAITS, traits_of
from mcpbridge.catalog.listing.exposure import Exposure, is_hidden
from mcpbridge.catalog.listing.tool_lists import Exposed
from mcpbridge.catalog.search.find import read_definition
from mcpbridge.catalog.signatures.signature import call_line, signature
from mcpbridge.catalog.slim.levels import LEVELS, Level
from mcpbridge.catalog.slim.slim import slimmed, visible
from mcpbridge.catalog.snapshot import Snapshot, ToolRef
from mcpbridge.catalog.tool_info import as_sent
from mcpbridge.core.model import BRIDGE
from mcpbridge.library.bridge import Bridge
from mcpbridge.results.token_count import Counter

NAME = "mcpbridge"
"""What the bridge is called where nobody gave it another name: clients put it before the names of tools."""
ANY_CLIENT = "another-client"
"""A name that nothing is known of."""


class Form(Struct, frozen=True):
    """A definition at one level of slimming."""

    level: Level
    definition: bytes
    tokens: int
    """Of what clients show a model: name, description and input schema."""


class ClientView(Struct, frozen=True):
    """A tool as one client is listed it."""

    client: str
    """`clientInfo.name`."""
    title: str
    is_listed: bool
    why: str
    """Why it is not listed; empty: it is."""
    name: str = ""
    """The name that the client is given."""
    shown_name: str = ""
    """What its model sees of that; empty: it is not known."""
    definition: bytes = b""
    tokens: int = 0
    list_tools: int = 0
    list_tokens: int = 0
    """Of the whole list that this client gets."""
    modern: bytes = b""
    """What clients from 2026-07-28 on get, where that is something else."""


def forms_of(ref: ToolRef, count: Counter) -> list[Form]:
    """The definition at each level, the longest first; `off` is as sent, under the name that clients see."""
    sent = as_sent(ref)
    found: list[Form] = []
    for level in LEVELS:
        definition = slimmed(sent, level, call_line)
        found.append(Form(level, definition, count(visible(definition))))
    return found


def search_line(ref: ToolRef) -> str:
    """The line of the tool in an answer of `find_tools`."""
    one = read_definition(ref)
    return signature(ref.wire, one.description, one.text.schema).text


def known_clients(bridge: Bridge, connected: Iterable[str] = ()) -> Mapping[str, str]:
    """The clients that a tool may be looked at with, by name: what people call them.

    `connected`: names of those that are connected.
    """
    titles = {traits.names[0].rstrip("*"): traits.title for traits in TRAITS}
    for name in (*connected, *(glob.replace("*", "") for glob in bridge.settings.expose.clients)):
        if name and name not in titles and not traits_of(name).title:
            titles[name] = name
    return {**titles, ANY_CLIENT: "Any other client", "": "A program without a name"}


async def seen_by(bridge: Bridge, client: str) -> tuple[Exposed, Exposure, Snapshot]:
    """The list that a client of this name gets, what decides about it, and the catalog that it may see."""
    bridge.catalog.flush()
    exposing = bridge.tool_search.exposing
    exposure, audience = exposing.of(client), bridge.catalog.audience(client, "")
    exposed = await exposing.seen_by("", audience, exposure)
    return exposed, exposure, exposed.snapshot


async def client_view(bridge: Bridge, ref: ToolRef, client: str, title: str, count: Counter) -> ClientView:
    """How a client of this name is listed the tool."""
    exposed, exposure, snapshot = await seen_by(bridge, client)
    entries = exposed.tools.entries
    size = count("".join(visible(entry.legacy) for entry in entries)) if len(entries) <= _FEW else 0
    size = size or sum(len(entry.legacy) for entry in entries) * 5 // 16
    own = next((entry for entry in entries if entry.key == _key(snapshot, ref)), None)
    view = ClientView(client, title, own is not None, "", list_tools=len(entries), list_tokens=size)
    if own is None:
        return msgspec.structs.replace(view, why=_why_not(exposed, exposure, snapshot, ref))
    name = str(msgspec.json.decode(own.legacy, type=_Named).name)
    naming = exposure.traits.naming
    return msgspec.structs.replace(
        view,
        name=name,
        shown_name=naming.format(server=NAME, tool=name) if naming else "",
        definition=own.legacy,
        modern=own.modern if own.modern != own.legacy else b"",
        tokens=count(visible(own.legacy)),
    )


_FEW = 200
"""Tools of a list whose tokens are counted; those of a longer one are estimated."""


class _Named(Struct):
    name: Any = ""


def _key(snapshot: Snapshot, ref: ToolRef) -> tuple[str, str] | None:
    """Where the tool stands in lists; None: this catalog does not have it."""
    if ref.wire in snapshot.unlisted:
        return snapshot.unlisted_entry(ref).key
    pairs = zip(snapshot.tools.values(), snapshot.entries("tools"), strict=True)
    return next((entry.key for one, entry in pairs if one.wire == ref.wire), None)


def _why_not(exposed: Exposed, exposure: Exposure, snapshot: Snapshot, ref: ToolRef) -> str:
    if ref.wire not in snapshot.tools and ref.wire not in snapshot.unlisted:
        return "A rule of `permissions` denies it to this client, so it is neither listed nor found."
    if exposure.scope is not None and not exposure.scope.has(ref):
        return f"It is not part of the profile {exposure.scope.name!r}, which this client has."
    if ref.server == BRIDGE:
        return "It finds and calls what is not listed; this client is listed all tools."
    if is_hidden(ref, exposure):
        return "It is hidden (`expose.hide`). find_tools finds it, and it can be called."
    if exposed.mode == "search":
        return "This client is listed the tools that find others, and the pinned ones. find_tools finds it."
    return "It is not in the list."


def listing_of(bridge: Bridge, id_: str) -> tuple[str, Sequence[str]]:
    """Whether the settings pin or hide a tool (`pin`, `hide`, or nothing), and the globs that do."""
    from fnmatch import fnmatchcase

    expose = bridge.settings.expose
    if pins := [glob for glob in expose.pins if fnmatchcase(id_, glob)]:
        return "pin", pins
    return ("hide", hides) if (hides := [glob for glob in expose.hide if fnmatchcase(id_, glob)]) else ("", ())
