"""One call of a callable of the user's: on the event loop or in a thread, events told as they come."""

import asyncio
import inspect
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar, cast

import msgspec
from anyio import CancelScope

from mcpbridge.backends.annotations import plain
from mcpbridge.backends.events import EventRefused, Result, Teller
from mcpbridge.backends.outputs import Check, Misshapen, json_of
from mcpbridge.backends.threads import Threads
from mcpbridge.context import Cancellation
from mcpbridge.wire.python_values import decoded

__all__ = ["Fold", "UserRun", "is_async", "told_first"]

MOST_UNTOLD = 32
"""Events of a generator in a thread that the event loop has not yet told; then it waits."""

T = TypeVar("T")

Fold = Callable[[Any, Any], Any]
"""From what came of the events so far (None: nothing) and one more event to what comes of all."""


class UserRun:
    """One call of a callable. `check`: of each event; `fold`: what comes of them, where no result follows."""

    def __init__(self, threads: Threads, teller: Teller, check: Check | None, fold: Fold) -> None:
        self._threads, self._teller, self._check, self._fold = threads, teller, check, fold
        self._is_given_up = False
        self._untold = threading.Semaphore(MOST_UNTOLD)

    def give_up(self) -> None:
        """Nobody waits any more: a generator in a thread is closed at its next event."""
        self._is_given_up = True
        self._untold.release()  # it may wait for a place

    async def outcome(self, function: Callable[[], Any], *, is_async: bool) -> object:
        """What it returns, or what comes of its events; raises what it raises."""
        if is_async:
            value = function()
        else:
            value = await self._threads.run(partial(self._in_thread, function, asyncio.get_running_loop()))
        if inspect.isawaitable(value):
            value = await value
        if inspect.isasyncgen(value):
            value = await self._last_of(cast("AsyncGenerator[Any]", value))
        return value.value if isinstance(value, Result) else value  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - of anything

    async def _last_of(self, events: AsyncGenerator[Any]) -> object:
        last: object = None
        async with aclosing(events):
            async for event in events:
                if isinstance(event, Result):
                    return event.value  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - of anything
                checked = self._checked(event)
                last = self._fold(last, checked)
                self._teller.tell(checked)
        return last

    def _in_thread(self, function: Callable[[], Any], loop: asyncio.AbstractEventLoop) -> object:
        value = function()
        if not inspect.isgenerator(value):
            return value
        events = cast("Generator[Any, None, Any]", value)
        last: object = None
        try:
            while not self._is_given_up:
                event = next(events)
                if isinstance(event, Result):
                    return cast("object", event)
                checked = self._checked(event)
                last = self._fold(last, checked)
                self._untold.acquire()
                loop.call_soon_threadsafe(self._tell, checked)
        except StopIteration as end:
            return last if end.value is None else end.value
        finally:
            events.close()
        return None

    def _tell(self, event: object) -> None:
        self._untold.release()
        if not self._is_given_up:
            self._teller.tell(event)

    def _checked(self, event: object) -> object:
        """The event as a JSON value."""
        try:
            value = decoded(json_of(event))
        except (Misshapen, msgspec.DecodeError) as error:
            raise EventRefused(f"an event of it: {error}") from error
        if self._check is not None and (fault := self._check(value)):
            raise EventRefused(f"an event of it does not fit the event schema: {fault}")
        return value


async def told_first(work: Callable[[], Awaitable[T]], cancellation: Cancellation) -> T:
    """What the work comes to, in a task of its own: when that is cancelled, `cancellation` says so already.

    In one task with who waits, the handler would be the first to hear, and could not tell this from time limits of its
    own, which cancel its task too.
    """
    task = asyncio.create_task(_contained(work))
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        cancellation.cancel()
        task.cancel()
        with CancelScope(shield=True):  # one that waits in a scope of anyio is cancelled over and over
            while not task.done():
                try:
                    await asyncio.wait([task])
                except asyncio.CancelledError:
                    task.cancel()
        raise
    value, error = task.result()
    if error is not None:
        raise error
    return cast("T", value)


async def _contained(work: Callable[[], Awaitable[T]]) -> tuple[T | None, BaseException | None]:
    """What the work came to: what a task raises may end the event loop (SystemExit)."""
    try:
        return await work(), None
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - raised where it is waited for
        return None, error


def is_async(function: Callable[..., Any]) -> bool:
    """It is called on the event loop."""
    target = plain(function) if not isinstance(function, type) else function
    return inspect.iscoroutinefunction(target) or inspect.isasyncgenfunction(target)
