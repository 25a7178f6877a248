"""Results that are kept for a while, in bounded memory; the one that was not used for longest goes first.

A result is kept as bytes, cut at the place where it is told of that it was kept: a hit splices that in and leaves the
rest as it came. No I/O; the time is passed in.

One run for all who want the same at the same time.

The run has a task of its own, so it outlives whoever came first; it is cancelled when the last of those who wait has
left. A run that turns out to be for one alone (its client is asked something, or is refused by its own limits) lets the
others go, and they run themselves.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from functools import partial

from msgspec import Raw, Struct

from mcpbridge.base.background_tasks import OwnedTasks
from mcpbridge.base.errors import BridgeError, CallRefused
from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode, encode_fields
from mcpbridge.protocol.peer import Update

CACHE_META = "mcpbridge/cache"
"""In `_meta` of a result that was not fetched for this call: `hit`, `age` and `ttl` in seconds; `shared` if it comes
of a call that was under way."""

Key = tuple[str, ...]

_OVERHEAD = 600
"""Bytes that an entry takes beside its result, about."""
_MARK = encode(CACHE_META) + b":"


class Kept(Struct, eq=False):
    """One result. Its `tool` and `server` are names by which it can be dropped."""

    server: str
    tool: str
    data: bytes
    """See `opened`."""
    since: float
    until: float
    whole: bytes = b""
    """As it came, if that cannot be told from `data`."""

    @classmethod
    def of(cls, server: str, tool: str, data: bytes, since: float, until: float) -> "Kept":
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

    def told(self, now: float, *, is_shared: bool = False) -> Body:
        """The result for a further call, marked."""
        mark: dict[str, object] = {
            "hit": True,
            "age": round(max(0.0, now - self.since), 3),
            "ttl": round(self.until - self.since, 3),
        }
        if is_shared:
            mark["shared"] = True
        return Body(self.data + encode(mark) + b"}}")


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


class KeptResults:
    """Results by key."""

    def __init__(self, max_bytes: int, max_result: int) -> None:
        """The size of all together, and of the largest that is kept at all."""
        self._max_bytes, self._max_result = max_bytes, max_result
        self.bytes = 0
        """What all take."""
        self._kept: OrderedDict[Key, Kept] = OrderedDict()
        self._keys: dict[str, set[Key]] = {}
        """By server."""

    def bound(self, max_bytes: int, max_result: int) -> None:
        """Other sizes from now on; what is too much goes."""
        self._max_bytes, self._max_result = max_bytes, max_result
        self._make_room()

    def get(self, key: Key, now: float) -> Kept | None:
        """A result that is still good; None when there is none."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        if now >= kept.until:
            self._drop(key)
            return None
        self._kept.move_to_end(key)
        return kept

    def put(self, key: Key, kept: Kept) -> bool:
        """Keep a result; others go for it. False: it is too large."""
        if kept.size > min(self._max_result + _OVERHEAD, self._max_bytes):
            return False
        if key in self._kept:
            self._drop(key)
        self._kept[key] = kept
        self._keys.setdefault(kept.server, set()).add(key)
        self.bytes += kept.size
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

    def drop(self, which: Callable[[Kept], bool]) -> int:
        """Forget those of which this is true; says how many they were."""
        found = [key for key, kept in self._kept.items() if which(kept)]
        for key in found:
            self._drop(key)
        return len(found)

    def by_tool(self, now: float) -> dict[str, tuple[int, int]]:
        """How many there are of each tool and the bytes that they take; what is too old goes first."""
        self.drop(lambda kept: now >= kept.until)
        entries, sizes = Counter[str](), Counter[str]()
        for kept in self._kept.values():
            entries[kept.tool] += 1
            sizes[kept.tool] += kept.size
        return {tool: (count, sizes[tool]) for tool, count in entries.items()}

    def __len__(self) -> int:
        return len(self._kept)

    def _make_room(self) -> None:
        while self.bytes > self._max_bytes:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: Key) -> None:
        kept = self._kept.pop(key)
        self.bytes -= kept.size
        keys = self._keys[kept.server]
        keys.discard(key)
        if not keys:
            del self._keys[kept.server]


class _EndedError(BridgeError):
    """A run was cancelled while calls waited for it: the bridge stops."""


