"""Choose what is used of the lists of one upstream: `include`, `exclude`, `disabled`, and at most 5,000 of a kind.

One server at a time: that names of several servers clash is for `snapshot.py` to see.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from msgspec import Struct, field

from mcpbridge.base.hidden_text import without_hidden
from mcpbridge.catalog.definitions.cache import ServerDefinitions
from mcpbridge.catalog.definitions.check import KINDS, Changes, Definition, Kind, Unusable, check
from mcpbridge.core.source_settings import NameFilter, OfferSettings
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.upstream.settings import ServerSettings

if TYPE_CHECKING:  # most catalogs are built without a scan
    from mcpbridge.catalog.definitions.scanner.finding import Finding, Scanned

MOST = 5_000
"""Definitions of one kind that one server may list; the rest is left out."""

_LONGEST_NAME_SHOWN = 200
_NO_CHANGES: Changes = {}


class Withheld(Struct, frozen=True):
    """Something that a server has, that is left out of its offer, and why."""

    kind: Kind
    name: str
    reason: str


class Offer(Struct, frozen=True):
    """What one upstream offers now: its raw definitions, each the bytes as they came."""

    server: str
    tools: tuple[bytes, ...] = ()
    prompts: tuple[bytes, ...] = ()
    resources: tuple[bytes, ...] = ()
    templates: tuple[bytes, ...] = ()
    ttl_ms: Mapping[Kind, int] = field(default_factory=dict[Kind, int])
    """Milliseconds that the server says a list of its stays fresh; of the kinds that it says it of."""
    runs_tasks: bool = False
    """It takes calls of tools as tasks (2025-11-25), so what its tools say of that is shown."""
    withheld: tuple[Withheld, ...] = ()
    """What it has besides, and nobody agreed to."""

    def of(self, kind: Kind) -> tuple[bytes, ...]:
        """The definitions of one kind."""
        return {"tools": self.tools, "prompts": self.prompts, "resources": self.resources}.get(kind, self.templates)


class Dropped(Struct, frozen=True):
    """Something that a server offers and clients do not see, and why."""

    server: str
    kind: Kind
    name: str
    """As the server calls it, shortened; empty when it could not be read."""
    reason: str
    field: str | None = None
    """The member that was left out or mended; None when the whole definition was left out."""


class Item(Struct, frozen=True, gc=False):
    """A definition that passed, and what the configuration makes of it."""

    name: str
    """What it is called behind the server's prefix; the URI or template for resources."""
    definition: Definition
    changes: Changes


class Accepted(Struct, frozen=True):
    """An offer after all checks, each kind in canonical order."""

    server: str
    items: Mapping[Kind, tuple[Item, ...]]
    hidden: Mapping[Kind, frozenset[str]]
    """Keys of what the configuration hides."""
    dropped: tuple[Dropped, ...]
    checked: Mapping[tuple[Kind, bytes], Definition | Unusable]
    """What `check` said of each definition, for the next time: lists mostly repeat themselves."""


HELD = "held for suspicious text"
"""How the reason begins for which a definition of a server with `text_trust = "low"` is left out."""


UNAPPROVED = "held: nobody agreed to it"
"""How the reason begins for which a definition that is not pinned is left out."""


def advice(server: str, name: str) -> str:
    """How a finding is looked at and accepted."""
    return (
        f"look at it with `mcpbridge scan {server}`, then accept it with "
        f'`accept_findings = ["{name[:_LONGEST_NAME_SHOWN]}"]` in [servers.{server}]'
    )


def not_accepted(name: str, findings: Sequence["Finding"], accepted: Sequence[str]) -> list["Finding"]:
    """The findings that nobody has accepted; `accepted`: see `accept_findings`."""
    return [
        one
        for one in findings
        if not any(fnmatchcase(name, glob) or fnmatchcase(f"{name}:{one.rule}", glob) for glob in accepted)
    ]


def lets_through(names: NameFilter, *spellings: str) -> bool:
    """Whether one of the spellings is included and none excluded."""
    return matches_any(names.include, *spellings) and not matches_any(names.exclude, *spellings)


def matches_any(globs: Iterable[str], *spellings: str) -> bool:
    """Whether one of the globs matches one of the spellings. Case counts, on every system."""
    return any(fnmatchcase(spelling, glob) for glob in globs for spelling in spellings)


def accept(
    offer: Offer,
    settings: OfferSettings | None,
    before: Accepted | None = None,
    known: ServerDefinitions | None = None,
    *,
    others: Collection[str] = (),
) -> Accepted:
    """Check an offer.

    `before`: this server's last one under the same settings, `known`: what earlier runs found, `others`: names of tools
    that only other servers have.
    """
    reading = _Reading(offer.server, settings, before, known, others)
    items: dict[Kind, tuple[Item, ...]] = {kind: reading.read(kind, offer.of(kind)) for kind in KINDS}
    for one in offer.withheld:
        reading.drop(one.kind, one.name, one.reason)
    hidden: dict[Kind, frozenset[str]] = {kind: frozenset(keys) for kind, keys in reading.hidden.items()}
    return Accepted(offer.server, items, hidden, tuple(reading.dropped), reading.checked)


