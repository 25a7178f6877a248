"""A thread of its own with an event loop, in which something asynchronous lives for programs that are not.

It is entered and left in one task, as task groups want it. Whoever waits for work in it may be any other thread; an
interrupt (Ctrl-C) while waiting cancels that work alone. What is still open when the interpreter exits is left then.
"""

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from importlib.util import find_spec
from typing import Any, Generic, TypeVar

from mcpbridge.errors import BridgeClosed
from mcpbridge.logs import get_logger

__all__ = ["LoopThread"]

log = get_logger("mcpbridge")

T = TypeVar("T")
R = TypeVar("R")


class LoopThread(Generic[T]):
    """Holds what `make` returns entered, from its making until `close`."""

    def __init__(self, make: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        """Returns once it is entered; raises what making and entering it raise."""
        self._make = make
        self._process = os.getpid()
        self._changes = threading.RLock()  # what is forgotten ends itself, perhaps while its thread has this
        self._is_open = self._must_end = False
        self._waited_for = dict[Future[Any], Coroutine[Any, Any, Any]]()
        self._tasks = set[asyncio.Task[Any]]()
        self._begun = Future[T]()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: Callable[[], object] | None = None
        self._failure: BaseException | None = None
        # A daemon, so that the interpreter does not wait for it before it has been told to end.
        self._thread = threading.Thread(target=self._run, name="mcpbridge", daemon=True)
        _end_at_exit(self)
        try:
            self._thread.start()
            self.held: T = self._begun.result()
            """What was entered. To be used in the loop alone: see `wait` and `do`."""
        except BaseException:
            self.close()
            raise

    # -- from other threads

    def wait(self, work: Coroutine[Any, Any, R]) -> R:
        """Have it done in the loop, and wait for what comes of it.

        Raises:
            BridgeClosed: it is over, or ended meanwhile; or this is no place to wait.
        """
        try:
            self._refuse_to_wait_here()
            future = self._begin(work)
        except BaseException:
            work.close()
            raise
        try:
            return future.result()
        except CancelledError:
            raise BridgeClosed("the bridge was closed meanwhile") from None
        except BaseException:
            future.cancel()
            raise
        finally:
            self._waited_for.pop(future, None)

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
            self._must_end = True
            stop, loop = self._stop, self._loop
            if stop is not None and loop is not None:
                with suppress(RuntimeError):  # it has ended by itself
                    loop.call_soon_threadsafe(stop)

    def close(self) -> None:
        """Leave it, and wait until everything that it ran has ended. Again: nothing."""
        self.end()
        if os.getpid() == self._process and threading.current_thread() is not self._thread:
            with suppress(RuntimeError):  # an interrupt came before it was seen to start; it ends by itself
                self._thread.join()
            failure, self._failure = self._failure, None
            if failure is not None:
                raise failure

    # -- in the thread

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(self._live())
        except asyncio.CancelledError:
            if not self._begun.done():
                self._begun.set_exception(BridgeClosed("the bridge was closed before it was open"))
        except BaseException as error:  # noqa: BLE001 - whoever opened or closes it hears of it
            if self._begun.done():
                self._failure = error
            else:
                self._begun.set_exception(error)
        finally:
            with self._changes:
                self._is_open, self._stop = False, None
            for future, work in list(self._waited_for.items()):
                future.cancel()
                work.close()  # it came in the last moment and never began
            _open.discard(self)

    async def _live(self) -> None:
        task, ended = asyncio.current_task(), asyncio.Event()
        assert task is not None
        with self._changes:
            self._loop, self._stop = asyncio.get_running_loop(), task.cancel
            if self._must_end:
                task.cancel()
        async with self._make() as held:
            with self._changes:
                self._is_open, self._stop = True, ended.set
            self._begun.set_result(held)
            try:
                await ended.wait()
            finally:
                with self._changes:
                    self._is_open = False
                for task in self._tasks:
                    task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)

    def _start(self, work: Coroutine[Any, Any, Any], future: Future[Any]) -> None:
        if future.cancelled():
            work.close()
            return
        assert self._loop is not None
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(partial(self._done, future))
        future.add_done_callback(partial(self._given_up, task))

    def _done(self, future: Future[Any], task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
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

    def _begin(self, work: Coroutine[Any, Any, R]) -> Future[R]:
        with self._changes:
            if not self._is_open or self._loop is None:
                raise BridgeClosed("the bridge is closed")
            future = Future[R]()
            self._loop.call_soon_threadsafe(self._start, work, future)
            self._waited_for[future] = work
        return future

    def _refuse_to_wait_here(self) -> None:
        if os.getpid() != self._process:
            raise BridgeClosed("this bridge lives in the parent of this process: open one here, after the fork")
        if threading.current_thread() is self._thread:
            raise BridgeClosed(
                "this is the bridge's own thread, which cannot wait for itself: an async handler awaits the methods "
                "of `Bridge`; a handler that is no coroutine runs elsewhere and may wait"
            )


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if find_spec("uvloop") is None:
        return None
    from uvloop import new_event_loop  # not on Windows

    return new_event_loop


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
            log.exception("a bridge ended badly at exit")
