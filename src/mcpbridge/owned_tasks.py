"""Tasks that outlive whoever began them, with one owner that ends them all."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

__all__ = ["OwnedTasks"]


class OwnedTasks:
    """The tasks that were started while `running` was entered. None of them may raise: it would end all the others."""

    def __init__(self) -> None:
        self._group: asyncio.TaskGroup | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Tasks may be started meanwhile; leaving cancels them and waits for their end."""
        failure: BaseException | None = None
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                yield
            except BaseException as error:  # noqa: BLE001 - raised again below; the group would wrap it in its own
                failure = error
            finally:
                self._group = None
                for task in self._tasks:
                    task.cancel()
        if failure is not None:
            raise failure

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        """Start a task. None: nothing runs any more, so it is not started."""
        if self._group is None:
            work.close()
            return None
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
