"""The merged catalog of all upstreams at one moment: immutable, and a pure function of their offers and the settings.

Everything is decided when it is built, off the call path: names, URIs, what clients see of each definition, and in
which order (server, name: the same bytes after a restart, since clients cache prompts by prefix). What a client asks
for is then a look-up.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from types import MappingProxyType
from typing import TypeVar

from msgspec import Raw, Struct
from msgspec.structs import replace

from mcpbridge.catalog.definitions.cache import Forms, Shown
from mcpbridge.catalog.definitions.check import (
    KINDS,
    Changes,
    Definition,
    Kind,
    form_for_legacy,
    form_for_modern,
    with_ui_uris,
)
from mcpbridge.catalog.listed_definitions import Rewriting
from mcpbridge.catalog.lookup import Directory, Listed
from mcpbridge.catalog.offers import Accepted, Dropped, Item, Offer, accept
from mcpbridge.catalog.pagination import Entry, Listing
from mcpbridge.catalog.settings import NAME_LENGTH, Prefix
from mcpbridge.catalog.slim.slim import Level, slimmed
from mcpbridge.catalog.tool_names import own_names, wire_names
from mcpbridge.catalog.uris import SeenUris, ServerUris, UriIndex
from mcpbridge.core.call_options import NO_HINTS, Hints
from mcpbridge.core.model import BRIDGE, OWN
from mcpbridge.core.result_settings import ResultSettings
from mcpbridge.core.source_settings import OfferSettings
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.upstream.settings import ServerSettings

_Ref = TypeVar("_Ref")


class ToolRef(Struct, frozen=True):
    """One tool: whose it is, what it is called where, and its definition."""

    server: str
    name: str
    """The upstream's own name, the one to call it by there."""
    wire: str
    """The name that clients see."""
    id: str
    """`server/tool`, the name in configuration and logs; a renamed tool's new one."""
    definition: bytes
    """As the upstream sent it; arguments are checked against this one."""
    published: bytes
    """As clients of 2025-11-25 see it; those of older revisions get less (`older_form`)."""
    published_modern: bytes
    """As clients from 2026-07-28 on see it; the same object where it is the same."""
    headers: Mapping[tuple[str, ...], str]
    """Path of an argument to the token of the `Mcp-Param-…` header that repeats it to a modern HTTP upstream."""
    is_marked: bool = False
    """Modern clients over HTTP repeat arguments in such headers too; `published_modern` says which."""
    app_only: bool = False
    """Meant for the apps of its server, not for models: listed and callable, but nothing to find or recommend."""
    has_app: bool = False
    """An app of its server shows its results, or it is such an app's: hosts must have it in their lists."""
    hints: Hints = NO_HINTS
    """What it says of itself, whoever believes it."""
    task_support: str = ""
    """`optional` or `required`: the tool may, or must, run as a task (2025-11-25); empty: it does not."""


class PromptRef(Struct, frozen=True):
    """One prompt; the fields mean what they do in `ToolRef`."""

    server: str
    name: str
    wire: str
    id: str
    definition: bytes
    published: bytes
    published_modern: bytes


class ResourceRef(Struct, frozen=True):
    """One listed resource. `uri` is the upstream's own, `published_uri` what clients see."""

    server: str
    uri: str
    published_uri: str
    definition: bytes
    published: bytes
    published_modern: bytes


class TemplateRef(Struct, frozen=True):
    """One resource template. `template` is the upstream's own, `published_template` what clients see."""

    server: str
    template: str
    published_template: str
    definition: bytes
    published: bytes
    published_modern: bytes


