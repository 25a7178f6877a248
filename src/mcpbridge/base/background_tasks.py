"""Tasks that outlive the function that started them. One owner ends them all."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, TypeVar

import anyio

from mcpbridge.base.log import get_logger

log = get_logger("mcpbridge")

_T = TypeVar("_T")


def is_asked_to_end() -> bool:
    """Whether somebody cancelled the task that runs now.

    If nobody did, a `CancelledError` in it is a failure like any other: what it waited for was cancelled. Let out into
    a task group it would pass for a cancellation of that, and end the others without a word.
    """
    task = asyncio.current_task()
    return task is not None and bool(task.cancelling())


async def repeat(seconds: float, work: Callable[[], Awaitable[bool | None]], *, at_once: bool = False) -> None:
    """Do the work again and again, with so many seconds between, until it returns True or this is cancelled.

    Work that fails is repeated like other work, and the log says why, once for the same failures in a row. `at_once`:
    the seconds do not come first.
    """
    failure = ""
    while True:
        if not at_once:
            await asyncio.sleep(seconds)
        at_once = False
        try:
            if await work():
                return
            failure = ""
        except Exception as error:
            if failure != (failure := repr(error)):
                log.error("work in the background failed; it is done again", exc_info=error)
        if is_asked_to_end():  # before Python 3.12, `asyncio.wait_for` in the work may have lost the cancellation
            raise asyncio.CancelledError


async def to_its_end(work: Coroutine[Any, Any, _T]) -> _T:
    """Do the work to its end: whoever cancels meanwhile has to wait, and is obeyed afterwards. For work that is short.

    The end of the loop ends it all the same.
    """
    task, interrupted = asyncio.ensure_future(work), None
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError as cancelled:
                interrupted = cancelled
    if interrupted is not None:
        raise interrupted
    return task.result()


class FirstStep(Coroutine[Any, Any, _T]):
    """A coroutine that takes its first step even if its task is cancelled before: then it is cancelled where it waits.

    asyncio never enters the coroutine of such a task, so nothing in it could clean up, or answer who waits.
    """

    __slots__ = ("_has_begun", "_work")

    def __init__(self, work: Coroutine[Any, Any, _T]) -> None:
        """`work` has not begun."""
        self._work = work
        self._has_begun = False

    def send(self, value: Any, /) -> Any:
        """Continue; see `Coroutine`."""
        self._has_begun = True
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        """Continue with an error; see `Coroutine`."""
        if not self._has_begun:
            self.send(None)
        return self._work.throw(*error)

    def close(self) -> None:
        """Give it up."""
        self._work.close()

    def __await__(self) -> Generator[Any, Any, _T]:
        self._has_begun = True
        return self._work.__await__()


class TaskGroup(asyncio.TaskGroup):
    """The task group of the standard library, which leaves the task that enters it as it was.

    To end its body, the group cancels the task that entered it. Before Python 3.13 it takes that back only if a member
    failed while the body ran (CPython issue 116720). Else the task would count as cancelled for good, and the next
    task group or timeout in it would end with a `CancelledError` that nobody asked for.
    """

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the members. Cancelling ends them, and waits for their ends."""
        was_requested = self._has_cancelled
        try:
            await super().__aexit__(kind, error, trace)
        finally:
            if sys.version_info < (3, 13) and self._has_cancelled and not was_requested:
                task = asyncio.current_task()
                if task is not None:  # nobody else could have entered it
                    task.uncancel()

    @property
    def _has_cancelled(self) -> bool:
        return bool(getattr(self, "_parent_cancel_requested", False))


@asynccontextmanager
async def own_group(end: Callable[[], None]) -> AsyncGenerator[asyncio.TaskGroup]:
    """A task group that raises what the body raises as it is, not in a group of its own.

    `end` is called when the body is over: it is to have the tasks end, which are waited for.
    """
    failure: BaseException | None = None
    async with TaskGroup() as group:
        try:
            yield group
        except BaseException as error:  # noqa: BLE001 - raised again below; the group would wrap it in its own
            failure = error
        finally:
            end()
    if failure is not None:
        raise failure


class OwnedTasks:
    """The tasks that were started while `running` was entered. One that fails ends alone, and the log says why."""

    def __init__(self) -> None:
        self._group: asyncio.TaskGroup | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def under_way(self) -> set[asyncio.Task[None]]:
        """Those that have not ended."""
        return set(self._tasks)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Tasks may be started meanwhile; leaving cancels them and waits for their end."""
        async with own_group(self._end) as self._group:
            yield

    def _end(self) -> None:
        self._group = None
        for task in self._tasks:
            task.cancel()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        """Start a task. None: nothing runs any more, so it is not started."""
        if self._group is None:
            work.close()
            return None
        task = self._group.create_task(_contained(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # it may have been cancelled before it began
        return task


async def _contained(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception as error:
        log.error("background task failed", exc_info=error)
