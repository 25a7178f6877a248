"""The entries of the registry, and the form in which the store keeps them: one JSON object for each server or tool.

Entries are written in the order of the fields of `Entry`, without those that have their default, under the handle
`SECTION/NAME` and the principal of their configuration. What an entry may hold is decided in `rules.py`.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import Struct, field

from mcpbridge.engine.registry.http_rules import Section
from mcpbridge.storage.store import Store, new_handle

Key = tuple[Section, str]
"""Section and name."""


class Entry(Struct, frozen=True, omit_defaults=True):
    """What was said of one server or tool."""

    section: Section
    name: str
    table: dict[str, Any] | None = None
    """As the configuration file would have it, variables not filled in; None: it is the file's."""
    disabled: bool | None = None
    """Switched off or on; None: as its table says."""
    tools: dict[str, bool] = {}
    """The same of single tools of it, by the server's own name: whether they are switched off."""
    removed: bool = False
    """The file has it, and it is taken out."""
    by: str = ""
    """Who said so last: `api:NAME`, `library`, …"""
    at: str = ""
    """When, in ISO 8601."""
    is_stored: bool = field(default=False, name="is_kept")
    """It outlives the bridge, in its store."""

    @property
    def key(self) -> Key:
        """Where it belongs."""
        return self.section, self.name

    @property
    def says_nothing(self) -> bool:
        """Without it everything would be the same."""
        return self.table is None and self.disabled is None and not self.tools and not self.removed


_KIND = "registry"
"""The kind of these entries in the store."""

_MARK = "registry-mark"
"""The kind, and the name, of a random value that is there as long as the store keeps its data."""

_REMOVED = "registry-removed"
"""The kind, under the same handles, of what says that an entry was taken out on purpose."""

_SECONDS = 3650 * 86400.0
"""How long they are kept."""
_REMOVED_SECONDS = 86400.0
"""How long it is known that one was taken out: within that every bridge has noticed that the store lost its data."""


class StoredEntries:
    """Those of one configuration: bridges with others share the store, but nothing of this."""

    def __init__(self, store: Store, owner: Callable[[], str]) -> None:
        """`owner`: names the configuration."""
        self._store, self._owner, self._mark = store, owner, b""

    async def all(self) -> list[bytes]:
        """What is kept, oldest first, as it was written.

        Raises:
            StoreFailed: it cannot be read.
        """
        owner = self._owner()
        known = await self._store.entries(_KIND, principal=owner)
        bodies = [await self._store.get(_KIND, one.handle, principal=owner) for one in known]
        return [body for body in bodies if body is not None]

    async def restore(self, known: Iterable[Entry]) -> bool:
        """Whether the store has lost its data since this was last called: then what is known is written down again.

        For bridges that share one store. What others have written there since stays as it is, and what they have taken
        out since stays out.

        Raises:
            StoreFailed: it cannot be read, or written.
        """
        owner, former = self._owner(), self._mark
        found = await self._store.get(_MARK, _MARK, principal=owner)
        if found is not None and found == former:
            return False
        if former:  # before the mark: who finds the new one finds these, too
            for entry in known:
                body, handle = msgspec.json.encode(entry), "/".join(entry.key)
                if await self._store.get(_REMOVED, handle, principal=owner) is not None:
                    continue
                await self._store.put_if_absent(_KIND, body, principal=owner, expires_in=_SECONDS, handle=handle)
        self._mark = await self._store.put_if_absent(
            _MARK, new_handle().encode(), principal=owner, expires_in=_SECONDS, handle=_MARK
        )
        return bool(former)

    async def change(self, before: Entry | None, after: Entry | None) -> None:
        """Keep what is said now in the place of what was said before; what is not to be kept is forgotten.

        Raises:
            StoreFailed, ValueTooLarge: it cannot be kept.
        """
        if after is not None and after.is_stored:
            body = msgspec.json.encode(after)
            handle = "/".join(after.key)
            await self._store.put(_KIND, body, principal=self._owner(), expires_in=_SECONDS, handle=handle)
        elif before is not None and before.is_stored:
            handle, owner = "/".join(before.key), self._owner()
            if self._mark:  # others that have not noticed a loss yet would write it down again
                seconds = _REMOVED_SECONDS
                await self._store.put(_REMOVED, b"1", principal=owner, expires_in=seconds, handle=handle)
            await self._store.drop(_KIND, handle, principal=owner)