class Snapshot(Struct, frozen=True):
    """What all upstreams offer together. Made by `build` or a `Builder`."""

    digest: str
    """Changes when, and only when, something that is listed changed."""
    tools: Mapping[str, ToolRef]
    """By wire name, in canonical order; so are the next three, by what clients see."""
    prompts: Mapping[str, PromptRef]
    resources: Mapping[str, ResourceRef]
    templates: Mapping[str, TemplateRef]
    unlisted: Mapping[str, ToolRef]
    """Tools of the bridge that can be called but are in no listing, by wire name."""
    dropped: tuple[Dropped, ...]
    """What clients do not see, or not in full, though it is offered and not hidden by the configuration."""
    _tool_names: Directory[ToolRef]
    _prompt_names: Directory[PromptRef]
    _uris: UriIndex
    _listings: Mapping[Kind, Listing]
    _unlisted: Mapping[str, Entry]

    def tool(self, name: str) -> ToolRef:
        """The tool of this wire name, `server/tool`, `server.tool`, or bare name if one server alone has it.

        Raises:
            UnknownName: there is none, or several.
        """
        return self._tool_names.find(name)

    def prompt(self, name: str) -> PromptRef:
        """The prompt of this name; the names are those of `tool`, and so are the errors."""
        return self._prompt_names.find(name)

    def resource(self, uri: str) -> tuple[str, str]:
        """(server, the upstream's own URI) for a URI from a client, listed or not.

        Raises:
            UnknownName: no upstream's, hidden by the configuration, or several upstreams'.
        """
        return self._uris.resolve(uri)

    def template(self, uri_template: str) -> tuple[str, str]:
        """(server, the upstream's own template) for a published template, as in a completion's `ref.uri`.

        Raises:
            UnknownName: there is none.
        """
        return self._uris.resolve_template(uri_template)

    def published_uri(self, server: str, uri: str) -> str:
        """How clients must spell this upstream's URI: in updates, and in links and resources inside results.

        An unlisted URI that nobody else could be asked for stays as it is, and is remembered as this upstream's.
        """
        return self._uris.publish(server, uri)

    def seen_in(self, uri: str) -> str:
        """The server in whose results this URI stood lately; empty: nobody's."""
        return self._uris.seen_in(uri)

    def may_hold_uris(self, server: str, result: bytes | Raw) -> bool:
        """Whether a result of this upstream needs a look for URIs to publish; a search, far cheaper than a parse."""
        return self._uris.may_hold_uris(server, result)

    def page(self, kind: Kind, cursor: str | None, *, revision: str) -> bytes:
        """The result object of one page of a listing, on one line, for clients of this revision.

        Raises:
            BadRequest: the cursor is none of ours (−32602).
        """
        return self._listings[kind].page(cursor, revision=revision)

    def listing(self, kind: Kind) -> Listing:
        """All that is listed of a kind."""
        return self._listings[kind]

    def entries(self, kind: Kind) -> Sequence[Entry]:
        """What `page` shows of a kind: for tools in the order of `tools`."""
        return self._listings[kind].entries

    def unlisted_entry(self, ref: ToolRef) -> Entry:
        """What a listing would show of one of `unlisted`."""
        return self._unlisted[ref.wire]

    def kind_digest(self, kind: Kind) -> str:
        """Changes when, and only when, what is listed of this kind changed."""
        return self._listings[kind].digest

    def hiding(self, wires: frozenset[str]) -> "Snapshot":
        """The same catalog, in which these tools are not listed and not guessed; all names mean what they meant."""
        if not wires:
            return self
        names = self._tool_names.hiding(wires)
        tools = self._listings["tools"].only(wire not in wires for wire in self.tools)
        listings: dict[Kind, Listing] = {**self._listings, "tools": tools}
        return replace(
            self,
            digest=_digest(listings),
            tools=names.wires,
            unlisted={wire: ref for wire, ref in self.unlisted.items() if wire not in wires},
            _tool_names=names,
            _listings=listings,
        )


