"""The bridge's store: opened when there is something to keep, and never a reason not to start.

While the file cannot be used (no rights, damaged, disk full), values are kept in memory, which is said once. It is
tried again now and then, and values that came meanwhile stay where they are until they expire.
"""

import os
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path

import structlog

from mcpbridge.errors import StoreFailed, ValueTooLarge
from mcpbridge.storage.memory import MemoryStore
from mcpbridge.storage.settings import StoreSettings, store_path
from mcpbridge.storage.sqlite import SqliteStore
from mcpbridge.storage.sqlite_file import may_exist
from mcpbridge.storage.store import Entry, Store

__all__ = ["LazyStore"]

log = structlog.get_logger("mcpbridge.storage")


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
        self._was_used = False
        self._complaints = set[str]()

    @cached_property
    def _file(self) -> Store | None:
        self._was_used = True
        if self._settings.kind == "memory":
            return None
        limit = self._settings.max_bytes
        bound = {} if limit is None else {"max_bytes": limit}
        return SqliteStore(self._path, clock=self._clock, **bound)

    @cached_property
    def _path(self) -> Path:
        return store_path(self._settings, self._environ)

    def _to_read(self) -> Store | None:
        """The file, unless there is none yet: looking for something does not make it."""
        if not self._was_used and (self._settings.kind == "memory" or not may_exist(self._path)):
            return None
        return self._file

    def _in_memory(self) -> Store:
        if self._memory is None:
            limit = self._settings.max_bytes if self._settings.kind == "memory" else None
            bound = {} if limit is None else {"max_bytes": limit}
            self._memory = MemoryStore(clock=self._clock, **bound)
        return self._memory

    async def put(self, kind: str, body: bytes, *, principal: str, expires_in: float, handle: str = "") -> str:
        """Keep a value: in the file, else in memory."""
        if self._file is not None:
            try:
                kept = await self._file.put(kind, body, principal=principal, expires_in=expires_in, handle=handle)
            except ValueTooLarge:
                raise
            except StoreFailed as error:
                self._complain(error)
            else:
                if self._memory is not None:
                    await self._memory.drop(kind, kept, principal=principal)
                return kept
        return await self._in_memory().put(kind, body, principal=principal, expires_in=expires_in, handle=handle)

    async def get(self, kind: str, handle: str, *, principal: str) -> bytes | None:
        """The value, if there is one."""
        if self._memory is not None:
            found = await self._memory.get(kind, handle, principal=principal)
            if found is not None:
                return found
        try:
            file = self._to_read()
            return None if file is None else await file.get(kind, handle, principal=principal)
        except StoreFailed as error:
            self._complain(error)
            return None

    async def take(self, kind: str, handle: str, *, principal: str) -> bytes | None:
        """The value, once."""
        found = None
        if self._memory is not None:
            found = await self._memory.take(kind, handle, principal=principal)
        try:
            if (file := self._to_read()) is not None:
                older = await file.take(kind, handle, principal=principal)  # both, else it could be taken twice
                return older if found is None else found
        except StoreFailed as error:
            self._complain(error)
        return found

    async def drop(self, kind: str, handle: str, *, principal: str) -> bool:
        """Forget a value."""
        return await self.take(kind, handle, principal=principal) is not None

    async def entries(self, kind: str, *, principal: str | None) -> list[Entry]:
        """What there is of a kind, oldest first."""
        found = [] if self._memory is None else await self._memory.entries(kind, principal=principal)
        try:
            if (file := self._to_read()) is not None:
                names = {(entry.principal, entry.handle) for entry in found}
                older = await file.entries(kind, principal=principal)
                found += [entry for entry in older if (entry.principal, entry.handle) not in names]
                found.sort(key=lambda entry: entry.created)
        except StoreFailed as error:
            self._complain(error)
        return found

    async def close(self) -> None:
        """Close what was opened."""
        if self._was_used and self._file is not None:
            await self._file.close()
        if self._memory is not None:
            await self._memory.close()

    def _complain(self, error: StoreFailed) -> None:
        if error.what not in self._complaints:
            self._complaints.add(error.what)
            log.warning(
                "the store cannot be used; what it should keep is lost when the bridge ends",
                file=error.file,
                reason=error.what,
            )
