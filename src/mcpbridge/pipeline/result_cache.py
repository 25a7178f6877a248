"""Cached results in bounded memory, and one run for all who want the same result at the same time.

`ResultCache` drops the result that was not used for longest first. A result is kept as bytes, cut at the place where
a hit says that it was kept: a hit splices that in and leaves the rest as it came. It does no I/O, and the time is
passed in.

The shared run has a task of its own, so it outlives whoever came first. It is cancelled when the last one who waits
has left. A run that turns out to be for one caller alone (its client is asked something, or is refused by its own
limits) lets the others go, and they run themselves. Several bridges may agree on what is stale (`SharedEpochs`), and on
who runs a call that comes to more than one of them (`SharedLeases`). When a result may be cached is decided in
`stages/cache.py`.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from typing import Protocol

import msgspec
from msgspec import Raw, Struct

from mcpbridge.base.errors import BridgeError, CallRefused
from mcpbridge.core.elicitation import Elicitor, ElicitorWrapper, Question
from mcpbridge.core.jobs import Job, Jobs
from mcpbridge.core.model import Call
from mcpbridge.core.tool_calls_and_results import is_paused
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode, encode_fields
from mcpbridge.protocol.peer import Update
from mcpbridge.results.header_line import may_hold_header_line

CACHE_META = "mcpbridge/cache"
"""In `_meta` of a result that was not fetched for this call: `hit`, `age` and `ttl` in seconds; `shared` if it comes
of a call that was under way."""

Key = tuple[str, ...]

_OVERHEAD = 600
"""Bytes that an entry takes beside its result, about."""
_MARK = encode(CACHE_META) + b":"


def is_final(result: Body, data: bytes) -> bool:
    """It is the result of the call itself, no question, task or pause, so others may have it. `data`: its bytes."""
    try:
        if not result.is_object or is_paused(result, data):
            return False
        if b'"resultType"' in data and bytes(result.get("resultType") or b'"complete"') != b'"complete"':
            return False
        return b'"task"' not in data or "content" in result
    except (msgspec.DecodeError, RecursionError):
        return False


def is_error(result: Body, data: bytes) -> bool:
    """It reports a failure. `data`: the bytes of the result."""
    return b'"isError"' in data and bytes(result.get("isError") or b"false") != b"false"


class MarkedResult(Body):
    """A kept result and its mark."""

    __slots__ = ("looked_at",)

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.looked_at = data
        """Beside the mark nothing in these bytes looks like the bridge's word."""


class CachedResult(Struct, eq=False):
    """One result. Its `tool` and `server` are names by which it can be dropped."""

    server: str
    tool: str
    data: bytes
    """See `opened`."""
    since: float
    until: float
    whole: bytes = b""
    """As it came, if that cannot be seen in `data`."""
    needs_look: bool | None = None
    """It may hold what looks like the bridge's word, as the mark does; None: nobody had it a second time yet."""

    @classmethod
    def of(cls, server: str, tool: str, data: bytes, since: float, until: float) -> "CachedResult":
        """Keep these bytes.

        Raises:
            msgspec.DecodeError: they are no object.
        """
        begun = opened(data)
        return cls(server, tool, begun, since, until, b"" if _closed(begun) == data else data)

    @property
    def original(self) -> bytes:
        """The result as it came, byte for byte."""
        return self.whole or _closed(self.data)

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.data) + len(self.whole) + _OVERHEAD

    def marked(self, now: float, *, is_shared: bool = False) -> Body:
        """The result for a further call, marked."""
        mark: dict[str, object] = {
            "hit": True,
            "age": round(max(0.0, now - self.since), 3),
            "ttl": round(self.until - self.since, 3),
        }
        if is_shared:
            mark["shared"] = True
        if self.needs_look is None:
            self.needs_look = may_hold_header_line(self.original)
        kind = Body if self.needs_look else MarkedResult
        return kind(self.data + encode(mark) + b"}}")


def opened(data: bytes) -> bytes:
    """A result up to the value of the mark in its `_meta`: the mark and two braces complete it.

    Raises:
        msgspec.DecodeError: it is no object.
    """
    if b'"_meta"' not in data:
        head = data.strip()[1:-1].rstrip()
        return b"{" + head + (b"," if head else b"") + b'"_meta":{' + _MARK
    result = Body(data)
    meta = result.inner("_meta") or Body()
    meta.drop(CACHE_META)
    rest = {name: value for name, value in result.fields.items() if name != "_meta"}
    inside = encode_fields(meta.fields)[1:-1]
    before = encode_fields(rest)[1:-1]
    return b"{%b%b" % (before, b"," if before else b"") + b'"_meta":{%b%b' % (inside, b"," if inside else b"") + _MARK


