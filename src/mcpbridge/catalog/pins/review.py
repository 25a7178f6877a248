"""Decide what of a server's offer is listed, by what was agreed to of it. Pure.

The cases, for each definition:

1. It is as agreed, or only its wording differs and may (`pin_ignore`): it is listed.
2. The policy warns: it is listed, and reported.
3. The policy holds, and something was agreed to under its name: that stays listed. Whether calls of such a tool
   continue is decided in `held_calls.py`.
4. The policy holds, and nothing was agreed to under its name: it is not listed.

What the server does not have any more is reported and not listed, as nobody could answer for it. Its name, version,
command and address cannot be held: changes of them are reported.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Any, Literal, Protocol, cast

import msgspec

from mcpbridge.catalog.definitions.check import KINDS, Kind
from mcpbridge.catalog.pins.changes import Change, changes
from mcpbridge.catalog.pins.definition import Fact, PinKind
from mcpbridge.catalog.pins.held_calls import HeldTool
from mcpbridge.catalog.pins.lock_file import Lock
from mcpbridge.catalog.pins.server_pins import name_of
from mcpbridge.protocol.canonical_json import canonical

Effect = Literal["warned", "held", "checked", "refused", "unlisted"]
"""What becomes of a change. `warned`: it is listed. `held`: what was agreed to stays listed, and works. `checked`: so,
and each call passes or not by its arguments. `refused`: so, and calls are refused. `unlisted`: it is not listed."""

PIN_LISTS: tuple[Kind, ...] = KINDS
"""The kinds of lists that are reviewed."""
WORDING = frozenset({"text", "instructions-grown"})
"""The classes of change that `pin_ignore` allows."""
MOST_COMPARED = 300
"""Definitions of one list that are compared with the agreed ones in a review. What differs beyond is not classed, so
that a server that changes everything does not keep the bridge from its work; its calls are refused where it is held."""
_UNSEEN = Change("other", "", "not compared: too much has changed at once; `mcpbridge lock diff` shows it")
_LOST = Change("other", "", "the agreed definition is not in servers.lock.d any more")


@dataclass(frozen=True, slots=True)
class Finding:
    """One name under which a server shows what nobody agreed to, or nothing any more."""

    kind: PinKind
    name: str
    """As the server knows it; empty: nothing of the server was agreed to."""
    changes: tuple[Change, ...]
    """At least one."""
    effect: Effect


class Baseline(Protocol):
    """What was agreed to of one server."""

    def names(self, kind: PinKind) -> Collection[str] | None:
        """The names that it has of this kind; None: nothing was looked at, so that nothing of it is new or gone."""
        ...

    def agrees(self, kind: PinKind, name: str, definition: bytes) -> bool:
        """Whether this definition, as it came, is agreed to."""
        ...

    def definition(self, kind: PinKind, name: str) -> bytes | None:
        """A definition that is agreed to under this name; None: there is none."""
        ...


class LockBaseline:
    """What `servers.lock` has of one server."""

    def __init__(self, lock: Lock, server: str, definition_of: Callable[[str], bytes | None]) -> None:
        """`definition_of`: the agreed definition with a digest; None if it is lost."""
        self._digests: dict[PinKind, dict[str, tuple[str, ...]]] = {}
        for key, entry in lock.entries.items():
            if key.server == server:
                self._digests.setdefault(key.kind, {})[key.name] = entry.digests
        self._definition_of = definition_of

    @property
    def is_empty(self) -> bool:
        """Nothing of the server is in the lock."""
        return not self._digests

    def names(self, kind: PinKind) -> Collection[str]:
        """See `Baseline`."""
        return self._digests.get(kind, {})

    def agrees(self, kind: PinKind, name: str, definition: bytes) -> bool:
        """See `Baseline`."""
        digests = self._digests.get(kind, {}).get(name, ())
        return bool(digests) and sha256(canonical(definition)).hexdigest() in digests

    def definition(self, kind: PinKind, name: str) -> bytes | None:
        """See `Baseline`."""
        digests = self._digests.get(kind, {}).get(name, ())
        return next((one for digest in digests if (one := self._definition_of(digest)) is not None), None)


class SightBaseline:
    """What was seen of one server first."""

    def __init__(self, seen: Mapping[PinKind, Mapping[str, bytes]]) -> None:
        """`seen`: by kind and name, each definition as it came."""
        self._seen = seen

    def names(self, kind: PinKind) -> Collection[str] | None:
        """See `Baseline`."""
        return self._seen.get(kind)

    def agrees(self, kind: PinKind, name: str, definition: bytes) -> bool:
        """See `Baseline`."""
        known = self.definition(kind, name)
        return known is not None and (known == definition or canonical(known) == canonical(definition))

    def definition(self, kind: PinKind, name: str) -> bytes | None:
        """See `Baseline`."""
        return self._seen.get(kind, {}).get(name)


@dataclass(frozen=True, slots=True)
class Rules:
    """How a server is reviewed."""

    holds: bool
    """False: it is warned of changes."""
    ignore: tuple[str, ...] = ()
    """Globs on names of which the wording may change."""

    def allows(self, name: str, changed: Iterable[Change]) -> bool:
        """Whether all that changed is the wording of something of which that may change."""
        is_ignored = any(fnmatchcase(name, glob) for glob in self.ignore)
        return is_ignored and all(one.what in WORDING for one in changed)


@dataclass(frozen=True, slots=True)
class ListReview:
    """What is decided of the lists of a server."""

    lists: Mapping[str, tuple[bytes, ...]]
    """What is listed, by kind."""
    findings: tuple[Finding, ...] = ()
    held: Mapping[str, HeldTool] = field(default_factory=dict[str, HeldTool])
    """By name, the tools of which another definition is listed than the server has now."""
    agreed: Mapping[str, Mapping[bytes, str]] = field(default_factory=dict[str, Mapping[bytes, str]])
    """By kind, the definitions that are as agreed, with their names."""


def review_lists(
    lists: Mapping[str, tuple[bytes, ...]],
    baseline: Baseline,
    rules: Rules,
    others: Callable[[], Collection[str]],
    known: Mapping[str, Mapping[bytes, str]] = {},
) -> ListReview:
    """Decide about all definitions. Never raises.

    `others`: names of other servers' tools, which a new text may refer to; asked only where something has changed.
    `known`: what was found to be as agreed in an earlier review with the same baseline and rules.
    """
    shown: dict[str, tuple[bytes, ...]] = {}
    findings: list[Finding] = []
    held: dict[str, HeldTool] = {}
    agreed: dict[str, Mapping[bytes, str]] = {}
    for kind, definitions in lists.items():
        names = baseline.names(cast("PinKind", kind)) if kind in KINDS else None
        if names is None:
            shown[kind] = definitions
            continue
        reading = _Reading(cast("Kind", kind), baseline, rules, others, known.get(kind, {}))
        shown[kind] = reading.read(definitions, names)
        findings += reading.findings
        held |= reading.held
        agreed[kind] = reading.agreed
    findings.sort(key=lambda one: (KINDS.index(cast("Kind", one.kind)), one.name))
    return ListReview(shown, tuple(findings), held, agreed)


class _Reading:
    """The review of one list."""

    def __init__(
        self,
        kind: Kind,
        baseline: Baseline,
        rules: Rules,
        others: Callable[[], Collection[str]],
        known: Mapping[bytes, str],
    ) -> None:
        self._kind: Kind = kind
        self._baseline, self._rules, self._others, self._known = baseline, rules, others, known
        self._compared = 0
        self.findings: list[Finding] = []
        self.held: dict[str, HeldTool] = {}
        self.agreed: dict[bytes, str] = {}

    def read(self, definitions: Sequence[bytes], names: Collection[str]) -> tuple[bytes, ...]:
        """What is listed of these; `names`: those that are agreed to."""
        listed: list[bytes] = []
        seen: set[str] = set()
        for definition in definitions:
            known = self._known.get(definition)
            name = known or name_of(self._kind, definition)
            if not name:
                if not self._rules.holds:
                    listed.append(definition)  # the catalog says what is wrong with it
                continue
            if name in seen and self._rules.holds:
                continue  # the first of a name counts, as in the catalog
            shown: bytes | None = definition
            if known or self._baseline.agrees(self._kind, name, definition):
                self.agreed[definition] = name
            elif name not in seen:
                shown = self._changed(name, definition)
            seen.add(name)
            if shown is not None:
                listed.append(shown)
        for name in names:
            if name not in seen:
                self.findings.append(Finding(self._kind, name, (Change("removed"),), "warned"))
        return tuple(listed)

    def _changed(self, name: str, definition: bytes) -> bytes | None:
        """What is listed in the place of a definition that nobody agreed to; None: nothing."""
        old = self._baseline.definition(self._kind, name)
        if old is not None:
            self._compared += 1
        if self._compared > MOST_COMPARED:
            found: tuple[Change, ...] = (_UNSEEN,)
        else:
            found = _changes(self._kind, name, old, definition, self._baseline, self._others)
        if old is not None and self._rules.allows(name, found):
            return definition
        if not self._rules.holds:
            self.findings.append(Finding(self._kind, name, found, "warned"))
            return definition
        if old is None:
            self.findings.append(Finding(self._kind, name, found, "unlisted"))
            return None
        effect: Effect = "held"
        if self._kind == "tools":
            tool = self.held[name] = HeldTool.of(name, old, definition, found)
            effect = tool.effect
        self.findings.append(Finding(self._kind, name, found, effect))
        return old


@dataclass(frozen=True, slots=True)
class FactReview:
    """What is decided of what a server says of itself."""

    instructions: str
    """What clients are given."""
    findings: tuple[Finding, ...] = ()


def review_instructions(instructions: str, baseline: Baseline, rules: Rules) -> FactReview:
    """Decide about the instructions of a server. Never raises."""
    names = baseline.names("server")
    if names is None:
        return FactReview(instructions)
    if not instructions:
        gone = Finding("server", "instructions", (Change("removed"),), "warned")
        return FactReview("", (gone,) if "instructions" in names else ())
    definition = msgspec.json.encode(instructions)
    if baseline.agrees("server", "instructions", definition):
        return FactReview(instructions)
    old = baseline.definition("server", "instructions")
    found = _changes("server", "instructions", old, definition, baseline, lambda: ())
    if old is not None and rules.allows("instructions", found):
        return FactReview(instructions)
    if not rules.holds:
        return FactReview(instructions, (Finding("server", "instructions", found, "warned"),))
    shown = _text(old)
    return FactReview(shown, (Finding("server", "instructions", found, "held" if shown else "unlisted"),))


def review_facts(facts: Mapping[Fact, bytes], baseline: Baseline) -> tuple[Finding, ...]:
    """What differs in the name and version of a server, how it is started and where it is. Never raises.

    `facts`: those that are known, as JSON. One that nothing is known of in `baseline` is no change.
    """
    names = baseline.names("server") or ()
    found: list[Finding] = []
    for fact, value in facts.items():
        if fact in names and not baseline.agrees("server", fact, value):
            old = baseline.definition("server", fact)
            found.append(Finding("server", fact, _changes("server", fact, old, value, baseline, lambda: ()), "warned"))
    return tuple(found)


def unknown_server(lists: Mapping[str, tuple[bytes, ...]], rules: Rules) -> ListReview:
    """What is decided of a server of which nothing is in the lock."""
    finding = Finding("server", "", (Change("added"),), "unlisted" if rules.holds else "warned")
    return ListReview(dict.fromkeys(lists, ()) if rules.holds else lists, (finding,))


def title_of(baseline: Baseline) -> str:
    """The title of the server in the name and version that were agreed to; empty: it has none."""
    try:
        identity: Any = msgspec.json.decode(baseline.definition("server", "identity") or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    texts: Iterable[object] = (cast("dict[str, object]", identity).get(member) for member in ("title", "name"))
    return next((text for text in texts if isinstance(text, str) and text), "")


def _changes(
    kind: PinKind,
    name: str,
    old: bytes | None,
    new: bytes,
    baseline: Baseline,
    others: Callable[[], Collection[str]],
) -> tuple[Change, ...]:
    if old is None:
        return (_LOST,) if name in (baseline.names(kind) or ()) else (Change("added"),)
    return changes(kind, name, old, new, others=others()) or (Change("other"),)


def _text(definition: bytes | None) -> str:
    try:
        value: object = msgspec.json.decode(definition) if definition is not None else ""
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    return value if isinstance(value, str) else ""