class Builder:
    """Makes snapshots one after the other, and redoes only what changed in between."""

    def __init__(
        self,
        *,
        name_length: int = NAME_LENGTH,
        prefix: Prefix = "always",
        page_size: int = 0,
        ttl_ms: int = 0,
        modern_tail: bytes = b"",
        results: ResultSettings | None = None,
        slim: Level = "off",
        forms: Forms | None = None,
    ) -> None:
        """How all snapshots are cut.

        `name_length`: characters of the longest wire name; `prefix`: which of them name their server. `page_size`:
        entries a page; 0 for one page. `ttl_ms`: how long modern clients may go without asking again, where no server
        asks for less. `modern_tail`: members (`"name":value,…`) that end every page for modern clients, such as the
        `_meta` with the bridge's own `serverInfo`. `results`: what becomes of results unless a server or tool says
        otherwise; None: nothing. `slim`: how short the definitions of tools are. `forms`: what earlier runs made.
        """
        self.options = name_length, prefix, page_size, ttl_ms, modern_tail, results, slim
        """How it cuts: two builders with the same make the same of the same."""
        self._names: _Names = partial(wire_names, limit=name_length, prefix=prefix)
        self._keeps_uris = False
        self._page_size = page_size
        self._ttl_ms = ttl_ms
        self._modern_tail = b",%b" % modern_tail if modern_tail else b""
        self._results = results
        self._slim: Level = slim
        self.large: frozenset[str] = frozenset()
        """Ids (`server/name`, the server's own) of tools whose results have been large."""
        self._seen: dict[str, tuple[Offer, OfferSettings | None, Accepted]] = {}
        self._entries: dict[_EntryKey, Entry] = {}
        self.seen_uris = SeenUris()
        self.forms = forms

    def for_one_server(self) -> "Builder":
        """Another builder that cuts alike, for the catalogs of one server by its own names and URIs."""
        other = Builder(page_size=self._page_size, ttl_ms=self._ttl_ms)
        other._modern_tail = self._modern_tail
        other._names, other._results, other._slim, other.large = own_names, self._results, self._slim, self.large
        other._keeps_uris = True
        return other

    def follow(self, before: "Builder") -> None:
        """Know what the builder before learned: whose results are large, whose a URI is; and what earlier runs made."""
        self.large, self.seen_uris, self.forms = before.large, before.seen_uris, before.forms

    def build(self, offers: Sequence[Offer], settings: Mapping[str, OfferSettings]) -> Snapshot:
        """The catalog of these offers, at most one a server."""
        accepted = self._accepted(offers, settings)
        names = {*accepted, *settings}.difference(OWN)  # the bridge's own have tools alone, and no URI is theirs
        own = (_uris_of(accepted.get(name), name, settings.get(name)) for name in names)
        uris = UriIndex(own, self.seen_uris, keeps_all=self._keeps_uris)
        runs_tasks = frozenset(offer.server for offer in offers if offer.runs_tasks)
        rewriting = Rewriting(settings, self._results, self.large)
        making = _Making(accepted, uris, self._names, self._entries, runs_tasks, rewriting, self._slim, self.forms)
        tools, prompts = making.tools(), making.prompts()
        resources, templates = making.resources(), making.templates()
        self._entries = making.entries
        if self.forms is not None:
            self.forms.keep()
        listings: dict[Kind, Listing] = {
            kind: Listing(kind, making.listed[kind], self._page_size, self._modern_members(kind, offers))
            for kind in KINDS
        }
        return Snapshot(
            digest=_digest(listings),
            tools=tools.wires,
            prompts=prompts.wires,
            resources=MappingProxyType(resources),
            templates=MappingProxyType(templates),
            unlisted=MappingProxyType({ref.wire: ref for ref, _ in making.unlisted}),
            dropped=(*(drop for server in accepted.values() for drop in server.dropped), *making.dropped),
            _tool_names=tools,
            _prompt_names=prompts,
            _uris=uris,
            _listings=listings,
            _unlisted={ref.wire: entry for ref, entry in making.unlisted},
        )

    def _modern_members(self, kind: Kind, offers: Sequence[Offer]) -> bytes:
        """What ends each modern page. A list is fresh for as long as each part of it is (MCP 2026-07-28, Caching)."""
        ttl_ms = min([self._ttl_ms, *(offer.ttl_ms[kind] for offer in offers if kind in offer.ttl_ms)])
        # Not everybody sees the same (`audiences`), so no cache in between may give it to another.
        return b'"resultType":"complete","ttlMs":%d,"cacheScope":"private"%b' % (ttl_ms, self._modern_tail)

    def _accepted(self, offers: Sequence[Offer], settings: Mapping[str, OfferSettings]) -> dict[str, Accepted]:
        """Each offer checked, in order of the servers' names; the same offer under the same settings only once."""
        seen: dict[str, tuple[Offer, OfferSettings | None, Accepted]] = {}
        for offer in sorted(offers, key=lambda offer: offer.server):
            own = settings.get(offer.server)
            last_offer, last_own, last = self._seen.get(offer.server, (None, None, None))
            made = self.forms.of(offer.server) if self.forms is not None else None
            if last is None or last_own != own:
                last = accept(offer, own, made=made)
            elif last_offer is not offer:
                last = accept(offer, own, last, made)
            seen[offer.server] = offer, own, last
        self._seen = seen
        return {server: last for server, (_, _, last) in seen.items()}


