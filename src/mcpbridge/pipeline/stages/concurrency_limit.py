"""How many calls run at a time: of one model turn, of one client, of one tool; and one change at a time.

Each limit has its slots and a bounded queue, in order of arrival. They are made when first needed and forgotten soon
after nobody is inside or waits, so clients that went leave nothing behind. The slots of a server itself are counted
where its calls are sent (`upstream/concurrency.py`).

A call takes its slots always in the same order, from what is most its own to what it shares with most others: turn,
client, changes, tool, server. So no two calls ever wait for one another, and who waits for a busy tool keeps nobody
else's slot.

A call that is made within another one (`Call.within`: by a tool in Python, an agent, a program of code mode or
`call_tool`) uses the slots which that one holds. While it waits for a further one, all calls that it is made within
lend theirs out: they do nothing but wait for it, and whoever holds what it waits for may need what they hold.

A call that asks its client something lends out its slots meanwhile: a person may take minutes, and the answer may need
further calls (sampling that uses tools). Would those wait for the slots of the call that waits for them, neither could
continue.

Waiting ends at the call's deadline; where it has none, after as long as the call itself might take.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from msgspec import Raw

from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.call_settings import CallDefaults
from mcpbridge.core.elicitation import NO_CAPABILITIES, Elicitor, ElicitorWrapper, Question
from mcpbridge.core.model import Call, CallHandler, Tool
from mcpbridge.pipeline.per_client import client_of
from mcpbridge.pipeline.stage import Stage, Trigger
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.meta import TURN
from mcpbridge.upstream.concurrency import ConcurrencyLimiter

_IDLE = 16
"""Gates that are kept while nobody uses them."""


class Limit(NamedTuple):
    """What is limited, for whom, and to how many calls at a time."""

    key: Hashable
    """Distinguishes it from all others. A limit that is set anew is another one."""
    what: str
    """What takes only so many, for refusals: `Tool 'x/y'`."""
    slots: int


class LimitSlots(ConcurrencyLimiter):
    """The gate of one limit. `users` are inside or wait."""

    users = 0

    def __init__(self, limit: Limit, *, queued: int) -> None:
        super().__init__(limit.what, slots=limit.slots, places=queued, patience=0)
        self.key, self.queued = limit.key, queued


class Slots:
    """All gates that are in use."""

    def __init__(self, *, queued: int) -> None:
        """`queued`: calls that may wait at each."""
        self.queued = queued
        """Calls that may wait at each gate that is made from now on."""
        self.held: dict[Call, list[LimitSlots]] = {}
        """The slots of the calls that run."""
        self._slots: dict[Hashable, LimitSlots] = {}
        self._idle: dict[Hashable, LimitSlots] = {}
        """Gates that nobody uses, the last few: making one takes longer than to use it."""

    def __len__(self) -> int:
        return len(self._slots)

    def use(self, limit: Limit) -> LimitSlots:
        """The gate of a limit. Whoever uses it says so with `leave` or `give_up`."""
        slot = self._slots.get(limit.key)
        if slot is None:
            slot = self._idle.pop(limit.key, None)
            if slot is None or slot.queued != self.queued:
                slot = LimitSlots(limit, queued=self.queued)
            self._slots[limit.key] = slot
        slot.users += 1
        return slot

    def are_free(self, limits: Sequence[Limit]) -> bool:
        """Whether a call would come in at once everywhere. One function for all its limits, as those below."""
        slots = self._slots
        for limit in limits:
            slot = slots.get(limit.key)
            if limit.slots <= 0 if slot is None else slot.free <= 0 or slot.queue:
                return False
        return True

    def enter_all(self, limits: Sequence[Limit]) -> list[LimitSlots]:
        """Have a call come in, which `are_free` has seen that it may. The slots that it holds, for `leave_all`."""
        slots, inside = self._slots, list[LimitSlots]()
        for limit in limits:
            slot = slots.get(limit.key)
            if slot is None:
                slot = self.use(limit)
            else:
                slot.users += 1
            slot.free -= 1
            inside.append(slot)
        return inside

    def leave_all(self, inside: Sequence[LimitSlots]) -> None:
        """The call that holds these is over."""
        for slot in reversed(inside):
            if slot.queue or slot.users == 1:
                self.leave(slot)
            else:
                slot.free += 1
                slot.users -= 1

    def leave(self, slot: LimitSlots) -> None:
        """A call that was inside is over: the one who waits longest comes in."""
        if slot.queue:
            slot.leave()
        else:  # the usual case, without a further call
            slot.free += 1
        slot.users -= 1
        if not slot.users:
            self._forget(slot)

    def give_up(self, slot: LimitSlots) -> None:
        """A call does not come in."""
        slot.users -= 1
        if not slot.users:
            self._forget(slot)

    def _forget(self, slot: LimitSlots) -> None:
        """Nobody uses it."""
        idle = self._idle
        del self._slots[slot.key]
        idle[slot.key] = slot
        if len(idle) > _IDLE:
            del idle[next(iter(idle))]


class SlotLending(ElicitorWrapper):
    """The elicitor behind a call that holds slots."""

    __slots__ = ("_call", "_elicitor", "_slots", "is_over")

    def __init__(self, call: Call, slots: Sequence[LimitSlots]) -> None:
        self._elicitor, self._call, self._slots = call.client, call, slots
        self.is_over = False
        """The slots are given back: there is nothing to lend any more."""

    @property
    def elicitor(self) -> Elicitor:
        """Who is really asked."""
        return self._elicitor

    async def ask(self, question: Question) -> Raw:
        """Ask. When the answer is there the call continues at once, even if all slots are taken then."""
        with ExitStack() as lent:
            for slot in () if self.is_over else self._slots:
                lent.enter_context(slot.rest(self._call))
            return await self.elicitor.ask(question)


class ConcurrencyLimit:
    """Makes the stages: the slots of all calls."""

    def __init__(self, calls: CallDefaults, patience: Callable[[str], float], *, slots: Slots | None = None) -> None:
        """`patience`: seconds that a call to a server may wait at each limit, if it has no deadline of its own.

        `slots`: those of calls that began before the settings changed; they count where the limit is the same.
        """
        self._patience = patience
        self.batch, self.per_client = calls.batch, calls.max_per_client
        self.slots = Slots(queued=calls.max_queued) if slots is None else slots

    def stage(self, tool: Tool | None, options: CallOptions) -> Stage | None:
        """Every tool has one, since any call may name its turn; for one without limits a look at that is all.

        Only calls of tools are limited here: other requests take a slot of their server, and that is all.
        """
        if tool is None:
            return None
        seconds = options.timeouts.idle if options.timeouts is not None else self._patience(tool.server)
        return _LimitedTool(self, tool, options, seconds)

    async def enter(self, call: Call, limit: Limit, seconds: float) -> LimitSlots:
        """Take a slot, or wait for one.

        Raises:
            Overloaded: too many wait already, or the wait took too long.
        """
        slot = self.slots.use(limit)
        if slot.try_enter():
            return slot
        loop = asyncio.get_running_loop()
        began = loop.time()
        call.deadline = call.deadline or began + seconds  # its time counts from its first wait on
        try:
            with ExitStack() as lent:
                for outer in _outer_calls(call):
                    for held in self.slots.held.get(outer, ()):
                        lent.enter_context(held.rest(outer))
                await slot.enter(call.deadline - began)
        except BaseException:
            self.slots.give_up(slot)
            raise
        finally:
            call.waited(loop.time() - began)
        return slot


class _LimitedTool:
    """Stage: the limits of one tool's calls."""

    def __init__(self, limits: ConcurrencyLimit, tool: Tool, options: CallOptions, seconds: float) -> None:
        self._limits, self._seconds, self._server = limits, seconds, tool.server
        self._is_serial = options.is_serial
        self._serial = f"Server '{tool.server}' for changes of one client (`side_effects = \"serial\"`)"
        slots = options.max_concurrent
        text = f"Tool '{tool.id}' (`max_concurrent`)"
        self._own = Limit(("tool", tool.id, slots), text, slots) if slots else None
        self._is_always = self._is_serial or bool(slots or limits.per_client)
        self._client: str | None = None
        self._of_client: Sequence[Limit] = ()
        """The limits of the client that called last."""
        self._entering: Sequence[Limit] = ()
        """The limits of the call that is about to be sent on the express lane."""
        self.trigger = None if self._is_always else Trigger(meta=TURN)

    def __call__(self, call: Call, proceed: CallHandler) -> Awaitable[Body]:
        """No coroutine of its own where nothing is limited: every call would pay for it."""
        if not self._is_always and (call.meta is None or TURN not in call.meta):
            return proceed(call)
        return self._run(call, proceed)

    async def _run(self, call: Call, proceed: CallHandler) -> Body:
        limits = self._limits
        if call.sent is not None:  # it came in by `express_sent`
            try:
                return await proceed(call)
            finally:
                self.express_over(call)
        inherited = _held_around(limits.slots.held, call) if call.within is not None else ()
        inside: list[LimitSlots] = []
        lending: SlotLending | None = None
        try:
            for limit in self._limits_of(call):
                if limit.key not in inherited:
                    slot = await limits.enter(call, limit, self._seconds)
                    inside.append(slot)
            limits.slots.held[call] = inside
            if call.client.capabilities:
                lending = call.client = SlotLending(call, inside)
            return await proceed(call)
        finally:
            limits.slots.held.pop(call, None)
            if lending is not None:
                lending.is_over = True
                if call.client is lending:
                    call.client = lending.elicitor
            limits.slots.leave_all(inside)

    def express_begin(self, call: Call, arguments: Raw) -> bool:
        """See `pipeline/stage.py`: it need not wait. Plain calls name no turn, and are made within none."""
        is_same = call.meta is None and client_of(call) == self._client  # of most calls: what `_limits_of` would find
        self._entering = entering = self._of_client if is_same else self._limits_of(call)
        return self._limits.slots.are_free(entering)

    def express_sent(self, call: Call, at: float) -> None:
        """See `pipeline/stage.py`."""
        slots, capabilities = self._limits.slots, call.client.capabilities
        slots.held[call] = inside = slots.enter_all(self._entering)
        if capabilities is not NO_CAPABILITIES and capabilities:
            call.client = SlotLending(call, inside)

    def express_over(self, call: Call) -> None:
        """See `pipeline/stage.py`."""
        slots, client = self._limits.slots, call.client
        if isinstance(client, SlotLending):
            client.is_over = True
            call.client = client.elicitor
        slots.leave_all(slots.held.pop(call, ()))

    def _limits_of(self, call: Call) -> Sequence[Limit]:
        """In the order in which every call takes them."""
        client, turn = client_of(call), call.meta.get(TURN) if call.meta is not None else None
        found = self._of_client if client == self._client else self._limits_of_client(client)
        if turn is not None and bytes(turn) != b"null":
            batch = self._limits.batch
            return [Limit(("turn", client, bytes(turn), batch), "This turn (`calls.batch`)", batch), *found]
        return found

    def _limits_of_client(self, client: str) -> Sequence[Limit]:
        """Those that all calls of a client have. They are remembered: many calls of one follow each other."""
        found: list[Limit] = []
        most = self._limits.per_client
        if most:
            found.append(Limit(("client", client, most), "This client (`calls.max_per_client`)", most))
        if self._is_serial:
            found.append(Limit(("changes", self._server, client), self._serial, 1))
        if self._own is not None:
            found.append(self._own)
        self._client, self._of_client = client, found
        return found


def _held_around(held: dict[Call, list[LimitSlots]], call: Call) -> set[object]:
    """What the calls hold that this one is made within."""
    return {slot.key for outer in _outer_calls(call) for slot in held.get(outer, ())}


def _outer_calls(call: Call) -> Iterator[Call]:
    """The calls that this one is made within, from the inside out."""
    outer = call.within
    while outer is not None:
        yield outer
        outer = outer.within
