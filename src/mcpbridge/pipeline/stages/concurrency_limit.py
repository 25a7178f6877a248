"""Places for calls, by what they are counted for: a tool, a client, a turn. As many run as there are slots.

Each limit has a queue of its own (`Gate`), in order of arrival and bounded. Gates are made when they are first needed
and forgotten when nobody is inside or waits, so clients that went leave nothing behind.

A call that asks its client something lends out its places meanwhile, as it does with its slot at the server.

A person may take minutes. And the answer may need further calls (sampling that uses tools): would those wait for the
places of the call that waits for them, neither could go on.

How many calls run at a time: of one model turn, of one client, of one tool; and one change at a time.

The slots of a server itself are counted where its calls are sent (`upstream/gate.py`). A call takes its places always
in the same order, from what is most its own to what it shares with most others: turn, client, changes, tool, server.
So no two calls ever wait for one another, and who waits for a busy tool keeps nobody else's place. A call that the
bridge makes on behalf of another one (`Call.within`) uses the places which that one holds.

Waiting ends at the call's deadline; where it has none, after as long as the call itself might take.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from msgspec import Raw

from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.call_settings import CallDefaults
from mcpbridge.core.elicitation import Elicitor, ElicitorWrapper, Question
from mcpbridge.core.model import Call, CallHandler, Tool
from mcpbridge.pipeline.per_client import client_of
from mcpbridge.pipeline.stage import Stage
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.meta import TURN
from mcpbridge.upstream.concurrency import Gate


class Limit(NamedTuple):
    """What is limited, for whom, and to how many calls at a time."""

    key: Hashable
    """Tells it from all others. A limit that is set anew is another one."""
    what: str
    """What takes only so many, for refusals: `Tool 'x/y'`."""
    slots: int


class Place(Gate):
    """The gate of one limit. `users` are inside or wait."""

    users = 0

    def __init__(self, limit: Limit, *, queued: int) -> None:
        super().__init__(limit.what, slots=limit.slots, places=queued, patience=0)
        self.key = limit.key


class Places:
    """All gates that are in use."""

    def __init__(self, *, queued: int) -> None:
        """`queued`: calls that may wait at each."""
        self.queued = queued
        """Calls that may wait at each gate that is made from now on."""
        self.held: dict[Call, list[Place]] = {}
        """The places of the calls that run."""
        self._places: dict[Hashable, Place] = {}

    def __len__(self) -> int:
        return len(self._places)

    def use(self, limit: Limit) -> Place:
        """The gate of a limit. Whoever uses it says so with `leave` or `give_up`."""
        place = self._places.get(limit.key)
        if place is None:
            place = self._places[limit.key] = Place(limit, queued=self.queued)
        place.users += 1
        return place

    def leave(self, place: Place) -> None:
        """A call that was inside is over: the one who waits longest comes in."""
        place.leave()
        self.give_up(place)

    def give_up(self, place: Place) -> None:
        """A call does not come in."""
        place.users -= 1
        if not place.users:
            del self._places[place.key]


class Lending(ElicitorWrapper):
    """The elicitor behind a call that holds places."""

    __slots__ = ("_call", "_elicitor", "_places", "is_over")

    def __init__(self, call: Call, places: Sequence[Place]) -> None:
        self._elicitor, self._call, self._places = call.client, call, places
        self.is_over = False
        """The places are given back: there is nothing to lend any more."""

    @property
    def elicitor(self) -> Elicitor:
        """Who is really asked."""
        return self._elicitor

    async def ask(self, question: Question) -> Raw:
        """Ask. When the answer is there the call goes on at once, even if all places are taken then."""
        with ExitStack() as lent:
            for place in () if self.is_over else self._places:
                lent.enter_context(place.rest(self._call))
            return await self.elicitor.ask(question)


class Limits:
    """Concern: the places of all calls."""

    def __init__(self, calls: CallDefaults, patience: Callable[[str], float], *, places: Places | None = None) -> None:
        """`patience`: seconds that a call to a server may wait at each limit, if it has no deadline of its own.

        `places`: those of calls that began before the settings changed; they count where the limit is the same.
        """
        self._patience = patience
        self.batch, self.per_client = calls.batch, calls.max_per_client
        self.places = Places(queued=calls.max_queued) if places is None else places

    def stage(self, tool: Tool | None, options: CallOptions) -> Stage | None:
        """Every tool has one, since any call may name its turn; for one without limits a look at that is all.

        Only calls of tools are limited here: other requests take a slot of their server, and that is all.
        """
        if tool is None:
            return None
        seconds = options.timeouts.idle if options.timeouts is not None else self._patience(tool.server)
        return _Limited(self, tool, options, seconds)

    async def enter(self, call: Call, limit: Limit, seconds: float) -> Place:
        """Take a place, or wait for one.

        Raises:
            Overloaded: too many wait already, or the wait took too long.
        """
        place = self.places.use(limit)
        if place.try_enter():
            return place
        loop = asyncio.get_running_loop()
        began = loop.time()
        call.deadline = call.deadline or began + seconds  # its time counts from its first wait on
        try:
            await place.enter(call.deadline - began)
        except BaseException:
            self.places.give_up(place)
            raise
        finally:
            call.waited(loop.time() - began)
        return place


class _Limited:
    """Stage: the limits of one tool's calls."""

    def __init__(self, limits: Limits, tool: Tool, options: CallOptions, seconds: float) -> None:
        self._limits, self._seconds, self._server = limits, seconds, tool.server
        self._is_serial = options.is_serial
        self._serial = f"Server '{tool.server}' for changes of one client (`side_effects = \"serial\"`)"
        slots = options.max_concurrent
        text = f"Tool '{tool.id}' (`max_concurrent`)"
        self._own = Limit(("tool", tool.id, slots), text, slots) if slots else None
        self._is_always = self._is_serial or bool(slots or limits.per_client)

    def __call__(self, call: Call, proceed: CallHandler) -> Awaitable[Body]:
        """No coroutine of its own where nothing is limited: every call would pay for it."""
        if not self._is_always and (call.meta is None or TURN not in call.meta):
            return proceed(call)
        return self._run(call, proceed)

    async def _run(self, call: Call, proceed: CallHandler) -> Body:
        limits = self._limits
        inherited = _held_by(limits.places.held, call.within) if call.within is not None else ()
        inside: list[Place] = []
        lending: Lending | None = None
        try:
            for limit in self._limits_of(call):
                if limit.key not in inherited:
                    place = await limits.enter(call, limit, self._seconds)
                    inside.append(place)
            limits.places.held[call] = inside
            if call.client.profile:
                lending = call.client = Lending(call, inside)
            return await proceed(call)
        finally:
            limits.places.held.pop(call, None)
            if lending is not None:
                lending.is_over = True
                if call.client is lending:
                    call.client = lending.elicitor
            for place in reversed(inside):
                limits.places.leave(place)

    def _limits_of(self, call: Call) -> Iterator[Limit]:
        """In the order in which every call takes them."""
        limits = self._limits
        client = client_of(call)
        turn = call.meta.get(TURN) if call.meta is not None else None
        if turn is not None and bytes(turn) != b"null":
            yield Limit(("turn", client, bytes(turn), limits.batch), "This turn (`calls.batch`)", limits.batch)
        if limits.per_client:
            yield Limit(
                ("client", client, limits.per_client), "This client (`calls.max_per_client`)", limits.per_client
            )
        if self._is_serial:
            yield Limit(("changes", self._server, client), self._serial, 1)
        if self._own is not None:
            yield self._own


def _held_by(held: dict[Call, list[Place]], call: Call | None) -> set[object]:
    """What this call holds, and those that it is made on behalf of."""
    found: set[object] = set()
    while call is not None:
        found |= {place.key for place in held.get(call, ())}
        call = call.within
    return found
