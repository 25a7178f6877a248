"""What open pages hear while they are shown: one stream of events for each browser, and one look for all streams.

Calls are not listened to one by one, so an open page costs a call nothing: twice a second the module looks whether
the counts of calls, the calls that run, the states of servers, the list of tools or the waiting approvals changed, and
a change is announced by its topic. The page then asks for the part that shows it.
"""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress

from mcpbridge.app.fleet.desk import Pulse
from mcpbridge.base.log import get_logger
from mcpbridge.library.bridge import Bridge

log = get_logger("mcpbridge.console")

LOOK_EVERY = 0.5
"""Seconds between two looks while somebody listens."""
_ASK_EVERY = 1.0
"""Seconds between two times that the other bridges of a fleet are asked."""
_QUIET = 15.0
"""Seconds of silence after which a comment is sent, so that a dead connection is noticed."""

TOPICS = ("calls", "running", "servers", "catalog", "approvals", "clients", "config", "doctor", "sign-ins", "output")


async def _alone() -> Sequence[Pulse]:
    return ()


class LiveFeed:
    """Says to everybody who listens what has changed."""

    def __init__(
        self,
        bridge: Bridge,
        before: Callable[[], None] = lambda: None,
        others: Callable[[], Awaitable[Sequence[Pulse]]] = _alone,
    ) -> None:
        """`before` is called before a change is announced: what pages then ask for must be as it is now.

        `others`: asks the other bridges of the fleet. One that hangs must not hold up what happens here, so that they
        are asked beside the look.
        """
        self._bridge, self._before, self._others = bridge, before, others
        self._asking: asyncio.Task[None] | None = None
        self.pulses: Sequence[Pulse] = ()
        """What the others said last."""
        self._asked_at = 0.0
        self._listeners: set[asyncio.Queue[frozenset[str]]] = set()
        self._looking: asyncio.Task[None] | None = None
        self._has_looked = asyncio.Event()
        self._last: dict[str, object] = {}
        self._is_ending = False
        self.approvals_waiting = 0
        """Calls that wait for a person, at the last look."""
        self.approvals_asked = 0
        """Calls that began to wait, up to the last look: one may come as another is answered."""
        self._waiting = frozenset[str]()

    def __repr__(self) -> str:
        return f"<LiveFeed {len(self._listeners)} open>"

    @property
    def listeners(self) -> int:
        """How many streams are open."""
        return len(self._listeners)

    def announce(self, *topics: str) -> None:
        """Say now that something changed."""
        self._before()
        for queue in self._listeners:
            with suppress(asyncio.QueueFull):
                queue.put_nowait(frozenset(topics))

    def end(self) -> None:
        """The bridge stops: every stream ends."""
        self._is_ending = True
        self._has_looked.set()
        self.announce()
        self._stop_looking()

    def _stop_looking(self) -> None:
        """Whoever comes before the task has ended starts another one."""
        for task in (self._looking, self._asking):
            if task is not None:
                task.cancel()
        self._looking = self._asking = None

    async def stream(self, is_in: Callable[[], bool] = lambda: True) -> AsyncGenerator[bytes]:
        """The event stream of one browser. Closing it is safe at any time.

        `is_in`: whether this browser may hear anything still. Where it may not, the stream says so and ends: nothing is
        announced after, and it ends with the next look at the latest.
        """
        queue: asyncio.Queue[frozenset[str]] = asyncio.Queue(maxsize=100)
        self._listeners.add(queue)
        if self._looking is None:
            self._last, self._has_looked = {}, asyncio.Event()
            self._looking = asyncio.create_task(self._look())
        try:
            # The page asks for its parts at the first event: what changes after the first look is announced, and
            # what changed before it is in the parts.
            await self._has_looked.wait()
            self._before()  # what was kept of the time before is as old as the page: nobody announced a change since
            if is_in():
                yield b"retry: 1000\n\n" + self._event(frozenset(TOPICS))
            last = time.monotonic()
            while is_in() and not self._is_ending:
                try:
                    async with asyncio.timeout(LOOK_EVERY):
                        topics = await queue.get()
                except TimeoutError:
                    if time.monotonic() - last > _QUIET:
                        last = time.monotonic()
                        yield b": quiet\n\n"
                    continue
                while not queue.empty():
                    topics |= queue.get_nowait()
                if topics and is_in():
                    last = time.monotonic()
                    yield self._event(topics)
            if not is_in():
                yield b"event: signed-out\ndata: {}\n\n"
        finally:
            self._listeners.discard(queue)
            if not self._listeners:
                self._stop_looking()

    def _ask_others(self) -> None:
        """Have them asked again, if they have said what they were asked and some time has passed."""
        now = time.monotonic()
        if (self._asking is None or self._asking.done()) and now - self._asked_at >= _ASK_EVERY:
            self._asked_at = now
            self._asking = asyncio.create_task(self._ask())

    async def _ask(self) -> None:
        try:
            self.pulses = await self._others()
        except Exception as error:
            log.warning("the console cannot ask the other bridges", exc_info=error)

    async def _look(self) -> None:
        while self._listeners:
            self._ask_others()
            try:
                self.announce_changes(await self._now())
            except Exception as error:
                # One look that fails must not silence the pages for good.
                log.warning("the console cannot look at the bridge", exc_info=error)
            self._has_looked.set()
            await asyncio.sleep(LOOK_EVERY)

    def announce_changes(self, now: dict[str, object]) -> None:
        """Announce what differs from the last look."""
        changed = [topic for topic, value in now.items() if self._last.get(topic, value) != value]
        self._last = now
        if changed:
            self.announce(*changed)

    async def _now(self) -> dict[str, object]:
        """By topic, a value that is another one when the topic has changed; each is cheap to make."""
        bridge = self._bridge
        approvals = [(one.request.id, one.is_waiting) for one in await bridge.approvals.pending()]
        waiting = frozenset(id_ for id_, is_waiting in approvals if is_waiting)
        self.approvals_asked += len(waiting - self._waiting)
        self.approvals_waiting, self._waiting = len(waiting), waiting
        ended = bridge.approvals.recent.ended()
        others = [(one.id, one.problem, one.counts) for one in self.pulses]
        pool, log_file = bridge.pool.upstreams, bridge.audit  # the file has a change a while after it happened
        log_file.write_soon()
        return {
            "calls": (
                bridge.metrics.total_calls(),
                log_file.calls_written,
                [(id_, problem, counts.get("calls"), counts.get("written")) for id_, problem, counts in others],
            ),
            "running": (
                [(one.uid, one.stage) for one in bridge.running_calls()],
                [counts.get("stages") for _, _, counts in others],
            ),
            "servers": (
                log_file.events_written,
                *(
                    (name, one.status.state, one.status.reason, one.restarts, id(one.session))
                    for name, one in pool.items()
                ),
            ),
            "output": sum(getattr(one.transport, "lines_written", 0) for one in bridge.pool.everyone()),
            "catalog": id(bridge.catalog.snapshot),
            "approvals": (tuple(approvals), ended[0][0] if ended else 0.0),
            "clients": (
                bridge.server.clients,
                log_file.events_written,
                [(id_, problem, counts.get("clients")) for id_, problem, counts in others],
            ),
            "config": (id(bridge.settings), str(bridge.config_error), bridge.break_glass_grants()),
        }

    def _event(self, topics: frozenset[str]) -> bytes:
        news = {"topics": sorted(topics), "waiting": self.approvals_waiting, "asked": self.approvals_asked}
        return f"data: {json.dumps(news)}\n\n".encode()
