"""The lists of tools as clients get them: which tools are in a list, and how each is written.

A list is made from a snapshot when it is first asked for; after that it is a look-up. Clients that see the same share
one list. Tools that are not in it keep their names. Which tools a client sees is decided in `exposure.py`.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import count

import anyio.to_thread
from msgspec import Raw
from msgspec.structs import replace

from mcpbridge.catalog.definitions.check import Kind
from mcpbridge.catalog.listing.exposure import Exposure, Shown, exposure_of, is_hidden, is_listed, mode_for
from mcpbridge.catalog.listing.pagination import Entry, Listing
from mcpbridge.catalog.listing.profiles import Scope, scopes_of
from mcpbridge.catalog.refresh import Catalog
from mcpbridge.catalog.settings import ExposeSettings, ProfileSettings
from mcpbridge.catalog.slim.levels import LEVELS, Level
from mcpbridge.catalog.slim.slim import Signature, slimmed
from mcpbridge.catalog.slim.text import cap_description
from mcpbridge.catalog.snapshot import Snapshot, ToolRef
from mcpbridge.catalog.tool_names import fingerprint
from mcpbridge.core.model import BRIDGE, Caller
from mcpbridge.core.source_settings import OfferSettings
from mcpbridge.pipeline.permissions.policy import Audience
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.results.token_count import estimated_tokens

MapOf = Callable[[Snapshot, Scope | None], str]
"""What there is in a catalog, or in a profile's part of it, in a few words."""
_Change = Callable[[bytes], bytes]
_Tool = tuple[ToolRef, Entry]


class Exposed:
    """The list of tools of one view of the catalog, for one exposure."""

    def __init__(
        self,
        snapshot: Snapshot,
        exposure: Exposure,
        *,
        map_of: "MapOf",
        shorter: "Shorter",
        chosen: Sequence[str] | None = None,
    ) -> None:
        """`map_of` says in a few words what tools there are; `shorter` makes the shorter forms of definitions.

        `chosen`: ids of the tools that were chosen for one request: these are listed beside what always is.
        """
        self.snapshot, self._exposure, self._shorter = snapshot, exposure, shorter
        self.mode: Shown = "search"
        """Whether all tools are in it, or those with which others are found."""
        self.names: dict[str, str] = {}
        """The catalog's name of each tool that this client is told of under a shorter one."""
        self._map = ""
        self._cuts: dict[Kind, Listing] = {}
        scope = exposure.scope
        tools: list[_Tool] = [
            (ref, entry)
            for ref, entry in zip(snapshot.tools.values(), snapshot.entries("tools"), strict=True)
            if scope is None or scope.has(ref)
        ]
        own = [(ref, snapshot.unlisted_entry(ref)) for ref in snapshot.unlisted.values()]
        kept = [one for one in tools if not is_hidden(one[0], exposure)] if exposure.hides else tools
        level = self._level(kept)
        self._listed_at: Level = level
        if chosen is None:
            self.mode = mode_for(exposure, len(kept), _tokens(self._entries(kept, level)))
        if not {"find_tools", "call_tool"} <= {ref.name for ref, _ in own}:
            self.mode, chosen = "all", None  # the policy hides what finds the others: nobody gets an empty list
        also = frozenset(chosen or ())
        leaves_out = len(kept) < len(tools)
        listed = [one for one in (*own, *tools) if is_listed(one[0], self.mode, exposure, also, leaves_out=leaves_out)]
        listed.sort(key=lambda one: one[1].key)
        self._map = map_of(snapshot, scope) if self.mode == "search" and exposure.has_map else ""
        entries = list(self._entries(listed, level))
        self.tools: Listing = snapshot.listing("tools").of(entries)
        """The list, in pages."""

    def listing(self, kind: Kind) -> Listing:
        """The list of a kind, in pages: of a profile only what its servers have."""
        if kind == "tools":
            return self.tools
        scope, whole = self._exposure.scope, self.snapshot.listing(kind)
        if scope is None:
            return whole
        cut = self._cuts.get(kind)
        if cut is None:
            cut = self._cuts[kind] = whole.only(scope.has_server(entry.key[0]) for entry in whole.entries)
        return cut

    def offered(self) -> Iterator[_Tool]:
        """The tools of servers that this client may call, each in the form in which it is listed if it is."""
        scope = self._exposure.scope
        for ref, entry in zip(self.snapshot.tools.values(), self.snapshot.entries("tools"), strict=True):
            if ref.server != BRIDGE and (scope is None or scope.has(ref)):
                yield ref, self._entry(ref, entry, self._listed_at)

    def _level(self, tools: Sequence[_Tool]) -> Level:
        """The form of the definitions: the mildest, from the one that is asked for on, that the budget allows."""
        level, budget = self._exposure.slim, self._exposure.slim_budget
        for shorter in LEVELS[LEVELS.index(level) :] if budget else ():
            level = shorter
            if _tokens(self._entries(tools, level)) <= budget:
                break
        return level

    def _entries(self, tools: Iterable[_Tool], level: Level) -> Iterator[Entry]:
        for ref, entry in tools:
            yield self._entry(ref, entry, level)

    def _entry(self, ref: ToolRef, entry: Entry, level: Level) -> Entry:
        entry = _changed(entry, list(self._renaming(ref)))
        if ref.server != BRIDGE:
            entry = self._shorter(entry, level)
        return _changed(entry, list(self._changes(ref)))

    def _renaming(self, ref: ToolRef) -> Iterator[_Change]:
        """First of all, as the shortest form tells the name as well."""
        length = self._exposure.traits.name_length
        if length and len(ref.wire) > length:
            short = self._short(ref.wire, length)
            self.names[short] = ref.wire
            yield lambda definition: _put(definition, "name", encode(short))

    def _short(self, wire: str, length: int) -> str:
        """A name that no other tool has, whatever its server calls it to be taken for this one."""
        for number in count():
            hashed = fingerprint(wire, *([str(number)] if number else []))
            short = f"{wire[: length - len(hashed) - 1]}_{hashed}"
            if short not in self.snapshot.tools and self.names.get(short, wire) == wire:
                return short
        raise AssertionError("count() is endless")

    def _changes(self, ref: ToolRef) -> Iterator[_Change]:
        traits = self._exposure.traits
        if ref.server == BRIDGE:
            yield from self._own_changes(ref)
        if traits.description_length and len(ref.published) > traits.description_length:
            yield lambda definition: _capped(definition, traits.description_length)

    def _own_changes(self, ref: ToolRef) -> Iterator[_Change]:
        traits = self._exposure.traits
        meta: dict[str, object] = {}
        # `recall` always: previews of results name it, and a tool that the client has not loaded cannot be called.
        if traits.loads_marked and (self.mode == "search" or ref.name == "recall"):
            meta["anthropic/alwaysLoad"] = True
        if traits.result_length and ref.name == "recall":
            meta["anthropic/maxResultSizeChars"] = traits.result_length
        if meta:
            yield lambda definition: _put(definition, "_meta", encode(meta))
        if self._map and ref.name == "find_tools":
            yield self._with_map

    def _with_map(self, definition: bytes) -> bytes:
        said = Body(definition).text("description")
        return _put(definition, "description", encode(f"{said} {self._map}".strip()))


