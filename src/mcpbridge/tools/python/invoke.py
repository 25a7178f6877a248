"""Runs the user's callables: coroutines on the event loop, all else in threads, generators to their last event.

Threads are daemon threads, one for each piece of work: those of a pool are waited for at the end of the process. Nobody
can end a thread, so work that nobody waits for any more continues until it looks whether it is still wanted; how much
of that there may be is bounded.

A callable that is cancelled: a coroutine is cancelled at its next wait; a generator in a thread is closed at its next
event; other code in a thread continues until it looks at `context.cancelled`, or ends, and nobody waits for it.

What a callable raises that is no `Exception` (`SystemExit`, or a `CancelledError` that nobody asked for, since it
waited for something that was cancelled) would end more than itself: it comes out as `Escaped`, which is one.
"""

import asyncio
import inspect
import threading
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import aclosing, suppress
from contextvars import copy_context
from functools import partial
from threading import Thread
from typing import Any, TypeVar, cast
from weakref import WeakSet

import msgspec
from anyio import CancelScope

from mcpbridge.base.background_tasks import is_asked_to_end
from mcpbridge.base.errors import (
    ArgumentsRefused,
    BadRequest,
    BridgeError,
    CallRefused,
    Overloaded,
    UnknownName,
    UpstreamGone,
)
from mcpbridge.base.json_values import decoded
from mcpbridge.base.log import get_logger
from mcpbridge.core.context import CallContext, Cancellation
from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.tools.backend import Health
from mcpbridge.tools.python.output import Check, EventRefused, Misshapen, ProgressReporter, Result, failure, json_of
from mcpbridge.tools.python.run_context.context import Context
from mcpbridge.tools.python.settings import MOST_WAITING_EVENTS
from mcpbridge.tools.python.signature import plain

log = get_logger("mcpbridge.backends")

END_SECONDS = 1.0
"""Seconds that threads get to end when their backend does."""

T = TypeVar("T")


class Threads:
    """The threads of one backend. New ones are refused while too many run for which nobody waits any more.

    How many calls run that somebody waits for is limited above (`max_concurrent`). Here they are not held back: one
    that waits for a call which it made itself would wait in vain.
    """

    def __init__(self, name: str, most: int) -> None:
        """`most`: threads that may run on for nobody."""
        self._name, self._most, self._running, self._left = name, most, 0, 0
        self._over: asyncio.Event | None = None

    async def run(self, work: Callable[[], T]) -> T:
        """What `work` returns; raises what it raises. Cancelled, it continues by itself, and its result is lost.

        Raises:
            Overloaded: too much of earlier work, which nobody waits for any more, does not end.
        """
        if self._left >= self._most:
            raise Overloaded(f"'{self._name}' is busy with {self._running} calls, some of which nobody waits for")
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[tuple[T | None, BaseException | None]] = loop.create_future()

        def settle(value: T | None, error: BaseException | None) -> None:
            self._running -= 1
            self._left -= outcome.cancelled()
            if self._over is not None and not self._running:
                self._over.set()
            if not outcome.done():
                outcome.set_result((value, error))

        def run() -> None:
            value, failed = None, None
            try:
                value = work()
            except BaseException as error:  # noqa: BLE001 - it is the caller's to judge
                failed = error
            with suppress(RuntimeError):  # the loop has ended meanwhile, and with it whoever waited
                loop.call_soon_threadsafe(settle, value, failed)

        Thread(target=copy_context().run, args=(run,), name=f"tool {self._name}", daemon=True).start()
        self._running += 1  # `settle` runs later, on this very loop
        try:
            value, failed = await outcome
        except asyncio.CancelledError:
            self._left += outcome.cancelled()
            raise
        if failed is not None:
            try:
                raise failed
            finally:
                del failed  # no cycle of the error, its traceback and this frame
        return cast("T", value)

    async def end(self) -> None:
        """Wait for those that run, for a while; what still runs then is left behind."""
        if self._running:
            self._over = asyncio.Event()
            with suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    await self._over.wait()
            self._over = None
        if self._running:
            log.warning("code of a tool does not stop; abandoning it", tool=self._name, threads=self._running)


Fold = Callable[[Any, Any], Any]
"""From what came of the events so far (None: nothing) and one more event to what comes of all."""


class UserRun:
    """One call of a callable. `check`: of each event; `fold`: what comes of them, where no result follows."""

    def __init__(self, threads: Threads, reporter: ProgressReporter, check: Check | None, fold: Fold) -> None:
        self._threads, self._reporter, self._check, self._fold = threads, reporter, check, fold
        self._is_given_up = False
        self._event_slots = threading.Semaphore(MOST_WAITING_EVENTS)

    def give_up(self) -> None:
        """Nobody waits any more: a generator in a thread is closed at its next event."""
        self._is_given_up = True
        self._event_slots.release()  # it may wait for a place

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
                self._reporter.report(checked)
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
                self._event_slots.acquire()
                loop.call_soon_threadsafe(self._report, checked)
        except StopIteration as end:
            return last if end.value is None else end.value
        finally:
            events.close()
        return None

    def _report(self, event: object) -> None:
        self._event_slots.release()
        if not self._is_given_up:
            self._reporter.report(event)

    def _checked(self, event: object) -> object:
        """The event as a JSON value."""
        try:
            value = decoded(json_of(event))
        except (Misshapen, msgspec.DecodeError) as error:
            raise EventRefused(f"an event of it: {error}") from error
        if self._check is not None and (fault := self._check(value)):
            raise EventRefused(f"an event of it does not fit the event schema: {fault}")
        return value


