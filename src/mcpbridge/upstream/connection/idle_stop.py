"""When a server need not run: before its first use, and when nobody has used it for a while.

That is for servers of which it is known what they offer, so that they are listed all the same: for programs that start
at their first use, and for whatever has an `idle_stop`. What is use: a call under way or waiting, a task that runs
there, somebody who was asked something and is expected back, a subscriber of its resources. A log level that clients
want is no use: what does not run logs nothing, and gets the level when it starts.
"""

import asyncio
from collections.abc import Collection, Generator
from contextlib import contextmanager

import anyio

from mcpbridge.base.log import get_logger
from mcpbridge.core.model import Call
from mcpbridge.upstream.connection.connection import Connection
from mcpbridge.upstream.session.tasks import TaskBook
from mcpbridge.upstream.settings import ServerSettings

log = get_logger("mcpbridge.upstream")

IDLE_STOP = 900.0
"""Seconds without use after which a program is stopped that starts at its first use, unless it is configured."""
LOOK_SECONDS = 60.0
"""Seconds that one stays which was started only to see what it offers: a client is there just now."""
ASKING_SECONDS = 1.0
"""Seconds until another look whether a question of it has been answered."""


class Usage:
    """Who uses one instance, and since when nobody does."""

    def __init__(self, running: Collection[Call], tasks: TaskBook) -> None:
        """`running`: the calls on it now; `tasks`: those of it that somebody waits for."""
        self._running, self._tasks = running, tasks
        self._loop = asyncio.get_running_loop()
        self.quiet: asyncio.Event | None = None
        """Set when a call is over; made only while somebody waits for the last one to be."""
        self._users = 0
        self._expected_until = float("-inf")
        self.idle_since = self._loop.time()
        """Loop time when the last call ended, or when this was made."""
        self.has_served = False
        """A client's call went to the server: it may hold state that a new session would lose."""

    def __repr__(self) -> str:
        return f"<Usage {len(self._running)} running, {self._users} holding>"

    @property
    def is_idle(self) -> bool:
        """No call, no task that somebody waits for, nobody else who holds it."""
        return not (self._running or self._users or self._tasks)

    @property
    def is_needed(self) -> bool:
        """It is used, or somebody is expected back."""
        return not self.is_idle or self._expected_until > self._loop.time()

    @contextmanager
    def held(self, *, counts: bool = True) -> Generator[None]:
        """Keep it open meanwhile, also while none of its calls runs: between the rounds of one that asks back.

        `counts`: it has been idle from the end of that on. A look at how it is takes nothing from the time that it was.
        """
        self.hold()
        try:
            yield
        finally:
            self.release(counts=counts)

    def hold(self) -> None:
        """It is needed until `release`."""
        self._users += 1

    def release(self, *, counts: bool = True) -> None:
        """The end of one `hold`; see `held`."""
        self._users -= 1
        if counts:
            self.idle_since = self._loop.time()
        self.recheck()

    def touch(self) -> None:
        """It counts as used just now."""
        self.idle_since = self._loop.time()

    def expect_back(self, seconds: float) -> None:
        """A client was asked something and continues its call here, within so many seconds: keep it open."""
        self._expected_until = max(self._expected_until, self._loop.time() + seconds)

    async def idle(self, seconds: float) -> None:
        """Return when it has had nothing to do for so long: no call, and no task that somebody waits for.

        Cancelling is safe: nothing is changed by waiting.
        """
        while True:
            if (left := max(self.idle_since + seconds, self._expected_until) - self._loop.time()) > 0:
                await anyio.sleep(left)  # first: where calls come and go, the end of each is not worth a look
            elif self._running or self._users:
                quiet = self.quiet = self.quiet or asyncio.Event()
                await quiet.wait()
            elif self._tasks:
                await self._tasks.emptied()
            else:
                return

    def recheck(self) -> None:
        """Let whoever waits for `idle` look again."""
        if self.quiet is not None:
            self.quiet.set()
            self.quiet = None


class IdleStop:
    """Ends the connection of one instance once it has not been used for long enough."""

    def __init__(
        self,
        name: str,
        settings: ServerSettings,
        connection: Connection,
        usage: Usage,
        *,
        is_primary: bool,
        is_remembered: bool,
    ) -> None:
        """`is_remembered`: what it offers is kept for the next start. Other instances have an end of their own."""
        self._name, self._connection, self._usage = name, connection, usage
        self.is_lazy = is_remembered and settings.start == "lazy"
        """It starts at its first use, if it is known by then."""
        usual = IDLE_STOP if self.is_lazy and settings.is_started else 0.0
        seconds = usual if settings.idle_stop is None else settings.idle_stop
        self.seconds = seconds if is_primary else 0.0
        """Without use after which it is stopped; 0: never."""
        self.is_looked_at = False
        """It was started to see what it offers now."""

    @property
    def is_due(self) -> bool:
        """Nobody uses it or waits for it. One that is lost then is not connected again before somebody does.

        Only for one that is stopped anyway when it is not used; others are to be there when they are needed.
        """
        return bool(self.seconds) and not self._connection.waiting and not self._usage.is_needed

    async def run(self) -> None:
        """End the connection once it has not been used for as long as that may be. Cancelling is safe."""
        seconds, connection, usage = self.seconds, self._connection, self._usage
        if not seconds:
            return
        usage.touch()
        began = usage.idle_since
        if self.is_looked_at and seconds > LOOK_SECONDS:
            await usage.idle(LOOK_SECONDS)
            seconds = seconds if usage.idle_since > began else 0.0
        await usage.idle(seconds)
        while connection.is_asking or connection.waiting:
            await asyncio.sleep(ASKING_SECONDS)
            await usage.idle(seconds)
        log.info("idle upstream stopped", upstream=self._name)
        usage.has_served = False  # what it held is gone
        connection.retire()

    def subscribers_changed(self, has_any: bool) -> None:
        """Somebody wants to hear of its resources from now on; or nobody any more."""
        if not has_any:
            self._usage.release()
            return
        self._usage.hold()
        if self._connection.status.state == "idle":
            self._connection.poke()