def _scan(raw: bytes) -> "Scanned":
    from mcpbridge.catalog.definitions.scanner.scan import read  # loaded with the first text that is not known

    return read(raw)


class _Reading:
    """The state of one `accept`."""

    def __init__(
        self,
        server: str,
        settings: OfferSettings | None,
        before: Accepted | None,
        known: ServerDefinitions | None,
        others: Collection[str],
    ) -> None:
        self.others, self.cache = others, known
        self.check = check if known is None else known.check
        self.server = server
        self.settings = settings
        self.over_http = settings is not None and settings.is_over_http
        self.known: Mapping[tuple[Kind, bytes], Definition | Unusable] = before.checked if before else {}
        self.checked: dict[tuple[Kind, bytes], Definition | Unusable] = {}
        self.hidden: dict[Kind, set[str]] = {kind: set[str]() for kind in KINDS}
        self.dropped: list[Dropped] = []

    def read(self, kind: Kind, offered: tuple[bytes, ...]) -> tuple[Item, ...]:
        if len(offered) > MOST:
            self.drop(kind, "", f"{len(offered) - MOST} of {len(offered)} left out: a server may list {MOST}")
        shown = [self._configured(definition) for definition in self._usable(kind, offered[:MOST])]
        # A tool that has the name by itself comes before one that was renamed to it.
        shown.sort(key=lambda item: (item.name, item.name != item.definition.key, item.definition.key))
        return tuple(self._first_of_each(kind, shown))

    def _usable(self, kind: Kind, offered: Iterable[bytes]) -> Iterator[Definition]:
        """The definitions that can be listed and that the configuration does not hide, once each."""
        seen: set[str] = set()
        for raw in offered:
            found = self.known.get((kind, raw))
            if found is None:
                found = self.check(kind, raw, over_http=self.over_http)
            self.checked[kind, raw] = found
            if isinstance(found, Unusable):
                self.drop(kind, found.name, found.reason)
                continue
            if found.key in seen:
                self.drop(kind, found.key, "listed before under the same name")
                continue
            seen.add(found.key)
            if self._is_hidden(found):
                self.hidden[kind].add(found.key)
                continue
            if self.settings is not None and self.settings.text_trust == "low" and (reason := self._held(found)):
                self.hidden[kind].add(found.key)
                self.drop(kind, found.key, reason)
                continue
            for member, fault in found.faults:
                self.drop(kind, found.key, fault, member)
            yield found

    def _held(self, definition: Definition) -> str:
        """Why a definition of a server that is not trusted is held; empty: it is not."""
        assert self.settings is not None
        scanned = self.cache.scan(definition.raw, _scan) if self.cache is not None else _scan(definition.raw)
        findings = not_accepted(definition.key, scanned.beside(self.others), self.settings.accept_findings)
        rules = ", ".join(sorted({one.rule for one in findings}))
        return f"{HELD}: {rules}; {advice(self.server, definition.key)}" if findings else ""

    def _is_hidden(self, definition: Definition) -> bool:
        if self.settings is None:
            return False
        if definition.kind == "tools":
            tool = self.settings.tool.get(definition.key)
            return not lets_through(self.settings.tools, definition.key) or (tool is not None and tool.disabled)
        if not isinstance(self.settings, ServerSettings):
            return False
        if definition.kind == "prompts":
            return not lets_through(self.settings.prompts, definition.key)
        return not lets_through(self.settings.resources, definition.key, definition.name)

    def _configured(self, definition: Definition) -> Item:
        tool = self.settings.tool.get(definition.key) if self.settings and definition.kind == "tools" else None
        name = definition.key
        if definition.kind in ("tools", "prompts"):
            name = without_hidden(name) or name
        if tool is None:
            return Item(name, definition, _NO_CHANGES)
        changes = _NO_CHANGES if tool.description is None else {"description": encode(tool.description)}
        return Item(tool.rename or name, definition, changes)

    def _first_of_each(self, kind: Kind, items: Iterable[Item]) -> Iterator[Item]:
        last: str | None = None
        for item in items:
            if item.name == last:
                self.drop(kind, item.definition.key, f"renamed to {last!r}, which another tool is called")
            else:
                yield item
            last = item.name

    def drop(self, kind: Kind, name: str, reason: str, member: str | None = None) -> None:
        """Note what is left out."""
        self.dropped.append(Dropped(self.server, kind, name[:_LONGEST_NAME_SHOWN], reason, member))
