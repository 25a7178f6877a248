"""The entries of the registry that outlive the bridge, in its store."""

from collections.abc import Callable

import msgspec

from mcpbridge.overlay import Entry
from mcpbridge.storage.store import Store

__all__ = ["KeptEntries"]

_KIND = "registry"
_SECONDS = 3650 * 86400.0


class KeptEntries:
    """Those of one configuration: bridges with others share the store, but nothing of this."""

    def __init__(self, store: Store, owner: Callable[[], str]) -> None:
        """`owner`: tells the configuration."""
        self._store, self._owner = store, owner

    async def all(self) -> list[bytes]:
        """What is kept, oldest first, as it was written.

        Raises:
            StoreFailed: it cannot be read.
        """
        owner = self._owner()
        known = await self._store.entries(_KIND, principal=owner)
        bodies = [await self._store.get(_KIND, one.handle, principal=owner) for one in known]
        return [body for body in bodies if body is not None]

    async def change(self, before: Entry | None, after: Entry | None) -> None:
        """Keep what is said now in the place of what was said before; what is not to be kept is forgotten.

        Raises:
            StoreFailed, ValueTooLarge: it cannot be kept.
        """
        if after is not None and after.is_kept:
            body = msgspec.json.encode(after)
            handle = "/".join(after.key)
            await self._store.put(_KIND, body, principal=self._owner(), expires_in=_SECONDS, handle=handle)
        elif before is not None and before.is_kept:
            await self._store.drop(_KIND, "/".join(before.key), principal=self._owner())
