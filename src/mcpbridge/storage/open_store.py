"""The bridge's store: opened at the first use. A store that does not open never keeps the bridge from starting.

While the file cannot be used (no rights, damaged, disk full), values are kept in memory, and that is logged once. The
file is tried again now and then; values that came meanwhile stay in memory until they expire.

A server of kind `redis` stands for the file, with one difference: what must be the same for all bridges
(`put_if_absent`, and what uses `LazyStore.shared`) fails while it cannot be reached.
"""

import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import anyio

from mcpbridge.base.errors import StoreFailed, ValueTooLarge
from mcpbridge.base.log import get_logger
from mcpbridge.storage.disk import disk_problems
from mcpbridge.storage.settings import StoreSettings, redis_address, store_path
from mcpbridge.storage.sqlite.database import may_exist
from mcpbridge.storage.store import BytesLike, DailyCounts, Entry, Store, add

if TYPE_CHECKING:
    from mcpbridge.storage.redis.store import RedisStore


log = get_logger("mcpbridge.storage")

_T = TypeVar("_T")


class LazyStore:
    """A `Store` as the settings want it. Making one touches nothing: no file, no thread."""

    def __init__(
        self,
        settings: StoreSettings,
        *,
        environ: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._environ = environ
        self._clock = clock
        self._memory: Store | None = None
        self._bounds: dict[str, int] = {}
        self._was_used = False
        self._complaints = set[str]()
        self.problem = ""
        """Why the file could not be used the last time that something was to be kept; empty: it could."""

    @cached_property
    def _file(self) -> Store | None:
        self._was_used = True
        if self._settings.kind == "memory":
            return None
        limit = self._settings.max_bytes
        bound = {} if limit is None else {"max_bytes": limit}
        if self._settings.kind == "redis":
            return self._bounded(self._redis(bound))
        from mcpbridge.storage.sqlite.store import SqliteStore  # most bridges start without

        return self._bounded(SqliteStore(self._path, key=self._settings.key, clock=self._clock, **bound))

    @cached_property
    def _path(self) -> Path:
        return store_path(self._settings, self._environ)

    def _redis(self, bound: dict[str, int]) -> "RedisStore":
        from mcpbridge.storage.redis.store import RedisStore  # its client is large

        settings, clock = self._settings, None if self._clock is time.time else self._clock
        return RedisStore(redis_address(settings), prefix=settings.prefix, key=settings.key, clock=clock, **bound)

    async def check(self) -> None:
        """Look whether a server of kind `redis` can be used; other kinds are looked at when they are first used.

        A server that cannot be reached is only complained of: it is tried again.

        Raises:
            ConfigError: it must not be used, or its client is not installed.
        """
        if self._settings.kind == "redis":
            from mcpbridge.storage.redis.store import RedisStore

            assert isinstance(self._file, RedisStore)
            try:
                await self._file.check()
            except StoreFailed as error:
                self._complain(error)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Closes the store after everybody who uses it; raises as `check` at the beginning."""
        try:
            await self.check()
            yield
        finally:
            with anyio.CancelScope(shield=True):  # takes seconds at most
                await self.close()

    @property
    def shared(self) -> Store:
        """The values as all bridges have them: with a server of kind `redis`, every method fails while it is away."""
        return self._file if self._settings.kind == "redis" and self._file is not None else self

    def _to_read(self) -> Store | None:
        """The file, unless there is none yet: looking for something does not make it."""
        if self._settings.kind == "sqlite" and not self._was_used and not may_exist(self._path):
            return None
        return self._file

    def _in_memory(self) -> Store:
        if self._memory is None:
            from mcpbridge.storage.memory_store import MemoryStore

            limit = self._settings.max_bytes if self._settings.kind == "memory" else None
            bound = {} if limit is None else {"max_bytes": limit}
            self._memory = self._bounded(MemoryStore(clock=self._clock, **bound))
        return self._memory

    def _bounded(self, store: Store) -> Store:
        for kind, limit in self._bounds.items():
            store.bound(kind, limit)
        return store

    async def put(
        self, kind: str, body: BytesLike, *, principal: str, expires_in: float, handle: str = "", label: bytes = b""
    ) -> str:
        """Keep a value: in the file, else in memory."""
        if self._file is not None:
            try:
                kept = await self._file.put(
                    kind, body, principal=principal, expires_in=expires_in, handle=handle, label=label
                )
            except ValueTooLarge:
                raise
            except StoreFailed as error:
                self._complain(error)
            else:
                self.problem = ""
                if self._memory is not None:
                    await self._memory.drop(kind, kept, principal=principal)
                return kept
        memory = self._in_memory()
        return await memory.put(kind, body, principal=principal, expires_in=expires_in, handle=handle, label=label)

    async def put_if_absent(
        self, kind: str, body: bytes, *, principal: str, expires_in: float, handle: str, label: bytes = b""
    ) -> bytes:
        """The value that is there, or this one."""
        if self._memory is not None:
            found = await self._memory.get(kind, handle, principal=principal)
            if found is not None:
                return found
        if self._file is not None:
            try:
                return await self._file.put_if_absent(
                    kind, body, principal=principal, expires_in=expires_in, handle=handle, label=label
                )
            except ValueTooLarge:
                raise
            except StoreFailed as error:
                self._complain(error)
                if self._settings.kind == "redis":  # each bridge would have one of its own
                    raise
        return await self._in_memory().put_if_absent(
            kind, body, principal=principal, expires_in=expires_in, handle=handle, label=label
        )

    async def get(self, kind: str, handle: str, *, principal: str, renew: float | None = None) -> bytes | None:
        """The value, if there is one."""
        return await self._look_up(lambda store: store.get(kind, handle, principal=principal, renew=renew), None)

    async def renew(
        self, kind: str, handle: str, *, principal: str, expires_in: float, label: bytes | None = None
    ) -> bool:
        """Treat a value as new, if there is one."""

        def renewed(store: Store) -> Awaitable[bool]:
            return store.renew(kind, handle, principal=principal, expires_in=expires_in, label=label)

        return await self._look_up(renewed, none=False)

    async def take(self, kind: str, handle: str, *, principal: str) -> bytes | None:
        """The value, once."""
        found = None
        if self._memory is not None:
            found = await self._memory.take(kind, handle, principal=principal)
        older = await self._in_file(lambda file: file.take(kind, handle, principal=principal), None)
        return older if found is None else found  # from both, else it could be taken twice

    async def drop(self, kind: str, handle: str, *, principal: str) -> bool:
        """Forget a value."""
        found = False
        if self._memory is not None:
            found = await self._memory.drop(kind, handle, principal=principal)
        return await self._in_file(lambda file: file.drop(kind, handle, principal=principal), none=False) or found

    async def entry(self, kind: str, handle: str, *, principal: str) -> Entry | None:
        """What is known of one value."""
        return await self._look_up(lambda store: store.entry(kind, handle, principal=principal), None)

    async def entries(
        self, kind: str, *, principal: str | None, limit: int | None = None, newest_first: bool = False
    ) -> list[Entry]:
        """What there is of a kind."""

        def listed(store: Store) -> Awaitable[list[Entry]]:
            return store.entries(kind, principal=principal, limit=limit, newest_first=newest_first)

        older = await self._in_file(listed, [])
        if self._memory is None:
            return older
        found = await listed(self._memory)
        names = {(entry.principal, entry.handle) for entry in found}
        found += [entry for entry in older if (entry.principal, entry.handle) not in names]
        found.sort(key=lambda entry: entry.created, reverse=newest_first)
        return found[:limit]

    def bound(self, kind: str, max_bytes: int) -> None:
        """Bound one kind."""
        self._bounds[kind] = max_bytes
        if self._memory is not None:
            self._memory.bound(kind, max_bytes)
        if self._was_used and self._file is not None:
            self._file.bound(kind, max_bytes)

    async def count(self, ledger: str, rows: Mapping[tuple[str, ...], Sequence[int]]) -> None:
        """Add numbers: in the file, else in memory."""
        if self._file is not None:
            try:
                return await self._file.count(ledger, rows)
            except StoreFailed as error:
                self._complain(error)
        return await self._in_memory().count(ledger, rows)

    async def read_counts(self, ledger: str, *, since: str = "") -> DailyCounts:
        """What was counted."""
        found = await self._in_file(lambda file: file.read_counts(ledger, since=since), {})
        if self._memory is not None:
            add(found, await self._memory.read_counts(ledger, since=since))
        return found

    async def _look_up(self, look: Callable[[Store], Awaitable[_T]], none: _T) -> _T:
        """What memory has, else the file; `none` if neither has anything."""
        if self._memory is not None:
            found = await look(self._memory)
            if found != none:
                return found
        return await self._in_file(look, none)

    async def _in_file(self, look: Callable[[Store], Awaitable[_T]], none: _T) -> _T:
        """What the file has; `none` if there is no file, or none that can be used."""
        try:
            file = self._to_read()
            return none if file is None else await look(file)
        except StoreFailed as error:
            self._complain(error)
            return none

    async def close(self) -> None:
        """Close what was opened."""
        if self._was_used and self._file is not None:
            await self._file.close()
        if self._memory is not None:
            await self._memory.close()

    def problems(self) -> list[str]:
        """Why what the store should keep may be lost: what failed the last time, and what is wrong with its place."""
        if self._settings.kind == "memory":
            return []
        failed = [f"the store cannot be used: {self.problem}"] if self.problem else []
        return failed if self._settings.kind == "redis" else failed + disk_problems([self._path.parent])

    def _complain(self, error: StoreFailed) -> None:
        self.problem = str(error)
        if error.what not in self._complaints:
            self._complaints.add(error.what)
            log.warning(
                "the store cannot be used; keeping its data in memory until the bridge stops",
                file=error.file,
                reason=error.what,
            )
