"""A `Store` in memory: for bridges that shall leave nothing behind, and for when the file cannot be used."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from mcpbridge.errors import ValueTooLarge
from mcpbridge.storage.handles import new_handle
from mcpbridge.storage.store import Entry

__all__ = ["MemoryStore"]

_MAX_BYTES = 64 * 1024**2
_ROOM = 512
"""Bytes that a value takes besides its body, roughly, so that many empty ones are bounded too."""
_SWEEP = 60.0
"""Seconds between two sweeps; they happen when something is kept."""


@dataclass(frozen=True, slots=True)
class _Value:
    body: bytes
    created: float
    expires: float

    @property
    def room(self) -> int:
        return len(self.body) + _ROOM


_Names = dict[tuple[str, str], _Value]
"""Values of one kind by principal and handle, oldest first."""


class MemoryStore:
    """Values for as long as the process lives. See `Store` for the methods' promises."""

    def __init__(self, *, max_bytes: int = _MAX_BYTES, clock: Callable[[], float] = time.time) -> None:
        """`max_bytes`: of all values; beyond it the oldest of the kind that takes the most room go first."""
        self._max_bytes = max_bytes
        self._clock = clock
        self._kinds: dict[str, _Names] = {}
        self._rooms: dict[str, int] = {}
        self._sweep_at = 0.0

    async def put(self, kind: str, body: bytes, *, principal: str, expires_in: float, handle: str = "") -> str:
        """Keep a value."""
        handle, now = handle or new_handle(), self._clock()
        value = _Value(bytes(body), now, now + expires_in)
        if value.room > self._max_bytes:
            raise ValueTooLarge(len(body), self._max_bytes)
        self._remove(kind, (principal, handle))
        self._kinds.setdefault(kind, {})[principal, handle] = value
        self._rooms[kind] = self._rooms.get(kind, 0) + value.room
        if now >= self._sweep_at or self._is_full():
            self._sweep(now)
        return handle

    async def get(self, kind: str, handle: str, *, principal: str) -> bytes | None:
        """The value, if there is one."""
        value = self._kinds.get(kind, {}).get((principal, handle))
        return None if value is None or value.expires <= self._clock() else value.body

    async def take(self, kind: str, handle: str, *, principal: str) -> bytes | None:
        """The value, once."""
        value = self._remove(kind, (principal, handle))
        return None if value is None or value.expires <= self._clock() else value.body

    async def drop(self, kind: str, handle: str, *, principal: str) -> bool:
        """Forget a value."""
        return await self.take(kind, handle, principal=principal) is not None

    async def entries(self, kind: str, *, principal: str | None) -> list[Entry]:
        """What there is of a kind, oldest first."""
        now = self._clock()
        return [
            Entry(handle, whose, len(value.body), value.created, value.expires)
            for (whose, handle), value in self._kinds.get(kind, {}).items()
            if value.expires > now and principal in (None, whose)
        ]

    async def close(self) -> None:
        """Forget everything."""
        self._kinds.clear()
        self._rooms.clear()

    def _remove(self, kind: str, name: tuple[str, str]) -> _Value | None:
        names = self._kinds.get(kind, {})
        value = names.pop(name, None)
        if value is not None:
            self._rooms[kind] -= value.room
            if not names:
                del self._kinds[kind], self._rooms[kind]
        return value

    def _is_full(self) -> bool:
        return sum(self._rooms.values()) > self._max_bytes

    def _sweep(self, now: float) -> None:
        """Remove what has expired, and what is beyond the bound."""
        self._sweep_at = now + _SWEEP
        for kind, names in list(self._kinds.items()):
            for name in [name for name, value in names.items() if value.expires <= now]:
                self._remove(kind, name)
        while self._is_full():
            kind = max(self._rooms, key=self._rooms.__getitem__)
            self._remove(kind, next(iter(self._kinds[kind])))