def build(
    offers: Sequence[Offer],
    settings: Mapping[str, OfferSettings],
    *,
    name_length: int = NAME_LENGTH,
    page_size: int = 0,
    ttl_ms: int = 0,
    modern_tail: bytes = b"",
) -> Snapshot:
    """One snapshot; see `Builder` for the parameters."""
    builder = Builder(
        name_length=name_length,
        page_size=page_size,
        ttl_ms=ttl_ms,
        modern_tail=modern_tail,
    )
    return builder.build(offers, settings)


UNLISTED = frozenset({"find_tools", "describe_tools", "call_tool"})
"""Names of tools of the bridge that a listing has only where it leaves out others."""

_EntryKey = tuple[Kind, str, str, bytes, tuple[tuple[str, bytes | None], ...]]
_Names = Callable[[Iterable[tuple[str, str]]], dict[tuple[str, str], str]]
"""Wire names of (server, tool) or (server, prompt)."""


class _Making:
    """One snapshot on its way."""

    def __init__(
        self,
        servers: Mapping[str, Accepted],
        uris: UriIndex,
        names: _Names,
        known: Mapping[_EntryKey, Entry],
        runs_tasks: frozenset[str],
        rewriting: Rewriting,
        slim: Level,
        forms: Forms | None,
    ) -> None:
        """`runs_tasks`: servers whose tools clients of 2025-11-25 may run as tasks, so that they see `execution`."""
        self._slim: Level = slim
        self._forms = forms
        self._rewriting = rewriting
        self._servers = servers
        self._uris = uris
        self._names = names
        self._known = known
        self._runs_tasks = runs_tasks
        self.entries: dict[_EntryKey, Entry] = {}
        self.listed = defaultdict[Kind, list[Entry]](list)
        self.unlisted: list[tuple[ToolRef, Entry]] = []
        self.dropped: list[Dropped] = []

    def tools(self) -> Directory[ToolRef]:
        items = self._rewriting.shown(self._items("tools"))
        wires = self._names((server, item.name) for server, item in items)
        ui_uris = defaultdict[str, dict[str, str]](dict)
        for (server, uri), published in self._uris.resources.items():
            ui_uris[server][uri] = published
        found: list[Listed[ToolRef]] = []
        for server, item in items:
            wire, definition = wires[server, item.name], item.definition
            ui = {**with_ui_uris(definition, ui_uris[server]), **self._rewriting.changes(server, definition)}
            plain: Changes = {} if definition.task_support and server in self._runs_tasks else {"execution": None}
            entry = self._entry("tools", server, item, {**item.changes, **ui, **plain, "name": encode(wire)})
            ref = ToolRef(
                server=server,
                name=definition.key,
                wire=wire,
                id=f"{server}/{item.name}",
                definition=definition.raw,
                published=entry.legacy,
                published_modern=entry.modern,
                headers=definition.headers,
                is_marked=definition.is_marked,
                app_only=definition.app_only,
                has_app=definition.app_only or bool(definition.ui),
                hints=definition.hints,
                task_support=definition.task_support,
            )
            found.append(Listed(wire, server, item.name, ref))
            if server == BRIDGE and item.name in UNLISTED:
                self.unlisted.append((ref, self.listed["tools"].pop()))
        return Directory("tool", found).hiding(frozenset(ref.wire for ref, _ in self.unlisted))

    def prompts(self) -> Directory[PromptRef]:
        wires = self._wires("prompts")
        found: list[Listed[PromptRef]] = []
        for server, item in self._items("prompts"):
            wire, raw = wires[server, item.name], item.definition.raw
            entry = self._entry("prompts", server, item, {"name": encode(wire)})
            key = item.definition.key
            ref = PromptRef(server, key, wire, f"{server}/{item.name}", raw, entry.legacy, entry.modern)
            found.append(Listed(wire, server, item.name, ref))
        return Directory("prompt", found)

    def resources(self) -> dict[str, ResourceRef]:
        refs: dict[str, ResourceRef] = {}
        for server, item in self._items("resources"):
            published = self._uris.resources[server, item.name]
            if self._is_free(refs.get(published), "resources", server, item):
                entry = self._entry("resources", server, item, _moved("uri", item.name, published))
                refs[published] = ResourceRef(
                    server, item.name, published, item.definition.raw, entry.legacy, entry.modern
                )
        return refs

    def templates(self) -> dict[str, TemplateRef]:
        refs: dict[str, TemplateRef] = {}
        for server, item in self._items("templates"):
            published = self._uris.templates[server, item.name]
            if self._is_free(refs.get(published), "templates", server, item):
                entry = self._entry("templates", server, item, _moved("uriTemplate", item.name, published))
                refs[published] = TemplateRef(
                    server, item.name, published, item.definition.raw, entry.legacy, entry.modern
                )
        return refs

    def _items(self, kind: Kind) -> list[tuple[str, Item]]:
        return [(server, item) for server, accepted in self._servers.items() for item in accepted.items[kind]]

    def _wires(self, kind: Kind) -> dict[tuple[str, str], str]:
        return self._names((server, item.name) for server, item in self._items(kind))

    def _is_free(self, owner: ResourceRef | TemplateRef | None, kind: Kind, server: str, item: Item) -> bool:
        """A web address stays as it is, so it can be listed once only."""
        if owner is None:
            return True
        self.dropped.append(Dropped(server, kind, item.name[:200], f"a web address that {owner.server!r} lists"))
        return False

    def _entry(self, kind: Kind, server: str, item: Item, changes: Changes) -> Entry:
        """The two forms of a definition under these changes, made or remembered; listed as a side effect."""
        key = kind, server, item.name, item.definition.raw, tuple(changes.items())
        entry = self._known.get(key)
        if entry is None:
            level: Level = self._slim if kind == "tools" and server != BRIDGE else "off"
            make = partial(_shown, item.definition, changes, level)
            if self._forms is None:
                shown = make()
            else:
                shown = self._forms.of(server).show(item.definition, changes, level, make)
            modern = shown.legacy if shown.modern is None else shown.modern  # one copy
            entry = Entry((server, item.name), shown.legacy, modern, shown.digest)
        self.entries[key] = entry
        self.listed[kind].append(entry)
        return entry