async def run_cancellable(work: Callable[[], Awaitable[T]], cancellation: Cancellation) -> T:
    """What the work comes to, in a task of its own: when that is cancelled, `cancellation` says so already.

    In one task with who waits, the handler would be the first to hear, and could not distinguish this from time limits
    of its own, which cancel its task too.
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


CHECK_SECONDS = 5.0
"""Seconds that a function gets that looks whether something works."""
LONGEST_TRACE = 20_000
"""Characters of a traceback that are logged, from its end."""
LONGEST_ERROR = 2000
"""Characters of what an error says that are shown."""


class Escaped(Exception):
    """A callable raised what is no `Exception`, which is the cause of this."""


def _last(_: object, event: object) -> object:
    return event


class Invoker:
    """Calls callables of one backend, and knows which calls run."""

    def __init__(self, name: str, most: int, redact: Callable[[str], str]) -> None:
        """`most`: threads at a time, those counted that nobody waits for."""
        self._name = name
        self.redact = redact
        """Masks secrets in what the user's code says."""
        self._threads = Threads(name, most)
        self._under_way: dict[asyncio.Timeout, asyncio.Event] = {}
        self._own = WeakSet[BaseException]()
        """Errors that say that the backend ended, not that code of the user failed."""

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

        `call`: hears of its events. `cancellation`: is notified when nobody waits for it any more. `fold`:
        what comes of a generator that gives no result.

        Raises:
            UpstreamGone: the backend ended meanwhile.
            Escaped: it raises what is no `Exception`, other than KeyboardInterrupt.
            EventRefused: it yielded what `event_check` finds wrong.
        """
        run = UserRun(self._threads, ProgressReporter(call), event_check, fold)
        limit, over = asyncio.timeout(None), asyncio.Event()
        try:
            async with limit:
                self._under_way[limit] = over
                try:
                    work = partial(function, *positional, **(named or {}))
                    outcome = partial(run.outcome, work, is_async=is_async(function))
                    if cancellation is None or not _has_context(positional, named):
                        return await outcome()
                    return await run_cancellable(outcome, cancellation)
                except asyncio.CancelledError as error:
                    if cancellation is not None:
                        cancellation.cancel()
                    if is_asked_to_end():
                        raise
                    raise Escaped from error
                except (Exception, KeyboardInterrupt, GeneratorExit):
                    raise
                except BaseException as error:
                    raise Escaped from error
        except TimeoutError:
            if limit.expired():
                gone = UpstreamGone(call.upstream if call else self._name, "it ended while the call ran")
                self._own.add(gone)
                raise gone from None
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
            log.warning("code of a tool does not stop", tool=self._name)
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
        except Exception as error:  # noqa: BLE001 - a check never raises
            return Health(ok=False, detail=f"its `check` failed: {self.describe_error(error)}")
        detail = self.redact(found)[:200] if isinstance(found, str) else "its `check` was asked"
        return Health(ok=found is not False, detail=detail, seconds=round(loop.time() - began, 3))

    def failed(self, error: BaseException, tool: str) -> Body:
        """A failure of the user's code as a result for the model; where it came from is in the log.

        Raises it again if it is no failure: the call was refused or cancelled, or its backend ended. What other parts
        of the bridge raise within the user's code is a failure of that: it asked them.
        """
        if error in self._own:
            raise error
        if isinstance(error, CallRefused) and not isinstance(error, UnknownName | BadRequest):
            raise self._masked(error) from error.__cause__
        if isinstance(error, asyncio.CancelledError | KeyboardInterrupt | GeneratorExit):
            raise error
        if isinstance(error, EventRefused | Misshapen):
            log.warning("a tool returned an invalid value", tool=tool, reason=self.redact(str(error)))
            return failure(self.redact(f"The tool '{tool}' is at fault: {error}"))
        self.log_failure("a tool failed", error, tool=tool)
        if isinstance(error, BridgeError):  # its name and advice are for programs
            return failure(self.redact(f"The tool '{tool}' failed: {_cut(str(error))}"))
        return failure(self.describe_error(error))

    def _masked(self, refused: CallRefused) -> CallRefused:
        """The same refusal without secrets; itself, if it tells none."""
        if self.redact(refused.full_message()) == refused.full_message():
            return refused
        kind = ArgumentsRefused if isinstance(refused, ArgumentsRefused) else CallRefused
        masked = kind(self.redact(str(refused)))
        masked.advice, masked.facts = self.redact(refused.advice), refused.facts
        return masked

    def log_failure(self, event: str, error: BaseException, **facts: str) -> None:
        """Log where the user's code failed; the lines alone, without the values of variables."""
        trace = "".join(traceback.format_exception(_raised(error)))
        log.error(event, **facts, trace=self.redact(trace)[-LONGEST_TRACE:])

    def describe_error(self, error: BaseException) -> str:
        """`ValueError: …`, without secrets."""
        error = _raised(error)
        while isinstance(error, BaseExceptionGroup):
            parts: tuple[BaseException, ...] = cast("Any", error).exceptions
            if len(parts) != 1:
                break
            (error,) = parts
        error = cast("BaseException", error)
        shown = _cut(str(error))
        return self.redact(f"{type(error).__name__}: {shown}" if shown else type(error).__name__)


def _raised(error: BaseException) -> BaseException:
    """What the user's code raised."""
    return error.__cause__ if isinstance(error, Escaped) and error.__cause__ is not None else error


def _has_context(positional: tuple[Any, ...], named: Mapping[str, Any] | None) -> bool:
    """It is given what tells that it is cancelled."""
    return any(isinstance(one, CallContext | Context) for one in (*positional, *(named or {}).values()))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_ERROR else f"{text[: LONGEST_ERROR - 1]}…"