def _closed(begun: bytes) -> bytes:
    """What `opened` began, without what it added."""
    head = begun.removesuffix(b'"_meta":{' + _MARK)
    return head.removesuffix(b",") + b"}"


class CachedResults:
    """Results by key."""

    def __init__(self, max_bytes: int, max_result: int) -> None:
        """The size of all together, and of the largest that is kept at all."""
        self._max_bytes, self._max_result = max_bytes, max_result
        self.bytes = 0
        """What all take."""
        self._results: OrderedDict[Key, CachedResult] = OrderedDict()
        self._keys: dict[str, set[Key]] = {}
        """By server."""

    def bound(self, max_bytes: int, max_result: int) -> None:
        """Other sizes from now on; what is too much goes."""
        self._max_bytes, self._max_result = max_bytes, max_result
        self._make_room()

    def get(self, key: Key, now: float) -> CachedResult | None:
        """A result that is still good; None when there is none."""
        kept = self._results.get(key)
        if kept is None:
            return None
        if now >= kept.until:
            self._drop(key)
            return None
        self._results.move_to_end(key)
        return kept

    def put(self, key: Key, result: CachedResult) -> bool:
        """Keep a result; others go for it. False: it is too large."""
        size = result.size
        if size > min(self._max_result + _OVERHEAD, self._max_bytes):
            return False
        if key in self._results:
            self._drop(key)
        self._results[key] = result
        self._keys.setdefault(result.server, set()).add(key)
        self.bytes += size
        self._make_room()
        return True

    def drop_server(self, server: str) -> int:
        """Forget all results of a server; says how many there were."""
        keys = self._keys.get(server)
        if not keys:
            return 0
        count = len(keys)
        for key in list(keys):
            self._drop(key)
        return count

    def drop(self, which: Callable[[CachedResult], bool]) -> int:
        """Forget those of which this is true; says how many they were."""
        found = [key for key, kept in self._results.items() if which(kept)]
        for key in found:
            self._drop(key)
        return len(found)

    def by_tool(self, now: float) -> dict[str, tuple[int, int]]:
        """How many there are of each tool and the bytes that they take; what is too old goes first."""
        self.drop(lambda kept: now >= kept.until)
        entries, sizes = Counter[str](), Counter[str]()
        for kept in self._results.values():
            entries[kept.tool] += 1
            sizes[kept.tool] += kept.size
        return {tool: (count, sizes[tool]) for tool, count in entries.items()}

    def __len__(self) -> int:
        return len(self._results)

    def _make_room(self) -> None:
        while self.bytes > self._max_bytes:
            self._drop(next(iter(self._results)))

    def _drop(self, key: Key) -> None:
        kept = self._results.pop(key)
        self.bytes -= kept.size
        keys = self._keys[kept.server]
        keys.discard(key)
        if not keys:
            del self._keys[kept.server]


class _EndedError(BridgeError):
    """A run was cancelled while calls waited for it: the bridge stops."""


class SharedRun(Job):
    """One run and those who wait for it."""

    __slots__ = ("_updates", "call", "is_personal", "on_personal")

    def __init__(self, key: Hashable, call: Call | None = None) -> None:
        super().__init__(key=key)
        self.is_personal = False
        """It is for the one who began it."""
        self.on_personal: Callable[[], object] | None = None
        """Called when that turns out."""
        self.call = call
        """The one that it is the run of, first of all."""
        self._updates: list[Update] = []

    def update(self, method: str, params: Raw) -> None:
        """Send the progress to all who wait."""
        for update in tuple(self._updates):
            update(method, params)

    def be_personal(self) -> None:
        """From now on it is for the one who began it; the others are let go."""
        self.is_personal = True
        self.wake()
        if self.on_personal is not None:
            self.on_personal()

    async def join(self, update: Update, *, leads: bool = False) -> Body | None:
        """Its result, or None if it turned out to be for another alone. Raises what the run raised.

        Cancelling takes nothing from the others; with the last of them the run is cancelled.
        """
        self._updates.append(update)
        try:
            await self.wait(to_the_end=leads)
        finally:
            self._updates.remove(update)
        if self.is_personal and not leads:
            return None
        try:
            body, data = self.result()
        except asyncio.CancelledError:
            raise _EndedError("The run that this call waited for was cancelled") from None
        except Exception as error:
            if leads:
                raise
            raise _another(error) from error.__cause__
        return body if leads else Body(data)  # each may change its own


