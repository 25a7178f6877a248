"""Decide about all that one server offers: what is as approved, what changed, and what of it is listed. Pure.

The cases, for each definition:

1. It has an approved digest: it is listed.
2. The policy warns: it is listed, and reported.
3. The policy holds, and another one is approved under the name: that one stays listed. Calls of a tool continue if the
   new input schema accepts all that the old one does; else they are refused.
4. The policy holds, and nothing is approved under the name: it is not listed, and cannot be called.

What a server does not have any more is reported, and not listed: nobody could answer for it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast

from msgspec import Struct

from mcpbridge.catalog.definitions.check import KINDS, Kind
from mcpbridge.catalog.definitions.pins.canonical import Ignored, canonical, digest
from mcpbridge.catalog.definitions.pins.changes import Change, classify
from mcpbridge.catalog.definitions.pins.lock_file import Pin, Pins, summary_of
from mcpbridge.catalog.definitions.pins.schema_inclusion import accepts_all_of

Effect = Literal["warned", "held", "refused", "unlisted"]
"""What becomes of a changed definition: it is listed and reported; the old one stays and works; the old one stays and
its calls are refused; it is not listed."""

KIND_NAMES: Mapping[Kind, str] = {
    "tools": "tool",
    "prompts": "prompt",
    "resources": "resource",
    "templates": "template",
}
"""How a kind is named in a lock file."""

_KEYS: Mapping[Kind, str] = {"tools": "name", "prompts": "name", "resources": "uri", "templates": "uriTemplate"}

Find = Callable[[str], bytes | None]
"""The definition of a digest; None: there is none."""


class Offered(Struct, frozen=True):
    """What a server offers and says of itself."""

    lists: Mapping[str, Sequence[bytes]]
    """By kind, each definition as it came; a kind that is missing was not asked for."""
    instructions: str = ""
    identity: Mapping[str, object] = {}
    """`name`, `title` and `version`; empty: not known."""
    origin: Mapping[str, object] = {}
    """What is started, or which host is asked; empty: not known."""

    def definitions(self) -> dict[str, bytes]:
        """Each definition by its key in a lock file. Of several under one name the first counts, as in the catalog."""
        found: dict[str, bytes] = {}
        for kind in KINDS:
            for raw in self.lists.get(kind, ()):
                if name := key_of(kind, raw):
                    found.setdefault(f"{KIND_NAMES[kind]}:{name}", raw)
        for key, value in (
            ("identity:", self.identity),
            ("origin:", self.origin),
            ("instructions:", self.instructions),
        ):
            if value:
                found[key] = json.dumps(value).encode()
        return found


class Changed(Struct, frozen=True):
    """One definition that is not as it was approved."""

    key: str
    """As in the lock file: `tool:create_issue`."""
    changes: tuple[Change, ...]
    effect: Effect

    @property
    def is_grave(self) -> bool:
        """A person should look at it first."""
        return any(change.is_grave for change in self.changes)

    def as_json(self) -> dict[str, Any]:
        """As JSON values."""
        kind, _, name = self.key.partition(":")
        changes = [
            {
                "meaning": one.meaning,
                "where": one.where,
                "before": one.before,
                "after": one.after,
                "grave": one.is_grave,
            }
            for one in self.changes
        ]
        return {"kind": kind, "name": name, "effect": self.effect, "changes": changes}


class Review(Struct, frozen=True):
    """What is decided of one offer."""

    lists: Mapping[str, tuple[bytes, ...]]
    """What is listed of it."""
    instructions: str
    """What clients are given of its instructions."""
    changed: tuple[Changed, ...] = ()
    refused: frozenset[str] = frozenset()
    """Names of tools whose calls are refused."""


def key_of(kind: Kind, raw: bytes) -> str:
    """The name or URI of a definition; empty: it has none."""
    try:
        value: object = json.loads(raw)
    except (ValueError, RecursionError):
        return ""
    name = cast("dict[str, object]", value).get(_KEYS[kind]) if isinstance(value, dict) else None
    return name if isinstance(name, str) else ""


def pins_of(offered: Offered, ignored: Ignored = ()) -> tuple[dict[str, Pin], dict[str, bytes]]:
    """The pins of all that is offered, and the definitions by their digests."""
    pins: dict[str, Pin] = {}
    definitions: dict[str, bytes] = {}
    for key, raw in offered.definitions().items():
        sum_ = digest(raw, ignored)
        pins[key] = Pin((sum_,), summary_of(key.partition(":")[0], raw))
        definitions[sum_] = raw
    return pins, definitions


def compare(
    offered: Offered, pins: Pins, find: Find, ignored: Ignored = (), others: Sequence[str] = ()
) -> dict[str, tuple[Change, ...]]:
    """Each definition that is not as approved, by key, and what changed. `others`: names of other servers' tools."""
    now = offered.definitions()
    found: dict[str, tuple[Change, ...]] = {}
    for key in sorted({*now, *pins}):
        kind = key.partition(":")[0]
        raw, pin = now.get(key), pins.get(key)
        if raw is None and not _is_asked(kind, offered):
            continue
        if raw is not None and pin is not None and digest(raw, ignored) in pin.digests:
            continue
        old = _old(pin, find) if pin is not None else None
        if pin is not None and old is None and raw is not None:
            found[key] = (Change("other member changed", "", "a definition that is missing from the lock directory"),)
            continue
        changes = classify(kind, old if pin is not None else None, raw, others)
        found[key] = changes or (Change("definition removed" if raw is None else "other member changed"),)
    return found


