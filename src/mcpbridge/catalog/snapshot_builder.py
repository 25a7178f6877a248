"""Build the merged catalog: a pure function of what all upstreams offer and the settings.

Lists are in order of (server, name), so that they are the same bytes after a restart: clients cache prompts by prefix.
Names come from `tool_names.py`, URIs from `uris.py`, what clients see of a definition from `definitions/` and
`listed_definitions.py`. What did not change since the last snapshot is not made again.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from hashlib import sha256
from types import MappingProxyType

from mcpbridge.catalog.definitions.cache import DefinitionCache
from mcpbridge.catalog.definitions.check import (
    KINDS,
    Changes,
    Definition,
    Kind,
    form_for_legacy,
    form_for_modern,
    with_ui_uris,
)
from mcpbridge.catalog.definitions.format import ListedDefinition
from mcpbridge.catalog.listed_definitions import Rewriting
from mcpbridge.catalog.listing.exposure import UNLISTED
from mcpbridge.catalog.listing.pagination import Entry, Listing
from mcpbridge.catalog.name_index import NameIndex, Names
from mcpbridge.catalog.slim.levels import Level
from mcpbridge.catalog.slim.slim import slimmed
from mcpbridge.catalog.snapshot import PromptRef, ResourceRef, Snapshot, TemplateRef, ToolRef, digest_of
from mcpbridge.catalog.tool_names import NAME_LENGTH, Prefix, bare_names, names_of_others, own_names, wire_names
from mcpbridge.catalog.upstream_filter import Accepted, Dropped, Item, Offer, accept
from mcpbridge.catalog.uris import SeenUris, ServerUris, UriIndex
from mcpbridge.core.model import BRIDGE, OWN
from mcpbridge.core.result_settings import ResultSettings
from mcpbridge.core.source_settings import OfferSettings
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.upstream.settings import ServerSettings


class SnapshotBuilder:
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
        cache: DefinitionCache | None = None,
    ) -> None:
        """How all snapshots are cut.

        `name_length`: characters of the longest wire name; `prefix`: which of them name their server. `page_size`:
        entries a page; 0 for one page. `ttl_ms`: how long modern clients may go without asking again, where no server
        asks for less. `modern_tail`: members (`"name":value,…`) that end every page for modern clients, such as the
        `_meta` with the bridge's own `serverInfo`. `results`: what becomes of results unless a server or tool says
        otherwise; None: nothing. `slim`: how short the definitions of tools are. `cache`: what earlier runs
        made of definitions.
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
        self.always_recalls = False
        """Results of servers that are not here may have been kept: `recall` is listed whatever else is."""
        self._seen: dict[str, tuple[Offer, OfferSettings | None, Accepted]] = {}
        self._beside: dict[str, tuple[Accepted, frozenset[str]]] = {}
        """Of servers whose texts are not trusted: what was accepted, and beside whose tools."""
        self._entries: dict[_EntryKey, Entry] = {}
        self.seen_uris = SeenUris()
        self.cache = cache

    def for_one_server(self) -> "SnapshotBuilder":
        """Another builder that cuts alike, for the catalogs of one server by its own names and URIs."""
        other = SnapshotBuilder(page_size=self._page_size, ttl_ms=self._ttl_ms)
        other._modern_tail = self._modern_tail
        other._names, other._results, other._slim, other.large = own_names, self._results, self._slim, self.large
        other._keeps_uris = True
        return other

    def follow(self, before: "SnapshotBuilder") -> None:
        """Know what the builder before learned: whose results are large, whose a URI is; and what earlier runs made."""
        self.large, self.seen_uris, self.cache = before.large, before.seen_uris, before.cache

    def build(self, offers: Sequence[Offer], settings: Mapping[str, OfferSettings]) -> Snapshot:
        """The catalog of these offers, at most one a server."""
        accepted = self._accepted(offers, settings)
        names = {*accepted, *settings}.difference(OWN)  # the bridge's own have tools alone, and no URI is theirs
        own = (_uris_of(accepted.get(name), name, settings.get(name)) for name in names)
        uris = UriIndex(own, self.seen_uris, keeps_all=self._keeps_uris)
        runs_tasks = frozenset(offer.server for offer in offers if offer.runs_tasks)
        rewriting = Rewriting(settings, self._results, self.large, always_recalls=self.always_recalls)
        merge = _Merge(
            accepted, uris, self._names, self._entries, runs_tasks, rewriting, self._slim, self.cache, {*names, *OWN}
        )
        tools, prompts = merge.tools(), merge.prompts()
        resources, templates = merge.resources(), merge.templates()
        self._entries = merge.entries
        if self.cache is not None:
            self.cache.save()
        listings: dict[Kind, Listing] = {
            kind: Listing(kind, merge.listed[kind], self._page_size, self._modern_members(kind, offers))
            for kind in KINDS
        }
        return Snapshot(
            digest=digest_of(listings),
            tools=tools.wires,
            prompts=prompts.wires,
            resources=MappingProxyType(resources),
            templates=MappingProxyType(templates),
            unlisted=MappingProxyType({ref.wire: ref for ref, _ in merge.unlisted}),
            dropped=(*(drop for server in accepted.values() for drop in server.dropped), *merge.dropped),
            by_wire=tools.by_wire,
            _tool_names=tools,
            _prompt_names=prompts,
            uris=uris,
            _listings=listings,
            _unlisted={ref.wire: entry for ref, entry in merge.unlisted},
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
            known = self.cache.of(offer.server) if self.cache is not None else None
            if last is None or last_own != own:
                last = accept(offer, own, known=known)
            elif last_offer is not offer:
                last = accept(offer, own, last, known)
            seen[offer.server] = offer, own, last
        untrusted = [server for server, (_, own, _) in seen.items() if own is not None and own.text_trust == "low"]
        if untrusted:
            self._hold(untrusted, seen)
        self._seen = seen
        return {server: last for server, (_, _, last) in seen.items()}

    def _hold(self, untrusted: Sequence[str], seen: dict[str, tuple[Offer, OfferSettings | None, Accepted]]) -> None:
        """Hold back what names tools of other servers, which are known only once all servers were read."""
        names = {
            server: {item.definition.key for item in last.items["tools"]} | last.hidden["tools"]
            for server, (_, _, last) in seen.items()
        }
        others = names_of_others(names)
        for server in untrusted:
            offer, own, last = seen[server]
            held, beside = self._beside.get(server, (None, None))
            if held is last and beside == others[server]:
                continue
            known = self.cache.of(server) if self.cache is not None else None
            held = accept(offer, own, last, known, others=others[server])
            seen[server], self._beside[server] = (offer, own, held), (held, others[server])


_EntryKey = tuple[str | bytes | None, ...]
"""Kind, server, name and definition; then the members that are changed, and after all of them what they become."""
_Names = Callable[..., dict[tuple[str, str], str]]
"""Wire names of (server, tool), or of (server, prompt) with `are_tools=False`: `wire_names` or `own_names`."""


class _Merge:
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
        cache: DefinitionCache | None,
        every_server: Collection[str],
    ) -> None:
        """`runs_tasks`: servers whose tools clients of 2025-11-25 may run as tasks, so that they see `execution`."""
        self._slim: Level = slim
        self._cache = cache
        self._rewriting = rewriting
        self._servers = servers
        self._uris = uris
        self._names = names
        self._known = known
        self._runs_tasks = runs_tasks
        self._every_server = every_server
        self.entries: dict[_EntryKey, Entry] = {}
        self.listed = defaultdict[Kind, list[Entry]](list)
        self.unlisted: list[tuple[ToolRef, Entry]] = []
        self.dropped: list[Dropped] = []

    def tools(self) -> NameIndex[ToolRef]:
        items = self._rewriting.without_needless(self._items("tools"))
        wires = self._names((server, item.name) for server, item in items)
        ui_uris = defaultdict[str, dict[str, str]](dict)
        for (server, uri), published in self._uris.resources.items():
            ui_uris[server][uri] = published
        found: dict[str, ToolRef] = {}
        for server, item in items:
            wire, definition = wires[server, item.name], item.definition
            ui = {**with_ui_uris(definition, ui_uris[server]), **self._rewriting.changes(server, definition)}
            plain: Changes = {} if definition.task_support and server in self._runs_tasks else {"execution": None}
            entry = self._entry("tools", server, item, {**item.changes, **ui, **plain, "name": encode(wire)})
            ref = found[wire] = ToolRef(
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
            if server == BRIDGE and item.name in UNLISTED:
                self.unlisted.append((ref, self.listed["tools"].pop()))
        names = NameIndex("tool", found, partial(_tool_names, self._every_server))
        return names.hiding(frozenset(ref.wire for ref, _ in self.unlisted))

    def prompts(self) -> NameIndex[PromptRef]:
        owners = ((server, item.name) for server, item in self._items("prompts"))
        wires = self._names(owners, are_tools=False)
        found: dict[str, PromptRef] = {}
        for server, item in self._items("prompts"):
            wire, raw = wires[server, item.name], item.definition.raw
            entry = self._entry("prompts", server, item, {"name": encode(wire)})
            key = item.definition.key
            ref_id = f"{server}/{item.name}"
            found[wire] = PromptRef(server, key, wire, ref_id, raw, entry.legacy, entry.modern)
        return NameIndex("prompt", found, _prompt_names)

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

    def _is_free(self, owner: ResourceRef | TemplateRef | None, kind: Kind, server: str, item: Item) -> bool:
        """A web address stays as it is, so it can be listed once only."""
        if owner is None:
            return True
        self.dropped.append(Dropped(server, kind, item.name[:200], f"a web address that {owner.server!r} lists"))
        return False

    def _entry(self, kind: Kind, server: str, item: Item, changes: Changes) -> Entry:
        """The two forms of a definition under these changes, made or remembered; listed as a side effect."""
        key = (kind, server, item.name, item.definition.raw, *changes, *changes.values())
        entry = self._known.get(key)
        if entry is None:
            level: Level = self._slim if kind == "tools" and server != BRIDGE else "off"
            make = partial(_listed_definition, item.definition, changes, level)
            if self._cache is None:
                listed = make()
            else:
                listed = self._cache.of(server).listed_definition(item.definition, changes, level, make)
            modern = listed.legacy if listed.modern is None else listed.modern  # one copy
            entry = Entry((server, item.name), listed.legacy, modern, listed.digest)
        self.entries[key] = entry
        self.listed[kind].append(entry)
        return entry


def _tool_names(servers: Collection[str], ref: ToolRef) -> Names:
    name = ref.id[len(ref.server) + 1 :]  # which a renamed tool has here alone
    return Names(ref.server, name, bare_names(ref.server, name, servers))


def _prompt_names(ref: PromptRef) -> Names:
    return Names(ref.server, ref.id[len(ref.server) + 1 :])


def _listed_definition(definition: Definition, changes: Changes, level: Level) -> ListedDefinition:
    legacy, modern = form_for_legacy(definition, changes), form_for_modern(definition, changes)
    is_one = legacy == modern
    legacy = slimmed(legacy, level)
    modern = legacy if is_one else slimmed(modern, level)
    return ListedDefinition(legacy, None if is_one else modern, sha256(legacy + b"\0" + modern).digest())


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
