"""Runs calls of tools that no server has within their time, and finds out again and again what a backend offers.

The deadlines of a server's calls are kept where they are sent; those of other tools are kept here. Each progress
message starts the idle time anew, up to the longest time that a call may take in all.

Discovery runs in a task of its own. A backend that cannot be found is `failed`, keeps the tools that it had, and is
tried again after a wait that grows. Secrets are masked in the JSON that a backend made of what its peer said.
"""

import asyncio
import random
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager

import msgspec
from msgspec import Raw

from mcpbridge.base.background_tasks import OwnedTasks
from mcpbridge.base.errors import BridgeError, UpstreamError, UpstreamTimeout, UpstreamUnavailable
from mcpbridge.base.log import get_logger
from mcpbridge.core.failure_masking import without_secrets_if_failed
from mcpbridge.core.model import CURRENT_CALL, OWN, Call
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.deadlines import Timeouts
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.tools.backend import Condition

Run = Callable[[Call], Awaitable[Body]]
"""Does the work of one call."""


class Serving:
    """The end of the way of calls to tools that no server has. It outlives the settings, for calls under way."""

    def __init__(self, redact: Callable[[str], str] = lambda text: text) -> None:
        """`redact` masks secrets in results that say that the call failed."""
        self._running: set[Call] = set()
        self._redact = redact

    def works_on(self, call: Call) -> bool:
        """Whether this call runs."""
        return call in self._running

    async def serve(self, call: Call, run: Run, timeouts: Timeouts) -> Body:
        """The result of a call, in time. `timeouts`: where the call has none of its own.

        Raises:
            UpstreamTimeout: the time was up; what ran was cancelled.
        """
        timeouts = call.timeouts or timeouts
        loop = asyncio.get_running_loop()
        began = loop.time()
        end = began + timeouts.total
        limit = asyncio.timeout_at(min(_by(call, began + timeouts.idle), end))
        self._running.add(call)
        outer = CURRENT_CALL.get()
        CURRENT_CALL.set(call)
        try:
            async with limit:
                with _heard(call, lambda: limit.reschedule(min(loop.time() + timeouts.idle, end))):
                    return without_secrets_if_failed(await run(call), self._redact)
        except UpstreamError as error:  # first: one of them is a TimeoutError as well
            raise _renamed(error, call) from None
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise UpstreamTimeout(_named(call), round(loop.time() - began, 3)) from error
        finally:
            CURRENT_CALL.set(outer)
            self._running.discard(call)
            call.upstream_seconds += loop.time() - began


def runner_of(run_of: Mapping[str, Run], call: Call) -> Run:
    """Who does the work of this call, by the name of its tool.

    Raises:
        UpstreamUnavailable: the tool went away meanwhile.
    """
    run = run_of.get(call.target)
    if run is None:
        raise UpstreamUnavailable(_named(call), "it is not there any more")
    return run


def _by(call: Call, time: float) -> float:
    return min(call.deadline, time) if call.deadline else time


@contextmanager
def _heard(call: Call, again: Callable[[], None]) -> Generator[None]:
    """Progress is told of even where the client wants none: it says that the work goes on."""
    update, wanted = call.update, call.wants_progress

    def heard(method: str, params: Raw) -> None:
        is_progress = method == "notifications/progress"
        if is_progress:
            again()
        if wanted or not is_progress:
            update(method, params)

    call.update, call.wants_progress = heard, True
    try:
        yield
    finally:
        call.update, call.wants_progress = update, wanted


def _named(call: Call) -> str:
    return f"{call.upstream}/{call.target}" if call.upstream in OWN else call.upstream


def _renamed(error: UpstreamError, call: Call) -> UpstreamError:
    """Tools of ours have no server that could be named."""
    if error.upstream in OWN:
        error.rename(_named(call))
    return error


log = get_logger("mcpbridge.backends")

