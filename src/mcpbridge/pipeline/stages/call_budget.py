"""How many calls a conversation may make, and how many may follow one another in one run of it.

Against models that never stop. Off unless it is configured. Calls that run side by side follow one another not at all:
the chain is as long as the longest row of calls of which each began when the one before had ended.
"""

import time
from collections.abc import Callable

from mcpbridge.base.errors import BudgetSpent, Overloaded
from mcpbridge.base.units import show_seconds
from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.call_settings import CallDefaults
from mcpbridge.core.context import run_of
from mcpbridge.core.model import Call, CallHandler, Tool
from mcpbridge.pipeline.per_client import Recent, client_of
from mcpbridge.pipeline.stage import Stage
from mcpbridge.protocol.body import Body


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

    def end(self, now: float, place: int) -> None:
        """The call with this place is over."""
        self._running -= 1
        self._length = max(self._length, place)
        self.last = now


class BudgetState:
    """What all conversations have made, whatever they may make at the time."""

    def __init__(self) -> None:
        self.counts = Recent(CallCount)
        self.chains = Recent(Chain)


class CallBudget:
    """Makes the stages: what all conversations have spent."""

    def __init__(
        self, calls: CallDefaults, clock: Callable[[], float] = time.monotonic, *, state: BudgetState | None = None
    ) -> None:
        """`clock` counts in seconds. `state`: what was before the settings changed."""
        self._max_calls, self._max_chain, self._pause = calls.max_calls, calls.max_chain, calls.chain_pause
        self._clock = clock
        state = state or BudgetState()
        self._counts, self._chains = state.counts, state.chains

    def stage(self, tool: Tool | None, options: CallOptions) -> Stage | None:
        """One for all tools, if anything is limited; only their calls count."""
        return self._run if tool is not None and (self._max_calls or self._max_chain) else None

    async def _run(self, call: Call, proceed: CallHandler) -> Body:
        if call.continues:
            return await proceed(call)
        client = client_of(call)
        counts = self._counts.of(client)
        if self._max_calls and counts.calls >= self._max_calls:
            raise BudgetSpent(
                f"This conversation has made as many calls as it may: {self._max_calls} (`calls.max_calls`)"
            )
        chain, place = self._next(client, call) if self._max_chain else (None, 0)
        counts.calls += 1
        try:
            return await proceed(call)
        except Overloaded:
            counts.calls -= 1  # it waited for its turn in vain; that is nothing it has made
            raise
        finally:
            if chain is not None:
                chain.end(self._clock(), place)

    def _next(self, client: str, call: Call) -> tuple[Chain, int]:
        """The run that a call belongs to, and its place there.

        Raises:
            BudgetSpent: as many have followed one another as may.
        """
        run, now = run_of(call.meta), self._clock()
        chain = self._chains.of((client, run))
        place = chain.begin(now, most=self._max_chain, pause=0 if run else self._pause)
        if place:
            return chain, place
        refused = BudgetSpent(
            f"As many calls have followed one another in this run as may: {self._max_chain} (`calls.max_chain`)"
        )
        if not run:
            refused.advice += f" A new run begins after {show_seconds(self._pause)} without a call."
        raise refused
