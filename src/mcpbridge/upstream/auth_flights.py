"""Where sign-ins and renewals run: they outlive the request, and the connection, that needed them first."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import structlog

__all__ = ["Flights"]

log = structlog.get_logger("mcpbridge.upstream")


class Flights:
    """The tasks of all authorizations of one bridge."""

    def __init__(self) -> None:
        self._tasks: asyncio.TaskGroup | None = None
        self._flying: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Tasks may be started meanwhile; leaving cancels them and waits for their end."""
        failure: BaseException | None = None
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                yield
            except BaseException as error:  # noqa: BLE001 - raised again below; the group would wrap it in its own
                failure = error
            finally:
                self._tasks = None
                for task in self._flying:
                    task.cancel()
        if failure is not None:
            raise failure

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task. What it raises is logged and ends here. When nothing runs any more, it is not started."""
        if self._tasks is None:
            work.close()
            return
        task = self._tasks.create_task(_contained(work))
        self._flying.add(task)
        task.add_done_callback(self._flying.discard)


async def _contained(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception:
        # One server's sign-in (its store on a disk that fails, say) must not end all the others with it.
        log.exception("a sign-in ended in an unexpected way")
