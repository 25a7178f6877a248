"""What large results cost and saved: tokens per tool, server, client and day. All numbers are estimates.

`Line`s are counted in memory on the path of calls, and written to the store now and then, where several processes add
up. Days are those of UTC.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Literal

import anyio
from msgspec import Struct

from mcpbridge.base.background_tasks import OwnedTasks
from mcpbridge.base.errors import StoreFailed
from mcpbridge.base.log import get_logger
from mcpbridge.results.token_count import estimated_tokens
from mcpbridge.storage.store import MAX_DAYS, DailyCounts, Store, add

log = get_logger("mcpbridge.results")

OTHER = "other"
"""Stands for the clients, or tools, beyond those that are counted separately in one day."""

By = Literal["day", "server", "tool", "client"]
"""What accounts are grouped by."""

_LEDGER = "results"
_FLUSH = 30.0
"""Seconds between two times that lines are written down."""
_WRITING = 2.0
"""Seconds that writing is waited for once it was begun, also when the bridge ends."""
_AT_ONCE = 500
"""Rows that are written in one go: others want to write too."""
_MOST_CLIENTS, _MOST_TOOLS = 1000, 10_000
"""Names counted separately in one day by one process: clients name themselves, and servers their tools."""
_MOST_LINES = 50_000
_LONGEST_NAME = 200
"""Characters."""
_DAY = 86400
_PARTS: tuple[By, ...] = ("day", "server", "tool", "client")
"""What a key in the store is made of, in this order."""


class Line(Struct):
    """What was counted of one tool and client since it was last written down. Tokens, but for the first two."""

    calls: int = 0
    rewritten: int = 0
    """Calls whose result was rewritten."""
    came: int = 0
    """What servers sent."""
    sent: int = 0
    """What clients were sent in its place, announcements included."""
    stored: int = 0
    """What was kept for later."""
    recalled: int = 0
    """What clients were sent later, out of what was kept."""

    passed: int = 0
    """Bytes of results that were small enough to pass: they came, and were shown."""

    def take(self) -> tuple[int, ...]:
        """The first six numbers in their order; the line begins anew."""
        same = estimated_tokens(self.passed)
        numbers = self.calls, self.rewritten, self.came + same, self.sent + same, self.stored, self.recalled
        if any(numbers):
            self.calls = self.rewritten = self.came = self.sent = self.stored = self.recalled = self.passed = 0
        return numbers


class Account(Struct, frozen=True):
    """Sums over some days, of all lines that have this in common."""

    key: tuple[str, ...]
    """The parts that were asked for, in that order. A day is `YYYY-MM-DD`, a tool its id, `server/tool`."""
    calls: int = 0
    rewritten: int = 0
    came: int = 0
    shown: int = 0
    stored: int = 0
    recalled: int = 0

    @property
    def saved(self) -> int:
        """Tokens that clients did not get; below 0 if they got more in the end."""
        return self.came - self.shown - self.recalled

    @property
    def percent(self) -> float:
        """What part of what came was saved."""
        return 100 * self.saved / self.came if self.came else 0.0


_Names = tuple[str, str, str]
"""Server, tool and client."""


class TokenLedger:
    """The lines of one bridge. For one event loop."""

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.time) -> None:
        self._store, self._clock = store, clock
        self._lines: dict[_Names, Line] = {}
        self._unused: dict[_Names, Line] = {}
        """Lines of the day before: a call that is under way may hold one, so what comes on them still counts."""
        self._clients, self._tools = set[str](), set[tuple[str, str]]()
        self._day, self._day_begins = "", 0.0
        self._earlier: DailyCounts = {}
        """What was counted and is on no line any more: on days before, and what could not be written."""
        self._writing: asyncio.Task[None] | None = None
        self._rows: DailyCounts = {}
        """What it writes. It may take longer than anybody waits, and until it ends nobody knows whether it did."""
        self._lock = anyio.Lock()
        self._has_complained = False
        self.day = 0
        """Counts the days: lines of an earlier one may be forgotten, so who keeps some looks at this."""

    def line(self, server: str, tool: str, client: str) -> Line:
        """The line of this tool (its id) and client: the same object all day, which begins anew when written down."""
        self._look_at_the_clock()
        found = self._lines.get((server, tool, client))
        return self._new_line(server, tool, client) if found is None else found

    async def flush(self) -> None:
        """Write down what was counted. What cannot be written is kept for the next time."""
        async with self._lock:
            self._put_aside()
            with anyio.move_on_after(_WRITING, shield=True):
                await self._is_written()  # what was waited for in vain the last time
                while self._earlier:
                    self._begin_to_write()
                    if not await self._is_written():
                        break

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Writes down now and then meanwhile, and at the end."""
        tasks = OwnedTasks()
        async with tasks.running():
            tasks.spawn(self._keep_flushing())
            try:
                yield
            finally:
                with anyio.CancelScope(shield=True):  # bounded by `flush`, and waits for one that is under way
                    await self.flush()

    async def report(
        self, *, days: int = 7, by: Sequence[By] = ("tool",), servers: Collection[str] | None = None
    ) -> list[Account]:
        """The sums of the last `days` days, today included, grouped by the parts `by`; of all processes.

        `servers`: of these alone; the store may be shared by configurations that have others.
        What saved most comes first; where days are separate, the oldest day.
        """
        first = datetime.fromtimestamp(self._clock(), UTC) - timedelta(days=min(max(1, days), MAX_DAYS) - 1)
        since = first.date().isoformat()
        async with self._lock:
            with anyio.move_on_after(_WRITING):  # else what is being written would be seen twice
                await self._is_written()
            found = await self._store.read_counts(_LEDGER, since=since)
            self._put_aside()
            for rows in (self._earlier, self._rows):
                add(found, {key: numbers for key, numbers in rows.items() if key[0] >= since})
        places = [_PARTS.index(part) for part in by]
        sums: DailyCounts = {}
        for key, numbers in found.items():
            is_whole = len(key) == len(_PARTS)  # else a damaged row
            if is_whole and (servers is None or key[_PARTS.index("server")] in servers):
                add(sums, {tuple(key[place] for place in places): numbers})
        accounts = [_account(key, numbers) for key, numbers in sums.items()]
        day = by.index("day") if "day" in by else None
        return sorted(accounts, key=lambda one: ("" if day is None else one.key[day], -one.saved, one.key))

    async def _keep_flushing(self) -> None:
        while True:
            await anyio.sleep(_FLUSH)
            self._look_at_the_clock()
            await self.flush()

    def _begin_to_write(self) -> None:
        rows = list(self._earlier.items())
        self._rows, self._earlier = dict(rows[:_AT_ONCE]), dict(rows[_AT_ONCE:])
        self._writing = asyncio.create_task(self._store.count(_LEDGER, self._rows))

    async def _is_written(self) -> bool:
        """Whether what was begun is written, once it has ended: then its rows are forgotten, else kept.

        Who is cancelled meanwhile does not cancel it.
        """
        if self._writing is None:
            return True
        await asyncio.wait([self._writing])
        writing, rows = self._writing, self._rows
        self._writing, self._rows = None, {}
        try:
            writing.result()
            rows = {}
        except StoreFailed as error:
            self._complain(str(error))
        except asyncio.CancelledError:
            pass  # with all that ran on the loop, at its end
        finally:
            add(self._earlier, rows)
        return not rows

    def _look_at_the_clock(self) -> None:
        now = self._clock()
        if not 0 <= now - self._day_begins < _DAY:
            self._begin_day(now)

    def _begin_day(self, now: float) -> None:
        was_used = {names for names, line in self._lines.items() if line.calls or line.recalled}
        self._put_aside()
        lines = self._lines
        self._lines = {names: line for names, line in lines.items() if names in was_used}
        self._unused = {names: line for names, line in lines.items() if names not in was_used}
        self._clients = {client for _, _, client in self._lines}
        self._tools = {(server, tool) for server, tool, _ in self._lines}
        self.day += 1
        self._day_begins = now // _DAY * _DAY
        self._day = datetime.fromtimestamp(now, UTC).date().isoformat()

    def _new_line(self, server: str, tool: str, client: str) -> Line:
        tool, client = tool[:_LONGEST_NAME], client[:_LONGEST_NAME]
        if client not in self._clients:
            if len(self._clients) < _MOST_CLIENTS:
                self._clients.add(client)
            else:
                client = OTHER
        if (server, tool) not in self._tools:
            if len(self._tools) < _MOST_TOOLS:
                self._tools.add((server, tool))
            else:
                tool = OTHER
        if len(self._lines) >= _MOST_LINES:
            tool = client = OTHER
        names = server, tool, client
        return self._lines.setdefault(names, self._unused.pop(names, None) or Line())

    def _put_aside(self) -> None:
        """Turn what is on the lines into rows. The lines stay: a call that is under way may hold one."""
        for names, line in chain(self._lines.items(), self._unused.items()):
            numbers = line.take()
            if any(numbers):
                key = (self._day, *(_plain(name) for name in names))
                add(self._earlier, {key: numbers})

    def _complain(self, reason: str) -> None:
        if not self._has_complained:
            self._has_complained = True
            log.warning("token statistics cannot be stored", reason=reason)


def _plain(name: str) -> str:
    """A name that fits, in any file."""
    return name[:_LONGEST_NAME].encode("utf-8", "replace").decode()


def _account(key: tuple[str, ...], numbers: Sequence[int]) -> Account:
    calls, rewritten, came, shown, stored, recalled = (*numbers, *[0] * 6)[:6]
    return Account(key, calls, rewritten, came, shown, stored, recalled)
