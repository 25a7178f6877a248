"""How many calls a conversation may make, and how many may follow one another in one run of it.

Against models that never stop. Off unless it is configured. Calls that run side by side follow one another not at all:
the chain is as long as the longest row of calls of which each began when the one before had ended.

Bridges may count together (`SharedBudgets`): the calls of a conversation, and the row of a run.
"""

import time
from collections.abc import Callable
from typing import Protocol

from msgspec import Raw

from mcpbridge.base.errors import BudgetSpent, LimitUnavailable, Overloaded, StoreFailed
from mcpbridge.base.units import show_seconds
from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.call_settings import CallDefaults
from mcpbridge.core.context import run_of
from mcpbridge.core.model import Call, Caller, CallHandler, Tool
from mcpbridge.pipeline.per_client import Recent, client_of, shared_client_of
from mcpbridge.pipeline.stage import Stage
from mcpbridge.protocol.body import Body


class BudgetShare(Protocol):
    """What this bridge has of a budget that several count together."""

    calls: int
    """Calls that it may make without asking the others."""

    async def take(self, most: int) -> bool:
        """Count a call. False: as many as `most` were made, by way of whatever bridge.

        Raises:
            StoreFailed: the others cannot be asked.
        """
        ...

    def give_back(self) -> None:
        """A call that was counted was not made."""
        ...


class ChainShare(Protocol):
    """A run that several bridges count together. See `Chain`."""

    async def begin(self, *, most: int, pause: float) -> int:
        """A call wants to begin; returns its place, or 0.

        Raises:
            StoreFailed: the others cannot be asked.
        """
        ...

    async def end(self, place: int) -> None:
        """The call with this place is over. It never fails."""
        ...


class SharedBudgets(Protocol):
    """Budgets that several bridges count together."""

    def budget(self, name: str) -> BudgetShare:
        """This bridge's part of the budget that has this name, the same for all bridges."""
        ...

    def chain(self, name: str) -> ChainShare:
        """The run of calls that has this name, the same for all bridges."""
        ...


class CallCount:
    """How many calls a conversation has made."""

    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls = 0


class Chain:
    """The calls of one run, pure: times are passed in, in seconds."""

    __slots__ = ("_length", "_running", "last")

    def __init__(self) -> None:
        self._length = self._running = 0
        self.last = float("-inf")
        """When a call was last made or ended."""

    def begin(self, now: float, *, most: int, pause: float) -> int:
        """A call wants to begin. Returns its place in the row, from 1; 0: it would be longer than `most`.

        After `pause` seconds without a call it is a new run; 0: it never is.
        """
        if pause and not self._running and now - self.last >= pause:
            self._length = 0
        self.last = now  # refused ones count: who never pauses stays in the same run
        if self._length >= most:
            return 0
        self._running += 1
        return self._length + 1

    def has_room(self, now: float, *, most: int, pause: float) -> bool:
        """Whether `begin` would give a place now. Nothing changes."""
        is_new = bool(pause) and not self._running and now - self.last >= pause
        return is_new or self._length < most

    def end(self, now: float, place: int) -> None:
        """The call with this place is over."""
        self._running -= 1
        self._length = max(self._length, place)
        self.last = now


class BudgetState:
    """What all conversations have made, whatever they may make at the time."""

    def __init__(self, together: SharedBudgets | None = None) -> None:
        """`together`: what counts for several bridges; None: this one counts alone."""
        self.together = together
        self.counts = Recent(CallCount)
        self.chains = Recent(Chain)


