"""The call log of the bridge that the console shows, read in threads: a page waits for the file, calls do not.

A file that is not there yet has nothing in it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from mcpbridge.app.console.context import in_thread
from mcpbridge.library.bridge import Bridge
from mcpbridge.storage.call_log.reader import Filter, Page, Row, count_calls, read_call, read_page, read_running
from mcpbridge.storage.call_log.timeline import By, read_events, read_minutes, read_session, read_sessions
from mcpbridge.storage.sqlite.database import may_exist

T = TypeVar("T")

COUNTED = 100_000
"""Calls up to which they are counted."""


class CallHistory:
    """What the call log says.

    Every method raises `StoreFailed` if the file cannot be read.
    """

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge

    @property
    def is_recorded(self) -> bool:
        """Calls are recorded now."""
        return self._bridge.recording != "off"

    @property
    def keeps_content(self) -> bool:
        """Arguments and results are kept of calls that say nothing else."""
        return self._bridge.keeps_content

    async def page(self, which: Filter, *, limit: int, before: int = 0, after: int = 0, content: bool = False) -> Page:
        """See `read_page`."""
        read = partial(read_page, which=which, limit=limit, before=before, after=after, content=content)
        return await self._read(read, Page((), 0, after))

    async def count(self, which: Filter) -> int:
        """How many calls there are, up to `COUNTED`."""
        return await self._read(lambda path: count_calls(path, which, most=COUNTED), 0)

    async def call(self, uid: str) -> Row | None:
        """See `read_call`."""
        return await self._read(lambda path: read_call(path, uid), None)

    async def running(self, which: Filter, *, limit: int) -> Sequence[Row]:
        """See `read_running`: calls under way of all bridges that write this file."""
        return await self._read(lambda path: read_running(path, which, limit=limit), ())

    async def events(
        self, which: Filter, *, limit: int, before: int = 0, after: int = 0, kinds: Sequence[str] = ()
    ) -> Sequence[Row]:
        """See `read_events`."""
        read = partial(read_events, which=which, limit=limit, before=before, after=after, kinds=kinds)
        return await self._read(read, ())

    async def sessions(self, *, client: str | None = None, limit: int, before: int = 0) -> Sequence[Row]:
        """See `read_sessions`."""
        return await self._read(lambda path: read_sessions(path, client=client, limit=limit, before=before), ())

    async def session(self, session: str) -> Row | None:
        """See `read_session`."""
        return await self._read(lambda path: read_session(path, session), None)

    async def minutes(
        self, since: float, *, by: Sequence[By] = ("server",), server: str | None = None, step: int = 60
    ) -> Sequence[Row]:
        """See `read_minutes`."""
        return await self._read(lambda path: read_minutes(path, since, by=by, server=server, step=step), ())

    async def _read(self, read: Callable[[Path], T], absent: T) -> T:
        path = self._bridge.audit.path

        def work() -> T:
            return read(path) if may_exist(path) else absent

        return await in_thread(work)
