"""Runs the user's callables: coroutines on the event loop, all else in threads, generators to their last event.

A callable that is cancelled: a coroutine is cancelled at its next wait; a generator in a thread is closed at its next
event; other code in a thread goes on until it looks at `context.cancelled`, or ends, and nobody waits for it.
"""

import asyncio
import inspect
import threading
import traceback
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, cast

import msgspec

from mcpbridge.backends.annotations import plain
from mcpbridge.backends.backend import Health
from mcpbridge.backends.events import EventRefused, Result, Teller
from mcpbridge.backends.outputs import Check, Misshapen, failure, json_of
from mcpbridge.backends.threads import Threads
from mcpbridge.context import Cancellation
from mcpbridge.errors import BridgeError, ContextRefused, UpstreamGone
from mcpbridge.logs import get_logger
from mcpbridge.model import Call
from mcpbridge.wire.body import Body

__all__ = ["Fold", "Invoker"]

log = get_logger("mcpbridge.backends")

MOST_UNTOLD = 32
"""Events of a generator in a thread that the event loop has not yet told; then it waits."""
END_SECONDS = 1.0
"""Seconds that coroutines get to clean up when their backend ends."""
CHECK_SECONDS = 5.0
"""Seconds that a function gets that looks whether something works."""
LONGEST_TRACE = 20_000
"""Characters of a traceback that are logged, from its end."""
LONGEST_ERROR = 2000
"""Characters of what an error says that are told."""


Fold = Callable[[Any, Any], Any]
"""From what came of the events so far (None: nothing) and one more event to what comes of all."""


def _last(_: object, event: object) -> object:
    return event


class Invoker:
    """Calls callables of one backend, and knows which calls run."""

    def __init__(self, name: str, most: int, redact: Callable[[str], str]) -> None:
        """`most`: threads at a time, those counted that nobody waits for."""
        self._name, self.redact = name, redact
        self._threads = Threads(name, most)
        self._under_way: dict[asyncio.Timeout, asyncio.Event] = {}

    async def value(
        self,
        function: Callable[..., Any],
        positional: tuple[Any, ...] = (),
        named: Mapping[str, Any] | None = None,
        *,
        call: Call | None = None,
        cancellation: Cancellation | None = None,
        event_check: Check | None = None,
        fold: Fold = _last,
    ) -> object:
        """What it returns, or what comes of its events; raises what it raises.

        `call`: hears of its events. `cancellation`: is told when nobody waits for it any more. `fold`:
        what comes of a generator that gives no result.

        Raises:
            UpstreamGone: the backend ended meanwhile.
            EventRefused: it yielded what `event_check` finds wrong.
        """
        run = _Run(self._threads, Teller(call), event_check, fold)
        limit, over = asyncio.timeout(None), asyncio.Event()
        try:
            async with limit:
                self._under_way[limit] = over
                try:
                    work = partial(function, *positional, **(named or {}))
                    return await run.outcome(work, is_async=_is_async(function))
                except asyncio.CancelledError:
                    if cancellation is not None:
                        cancellation.cancel()
                    raise
        except TimeoutError:
            if limit.expired():
                raise UpstreamGone(call.upstream if call else self._name, "it ended while the call ran") from None
            raise
        finally:
            run.give_up()
            self._under_way.pop(limit, None)
            over.set()

    async def end(self) -> None:
        """End all that runs; in seconds, whatever it does."""
        now = asyncio.get_running_loop().time()
        waiting = list(self._under_way.values())
        for limit in list(self._under_way):
            if not limit.expired():
                limit.reschedule(now)
        try:
            async with asyncio.timeout(END_SECONDS):
                for over in waiting:
                    await over.wait()
        except TimeoutError:
            log.warning("code of a tool does not end", tool=self._name)
        await self._threads.end()

    async def health(self, check: Callable[..., Any]) -> Health:
        """What a function that looks whether something works says: it raises, or returns False, a text or nothing."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                found = await self.value(check)
        except TimeoutError:
            return Health(ok=False, detail=f"its `check` took longer than {CHECK_SECONDS:g} s")
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a check never raises
            return Health(ok=False, detail=f"its `check` failed: {self.told(error)}")
        detail = self.redact(found)[:200] if isinstance(found, str) else "its `check` was asked"
        return Health(ok=found is not False, detail=detail, seconds=round(loop.time() - began, 3))

    def failed(self, error: BaseException, tool: str) -> Body:
        """A failure of the user's code as a result for the model; where it came from stands in the log.

        Raises it again if it is one of the bridge's own, or no failure: the call was cancelled.
        """
        if isinstance(error, BridgeError) and not isinstance(error, ContextRefused):
            raise error
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise error
        if isinstance(error, KeyboardInterrupt | GeneratorExit):
            raise error
        if isinstance(error, EventRefused | Misshapen):
            log.warning("a tool gave what it should not", tool=tool, reason=self.redact(str(error)))
            return failure(self.redact(f"The tool '{tool}' is at fault: {error}"))
        self.log_failure("a tool failed", error, tool=tool)
        return failure(self.told(error))

    def log_failure(self, event: str, error: BaseException, **facts: str) -> None:
        """Log where the user's code failed; the lines alone, without the values of variables."""
        log.error(event, **facts, trace=self.redact("".join(traceback.format_exception(error)))[-LONGEST_TRACE:])

    def told(self, error: BaseException) -> str:
        """`ValueError: …`, without secrets."""
        while isinstance(error, BaseExceptionGroup):
            parts: tuple[BaseException, ...] = cast("Any", error).exceptions
            if len(parts) != 1:
                break
            (error,) = parts
        error = cast("BaseException", error)
        said = str(error)
        shown = said if len(said) <= LONGEST_ERROR else f"{said[: LONGEST_ERROR - 1]}…"
        return self.redact(f"{type(error).__name__}: {shown}" if shown else type(error).__name__)


class _Run:
    """One call of a callable."""

    def __init__(self, threads: Threads, teller: Teller, check: Check | None, fold: Fold) -> None:
        self._threads, self._teller, self._check, self._fold = threads, teller, check, fold
        self._is_given_up = False
        self._untold = threading.Semaphore(MOST_UNTOLD)

    def give_up(self) -> None:
        """Nobody waits any more: a generator in a thread is closed at its next event."""
        self._is_given_up = True
        self._untold.release()  # it may wait for a place

    async def outcome(self, function: Callable[[], Any], *, is_async: bool) -> object:
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
            value = msgspec.json.decode(json_of(event))
        except Misshapen as error:
            raise EventRefused(f"an event of it: {error}") from error
        if self._check is not None and (fault := self._check(value)):
            raise EventRefused(f"an event of it does not fit the event schema: {fault}")
        return value


def _is_async(function: Callable[..., Any]) -> bool:
    """It is called on the event loop."""
    target = plain(function) if not isinstance(function, type) else function
    return inspect.iscoroutinefunction(target) or inspect.isasyncgenfunction(target)