class CallBudget:
    """Makes the stages: what all conversations have spent."""

    def __init__(
        self,
        calls: CallDefaults,
        clock: Callable[[], float] = time.monotonic,
        *,
        state: BudgetState | None = None,
        max_calls_of: Callable[[Caller], int | None] | None = None,
    ) -> None:
        """`clock` counts in seconds. `state`: what was before the settings changed.

        `max_calls_of`: what the roles of a caller give it in place of `max_calls`; None: no role gives any.
        """
        self._max_calls_of = max_calls_of
        self.max_calls, self.max_chain, self._pause = calls.max_calls, calls.max_chain, calls.chain_pause
        self.clock = clock
        state = state or BudgetState()
        self.counts, self._chains = state.counts, state.chains
        self.is_plain = bool(calls.max_calls) and not calls.max_chain and max_calls_of is None
        """Nothing but `max_calls` counts."""
        together = state.together
        self._stage = _Counted(self) if together is None else _CountedTogether(self, together)

    def stage(self, tool: Tool | None, options: CallOptions) -> Stage | None:
        """One for all tools, if anything is limited; only their calls count."""
        is_limited = self.max_calls or self.max_chain or self._max_calls_of is not None
        return self._stage if tool is not None and is_limited else None

    def count_of(self, call: Call) -> CallCount:
        """How many calls the conversation of this one has made."""
        return self.counts.of(client_of(call))

    def refuse_if_spent(self, count: CallCount, call: Call) -> None:
        """Raise BudgetSpent if a conversation has made as many calls as it may."""
        most, setting = self.most_of(call)
        if most and count.calls >= most:
            raise self.spent(most, setting)

    def most_of(self, call: Call) -> tuple[int, str]:
        """How many calls its conversation may make, and which setting says so. 0: as many as it wants."""
        given = self._max_calls_of(call.caller) if self._max_calls_of is not None else None
        return (self.max_calls, "calls.max_calls") if given is None else (given, "roles.max_calls")

    def spent(self, most: int, setting: str) -> BudgetSpent:
        """The error that says so."""
        return BudgetSpent(f"This conversation has made as many calls as it may: {most} (`{setting}`)")

    def has_room(self, count: CallCount, call: Call) -> bool:
        """Whether a call may begin now; nothing is counted."""
        most, _ = self.most_of(call)
        return not (most and count.calls >= most) and self.chain_has_room(call)

    def chain_has_room(self, call: Call) -> bool:
        """Whether one more call may follow in its run."""
        if not self.max_chain:
            return True
        run = run_of(call.meta)
        pause = 0 if run else self._pause
        return self._chains.of((client_of(call), run)).has_room(self.clock(), most=self.max_chain, pause=pause)

    def place_of(self, call: Call) -> tuple[Chain | None, int]:
        """The run that a call belongs to, and its place there, from 1; None: runs are not limited.

        Raises:
            BudgetSpent: as many have followed one another as may.
        """
        if not self.max_chain:
            return None, 0
        run = run_of(call.meta)
        chain = self._chains.of((client_of(call), run))
        place = chain.begin(self.clock(), most=self.max_chain, pause=0 if run else self._pause)
        if place:
            return chain, place
        raise self._too_long(run)

    async def place_together(self, call: Call, together: SharedBudgets) -> tuple[ChainShare | None, int]:
        """The same, where several bridges count.

        Raises:
            BudgetSpent: as many have followed one another as may.
            LimitUnavailable: nobody knows how many have.
        """
        if not self.max_chain:
            return None, 0
        run = run_of(call.meta)
        chain = together.chain(f"{shared_client_of(call)}\n{run}")
        try:
            place = await chain.begin(most=self.max_chain, pause=0 if run else self._pause)
        except StoreFailed as error:
            raise LimitUnavailable("The calls of this run cannot be counted now") from error
        if place:
            return chain, place
        raise self._too_long(run)

    def _too_long(self, run: str) -> BudgetSpent:
        refused = BudgetSpent(
            f"As many calls have followed one another in this run as may: {self.max_chain} (`calls.max_chain`)"
        )
        if not run:
            refused.advice += f" A new run begins after {show_seconds(self._pause)} without a call."
        return refused


