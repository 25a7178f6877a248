"""A thread with an event loop for programs that are not asynchronous, and a run inside it.

One task enters and leaves what lives in the loop, as task groups require. Any other thread may wait for work in it; an
interrupt (Ctrl-C) while waiting cancels that work alone. What is still open when the interpreter exits is closed then.

Work may ignore its cancellation, and closing may wait for such work. Each gets a limited time, and then the loop is
closed around it. Processes that the loop owns are killed with it (`base/process`).
"""

import asyncio
import atexit
import os
import threading
import time
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Coroutine, Generator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from importlib.util import find_spec
from typing import Any, Generic, TypeVar

from mcpbridge.base.errors import BridgeClosed
from mcpbridge.base.log import get_logger
from mcpbridge.library.agent.run import Run
from mcpbridge.library.calls.run_events import RunEvent, RunOutcome

log = get_logger("mcpbridge")

END_SECONDS = 1.0
"""What is cancelled has as long to end, before nobody waits for it any more."""
LEAVE_SECONDS = 15.0
"""What is held has as long to be left in: more than servers get to end by themselves."""

_LOOK = 0.5
"""Seconds between two looks of who waits."""

T = TypeVar("T")
R = TypeVar("R")


class _Work(Future[R]):
    """Something to be done in the loop, and what comes of it."""

    def __init__(self, work: Coroutine[Any, Any, R]) -> None:
        super().__init__()
        self.work = work
        self.has_begun = False
        self.is_over = threading.Event()
        """It has ended, or never will: a future that is cancelled says nothing about that."""

    def drop(self) -> None:
        """Nobody runs it any more, or ever."""
        self.cancel()
        if not self.has_begun:
            self.work.close()
        self.is_over.set()


