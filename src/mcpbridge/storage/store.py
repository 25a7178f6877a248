"""The Store protocol: what must outlive a call or a process, by kind and handle (DESIGN, section 5).

Values are bytes. Each belongs to a principal and nobody else gets it, expires, and has a handle that cannot be guessed
unless the caller names one. Whether there is none, it has expired, or it is another's looks the same from outside.
"""

from dataclasses import dataclass
from typing import Protocol

__all__ = ["Entry", "Store"]


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known of one value without reading it. Times are seconds since 1970."""

    handle: str
    principal: str
    size: int
    """Bytes."""
    created: float
    expires: float


class Store(Protocol):
    """Values by kind (`result`, `grant`, `approval`, …) and handle. Handles given by the store are `[a-z2-7]{26}`."""

    async def put(self, kind: str, body: bytes, *, principal: str, expires_in: float, handle: str = "") -> str:
        """Keep a value for so many seconds; returns its handle.

        A given handle replaces what it named before for this principal. The store is bounded: beyond that the oldest
        values go, first those of the kind that takes the most room.

        Raises:
            ValueTooLarge: it is larger than all that may be kept.
            StoreFailed: it cannot be kept now. Not from the bridge's own store, which then keeps it in memory.
        """
        ...

    async def get(self, kind: str, handle: str, *, principal: str) -> bytes | None:
        """The value; None if there is none, or none any more, or it is another principal's."""
        ...

    async def take(self, kind: str, handle: str, *, principal: str) -> bytes | None:
        """As `get`, and it is gone afterwards: of several takers exactly one gets it."""
        ...

    async def drop(self, kind: str, handle: str, *, principal: str) -> bool:
        """Forget a value. False if there was none."""
        ...

    async def entries(self, kind: str, *, principal: str | None) -> list[Entry]:
        """What there is of a kind, oldest first. `principal` None: of everybody, for who administers the bridge."""
        ...

    async def close(self) -> None:
        """Finish what is under way and let go of files and connections."""
        ...