class _Counted:
    """Stage: counts the calls of all tools."""

    __slots__ = ("_budget", "_count", "_places")

    def __init__(self, budget: CallBudget) -> None:
        self._budget = budget
        self._count = CallCount()
        """Of the client whose call is about to be sent on the express lane."""
        self._places: dict[Call, tuple[Chain, int]] = {}
        """Those of calls under way that the express lane sent, where runs are limited."""

    async def __call__(self, call: Call, proceed: CallHandler) -> Body:
        if call.continues:
            return await proceed(call)
        budget = self._budget
        count = budget.count_of(call)
        if call.sent is None:
            budget.refuse_if_spent(count, call)
            chain, place = budget.place_of(call)
            count.calls += 1
        else:  # `express_sent` counted it
            chain, place = self._places.pop(call, (None, 0))
        try:
            return await proceed(call)
        except Overloaded:
            count.calls -= 1  # it waited for its turn in vain; that is nothing it has made
            raise
        finally:
            if chain is not None:
                chain.end(budget.clock(), place)

    def express_begin(self, call: Call, arguments: Raw) -> bool:
        """See `pipeline/stage.py`."""
        budget = self._budget
        count = self._count = budget.counts.of(client_of(call))
        if budget.is_plain:  # the usual case, without a further call
            return count.calls < budget.max_calls
        return budget.has_room(count, call)

    def express_sent(self, call: Call, at: float) -> None:
        """See `pipeline/stage.py`."""
        self._count.calls += 1
        if self._budget.max_chain:
            chain, place = self._budget.place_of(call)
            if chain is not None:
                self._places[call] = chain, place

    @property
    def express_over(self) -> "Callable[[Call], None] | None":
        """See `pipeline/stage.py`. None: there is nothing to be done."""
        return self._over if self._budget.max_chain else None

    def _over(self, call: Call) -> None:
        if (held := self._places.pop(call, None)) is not None:
            chain, place = held
            chain.end(self._budget.clock(), place)


class _CountedTogether(_Counted):
    """Stage: the same where several bridges count."""

    __slots__ = ("_share", "_together")

    def __init__(self, budget: CallBudget, together: SharedBudgets) -> None:
        super().__init__(budget)
        self._together = together
        self._share: BudgetShare | None = None
        """Of the client whose call is about to be sent on the express lane; None: its calls are not limited."""

    async def __call__(self, call: Call, proceed: CallHandler) -> Body:
        if call.continues:
            return await proceed(call)
        budget = self._budget
        share = self._share_of(call)
        if call.sent is None:
            await self._take(share, call)
            try:
                chain, place = await budget.place_together(call, self._together)
            except BaseException:
                self._give_back(share)
                raise
        else:  # `express_sent` counted it, and runs are not limited
            chain, place = None, 0
        try:
            return await proceed(call)
        except Overloaded:
            self._give_back(share)
            raise
        finally:
            if chain is not None:
                await chain.end(place)

    def express_begin(self, call: Call, arguments: Raw) -> bool:
        """See `pipeline/stage.py`."""
        share = self._share = self._share_of(call)
        return (share is None or share.calls > 0) and not self._budget.max_chain  # a run is asked for

    def express_sent(self, call: Call, at: float) -> None:
        """See `pipeline/stage.py`."""
        if self._share is not None:
            self._share.calls -= 1

    def _share_of(self, call: Call) -> BudgetShare | None:
        return self._together.budget(shared_client_of(call)) if self._budget.most_of(call)[0] else None

    async def _take(self, share: BudgetShare | None, call: Call) -> None:
        if share is None:
            return
        most, setting = self._budget.most_of(call)
        try:
            is_taken = await share.take(most)
        except StoreFailed as error:
            raise LimitUnavailable("The budget of this conversation cannot be counted now") from error
        if not is_taken:
            raise self._budget.spent(most, setting)

    def _give_back(self, share: BudgetShare | None) -> None:
        if share is not None:
            share.give_back()