class LoopThread(Generic[T]):
    """Holds what `make` returns entered, from its making until `close`."""

    def __init__(self, make: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        """Returns once it is entered; raises what making and entering it raise."""
        self._make = make
        self._process = os.getpid()
        self._changes = threading.RLock()  # what is forgotten ends itself, perhaps while its thread has this
        self._is_open = self._must_end = False
        self._ends_by: float | None = None
        self._waited_for = set[_Work[Any]]()
        self._tasks = set[asyncio.Task[Any]]()
        self._begun = Future[T]()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: Callable[[], object] | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._failure: BaseException | None = None
        # A daemon, so that the interpreter does not wait for it before it has been told to end.
        self._thread = threading.Thread(target=self._run, name="mcpbridge", daemon=True)
        _end_at_exit(self)
        try:
            self._thread.start()
            self.held: T = _result_of(self._begun)
            """What was entered. To be used in the loop alone: see `wait` and `do`."""
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        counts = self.statistics()
        return f"<LoopThread {counts['state']}: {counts['waiting']} waited for, {counts['tasks']} tasks>"

    def statistics(self) -> dict[str, Any]:
        """Its state now, as JSON values: how many calls threads wait for, and how many tasks do their work."""
        state = "open" if self._is_open else "ending" if self._thread.is_alive() and self._must_end else "closed"
        if state == "closed" and self._thread.is_alive():
            state = "opening"
        return {"state": state, "waiting": len(self._waited_for), "tasks": len(self._tasks)}

    # -- from other threads

    def wait(self, work: Coroutine[Any, Any, R]) -> R:
        """Have it done in the loop, and wait for what comes of it.

        An interrupt is raised once the work has ended, or has not within `END_SECONDS`.

        Raises:
            BridgeClosed: it is over, or ended meanwhile; or this is no place to wait.
        """
        future = _Work(work)
        try:
            self._refuse_to_wait_here()
            self._begin(future)
            return _result_of(future)
        except CancelledError:
            raise BridgeClosed("the bridge was closed meanwhile") from None
        except BaseException:
            if future not in self._waited_for:
                future.drop()
            elif future.cancel():
                future.is_over.wait(END_SECONDS)
            raise
        finally:
            self._waited_for.discard(future)

    def do(self, work: Callable[[], R]) -> R:
        """The same for what does not wait itself."""

        async def doing() -> R:
            return work()

        return self.wait(doing())

    def end(self) -> None:
        """Have it end, without waiting for that; from any thread, also its own."""
        if os.getpid() != self._process:
            return  # it lives in the parent
        with self._changes:
            if self._must_end:
                return
            self._must_end, self._ends_by = True, time.monotonic() + LEAVE_SECONDS + 4 * END_SECONDS
            if self._loop is not None:
                with suppress(RuntimeError):  # it has ended by itself
                    self._loop.call_soon_threadsafe(self._leave)

    def drop(self) -> None:
        """Nobody holds it any more, and nobody closed it: have it end, and say so to who looks for leaks."""
        if self._is_open and os.getpid() == self._process:
            warnings.warn(f"{self!r} was dropped without being closed", ResourceWarning, 2, self)
        self.end()

    def close(self) -> None:
        """Leave it, and wait until everything that it ran has ended, or will not. Again: nothing."""
        self.end()
        if os.getpid() != self._process or threading.current_thread() is self._thread:
            return
        with suppress(RuntimeError):  # an interrupt came before it was seen to start; it ends by itself
            self._thread.join(max(0.0, (self._ends_by or 0.0) - time.monotonic()))
        if self._thread.is_alive():
            log.error("the bridge does not stop: something blocks its thread; its servers end with this process")
            with self._changes:
                self._is_open = False
            for future in list(self._waited_for):
                future.cancel()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    # -- in the thread

    def _run(self) -> None:
        loop = _new_loop()
        try:
            living = loop.create_task(self._live())
            living.add_done_callback(lambda _: loop.stop())
            try:
                loop.run_forever()
                self._tell_end_of(living)
            finally:
                if self._patience is not None:
                    self._patience.cancel()
                _close(loop)
        except BaseException as error:  # noqa: BLE001 - whoever opened or closes it hears of it
            self._tell(error)
        finally:
            with self._changes:
                self._is_open, self._stop = False, None
            for future in list(self._waited_for):
                future.drop()  # some came in the last moment
            _open.discard(self)

    def _tell_end_of(self, living: asyncio.Task[None]) -> None:
        if not living.done():
            log.error("the bridge does not stop: a task ignores its cancellation; killing its servers")
        if not living.done() or living.cancelled():
            self._tell(None)
        elif (error := living.exception()) is not None:
            self._tell(error)

    def _tell(self, error: BaseException | None) -> None:
        """Have whoever opens it, or else who closes it, hear of this; None: of no error."""
        if self._begun.done():
            self._failure = error
        else:
            self._begun.set_exception(error or BridgeClosed("the bridge was closed before it was open"))

    def _leave(self) -> None:
        """Have it left; in the loop."""
        loop = asyncio.get_running_loop()
        self._patience = loop.call_later(LEAVE_SECONDS, loop.stop)
        if self._stop is not None:
            self._stop()

    async def _live(self) -> None:
        task, ended = asyncio.current_task(), asyncio.Event()
        assert task is not None
        with self._changes:
            self._loop, self._stop = asyncio.get_running_loop(), task.cancel
            if self._must_end:
                self._leave()
        async with self._make() as held:
            with self._changes:
                self._is_open, self._stop = True, ended.set
            self._begun.set_result(held)
            try:
                await ended.wait()
            finally:
                with self._changes:
                    self._is_open = False
                await _cancelled(self._tasks)

    def _start(self, future: _Work[Any]) -> None:
        if future.cancelled():
            future.drop()
            return
        assert self._loop is not None
        future.has_begun = True
        task = self._loop.create_task(future.work)
        self._tasks.add(task)
        task.add_done_callback(partial(self._done, future))
        future.add_done_callback(partial(self._given_up, task))

    def _done(self, future: _Work[Any], task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        future.is_over.set()
        error = None if task.cancelled() else task.exception()
        if task.cancelled():
            future.cancel()
        if not future.set_running_or_notify_cancel():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(task.result())

    def _given_up(self, task: asyncio.Task[Any], future: Future[Any]) -> None:
        if future.cancelled() and not task.done() and self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed, and the task with it
                self._loop.call_soon_threadsafe(task.cancel)

    # -- parts

    def _begin(self, future: _Work[Any]) -> None:
        with self._changes:
            if not self._is_open or self._loop is None:
                raise BridgeClosed("the bridge is closed")
            self._waited_for.add(future)
            self._loop.call_soon_threadsafe(self._start, future)

    def _refuse_to_wait_here(self) -> None:
        if os.getpid() != self._process:
            raise BridgeClosed("this bridge lives in the parent of this process: open one here, after the fork")
        if threading.current_thread() is self._thread:
            raise BridgeClosed(
                "this is the bridge's own thread, which cannot wait for itself: an async handler awaits the methods "
                "of `Bridge`; a handler that is no coroutine runs elsewhere and may wait"
            )


def _result_of(future: Future[R]) -> R:
    """What comes of it. An interrupt is heard at the latest at the next look.

    One that comes in the moment before a thread begins to wait does not end the wait, and would be heard after it.
    """
    while True:
        try:
            return future.result(_LOOK)
        except TimeoutError:
            if future.done():  # it is what came of it, or it came just now
                return future.result()


def _new_loop() -> asyncio.AbstractEventLoop:
    if find_spec("uvloop") is None:
        return asyncio.new_event_loop()
    from uvloop import new_event_loop  # not on Windows

    return new_event_loop()


async def _cancelled(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel them, and wait for their ends, but not for ever."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await _within(tasks)


async def _within(tasks: Collection[asyncio.Task[Any]]) -> None:
    if tasks:
        await asyncio.wait(tasks, timeout=END_SECONDS)


async def _drop(tasks: Collection[asyncio.Task[Any]]) -> None:
    """End them where they stand: as long as there is a loop, which what they do last may look for."""
    for task in tasks:
        work = task.get_coro()
        what = getattr(work, "__qualname__", "")
        log.warning("a task ignores its cancellation and is abandoned", what=what)
        task._log_destroy_pending = False  # noqa: SLF001  # pyright: ignore - the line above says it
        with suppress(Exception):
            work.close()


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """End all that runs in a loop, and the loop. Each part has `END_SECONDS`; what does not end is dropped."""
    try:
        tasks = asyncio.all_tasks(loop)
        loop.run_until_complete(_cancelled(tasks))
        if all(task.done() for task in tasks):  # else somebody may be in the middle of one
            tasks = {loop.create_task(loop.shutdown_asyncgens())}
            loop.run_until_complete(_within(tasks))
        loop.run_until_complete(_drop([task for task in tasks if not task.done()]))
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


_open = set[LoopThread[Any]]()
"""Those that run."""
_is_registered = False


def _end_at_exit(thread: LoopThread[Any]) -> None:
    """See to it that it is left before the interpreter goes.

    `atexit` itself comes too late: pools of threads take no more work by then, and to leave takes some.
    """
    global _is_registered
    _open.add(thread)
    if not _is_registered:
        _is_registered = True
        assert ThreadPoolExecutor  # whose own end is registered with its module: ours, being later, comes before it
        getattr(threading, "_register_atexit", atexit.register)(_end_all)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_open.clear)


def _end_all() -> None:
    threads = list(_open)
    for thread in threads:  # side by side
        thread.end()
    for thread in threads:
        try:
            thread.close()
        except Exception:
            log.exception("the bridge failed to stop at exit")


class SyncRun:
    """One run, usable once: `bridge.run(…).outcome`, or `for event in bridge.run(…)`, which reports what happens.

    Ctrl-C while it waits cancels it, and so does ending the iteration early.
    """

    def __init__(self, thread: LoopThread[Any], run: Run) -> None:
        self._thread, self._run = thread, run
        self._has_begun = False

    @property
    def id(self) -> str:
        """By which its calls, its events and what is paused in it are found."""
        return self._run.id

    @property
    def outcome(self) -> RunOutcome:
        """What came of it; waits for that if nothing has begun it yet.

        Raises:
            RuntimeError: it is being iterated, and has not ended yet. RunFailed: it failed.
        """
        if self._has_begun:
            return self._run.outcome
        self._has_begun = True
        return self._thread.wait(self._finished())

    def __iter__(self) -> Generator[RunEvent, None, None]:
        if self._has_begun:
            raise RuntimeError("a run can be used once; `outcome` is what came of it")
        self._has_begun = True
        events: AsyncIterator[RunEvent] | None = None
        try:
            # In here: it begins with this, and from then on an interrupt has to end it.
            events = self._thread.do(self._run.__aiter__)
            while (event := self._thread.wait(_next(events))) is not None:
                yield event
        finally:
            with suppress(BridgeClosed):
                self._thread.wait(self._over(events))

    async def _over(self, events: AsyncIterator[RunEvent] | None) -> None:
        """Have it end, where it has not; in bounded time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS), self._run:
                pass  # leaving it cancels it
        if isinstance(events, AsyncGenerator):
            # It may wait for the same end; or somebody who is cancelled in there has not left it yet, and ends it.
            with suppress(TimeoutError, RuntimeError):
                async with asyncio.timeout(END_SECONDS):
                    await events.aclose()

    async def _finished(self) -> RunOutcome:
        return await self._run


async def _next(events: AsyncIterator[RunEvent]) -> RunEvent | None:
    return await anext(events, None)
