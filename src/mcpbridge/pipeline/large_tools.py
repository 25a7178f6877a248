"""Which tools have had large results: their definitions say what helps with those. Kept over restarts."""

from collections import Counter
from collections.abc import Callable, Iterable

from mcpbridge.errors import StoreFailed
from mcpbridge.logs import get_logger
from mcpbridge.owned_tasks import OwnedTasks
from mcpbridge.storage.store import Store

__all__ = ["LargeTools"]

log = get_logger("mcpbridge.results")

_KIND = "large_tool"
_SECONDS = 90 * 86400.0
"""How long that is remembered of a tool; each large result begins it anew, once a run of the bridge."""
MOST = 5000
MOST_OF_SERVER = 200
"""Servers name their tools, as many and as they like; each new one here is a new catalog."""
_LONGEST = 300
"""Characters of an id; longer ones are not looked at."""


class LargeTools:
    """The ids of these tools (`server/tool`, the server's own name), for everybody."""

    def __init__(self, store: Store, tasks: OwnedTasks, changed: Callable[[frozenset[str]], None]) -> None:
        """`changed` gets all of them when there are more."""
        self._store, self._tasks, self._changed = store, tasks, changed
        self._known: frozenset[str] = frozenset()
        self._of_server = Counter[str]()
        self._met = set[str]()

    async def load(self) -> None:
        """Take those of earlier runs."""
        try:
            entries = await self._store.entries(_KIND, principal="", limit=MOST)
        except StoreFailed as error:
            log.debug("which tools have large results is not known", reason=str(error))
            return
        self._learn(entry.handle for entry in entries)

    def met(self, tool: str) -> None:
        """A result of this tool was large. Beyond the bounds nothing more is learnt."""
        if tool in self._met:
            return
        self._learn((tool,))
        if tool in self._known:
            self._met.add(tool)
            self._tasks.spawn(self._remember(tool))

    def _learn(self, tools: Iterable[str]) -> None:
        known = set(self._known)
        for tool in tools:
            server = tool.partition("/")[0]
            is_full = len(known) >= MOST or self._of_server[server] >= MOST_OF_SERVER
            if tool not in known and not is_full and len(tool) <= _LONGEST:
                known.add(tool)
                self._of_server[server] += 1
        if len(known) > len(self._known):
            self._known = frozenset(known)
            self._changed(self._known)

    async def _remember(self, tool: str) -> None:
        try:
            await self._store.put(_KIND, b"", principal="", expires_in=_SECONDS, handle=tool)
        except StoreFailed as error:
            log.debug("that a tool has large results cannot be kept", tool=tool, reason=str(error))
