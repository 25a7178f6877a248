"""Where sign-ins and renewals run: they outlive the request, and the connection, that needed them first."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from mcpbridge.logs import get_logger
from mcpbridge.owned_tasks import OwnedTasks

__all__ = ["Flights"]

log = get_logger("mcpbridge.upstream")


class Flights(OwnedTasks):
    """The tasks of all authorizations of one bridge."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        """Start a task. What it raises is logged and ends here. When nothing runs any more, it is not started."""
        if (task := super().spawn(_contained(work))) is None:
            work.close()
        return task


async def _contained(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception:
        # One server's sign-in (its store on a disk that fails, say) must not end all the others with it.
        log.exception("a sign-in ended in an unexpected way")
