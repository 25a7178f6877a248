"""Which settings need a restart of the bridge, and what a reload changed. Pure.

Nearly everything takes effect. What a running process cannot change (files that are open, addresses that are taken,
what clients know for good) stays as it was, and is named, so that people know that it takes a restart.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from pydantic import BaseModel

from mcpbridge.config.schema import Settings

NEEDS_RESTART: Mapping[str, frozenset[str]] = {
    "bridge": frozenset({"name", "startup_wait"}),
    "limits": frozenset({"max_frame"}),
    "http": frozenset(),
    "auth": frozenset(),
    "observe": frozenset({"max_tools", "max_clients"}),
    "questions": frozenset({"state_key"}),
    "store": frozenset(),
    "fleet": frozenset(),
    "call_log": frozenset({"path"}),
    "daemon": frozenset({"idle_exit", "http", "warm_up", "revalidate"}),
}
"""By section, the keys that take effect only when the bridge starts; an empty set stands for all of them."""


class Reloaded(Struct, frozen=True):
    """What a reload changed. Servers are named, sorted; all is empty where nothing changed."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    """Those that were started anew, since what is started or connected to is another thing now."""
    kept: tuple[str, ...] = ()
    """Those that run on under new settings."""
    sections: tuple[str, ...] = ()
    """The other sections of the file in which something changed that is in effect now."""
    needs_restart: tuple[str, ...] = ()
    """Keys, such as `store.path`, that differ from what the bridge runs with, and take effect when it starts anew."""

    def __bool__(self) -> bool:
        return any((self.added, self.removed, self.replaced, self.kept, self.sections))

    def to_json(self) -> dict[str, list[str]]:
        """As JSON values, without what is empty."""
        names = ("added", "removed", "replaced", "kept", "sections", "needs_restart")
        return {name: list(found) for name in names if (found := getattr(self, name))}


def in_effect(running: Settings, wanted: Settings) -> tuple[Settings, tuple[str, ...]]:
    """What a bridge that runs with `running` can have of `wanted`, and the keys that it cannot."""
    kept: dict[str, Any] = {}
    keys: list[str] = []
    for section, names in NEEDS_RESTART.items():
        before, after = getattr(running, section), getattr(wanted, section)
        differing = [name for name in _differing(before, after) if not names or name in names]
        if differing:
            keys += [f"{section}.{name}" for name in differing]
            kept[section] = after.model_copy(update={name: getattr(before, name) for name in differing})
    return (wanted.model_copy(update=kept) if kept else wanted), tuple(keys)


def changed_sections(before: Settings, after: Settings) -> tuple[str, ...]:
    """The sections that differ, `servers` left out."""
    return tuple(name for name in _differing(before, after) if name not in ("servers", "source"))


def _differing(before: BaseModel, after: BaseModel) -> list[str]:
    return [name for name in type(before).model_fields if getattr(before, name) != getattr(after, name)]