class AskedAlone(ElicitorWrapper):
    """The client that began a run, as an `Elicitor`. Once it is asked something, the run is for it alone."""

    __slots__ = ("_call", "_shared", "was_asked")

    def __init__(self, call: Call, shared: SharedRun) -> None:
        """`call`: the one that began the run; whom it can ask may change meanwhile, as when its client gives it up."""
        self._call, self._shared = call, shared
        self.was_asked = False
        """What comes of the run came of an answer: it is nothing to keep."""

    @property
    def elicitor(self) -> Elicitor:
        """The client, as it can be asked now."""
        return self._call.client

    def ask(self, question: Question) -> Awaitable[Raw]:
        """Put the question; from now on the run is for this client alone."""
        self.was_asked = True
        self._shared.be_personal()
        return self.elicitor.ask(question)


class SharedRuns(Jobs[SharedRun]):
    """The runs under way. Each has a task of its own, which ends with the last of those who wait for it."""

    def open(self, key: Hashable) -> SharedRun | None:
        """The run under this key that one may wait for; None when there is none.

        Not one that has just ended: what came of it is kept by now, or is not for who comes later.
        """
        for run in self.same(key):
            if not run.is_personal and not run.is_done:
                return run
        return None

    async def lead(
        self, key: Hashable, work: Callable[[SharedRun], Awaitable[Body]], update: Update, call: Call | None = None
    ) -> Body:
        """Begin a run and wait for it. `call`: the one that begins it, for those who wait with it."""
        run = SharedRun(key, call)
        if not self.start(run, _shared(run, work)):  # nobody would own it
            return await work(run)
        self.add(run)
        run.on_deserted = partial(self.cancel, run)
        assert run.task is not None
        run.task.add_done_callback(lambda _: self.forget(run))
        body = await run.join(update, leads=True)
        assert body is not None
        return body


async def _shared(run: SharedRun, work: Callable[[SharedRun], Awaitable[Body]]) -> tuple[Body, bytes | Raw]:
    """The result of the run, and its bytes as they are before its leader changes anything."""
    try:
        body = await work(run)
    except CallRefused:  # it ran nowhere, and the limits of the others may be other ones
        run.be_personal()
        raise
    return body, body.data


def _another(error: BaseException) -> BaseException:
    """The same error for one more, who may note something on it, and whose frames it will carry."""
    if not isinstance(error, BridgeError):
        return error
    copy = error.__class__.__new__(error.__class__)
    copy.args = error.args
    copy.__dict__.update(error.__dict__)
    copy.facts = dict(error.facts)
    copy.__cause__ = error.__cause__
    return copy.with_traceback(error.__traceback__)


class SharedEpochs(Protocol):
    """What several bridges know of servers together. It never fails."""

    async def current(self, server: str) -> str | None:
        """Names the time since the last write to a server, by whatever bridge; None: it cannot be known."""
        ...

    async def changed(self, server: str) -> None:
        """Something was, or is about to be, written to a server."""
        ...


class SharedLease(Protocol):
    """The right to run a call for all bridges. Nothing in it fails."""

    def progressed(self, params: bytes) -> None:
        """The run has made progress."""
        ...

    def give_up(self) -> None:
        """Whoever waits has to run by itself. Returns at once; nothing if it is over."""
        ...

    async def end(self, result: bytes, seconds: float, *, may_keep: bool) -> bool:
        """The run is over: publish its result, if anybody waits for it. `seconds`: for which it is good.

        `may_keep`: they may keep it. Returns whether the time in which the run began still lasts (`SharedEpochs`);
        False also if that cannot be known, or the lease was given up before.
        """
        ...


Published = tuple[bytes, float | None]
"""A result of another bridge, and how many seconds ago it came; None: it must not be kept."""


class SharedLeases(Protocol):
    """Which bridge of a fleet runs a call that comes to several at the same time. It never fails."""

    async def lead(
        self,
        key: Sequence[str],
        server: str,
        epoch: str,
        *,
        is_fresh: Callable[[float, float], bool],
        on_progress: Callable[[bytes], None],
    ) -> SharedLease | Published | None:
        """The right to run the call of this key, or what another bridge published; waits while that runs it.

        None: run it all the same. `epoch`: of the server that is called, part of `key`. `is_fresh`: whether a run is
        one to wait for that began so many seconds ago, and ended so many. `on_progress` gets progress of that run.
        Cancelling is safe.
        """
        ...
