"""When a server need not run: before its first use, and when nobody has used it for a while.

That is for servers of which it is known what they offer, so that they are listed all the same: for programs that start
at their first use, and for whatever has an `idle_stop`. What is used: a call under way or waiting, a task that runs
there, somebody who was asked something and is expected back, a subscriber of its resources. A log level that clients
want is no use: what does not run logs nothing, and is told the level when it starts.
"""

import asyncio

from mcpbridge.base.log import get_logger
from mcpbridge.upstream.connection.connection import Link
from mcpbridge.upstream.requests import Traffic
from mcpbridge.upstream.settings import ServerSettings

log = get_logger("mcpbridge.upstream")

IDLE_STOP = 900.0
"""Seconds without use after which a program is stopped that starts at its first use, unless it is configured."""
LOOK_SECONDS = 60.0
"""Seconds that one stays which was started only to see what it offers: a client is there just now."""
ASKING_SECONDS = 1.0
"""Seconds until another look whether a question of it has been answered."""


class Repose:
    """Of one instance."""

    def __init__(
        self, name: str, settings: ServerSettings, link: Link, traffic: Traffic, *, is_base: bool, is_remembered: bool
    ) -> None:
        """`is_remembered`: what it offers is kept for the next start. Further instances have an end of their own."""
        self._name, self._link, self._traffic = name, link, traffic
        self.is_lazy = is_remembered and settings.start == "lazy"
        """It starts at its first use, if it is known by then."""
        usual = IDLE_STOP if self.is_lazy and settings.command is not None else 0.0
        seconds = usual if settings.idle_stop is None else settings.idle_stop
        self.seconds = seconds if is_base else 0.0
        """Without use after which it is stopped; 0: never."""
        self.is_looked_at = False
        """It was started to see what it offers now."""

    @property
    def is_due(self) -> bool:
        """Nobody uses it or waits for it. One that is lost then is not connected again before somebody does.

        Only for one that is stopped anyway when it is not used; others are to be there when they are needed.
        """
        return bool(self.seconds) and not self._link.waiting and not self._traffic.is_needed

    async def run(self) -> None:
        """End its life once it has not been used for as long as that may be."""
        seconds, link, traffic = self.seconds, self._link, self._traffic
        if not seconds:
            return
        began = traffic.idle_since = asyncio.get_running_loop().time()
        if self.is_looked_at and seconds > LOOK_SECONDS:
            await traffic.idle(LOOK_SECONDS)
            seconds = seconds if traffic.idle_since > began else 0.0
        await traffic.idle(seconds)
        while link.is_asking or link.waiting:
            await asyncio.sleep(ASKING_SECONDS)
            await traffic.idle(seconds)
        log.info("upstream idle", upstream=self._name)
        traffic.has_served = False  # what it held is gone
        link.retire()

    def held(self, is_held: bool) -> None:
        """Somebody wants to hear of its resources from now on; or nobody any more."""
        if not is_held:
            self._traffic.release()
            return
        self._traffic.hold()
        if self._link.status.state == "idle":
            self._link.poke()
