"""Which tools have had large results: their definitions say what helps with those. Kept over restarts."""

from collections.abc import Callable

import structlog

from mcpbridge.errors import StoreFailed
from mcpbridge.owned_tasks import OwnedTasks
from mcpbridge.storage.store import Store

__all__ = ["LargeTools"]

log = structlog.get_logger("mcpbridge.results")

_KIND = "large_tool"
_SECONDS = 90 * 86400.0
"""How long that is remembered of a tool; each large result begins it anew, once a run of the bridge."""
MOST = 5000


class LargeTools:
    """The ids of these tools (`server/tool`, the server's own name), for everybody."""

    def __init__(self, store: Store, tasks: OwnedTasks, changed: Callable[[frozenset[str]], None]) -> None:
        """`changed` gets all of them when there are more."""
        self._store, self._tasks, self._changed = store, tasks, changed
        self._known: frozenset[str] = frozenset()
        self._met = set[str]()

    async def load(self) -> None:
        """Take those of earlier runs."""
        try:
            entries = await self._store.entries(_KIND, principal="", limit=MOST)
        except StoreFailed as error:
            log.debug("which tools have large results is not known", reason=str(error))
            return
        self._learn(frozenset(entry.handle for entry in entries))

    def met(self, tool: str) -> None:
        """A result of this tool was large."""
        if tool in self._met or len(self._met) >= MOST:
            return
        self._met.add(tool)
        self._tasks.spawn(self._remember(tool))
        self._learn(frozenset((tool,)))

    def _learn(self, tools: frozenset[str]) -> None:
        if not tools <= self._known:
            self._known |= tools
            self._changed(self._known)

    async def _remember(self, tool: str) -> None:
        try:
            await self._store.put(_KIND, b"", principal="", expires_in=_SECONDS, handle=tool)
        except StoreFailed as error:
            log.debug("that a tool has large results cannot be kept", tool=tool, reason=str(error))
