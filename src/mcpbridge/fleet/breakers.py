"""Breakers of a fleet: a bridge whose calls to a server fail says so with its beat, and the others become careful.

Breakers are not shared: what one bridge cannot reach another may. But while calls of one were stopped, the next failure
on another bridge stops its calls as well, however many it would have borne; an answer shows that all is well there. It
is about servers that all bridges reach at one address; programs are those of each bridge.
"""

from collections.abc import Callable, Iterable

from mcpbridge.base.background_tasks import repeat
from mcpbridge.base.log import get_logger
from mcpbridge.fleet.members import Members

log = get_logger("mcpbridge.fleet")

_LOOK_EVERY = 0.25
"""Seconds; with the beats of both bridges, another one knows after two seconds at most, or a little more."""


class BreakerGossip:
    """What this bridge says of its breakers, and hears of those of others."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self._tripped: Callable[[], Iterable[str]] = lambda: ()
        self._warn: Callable[[str], None] = lambda _: None
        self._heard = frozenset[tuple[str, str]]()

    def join(self, tripped: Callable[[], Iterable[str]], warn: Callable[[str], None]) -> None:
        """`tripped`: servers to which this bridge's calls are stopped; `warn`: those of another one are."""
        self._tripped, self._warn = tripped, warn

    async def run(self) -> None:
        """Say and hear until cancelled."""
        await repeat(_LOOK_EVERY, self._look)

    async def _look(self) -> None:
        self._members.stopped_calls(tuple(sorted(self._tripped())))
        heard = frozenset(
            (one.id, server) for one in self._members.all() if one.id != self._members.me.id for server in one.stopped
        )
        for member, server in sorted(heard - self._heard):
            log.info("another bridge of the fleet gets no answers of a server", member=member, upstream=server)
            self._warn(server)
        self._heard = heard
