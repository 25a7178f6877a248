"""What was changed over the API or by a program while bridges run, in words; and what of that is in a command's way.

Such changes lie over the configuration file (`engine/registry/overlay.py`), so what a command writes there may have no
effect.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import anyio
import msgspec

from mcpbridge.app.cli.running_bridges import survey
from mcpbridge.app.cli.server_states import State, describe_change
from mcpbridge.base.errors import BridgeError
from mcpbridge.config.load import read
from mcpbridge.engine.registry.format import Entry, StoredEntries
from mcpbridge.engine.registry.overlay import entry_status
from mcpbridge.storage.open_store import LazyStore
from mcpbridge.storage.settings import store_path
from mcpbridge.storage.sqlite.database import may_exist

Wish = Literal["there", "gone", "on", "off"]
"""What a command wants to come to."""


def changes_over(path: Path) -> Sequence[State]:
    """All that lies over this configuration: what the bridges say that run with it, else what is kept in its store."""
    bridges = survey(path).bridges
    if not bridges:
        with suppress(BridgeError):  # a store that cannot be read: no bridge can either, and it says so
            return _stored_changes(path)
        return []
    found: dict[str, State] = {}
    for bridge in bridges:
        added: object = bridge.status.get("added")
        for said in added if isinstance(added, list) else []:  # pyright: ignore[reportUnknownVariableType] - JSON
            found[describe_change(said)] = said  # pyright: ignore[reportUnknownArgumentType] - JSON
    return list(found.values())


def _stored_changes(path: Path) -> Sequence[State]:
    settings = read(path, os.environ).settings
    kind = settings.store.kind
    if kind == "memory" or (kind == "sqlite" and not may_exist(store_path(settings.store))):
        return []  # looking makes no file

    async def looking() -> list[bytes]:
        store = LazyStore(settings.store)
        try:
            return await StoredEntries(store, lambda: f"config:{settings.source or ''}").all()
        finally:
            await store.close()

    entries: list[Entry] = []
    for kept in anyio.run(looking):
        with suppress(msgspec.DecodeError):
            entries.append(msgspec.json.decode(kept, type=Entry))
    return [entry_status(entry, settings) for entry in entries]


def holds_against(change: State, tool: str, wish: Wish) -> bool:
    """Whether what was said of a server or tool is in the way of what is wished of it, or of this tool of it."""
    if change.get("hidden"):
        return False
    if change["said"] in ("added", "replaced"):
        return True
    if change["said"] == "removed":
        return wish in ("there", "on")
    is_off = change.get("tools", {}).get(tool) if tool else change.get("disabled")
    return is_off is not None and wish != "gone" and is_off == (wish != "off")


def how_to_undo(change: State, tool: str, wish: Wish) -> str:
    """The request that has a running bridge come to what is wished."""
    at = f"/api/tools/{change['name']}/{tool}" if tool else f"/api/{change['section']}/{change['name']}"
    if change["said"] in ("added", "replaced"):
        return f"`DELETE {at}` takes that out."
    return f'`PATCH {at} {{"enabled": {"false" if wish == "off" else "true"}}}` changes it.'