def review(
    offered: Offered,
    pins: Pins | None,
    find: Find,
    *,
    holds: bool,
    ignored: Ignored = (),
    others: Sequence[str] = (),
) -> Review:
    """Decide about an offer. `pins` None: nothing of this server is approved. `holds`: else changes are warned of."""
    changes = compare(offered, pins or {}, find, ignored, others)
    lists = {kind: tuple(raws) for kind, raws in offered.lists.items()}
    if not holds:
        warned = tuple(Changed(key, why, "warned") for key, why in changes.items())
        return Review(lists, offered.instructions, warned)
    now, instructions = offered.definitions(), offered.instructions
    effects: dict[str, Effect] = {}
    for kind in KINDS:
        if kind in lists:
            lists[kind] = tuple(_held(kind, lists[kind], changes, pins or {}, find, effects))
    if "instructions:" in changes and "instructions:" in now:
        old = _old((pins or {}).get("instructions:"), find)
        instructions = str(json.loads(old)) if old is not None else ""
        effects["instructions:"] = "held"
    changed = tuple(Changed(key, why, effects.get(key, "warned")) for key, why in changes.items())
    refused = frozenset(key.partition(":")[2] for key, effect in effects.items() if effect == "refused")
    return Review(lists, instructions, changed, refused)


def _held(
    kind: Kind,
    raws: Sequence[bytes],
    changes: Mapping[str, tuple[Change, ...]],
    pins: Pins,
    find: Find,
    effects: dict[str, Effect],
) -> list[bytes]:
    listed: list[bytes] = []
    for raw in raws:
        key = f"{KIND_NAMES[kind]}:{key_of(kind, raw)}"
        if key.endswith(":") and key not in changes:
            continue  # without a name it cannot be approved; the catalog would leave it out as well
        if key not in changes:
            listed.append(raw)
            continue
        if key in effects:
            continue
        old = _old(pins.get(key), find)
        if old is None:
            effects[key] = "unlisted"
            continue
        goes_on = kind != "tools" or accepts_all_of(_schema(old), _schema(raw))
        effects[key] = "held" if goes_on else "refused"
        listed.append(old)
    return listed


def _is_asked(kind: str, offered: Offered) -> bool:
    """Whether it is known of this kind that there is none."""
    of_lists = {name: of for of, name in KIND_NAMES.items()}
    if kind in of_lists:
        return of_lists[kind] in offered.lists
    return kind == "instructions" or bool(offered.identity if kind == "identity" else offered.origin)


def _old(pin: Pin | None, find: Find) -> bytes | None:
    """The definition that is approved, of several the first that is there."""
    return next((raw for one in pin.digests if (raw := find(one)) is not None), None) if pin is not None else None


def _schema(raw: bytes) -> bytes:
    value = json.loads(raw)
    return canonical(json.dumps(value.get("inputSchema", {})).encode())