class Flight:
    """One run and those who wait for it."""

    __slots__ = ("_leader", "_outcome", "_waiting", "call", "is_personal", "on_empty")

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[Body | None], Update] = {}
        self._leader: asyncio.Future[Body | None] | None = None
        self._outcome: tuple[bytes | Raw | None, BaseException | None] | None = None
        self.is_personal = False
        """It is for the one who began it."""
        self.call: Call | None = None
        """The one that it is the run of, first of all."""
        self.on_empty: Callable[[], object] = _nothing

    def update(self, method: str, params: Raw) -> None:
        """Tell all who wait of the progress."""
        for update in tuple(self._waiting.values()):
            update(method, params)

    def be_personal(self) -> None:
        """From now on it is for the one who began it; the others are let go."""
        self.is_personal = True
        for waiting in list(self._waiting):
            if waiting is not self._leader:
                del self._waiting[waiting]
                if not waiting.done():
                    waiting.set_result(None)
        if not self._waiting:
            self.on_empty()

    def land(self, result: Body | None, error: BaseException | None = None) -> None:
        """The run is over. A result of None: each but the one who began runs by itself."""
        if self._outcome is None:
            self._outcome = result.data if result is not None else None, error
        for waiting in self._waiting:
            self._tell(waiting)

    @property
    def has_landed(self) -> bool:
        """The run is over, even if its task is not quite."""
        return self._outcome is not None

    async def wait(self, update: Update, *, leads: bool = False) -> Body | None:
        """Its result, or None if it turned out to be for another alone. Raises what the run raised."""
        waiting: asyncio.Future[Body | None] = asyncio.get_running_loop().create_future()
        if leads:
            self._leader = waiting
        self._waiting[waiting] = update
        self._tell(waiting)
        try:
            return await waiting
        finally:
            self._waiting.pop(waiting, None)
            if waiting.done() and not waiting.cancelled():
                waiting.exception()  # it was taken, or its taker has just been cancelled
            if not self._waiting:
                self.on_empty()

    def _tell(self, waiting: "asyncio.Future[Body | None]") -> None:
        """Give one who waits what came of the run, if it is over. Each may change its own."""
        if self._outcome is None or waiting.done():
            return
        data, error = self._outcome
        if error is not None:
            waiting.set_exception(error if waiting is self._leader else _another(error))
        else:
            waiting.set_result(Body(data) if data is not None else None)


class Flights(OwnedTasks):
    """The runs under way."""

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[Hashable, Flight] = {}

    def open(self, key: Hashable) -> Flight | None:
        """The run under this key that one may wait for; None when there is none.

        Not one that has just landed: what came of it is kept by now, or is not for who comes later.
        """
        flight = self._open.get(key)
        return None if flight is None or flight.is_personal or flight.has_landed else flight

    async def lead(
        self, key: Hashable, run: Callable[[Flight], Awaitable[Body]], update: Update, call: Call | None = None
    ) -> Body:
        """Begin a run and wait for it. It lands by itself with what `run` returns, unless that lands it before.

        `call`: the one that begins it, for those who wait with it.
        """
        flight = Flight()
        flight.call = call
        result: list[Body] = []
        task = self.spawn(_fly(flight, run, result))
        if task is None:  # nobody would own it
            return await run(flight)
        self._open[key] = flight
        task.add_done_callback(partial(self._landed, key, flight))
        flight.on_empty = partial(self._abandon, key, flight, task)
        landed = await flight.wait(update, leads=True)
        return landed if landed is not None else result[0]

    def _abandon(self, key: Hashable, flight: Flight, task: asyncio.Task[None]) -> None:
        """Nobody waits any more. Nor may anybody from now on: it takes a while to end."""
        self._close(key, flight)
        task.cancel()

    def _landed(self, key: Hashable, flight: Flight, task: asyncio.Task[None]) -> None:
        self._close(key, flight)
        if task.cancelled():  # perhaps before it began
            flight.land(None, _EndedError("The run that this call waited for was cancelled"))

    def _close(self, key: Hashable, flight: Flight) -> None:
        flight.on_empty = _nothing
        if self._open.get(key) is flight:
            del self._open[key]


async def _fly(flight: Flight, run: Callable[[Flight], Awaitable[Body]], result: list[Body]) -> None:
    try:
        result.append(await run(flight))
    except CallRefused as refused:  # it ran nowhere, and the limits of the others may be other ones
        flight.be_personal()
        flight.land(None, refused)
    except Exception as error:  # noqa: BLE001 - it goes to those who wait, whatever it is
        flight.land(None, error)
    else:
        flight.land(None if flight.is_personal else result[0])


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


def _nothing() -> None:
    """There is nothing to cancel any more."""
