"""Kept results: put, found again, read, dropped. Each belongs to a principal, and nobody else sees it.

A handle is told from what it names (principal and bytes, with a secret of the store): the same result kept again has
the same handle, so that what a model is shown is the same bytes each time; and nobody can guess one.
"""

from collections.abc import Callable

from mcpbridge.results.card import Card
from mcpbridge.storage.store import Store

__all__ = ["RESULTS", "Shelf"]

RESULTS = "result"
"""The kind of value that results are in the store."""


class Shelf:
    """The results kept in a store."""

    def __init__(self, store: Store, *, lifetime: float, redact: Callable[[str], str] = lambda text: text) -> None:
        """`lifetime`: seconds that a result is kept after it was last used. `redact` masks secrets in cards."""
        self._store, self._lifetime, self._redact = store, lifetime, redact

    async def handle_of(self, data: bytes, *, principal: str) -> str:
        """The handle that `keep` gives these bytes; `[a-z2-7]{26}`, 128 bits."""
        raise NotImplementedError

    async def keep(self, data: bytes, card: Card, *, principal: str) -> None:
        """Keep the bytes of a result under `card.handle` (of `handle_of`). Kept again, it lives anew.

        Raises:
            ValueTooLarge, StoreFailed: it cannot be kept.
        """
        raise NotImplementedError

    async def get(self, handle: str, *, principal: str) -> bytes | None:
        """The result as the server sent it, and it counts as used; None if there is none for this principal."""
        raise NotImplementedError

    async def card(self, handle: str, *, principal: str) -> Card | None:
        """What is known of one; of results that have no card, the handle and times alone."""
        raise NotImplementedError

    async def cards(self, *, principal: str | None, search: str = "", limit: int = 50) -> list[Card]:
        """Those whose tool, arguments, outcome, headline or kind have all words of `search`; the newest first.

        `principal` None: of everybody, for who administers the bridge.
        """
        raise NotImplementedError

    async def drop(self, handle: str, *, principal: str) -> bool:
        """Forget one. False if there was none."""
        raise NotImplementedError
