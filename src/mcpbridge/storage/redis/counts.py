"""Counts by day on a Redis server: each addition is made once, also where its answer gets lost.

Additions of one bridge have numbers, and the server knows the last one that was made. An addition without an answer is
sent again under its number before anything else is counted or read, so that it is in the sums, and once. What the
server refused was not made.
"""

import json
import random
import time
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

import anyio
from msgspec import Struct

from mcpbridge.base.errors import StoreFailed
from mcpbridge.base.log import get_logger
from mcpbridge.storage.redis import scripts
from mcpbridge.storage.redis.connections import Connections, was_refused
from mcpbridge.storage.redis.scripts import Keys
from mcpbridge.storage.store import DailyCounts, add, list_in, new_handle, numbers_in

log = get_logger("mcpbridge.storage")

_TRIES = 60
_KNOWN_SECONDS = 86400
"""How long the server knows which addition of a bridge was the last."""
_PAGE = 500
"""Fields that one command reads."""
_AT_END = 2.0
"""Seconds that an addition without an answer has at the end."""


class _Addition(Struct, frozen=True):
    number: int
    ledger: str
    rows: Mapping[tuple[str, ...], Sequence[int]]
    at: float
    """Unix time before it was first sent."""


class RedisCounts:
    """Adds and reads; see `Store`. For one event loop."""

    def __init__(self, server: Connections, keys: Keys, place: str) -> None:
        """`place`: what errors call the server."""
        self._server, self._keys, self._place = server, keys, place
        self._mine, self._number = keys.additions(new_handle()), 0
        self._unsure: _Addition | None = None
        """The one addition that may have been made, or not."""
        self._lock = anyio.Lock()

    async def count(self, ledger: str, rows: Mapping[tuple[str, ...], Sequence[int]]) -> None:
        """Add numbers. Where nobody knows whether they were added, that is cleared up later, and they count.

        Raises:
            StoreFailed: none was added, and none will be.
        """
        if not rows:
            return
        async with self._lock:
            await self._clear_up()
            self._number += 1
            try:
                await self._add(_Addition(self._number, ledger, dict(rows), time.time()))
            except StoreFailed:
                if self._unsure is None:
                    raise

    async def read(self, ledger: str, first_day: str) -> DailyCounts:
        """What was counted from this day on."""
        async with self._lock:
            await self._clear_up()
        found: DailyCounts = {}
        for name in await self._server.call("ZRANGE", self._keys.days, f"[{first_day}", "+", "BYLEX"):
            day, _, of = name.decode().partition(":")
            if unquote(of, errors="surrogatepass") != ledger:
                continue
            key, cursor = self._keys.counts(unquote(day), ledger)[0], b"0"
            while True:
                cursor, pairs = await self._server.call("HSCAN", key, cursor, "COUNT", _PAGE)
                for field, text in zip(pairs[::2], pairs[1::2], strict=True):
                    found[(unquote(day), *map(str, list_in(field)))] = numbers_in(text)
                if cursor == b"0":
                    break
        return found

    async def close(self) -> None:
        """Clear up what is not sure, within seconds; else it is lost."""
        with anyio.move_on_after(_AT_END, shield=True):
            try:
                async with self._lock:
                    await self._clear_up()
            except StoreFailed:
                pass

    async def _clear_up(self) -> None:
        if self._unsure is None:
            return
        if time.time() - self._unsure.at > _KNOWN_SECONDS / 2:  # the server may not know it much longer
            log.warning("a count that may have been kept or not is so old that it is not kept again")
            self._unsure = None
        else:
            await self._add(self._unsure)

    async def _add(self, addition: _Addition) -> None:
        """Raises StoreFailed, or is cancelled: it was not made, unless it is the one that nobody is sure of."""
        where = [(*self._keys.counts(day, addition.ledger), json.dumps(rest)) for day, *rest in addition.rows]
        days, fields = [key for key, _, _ in where], [field for _, _, field in where]
        for attempt in range(_TRIES):
            old = await self._server.run(scripts.FIND_COUNTS, days, *fields)
            sums: DailyCounts = {
                key: numbers_in(text) for key, text in zip(addition.rows, old, strict=True) if text is not None
            }
            add(sums, addition.rows)
            changes: list[str | bytes] = []
            for (_, name, field), text, key in zip(where, old, addition.rows, strict=True):
                changes += (name, field, text or b"", json.dumps(sums[key]))
            was_unsure, self._unsure = self._unsure, addition
            keys = [self._keys.days, self._mine, *days]
            try:
                is_made = await self._server.run(scripts.SET_COUNTS, keys, addition.number, _KNOWN_SECONDS, *changes)
            except StoreFailed as error:
                if was_refused(error):
                    self._unsure = was_unsure
                raise
            self._unsure = None if is_made else was_unsure
            if is_made:
                return
            await anyio.sleep(random.random() * 0.002 * min(attempt + 1, 20))
        raise StoreFailed("the same numbers are counted by too many at once", file=self._place)