FIRST_DELAY = 0.5
"""Seconds; the first wait after a failure, which doubles with every further one."""
LONGEST_DELAY = 60.0
"""Seconds; the wait never grows beyond this."""
SPACING = 2.0
"""Seconds between attempts that calls give reason to."""
LONGEST = 30.0
"""Seconds for one attempt."""


class Discovery:
    """Looks for one backend."""

    def __init__(
        self,
        name: str,
        find: Callable[[], Awaitable[bool]],
        redact: Callable[[str], str],
        *,
        unavailable: str | None = None,
    ) -> None:
        """`find` finds out and says whether the tools are others than before; a `BridgeError` says why it cannot.

        `unavailable`: why it is not looked for at all, since it cannot be used as configured.
        """
        self._name, self._find, self._redact = name, find, redact
        self._tasks = OwnedTasks()
        self._asked = asyncio.Event()
        self._looking = asyncio.Lock()
        self._changed: Callable[[], None] = lambda: None
        self._at_first = Condition("failed", unavailable) if unavailable else Condition("starting")
        self.condition = self._at_first
        """How the backend is."""

    @asynccontextmanager
    async def running(self, changed: Callable[[], None]) -> AsyncGenerator[None]:
        """It looks meanwhile; see `Backend.running`."""
        self._changed = changed
        try:
            async with self._tasks.running():
                if self._at_first.state == "starting":
                    self._tasks.spawn(self._keep())
                yield
        finally:
            self.condition = self._at_first

    def again(self) -> None:
        """There is reason to look anew: a call could not be sent, or the server knows the method no more."""
        self._asked.set()

    async def look(self) -> Condition:
        """Look now, and return what it came to."""
        if self._at_first.state == "failed":
            return self._at_first
        async with self._looking:
            is_other = False
            try:
                async with asyncio.timeout(LONGEST):
                    is_other = await self._find()
                condition = Condition("ready")
            except TimeoutError:
                condition = Condition("failed", f"it did not answer within {LONGEST:g} s")
            except BridgeError as error:
                what = error.what if isinstance(error, UpstreamError) else str(error)
                is_lasting = not isinstance(error, UpstreamError)  # such as a package that is missing
                condition = Condition("failed", self._redact(" ".join(what.split())), is_lasting)
            except Exception as error:  # the task boundary of one backend; the others go on
                log.error("checking a backend failed", tool=self._name, exc_info=error)
                condition = Condition("failed", f"a fault of the bridge: {type(error).__name__} (see its log)")
            before, self.condition = self.condition, condition
        if condition != before:
            if condition.state == "failed":
                log.warning("a backend cannot be used", tool=self._name, reason=condition.reason)
            else:
                log.info("a backend is ready", tool=self._name)
        if is_other or condition != before:
            self._changed()
        return condition

    async def _keep(self) -> None:
        failures = 0
        while True:
            self._asked.clear()
            condition = await self.look()
            failures = failures + 1 if condition.state == "failed" else 0
            delay = min(LONGEST_DELAY, FIRST_DELAY * 2 ** min(failures - 1, 16)) if failures else None
            spacing = min(SPACING, delay) if delay is not None else SPACING
            await asyncio.sleep(spacing * random.uniform(0.8, 1))
            try:
                async with asyncio.timeout(None if delay is None else delay - spacing):
                    await self._asked.wait()
            except TimeoutError:
                pass


_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
"""A string as it is in JSON; nothing else in valid JSON has quotes."""


def masked(value: object, redact: Callable[[str], str]) -> bytes:
    """The value as JSON, with the secrets masked in its strings, and so in the names of members. Numbers stay.

    Each string is looked at as what it means, so the mask cannot break the JSON, however deep it is.
    """
    return _STRING.sub(lambda runner_of: _masked(runner_of[0], redact), encode(value).decode()).encode()


def _masked(literal: str, redact: Callable[[str], str]) -> str:
    text: str = msgspec.json.decode(literal) if "\\" in literal else literal[1:-1]
    shown = redact(text)
    return literal if shown == text else encode(shown).decode()
