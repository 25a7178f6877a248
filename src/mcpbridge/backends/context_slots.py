"""The values of runs that have calls under way, by whose they are: each is read or made once for all of those."""

import asyncio
import base64
import hashlib
from collections.abc import Awaitable, Callable
from types import TracebackType

import msgspec
from msgspec import Struct

from mcpbridge.backends.context_shapes import Shape
from mcpbridge.backends.context_values import Cell

__all__ = ["Key", "RunName", "Slot", "Slots"]


class RunName(Struct, frozen=True):
    """Which run it is: others may call theirs the same."""

    principal: str
    tenant: str
    run: str

    def handle(self, tool: str) -> str:
        """Under which the value of a tool is in the store; `tool` empty: the shared one."""
        named = msgspec.json.encode([self.tenant, self.run, tool])
        return base64.b32encode(hashlib.sha256(named).digest()[:16]).decode().rstrip("=").lower()


Key = tuple[RunName, str]
"""A run, and the id of the tool; empty: what all tools share."""


class Slot:
    """A value in memory, and what calls of the run do with it."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.users = 0
        self.kept = b""
        """What the store has, or need not have."""
        self.turn = asyncio.Lock()
        """Of who reads or writes the store, or runs the initialiser."""
        self.is_loaded = False
        self._failures = 0
        self._failure: tuple[BaseException, TracebackType | None] | None = None
        """Why it could not be made when it was last tried."""

    async def load(self, fill: Callable[[], Awaitable[None]]) -> None:
        """Read or make the value, once for all that wait for it; those share the failure, the next one tries again."""
        seen = self._failures
        async with self.turn:
            if self.is_loaded:
                return
            if self._failure is not None and self._failures > seen:
                error, trace = self._failure
                raise error.with_traceback(trace)
            try:
                await fill()
            except (Exception, SystemExit) as error:
                self._failure, self._failures = (error, error.__traceback__), self._failures + 1
                raise
            self.is_loaded = True

    def end(self) -> None:
        """Nobody uses it any more."""
        self._failure = None  # no cycle of the error, its traceback and this


class Slots:
    """The values that have users, by key."""

    def __init__(self) -> None:
        self._slots: dict[Key, Slot] = {}

    def get(self, key: Key) -> Slot | None:
        """The value, if it has users and is there."""
        slot = self._slots.get(key)
        return slot if slot is not None and slot.is_loaded else None

    def attach(self, key: Key, shape: Shape) -> Slot:
        """Use a value, which may have to be loaded."""
        slot = self._slots.get(key)
        if slot is None or slot.cell.shape.kind != shape.kind:  # another kind: the tool was replaced during a call
            where = f"the context of {key[1]}" if key[1] else "the shared context"
            slot = self._slots[key] = Slot(Cell(shape, where))
        slot.users += 1
        return slot

    def let_go(self, key: Key, slot: Slot) -> None:
        """Use it no more."""
        slot.users -= 1
        if not slot.users:
            slot.end()
            if self._slots.get(key) is slot:
                del self._slots[key]