class Shorter:
    """Definitions of tools in shorter forms, each made once. May be called from several threads."""

    def __init__(self, had: Level, signature: Signature) -> None:
        """`had`: the form that the catalog has by itself. `signature`: how the shortest one shows arguments."""
        self._had, self._signature = had, signature
        self._entries: dict[tuple[bytes, Level], Entry] = {}
        self._size = 0

    def __call__(self, entry: Entry, level: Level) -> Entry:
        """The entry at this level."""
        if level == self._had:
            return entry
        key = entry.digest, level
        made = self._entries.get(key)
        if made is None:
            made = _changed(entry, [lambda definition: slimmed(definition, level, signature=self._signature)])
            self._size += len(made.legacy) + len(made.modern)
            if self._size > _MOST_MADE:
                self._entries.clear()
                self._size = 0
            self._entries[key] = made
        return made


_MOST_MADE = 64 << 20
"""Bytes of all that is kept."""


def _changed(entry: Entry, changes: Sequence[_Change]) -> Entry:
    if not changes:
        return entry
    legacy, modern = entry.legacy, entry.modern
    for change in changes:
        is_one = legacy is modern
        legacy = change(legacy)
        modern = legacy if is_one else change(modern)
    return replace(entry, legacy=legacy, modern=modern, digest=sha256(legacy + b"\0" + modern).digest())


def _capped(definition: bytes, limit: int) -> bytes:
    body = Body(Raw(definition))
    if "description" not in body:
        return definition
    said = body.text("description")
    cut = cap_description(said, limit)
    return definition if cut == said else _put(definition, "description", encode(cut))


def _put(definition: bytes, member: str, value: bytes) -> bytes:
    body = Body(Raw(definition))
    body.put(member, Raw(value))
    return bytes(body.data)


def _tokens(entries: Iterable[Entry]) -> int:
    return estimated_tokens(sum(len(entry.legacy) for entry in entries))


MOST = 64
"""Lists that are kept; the one not asked for longest goes first."""
_FEW = 100
"""Tools whose definitions are made shorter on the way."""
_MOST_CLIENTS = 1024
NOTHING = ProfileSettings(servers=["-"])
"""What a profile has that is there no more: no server has such a name."""
_LONGEST_NAME = 256

_Key = tuple[str, Audience, Exposure]


