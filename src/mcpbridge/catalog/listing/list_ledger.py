"""What lists of tools cost models, and what slimming and routing saved of that: tokens by day, client and server.

A client puts its list into the context of its model, so a list counts once for each session that got it, and again when
the session got another one. Lists are noted when they are sent, and counted later in a thread, a few definitions at a
time, so that neither the list nor any call waits. The sums are in the store, where several processes add up.
"""

import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Literal
from weakref import WeakKeyDictionary

import anyio
import anyio.to_thread
from msgspec import Struct

from mcpbridge.base.background_tasks import OwnedTasks
from mcpbridge.base.errors import StoreFailed
from mcpbridge.base.log import get_logger
from mcpbridge.catalog.listing.tool_lists import Exposed
from mcpbridge.catalog.slim.slim import visible
from mcpbridge.catalog.tool_info import as_sent
from mcpbridge.core.model import BRIDGE
from mcpbridge.results.token_count import Counter as TokenCounter
from mcpbridge.results.token_count import Tokenizer, counter
from mcpbridge.storage.store import MAX_DAYS, DailyCounts, Store, add

log = get_logger("mcpbridge.catalog")

ListsBy = Literal["day", "client", "server"]
"""What the sums are grouped by."""

OTHER = "other"
"""Stands for the clients beyond those that are counted separately."""

_LEDGER = "lists"
_PARTS = ("day", "config", "tokenizer", "client", "server")
"""What a key in the store is made of, in this order."""
_FLUSH = 30.0
_AT_END = 2.0
"""Seconds that counting may take when the bridge ends; lists that are not counted then are left out."""
_AT_ONCE, _PAUSE = 20, 0.002
"""Definitions that are counted without a pause, and its seconds: calls continue meanwhile."""
_MOST_KNOWN = 20_000
"""Definitions whose tokens are remembered."""
_MOST_CLIENTS, _LONGEST_NAME = 200, 200
"""Clients that are counted separately between two times of counting, and characters of their names."""


class ListCost(Struct, frozen=True):
    """Tokens of the definitions of one server in a list."""

    sent: int = 0
    """Of all tools that the client may call, as the server sends them."""
    slim: int = 0
    """Of the same, as slimmed for this client."""
    listed: int = 0
    """Of what was listed."""


class ListAccount(Struct, frozen=True):
    """Sums over lists that have this in common."""

    key: tuple[str, ...]
    """The parts that were asked for, in that order."""
    is_counted: bool
    """Counted with the vocabulary of a model; else estimated."""
    lists: int = 0
    """Lists that clients got. Of one server alone: 0, since a list has several."""
    sent: int = 0
    slim: int = 0
    listed: int = 0

    @property
    def slimming(self) -> int:
        """Tokens that shorter definitions saved."""
        return self.sent - self.slim

    @property
    def routing(self) -> int:
        """Tokens of definitions that were not listed, less those of the tools with which models find them."""
        return self.slim - self.listed


class _Noted(Struct, frozen=True):
    """Lists that are the same for the ledger."""

    exposed: Exposed
    day: str
    client: str
    tokenizer: Tokenizer


