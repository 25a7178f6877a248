"""What a person's calls tell of searches: tools that served before come a little earlier, for the same person only.

A tool that was called with success after a search has served for that query's words. What is noted fades with each
further call, not with time, so the same notes give the same order on any day. It moves what is nearly equal, never a
tool above one that the query names or that fits much better. It is off unless the configuration says otherwise, each
principal has notes of its own, and they can be forgotten.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio

from mcpbridge.errors import StoreFailed
from mcpbridge.logs import get_logger
from mcpbridge.owned_tasks import OwnedTasks
from mcpbridge.routing.feedback_prior import Prior
from mcpbridge.routing.ranker import Hit
from mcpbridge.storage.store import Store

__all__ = ["Feedback"]

log = get_logger("mcpbridge.routing")

_KIND, _HANDLE = "feedback", "searches"
_KEPT = 180 * 86400.0
"""Seconds that notes are kept after the last one."""
_ROOM = 16 * 1024**2
"""Bytes of all principals' notes in the store."""
_FLUSH = 30.0
"""Seconds between two times that notes are written down."""
_PATIENCE = 2.0
"""Seconds that the store may take, also when the bridge ends."""
_MOST_PRINCIPALS = 1000
"""Principals whose notes are in memory."""
_MOST_WAITING = 200
"""Notes of one principal that wait to be written; of more the oldest are not kept."""
_SEARCHES = 8
"""Searches of a principal, the last ones, to which a call can belong."""


@dataclass(slots=True)
class _Notes:
    """What is known of one principal."""

    prior: Prior = field(default_factory=Prior)
    waiting: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=_MOST_WAITING))
    """Query and tool of what is in `prior` but not in the store."""
    is_read: bool = False
    """What the store had is in `prior`."""


class Feedback:
    """The notes of all principals. For one event loop."""

    def __init__(self, store: Store) -> None:
        store.bound(_KIND, _ROOM)
        self._store = store
        self._notes: dict[str, _Notes] = {}
        """Least recently used first."""
        self._searches: dict[str, deque[tuple[str, set[str]]]] = {}
        self._lock = asyncio.Lock()
        self._has_complained = False

    def searched(self, principal: str, query: str, ids: Iterable[str]) -> None:
        """A search was answered with these tools."""
        searches = self._searches.pop(principal, None) or deque(maxlen=_SEARCHES)
        searches.append((query, set(ids)))
        self._searches[principal] = searches
        while len(self._searches) > _MOST_PRINCIPALS:
            del self._searches[next(iter(self._searches))]

    def called(self, principal: str, tool: str) -> None:
        """A call of a tool succeeded: it served for the last search that had found it, if one did. Counts once."""
        for query, ids in reversed(self._searches.get(principal, ())):
            if tool in ids:
                ids.discard(tool)
                self.observe(principal, query, tool)
                return

    def observe(self, principal: str, query: str, tool: str) -> None:
        """A tool has served for a query."""
        notes = self._of(principal)
        notes.prior.observe(query, tool)
        notes.waiting.append((query, tool))

    def adjust(self, principal: str, query: str, hits: Sequence[Hit]) -> list[Hit]:
        """The same hits, with what served this principal before a little earlier. At once: see `recall`."""
        notes = self._notes.get(principal)
        return list(hits) if notes is None else notes.prior.adjust(query, hits)

    async def recall(self, principal: str) -> None:
        """Have at hand what was noted before this bridge started; asks the store once for each principal."""
        notes = self._of(principal)
        if notes.is_read:
            return
        notes.is_read = True  # one try: a store that fails is no reason to wait at every search
        async with self._lock:
            with anyio.move_on_after(_PATIENCE):
                await self._renew(principal, notes)

    async def forget(self, principal: str) -> None:
        """Forget all that was noted of a principal."""
        async with self._lock:
            self._notes.pop(principal, None)
            self._searches.pop(principal, None)
            try:
                await self._store.drop(_KIND, _HANDLE, principal=principal)
            except StoreFailed as error:
                self._complain(error)

    async def flush(self) -> None:
        """Write down what was noted. What cannot be written is kept for the next time."""
        async with self._lock:
            for principal, notes in list(self._notes.items()):
                if notes.waiting:
                    with anyio.move_on_after(_PATIENCE, shield=True):  # once begun it is finished
                        await self._write(principal, notes)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Writes down now and then meanwhile, and at the end."""
        tasks = OwnedTasks()
        async with tasks.running():
            tasks.spawn(self._keep_flushing())
            try:
                yield
            finally:
                with anyio.CancelScope(shield=True):  # bounded by `flush`
                    await self.flush()

    async def _keep_flushing(self) -> None:
        while True:
            await anyio.sleep(_FLUSH)
            await self.flush()

    async def _write(self, principal: str, notes: _Notes) -> None:
        """Other bridges of this user write too: theirs is read, and ours is noted once more on top of it."""
        written = await self._renew(principal, notes)
        if not written:
            return
        body = notes.prior.to_bytes()
        count = len(notes.waiting)
        try:
            await self._store.put(_KIND, body, principal=principal, expires_in=_KEPT, handle=_HANDLE)
        except StoreFailed as error:
            self._complain(error)
            return
        for _ in range(count):
            notes.waiting.popleft()

    async def _renew(self, principal: str, notes: _Notes) -> bool:
        """Start from what the store has, and note again what is not in it yet. False: the store cannot be read."""
        try:
            body = await self._store.get(_KIND, _HANDLE, principal=principal)
        except StoreFailed as error:
            self._complain(error)
            return False
        prior = Prior.from_bytes(body or b"")
        for query, tool in notes.waiting:
            prior.observe(query, tool)
        notes.prior, notes.is_read = prior, True
        return True

    def _of(self, principal: str) -> _Notes:
        notes = self._notes.pop(principal, None) or _Notes()
        self._notes[principal] = notes
        while len(self._notes) > _MOST_PRINCIPALS:
            del self._notes[next(iter(self._notes))]
        return notes

    def _complain(self, error: StoreFailed) -> None:
        if not self._has_complained:
            self._has_complained = True
            log.warning("what served before cannot be kept", reason=str(error))