class Exposing:
    """Who is listed what. All methods are called on the event loop's thread."""

    def __init__(
        self,
        settings: ExposeSettings,
        profiles: Mapping[str, ProfileSettings],
        servers: Mapping[str, OfferSettings],
        catalog: Catalog,
        *,
        map_of: MapOf,
        signature: Signature,
        will_search: Callable[[], None],
        gone: Collection[str] = (),
    ) -> None:
        """`map_of` and `signature`: see `Exposed`. `will_search`: hears that somebody may search soon.

        `gone`: profiles that there were before the settings changed. Whoever came to their endpoints sees nothing now.
        """
        self._will_search = will_search
        self._settings, self._catalog = settings, catalog
        self.scopes = scopes_of(profiles, servers)
        """The profiles by name."""
        self._gone = {name: Scope(name, NOTHING, {}) for name in gone if name not in self.scopes}
        self._map_of, self._shorter = map_of, Shorter(settings.mildest, signature)
        self._exposures: dict[tuple[object, ...], Exposure] = {}
        self._cache: OrderedDict[_Key, Exposed] = OrderedDict()
        self._changed: dict[_Key, bool] = {}

    @property
    def profiles(self) -> Collection[str]:
        """Names of the profiles that clients may have come to, also of those that are there no more."""
        return {**self._gone, **self.scopes}.keys()

    def of_client(self, caller: Caller) -> Exposure:
        """What this client is listed at the endpoint that it came to."""
        roles = self._catalog.roles
        if roles is None:
            return self.of(caller.name, caller.view, caller.profile_name)
        audience = roles.of(caller.principal, caller.identity)
        names = tuple(role.name for role in roles.held(audience))
        return self.of(caller.name, caller.view, caller.profile_name, names, roles.profile(audience))

    def of(
        self, client: str, view: str = "", profile: str = "", roles: tuple[str, ...] = (), role_profile: str = ""
    ) -> Exposure:
        """What the client of this name is listed at an endpoint: of one server (`view`), of a profile, or of all.

        `roles`, `role_profile`: see `exposure_of`.
        """
        key = client, view, profile, roles, role_profile
        known = self._exposures.get(key)
        if known is None:
            scopes = {**self._gone, **self.scopes}
            known = exposure_of(
                self._settings,
                client,
                scopes,
                profile,
                is_one_server=bool(view),
                roles=roles,
                role_profile=role_profile,
            )
            if len(self._exposures) >= _MOST_CLIENTS:
                self._exposures.clear()
            if len(client) <= _LONGEST_NAME:
                self._exposures[key] = known
        return known

    def look(self, view: str, audience: Audience, exposure: Exposure) -> Exposed:
        """The list as of the last snapshot."""
        snapshot = self._catalog.view(view, audience)
        key = view, audience, exposure
        known = self._cache.get(key)
        if known is None or known.snapshot is not snapshot:
            known = self._exposed(snapshot, exposure)
            self._keep(key, known)
        self._cache.move_to_end(key)
        return known

    async def seen_by(self, view: str, audience: Audience, exposure: Exposure) -> Exposed:
        """The list as `look` has it, for somebody who only wants to know: made beside requests, and not kept."""
        snapshot = self._catalog.view(view, audience)
        known = self._cache.get((view, audience, exposure))
        if known is not None and known.snapshot is snapshot:
            return known
        return await anyio.to_thread.run_sync(self._exposed, snapshot, exposure)

    async def prepare(self, view: str, audience: Audience, exposure: Exposure) -> None:
        """Do what is slow about a list beside other requests, so that `look` is quick."""
        snapshot = self._catalog.view(view, audience)
        known = self._cache.get((view, audience, exposure))
        is_new = known is None or known.snapshot is not snapshot
        is_shorter = exposure.slim != self._settings.mildest or exposure.slim_budget > 0
        if is_new and is_shorter and len(snapshot.tools) > _FEW:
            self._keep((view, audience, exposure), await anyio.to_thread.run_sync(self._exposed, snapshot, exposure))

    def chosen(self, view: str, audience: Audience, exposure: Exposure, ids: Sequence[str]) -> Exposed:
        """The list for one request that wants these tools in it; it is not kept."""
        return self._exposed(self._catalog.view(view, audience), exposure, ids)

    def refresh(self, view: str) -> None:
        """Tools of a view of the catalog changed: find out whose list did. Ask `changed` after that."""
        self._changed = {key: changed for key, changed in self._changed.items() if key[0] != view}
        for key, before in list(self._cache.items()):
            if key[0] == view:
                after = self.look(*key)
                self._changed[key] = after.tools.digest != before.tools.digest

    def changed(self, view: str, audience: Audience, exposure: Exposure) -> bool:
        """Whether this list is another one since the last change of the view; for one that nobody looked at: it is."""
        return self._changed.get((view, audience, exposure), True)

    def _keep(self, key: _Key, exposed: Exposed) -> None:
        self._cache[key] = exposed
        if exposed.mode == "search":
            self._will_search()
        if len(self._cache) > MOST:
            self._cache.popitem(last=False)

    def _exposed(self, snapshot: Snapshot, exposure: Exposure, ids: Sequence[str] | None = None) -> Exposed:
        return Exposed(snapshot, exposure, map_of=self._map_of, shorter=self._shorter, chosen=ids)