class ListLedger:
    """The lists of one bridge. For one event loop."""

    def __init__(
        self,
        store: Store,
        config: Callable[[], str] = str,
        tokenizer: Callable[[], Tokenizer] = lambda: "estimate",
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`config`: the file of the settings, since a store may be shared. `tokenizer`: how tokens are counted now."""
        self._store, self._config, self._tokenizer, self._clock = store, config, tokenizer, clock
        self._noted: Counter[_Noted] = Counter()
        self._costs: dict[Tokenizer, WeakKeyDictionary[Exposed, Mapping[str, ListCost]]] = {}
        self._known: dict[Tokenizer, dict[tuple[str, bytes], int]] = {}
        self._rows: DailyCounts = {}
        """What was counted and is not in the store yet."""
        self._lock = anyio.Lock()
        self._is_ending = threading.Event()

    def note(self, client: str, exposed: Exposed) -> None:
        """A session of this client got this list. Takes no time."""
        day = datetime.fromtimestamp(self._clock(), UTC).date().isoformat()
        name = client[:_LONGEST_NAME].encode("utf-8", "replace").decode()
        if len(self._noted) >= _MOST_CLIENTS:
            name = OTHER
        self._noted[_Noted(exposed, day, name, self._tokenizer())] += 1

    async def flush(self) -> None:
        """Count what was noted, and write it down. What cannot be written is kept for the next time."""
        async with self._lock:
            while self._noted:
                noted, times = next(iter(self._noted.items()))
                costs = await self._costs_of(noted)
                del self._noted[noted]
                base = (noted.day, self._config(), noted.tokenizer, noted.client)
                rows = {(*base, server): [0, one.sent, one.slim, one.listed] for server, one in costs.items()}
                add(self._rows, {key: [number * times for number in numbers] for key, numbers in rows.items()})
                add(self._rows, {(*base, BRIDGE): [times]})
            if self._rows:
                rows, self._rows = self._rows, {}
                try:
                    await self._store.count(_LEDGER, rows)
                except StoreFailed as error:
                    add(self._rows, rows)
                    log.warning("statistics of lists cannot be stored", reason=str(error))

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Counts and writes now and then meanwhile, and at the end."""
        tasks = OwnedTasks()
        async with tasks.running():
            tasks.spawn(self._keep_flushing())
            try:
                yield
            finally:
                with anyio.move_on_after(_AT_END, shield=True):
                    await self.flush()
                self._is_ending.set()

    async def report(
        self, *, days: int = 7, by: Sequence[ListsBy] = (), config: str | None = None
    ) -> list[ListAccount]:
        """The sums of the last `days` days, today included, grouped by these parts; of all processes.

        `config`: of lists by this configuration alone. Estimated and counted are separate in any case. What was sent
        most comes first; where days are separate, the oldest day.
        """
        await self.flush()
        first = datetime.fromtimestamp(self._clock(), UTC) - timedelta(days=min(max(1, days), MAX_DAYS) - 1)
        found = await self._store.read_counts(_LEDGER, since=first.date().isoformat())
        add(found, self._rows)
        places = [_PARTS.index(part) for part in ("tokenizer", *by)]
        sums: DailyCounts = {}
        for key, numbers in found.items():
            if len(key) == len(_PARTS) and config in (None, key[_PARTS.index("config")]):
                add(sums, {tuple(key[place] for place in places): numbers})
        accounts = [_account(key, numbers) for key, numbers in sums.items()]
        day = by.index("day") if "day" in by else None
        return sorted(accounts, key=lambda one: ("" if day is None else one.key[day], -one.sent, one.key))

    async def _keep_flushing(self) -> None:
        while True:
            await anyio.sleep(_FLUSH)
            await self.flush()

    async def _costs_of(self, noted: _Noted) -> Mapping[str, ListCost]:
        how = noted.tokenizer
        known = self._costs.setdefault(how, WeakKeyDictionary())
        found = known.get(noted.exposed)
        if found is None:
            tokens = self._known.setdefault(how, {})
            if len(tokens) > _MOST_KNOWN:
                tokens.clear()
            work = partial(list_costs, noted.exposed, _Remembered(counter(how), tokens, self._is_ending))
            found = known[noted.exposed] = await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
        return found


class _EndedError(Exception):
    """The bridge has ended; nobody waits for the count."""


class _Remembered:
    """Counts definitions, each once, with a pause now and then."""

    def __init__(self, count: TokenCounter, known: dict[tuple[str, bytes], int], is_ending: threading.Event) -> None:
        self._count, self._known, self._is_ending = count, known, is_ending
        self._new = 0

    def __call__(self, name: str, definition: bytes, text: Callable[[], bytes]) -> int:
        """Tokens of the definition that `text` makes, known by the name and the definition that it is made of."""
        key = (name, definition)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._count(visible(text()))
            self._new += 1
            if self._new % _AT_ONCE == 0 and self._is_ending.wait(_PAUSE):
                raise _EndedError
        return found


CountOf = Callable[[str, bytes, Callable[[], bytes]], int]
"""Tokens of a definition: a name for it, what it is made of, and how it is made."""


def list_costs(exposed: Exposed, count: CountOf) -> Mapping[str, ListCost]:
    """What a list costs, by server; `bridge` are the bridge's own tools. Slow: not on the way of a request."""
    sums: dict[str, list[int]] = {}
    for ref, entry in exposed.offered():
        server = sums.setdefault(ref.server, [0, 0, 0])
        server[0] += count(ref.wire, ref.definition, partial(as_sent, ref))
        server[1] += count("", entry.legacy, partial(bytes, entry.legacy))
    for entry in exposed.tools.entries:
        server = sums.setdefault(entry.key[0], [0, 0, 0])
        server[2] += count("", entry.legacy, partial(bytes, entry.legacy))
    return {server: ListCost(*numbers) for server, numbers in sums.items()}


def _account(key: tuple[str, ...], numbers: Sequence[int]) -> ListAccount:
    lists, sent, slim, listed = (*numbers, *[0] * 4)[:4]
    return ListAccount(key[1:], key[0] != "estimate", lists, sent, slim, listed)
