"""Usage feedback: tools that served a person before come a little earlier in that person's searches.

A tool that was called with success after a search has served for that query's words. Notes fade with each further
call, not with time, so the same notes give the same order on any day. They move tools that fit about equally well,
never one above a tool that the query names or that fits much better. It is off unless the configuration says
otherwise. Each principal has notes of its own, bounded in size, and they can be forgotten.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import msgspec
from msgspec.structs import replace

from mcpbridge.base.background_tasks import OwnedTasks
from mcpbridge.base.errors import StoreFailed
from mcpbridge.base.log import get_logger
from mcpbridge.catalog.search.query_filters import parse_filters
from mcpbridge.catalog.search.ranker import Hit
from mcpbridge.catalog.search.weights import FEEDBACK, FEEDBACK_FADES, FEEDBACK_HALF, FEEDBACK_OTHER_WORDS
from mcpbridge.catalog.words import stems_of
from mcpbridge.storage.store import Store

_MOST_TOOLS = 400
_MOST_WORDS = 24
"""Of one tool."""
_QUERY = 1000
_LONGEST_ID = 300
"""Characters that are looked at."""


class _Served(msgspec.Struct, array_like=True):
    """What is noted of one tool; each number as it was when the tool was noted last."""

    at: int
    """The number of that note."""
    count: float
    words: dict[str, float]


class _Kept(msgspec.Struct, array_like=True):
    version: int
    notes: int
    tools: dict[str, _Served]


_decode = msgspec.msgpack.Decoder(_Kept).decode


class Prior:
    """Counts notes, and moves hits by them."""

    def __init__(self, notes: int = 0, tools: dict[str, _Served] | None = None) -> None:
        """`notes`: how many there were so far; `tools`: what they showed, least recently noted first."""
        self._notes, self._tools = notes, tools or {}

    def observe(self, query: str, tool: str) -> None:
        """A tool has served for a query."""
        if len(tool) > _LONGEST_ID:
            return
        self._notes += 1
        served = self._tools.pop(tool, None) or _Served(self._notes, 0.0, {})
        left = self._left(served)
        words = {word: count * left for word, count in served.words.items()}
        for word in _words(query):
            words[word] = words.pop(word, 0.0) + 1
        if len(words) > _MOST_WORDS:
            most = sorted(words, key=words.__getitem__)[-_MOST_WORDS:]
            words = {word: words[word] for word in words if word in set(most)}
        self._tools[tool] = _Served(self._notes, served.count * left + 1, words)
        while len(self._tools) > _MOST_TOOLS:
            del self._tools[next(iter(self._tools))]

    def adjust(self, query: str, hits: Sequence[Hit]) -> list[Hit]:
        """The same hits, best first again. Named ones stay first and as they are."""
        named = [hit for hit in hits if hit.is_named]
        others = [hit for hit in hits if not hit.is_named]
        top = max((hit.score for hit in others), default=0.0)
        if top <= 0 or not self._tools:
            return list(hits)
        words = _words(query)
        most = top * FEEDBACK
        moved = [replace(hit, score=hit.score + most * self._weight(words, hit.id)) for hit in others]
        moved.sort(key=lambda hit: hit.score, reverse=True)
        ceiling = named[-1].score if named else top
        return named + [hit if hit.score <= ceiling else replace(hit, score=ceiling) for hit in moved]

    def to_bytes(self) -> bytes:
        """All of it, for `from_bytes`."""
        return msgspec.msgpack.encode(_Kept(1, self._notes, self._tools))

    @classmethod
    def from_bytes(cls, body: bytes) -> "Prior":
        """What was written; an empty one for anything else."""
        try:
            kept = _decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return cls()
        is_good = kept.version == 1 and _is_sound(kept.tools, kept.notes)
        return cls(kept.notes, kept.tools) if is_good else cls()

    def _weight(self, words: Sequence[str], tool: str) -> float:
        """From 0 to 1: how far this tool is moved."""
        served = self._tools.get(tool)
        if served is None:
            return 0.0
        shared = sum(served.words.get(word, 0.0) for word in words) / len(words) if words else 0.0
        told = (shared + FEEDBACK_OTHER_WORDS * served.count) * self._left(served)
        return told / (told + FEEDBACK_HALF)

    def _left(self, served: _Served) -> float:
        return FEEDBACK_FADES ** (self._notes - served.at)


def _words(query: str) -> list[str]:
    """What a query is remembered by: its stems, each once, without filters."""
    return list(dict.fromkeys(stems_of(parse_filters(query[:_QUERY])[1])))[:_MOST_WORDS]


def _is_sound(tools: Mapping[str, _Served], notes: int) -> bool:
    if notes < 0 or len(tools) > _MOST_TOOLS:
        return False
    return all(
        0 <= served.at <= notes
        and len(served.words) <= _MOST_WORDS
        and all(0 <= count < 1000 for count in (served.count, *served.words.values()))
        for served in tools.values()
    )


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
            log.warning("search feedback cannot be stored", reason=str(error))
