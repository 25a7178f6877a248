"""What the clients want of one upstream besides calls: changes of resources, a log level.

It outlives the sessions with the server; `keepalive` brings each of them to it.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable

import anyio

from mcpbridge.protocol.log_levels import LEVELS

FOLLOW_SECONDS = 2.0
"""Seconds that a subscriber waits for the server to take the subscription."""
LEVEL_SECONDS = 1.0
"""Seconds that a call waits for its server to take the level that the call asks for."""
QUIET_LEVEL = "emergency"
"""Asked of a legacy server that nobody wants messages of any more: the protocol has no "off"."""


class Wanted:
    """What the clients want of one upstream."""

    def __init__(self, held: Callable[[bool], None] = lambda is_held: None) -> None:
        """`held` is called with True when there are subscribers from now on, and False when there are none any more."""
        self._held, self._is_held = held, False
        self.uris: Counter[str] = Counter()
        """Resources, by how many subscribers they have."""
        self.followed: set[str] = set()
        """Those of them that a session was subscribed to: on the next one, or stream, changes may have been missed."""
        self.log_level = ""
        """The least severe level that anybody wants; empty: nobody ever asked."""
        self.sessions_level = ""
        """Of it the part of those who want it as long as they are there."""
        self.requests_level = ""
        """Of it the part of single requests."""
        self.changed = asyncio.Event()
        self._follows_more = asyncio.Event()
        self._is_level_sent = asyncio.Event()
        self._is_level_sent.set()
        self._heir: Wanted | None = None

    def hand_over(self, heir: "Wanted") -> None:
        """From now on all this is wanted of another instance; who unsubscribes here unsubscribes there."""
        for uri, subscribers in self.uris.items():
            heir.uris[uri] += subscribers
        heir.followed |= self.followed  # what changes until it is subscribed to there may be missed
        heir.adopt_log_level(self)
        heir.changed.set()
        self._heir = heir
        heir.hold()
        self.forget()

    def forget(self) -> None:
        """No more notifications: the instance ends. Who unsubscribes later need not know."""
        self.uris.clear()
        self.followed.clear()
        self._follows_more.set()  # who waits for one of them need not
        self.hold()

    def subscribe(self, uri: str) -> None:
        """One more subscriber to a resource."""
        if self._heir is not None:
            self._heir.subscribe(uri)
            return
        self.uris[uri] += 1
        if self.uris[uri] == 1:
            self.changed.set()
            self.hold()

    def unsubscribe(self, uri: str) -> None:
        """One subscriber less."""
        if self._heir is not None:
            self._heir.unsubscribe(uri)
            return
        self.uris[uri] -= 1
        if self.uris[uri] <= 0:
            del self.uris[uri]
            self.followed.discard(uri)
            self._follows_more.set()
            self.changed.set()
            self.hold()

    def follow(self, uris: Iterable[str]) -> None:
        """The server announces these from now on, or what changes until it does counts as missed; if still wanted."""
        if self._heir is not None:
            self._heir.follow(uris)
            return
        self.followed.update(uri for uri in uris if uri in self.uris)
        self._follows_more.set()

    async def follows(self, uri: str) -> None:
        """Return when the server announces this, or nobody wants it any more.

        Who is answered earlier could change it before that, unheard. So what changes until then counts as missed if
        the server takes too long.
        """
        with anyio.move_on_after(FOLLOW_SECONDS):
            await self.until_followed(uri)
            return
        self.follow([uri])

    async def until_followed(self, uri: str) -> None:
        """As `follows`, however long that takes."""
        while self._heir is None:
            if uri in self.followed or uri not in self.uris:
                return
            self._follows_more.clear()
            await self._follows_more.wait()
        await self._heir.until_followed(uri)

    def want_log_level(self, level: str, *, is_heard: bool = False) -> None:
        """The least severe level that any session wants; empty when none wants one. `is_heard`: sessions are there."""
        if not level and is_heard and self.log_level:
            level = LEVELS[0]  # sessions are there that leave it to the server, and it cannot be told "as at first"
        self.sessions_level = level
        self._set_level()

    def adopt_log_level(self, of: "Wanted") -> None:
        """Want what is wanted of another instance of the server."""
        self.sessions_level, self.requests_level = of.sessions_level, of.requests_level
        self.log_level = self.log_level or of.log_level
        self._set_level()

    def want_log_level_once(self, level: str) -> None:
        """A single request wants messages down to this level (modern). A shared session then stays at it."""
        if not self.requests_level or LEVELS.index(level) < LEVELS.index(self.requests_level):
            self.requests_level = level
            self._set_level()

    def hold(self) -> None:
        """Report whether there are subscribers, if that is news."""
        if self._is_held != bool(self.uris):
            self._is_held = bool(self.uris)
            self._held(self._is_held)

    def _set_level(self) -> None:
        wanted = [level for level in (self.sessions_level, self.requests_level) if level]
        level = min(wanted, key=LEVELS.index) if wanted else QUIET_LEVEL if self.log_level else ""
        if level != self.log_level:
            self.log_level = level
            self._is_level_sent.clear()
            self.changed.set()

    def level_sent(self, level: str) -> None:
        """The server has this level, or takes none."""
        if level == self.log_level:
            self._is_level_sent.set()

    async def level_in_force(self) -> None:
        """Return when the server has the level that is wanted; soon, if it takes too long."""
        if not self._is_level_sent.is_set():
            with anyio.move_on_after(LEVEL_SECONDS):
                await self._is_level_sent.wait()
