"""Runs the user's callables: coroutines on the event loop, all else in threads, generators to their last event.

A callable that is cancelled: a coroutine is cancelled at its next wait; a generator in a thread is closed at its next
event; other code in a thread goes on until it looks at `context.cancelled`, or ends, and nobody waits for it.

What a callable raises that is no `Exception` (`SystemExit`, or a `CancelledError` that nobody asked for, since it
waited for something that was cancelled) would end more than itself: it comes out as `Escaped`, which is one.
"""

import asyncio
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast
from weakref import WeakSet

from mcpbridge.backends.backend import Health
from mcpbridge.backends.contexts import Context
from mcpbridge.backends.events import EventRefused, Teller
from mcpbridge.backends.outputs import Check, Misshapen, failure
from mcpbridge.backends.threads import Threads
from mcpbridge.backends.user_run import Fold, UserRun, is_async, told_first
from mcpbridge.context import CallContext, Cancellation
from mcpbridge.errors import ArgumentsRefused, BadRequest, BridgeError, CallRefused, UnknownName, UpstreamGone
from mcpbridge.logs import get_logger
from mcpbridge.model import Call
from mcpbridge.owned_tasks import is_asked_to_end
from mcpbridge.wire.body import Body

__all__ = ["Fold", "Invoker"]

log = get_logger("mcpbridge.backends")

END_SECONDS = 1.0
"""Seconds that coroutines get to clean up when their backend ends."""
CHECK_SECONDS = 5.0
"""Seconds that a function gets that looks whether something works."""
LONGEST_TRACE = 20_000
"""Characters of a traceback that are logged, from its end."""
LONGEST_ERROR = 2000
"""Characters of what an error says that are told."""


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

        `call`: hears of its events. `cancellation`: is told when nobody waits for it any more. `fold`:
        what comes of a generator that gives no result.

        Raises:
            UpstreamGone: the backend ended meanwhile.
            Escaped: it raises what is no `Exception`, other than KeyboardInterrupt.
            EventRefused: it yielded what `event_check` finds wrong.
        """
        run = UserRun(self._threads, Teller(call), event_check, fold)
        limit, over = asyncio.timeout(None), asyncio.Event()
        try:
            async with limit:
                self._under_way[limit] = over
                try:
                    work = partial(function, *positional, **(named or {}))
                    outcome = partial(run.outcome, work, is_async=is_async(function))
                    if cancellation is None or not _has_context(positional, named):
                        return await outcome()
                    return await told_first(outcome, cancellation)
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
        except Exception as error:  # noqa: BLE001 - a check never raises
            return Health(ok=False, detail=f"its `check` failed: {self.told(error)}")
        detail = self.redact(found)[:200] if isinstance(found, str) else "its `check` was asked"
        return Health(ok=found is not False, detail=detail, seconds=round(loop.time() - began, 3))

    def failed(self, error: BaseException, tool: str) -> Body:
        """A failure of the user's code as a result for the model; where it came from stands in the log.

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
            log.warning("a tool gave what it should not", tool=tool, reason=self.redact(str(error)))
            return failure(self.redact(f"The tool '{tool}' is at fault: {error}"))
        self.log_failure("a tool failed", error, tool=tool)
        if isinstance(error, BridgeError):  # its name and advice are for programs
            return failure(self.redact(f"The tool '{tool}' failed: {_cut(str(error))}"))
        return failure(self.told(error))

    def _masked(self, refused: CallRefused) -> CallRefused:
        """The same refusal without secrets; itself, if it tells none."""
        if self.redact(refused.told()) == refused.told():
            return refused
        kind = ArgumentsRefused if isinstance(refused, ArgumentsRefused) else CallRefused
        masked = kind(self.redact(str(refused)))
        masked.advice, masked.facts = self.redact(refused.advice), refused.facts
        return masked

    def log_failure(self, event: str, error: BaseException, **facts: str) -> None:
        """Log where the user's code failed; the lines alone, without the values of variables."""
        trace = "".join(traceback.format_exception(_raised(error)))
        log.error(event, **facts, trace=self.redact(trace)[-LONGEST_TRACE:])

    def told(self, error: BaseException) -> str:
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


def _cut(said: str) -> str:
    return said if len(said) <= LONGEST_ERROR else f"{said[: LONGEST_ERROR - 1]}…"
