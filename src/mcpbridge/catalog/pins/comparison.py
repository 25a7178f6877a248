"""What differs between a lock and what the servers show now, and the lock that agrees to it. Pure."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from mcpbridge.catalog.pins.changes import Change, changes
from mcpbridge.catalog.pins.definition import PIN_KINDS, Pin
from mcpbridge.catalog.pins.lock_file import Lock, PinKey, agreed
from mcpbridge.catalog.tool_names import names_of_others


@dataclass(frozen=True, slots=True)
class Difference:
    """One name under which a server shows what nobody agreed to, or nothing any more."""

    key: PinKey
    changes: tuple[Change, ...]
    """At least one."""
    definitions: tuple[bytes, ...]
    """What is under this name now, each in its one spelling; empty: it is gone."""


_LOST = Change("other", "", "the agreed definition is not in servers.lock.d any more")


def differences(
    lock: Lock, now: Mapping[str, Sequence[Pin]], definition_of: Callable[[str], bytes | None]
) -> list[Difference]:
    """All differences, in the order of the lock file. Servers that `now` does not have are left as they are.

    `definition_of`: the agreed definition with a digest; None if it is lost.
    """
    shown: dict[PinKey, list[bytes]] = {}
    for server, pins in now.items():
        for one in pins:
            shown.setdefault(PinKey(server, one.kind, one.name), []).append(one.definition)
    tools: dict[str, set[str]] = {}
    for key in (*shown, *lock.entries):
        if key.kind == "tools":
            tools.setdefault(key.server, set()).add(key.name)
    others = names_of_others({**dict.fromkeys(now, ()), **tools})
    keys = {*shown, *(key for key in lock.entries if key.server in now)}
    found: list[Difference] = []
    for key in sorted(keys, key=lambda key: (key.server, PIN_KINDS.index(key.kind), key.name)):
        definitions = tuple(shown.get(key, ()))
        entry = lock.entries.get(key)
        digests = entry.digests if entry is not None else ()
        new = [one for one in definitions if sha256(one).hexdigest() not in digests]
        if not new and (definitions or _may_be_unknown(key)):
            continue
        was_changed = _changes(key, digests, new, definition_of, others[key.server])
        found.append(Difference(key, was_changed, definitions))
    return found


def missing_texts(
    lock: Lock, servers: Collection[str], definition_of: Callable[[str], bytes | None]
) -> dict[PinKey, tuple[str, ...]]:
    """Of what was agreed to of these servers: the digests of which the definition is lost, in the order of the lock."""
    found: dict[PinKey, tuple[str, ...]] = {}
    for key in sorted(lock.entries, key=lambda key: (key.server, PIN_KINDS.index(key.kind), key.name)):
        if key.server in servers:
            lost = tuple(one for one in lock.entries[key].digests if definition_of(one) is None)
            if lost:
                found[key] = lost
    return found


def _may_be_unknown(key: PinKey) -> bool:
    """Whether a machine may not say what this is now: only Linux tells which package runs."""
    return key.kind == "server" and key.name == "package"


def accept(lock: Lock, changed: Iterable[Difference]) -> Lock:
    """The lock that agrees to these differences too; everything else in it stays."""
    entries = dict(lock.entries)
    for one in changed:
        if one.definitions:
            entries[one.key] = agreed(one.definitions)
        else:
            entries.pop(one.key, None)
    return Lock(entries)


def _changes(
    key: PinKey,
    digests: Sequence[str],
    new: Sequence[bytes],
    definition_of: Callable[[str], bytes | None],
    others: Collection[str],
) -> tuple[Change, ...]:
    if not new:
        return (Change("removed"),)
    if not digests:
        return (Change("added"),)
    old = next((one for digest in digests if (one := definition_of(digest)) is not None), None)
    if old is None:
        return (_LOST,)
    found = (change for one in new for change in changes(key.kind, key.name, old, one, others=others))
    return tuple(dict.fromkeys(found)) or (Change("other"),)