def _shown(definition: Definition, changes: Changes, level: Level) -> Shown:
    legacy, modern = form_for_legacy(definition, changes), form_for_modern(definition, changes)
    is_one = legacy == modern
    legacy = slimmed(legacy, level)
    modern = legacy if is_one else slimmed(modern, level)
    return Shown(legacy, None if is_one else modern, sha256(legacy + b"\0" + modern).digest())


def _digest(listings: Mapping[Kind, Listing]) -> str:
    return sha256("".join(listings[kind].digest for kind in KINDS).encode()).hexdigest()


def _uris_of(accepted: Accepted | None, server: str, settings: OfferSettings | None) -> ServerUris:
    names = settings.resources if isinstance(settings, ServerSettings) else ServerUris(server).names
    if accepted is None:
        return ServerUris(server, names=names)
    listed = tuple(item.name for item in accepted.items["resources"])
    hidden = accepted.hidden["resources"]
    return ServerUris(
        server,
        listed=listed,
        unlisted=tuple({uri for item in accepted.items["tools"] for uri in item.definition.ui} - {*listed, *hidden}),
        templates=tuple(item.name for item in accepted.items["templates"]),
        hidden=hidden,
        hidden_templates=tuple(accepted.hidden["templates"]),
        names=names,
    )


def _moved(member: str, uri: str, published: str) -> Changes:
    return {} if uri == published else {member: encode(published)}
