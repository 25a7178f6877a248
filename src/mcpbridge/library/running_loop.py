"""How a run goes: round by round, and how it is gone on with after a pause.

A pause is a turn of which some calls wait for an answer from outside. Its history ends with the model's message: most
APIs take the results of a turn all together or not at all. What the other calls came to is kept beside (`finished.py`),
and so is what the paused ones wait for; who goes on, in this process or another, finds both and repeats nothing.
"""

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from mcpbridge.library.formats.front import Offered, assistant_message, results_for, text_of, unanswered
from mcpbridge.library.models.model import Model, ModelRequest
from mcpbridge.library.run_events import MessageWritten, RoundStarted, RunEvent, RunPaused
from mcpbridge.library.run_outcome import RunFailed, RunOutcome, Status, Turn
from mcpbridge.library.running_calls import RunCalls
from mcpbridge.library.running_options import Running, RunOptions, Tools
from mcpbridge.library.usage import Usage, usage_of
from mcpbridge.toolcalls import CallResult

__all__ = ["Loop"]


class Loop:
    """One run."""

    def __init__(
        self,
        bridge: Running,
        model: Model,
        messages: Sequence[Mapping[str, Any]],
        options: RunOptions,
        emit: Callable[[RunEvent], object] | None,
    ) -> None:
        """`emit` hears of events; None: nobody does, so that the model need not write piece by piece."""
        self._bridge, self._model, self._options, self._listener = bridge, model, options, emit
        self._emit: Callable[[RunEvent], object] = emit if emit is not None else _unheard
        self._calls = RunCalls(bridge, options, self._emit)
        self._messages: list[Mapping[str, Any]] = list(messages)
        self._turns: list[Turn] = []
        self._results: list[CallResult[Any]] = []
        self._began = asyncio.get_running_loop().time()

    async def run(self) -> RunOutcome:
        """Go on until there is an outcome.

        Raises:
            RunFailed: the model or a function of the program raised something.
        """
        try:
            return await self._go_on(self._turn(0)) or await self._rounds()
        except Exception as error:
            self._results += self._calls.untold
            raise RunFailed(f"{type(error).__name__}: {error}", self._outcome("failed")) from error

    async def _go_on(self, turn: Turn) -> RunOutcome | None:
        """Answer the calls that the history leaves open; the outcome, if that is all for now."""
        self._turns.append(turn)
        if not unanswered(self._options.format, self._messages):
            return None
        offered = await self._offered(turn, None)
        calls = self._calls.wanted(self._messages, len(self._messages), offered)
        results = await self._calls.settle(calls, offered)
        return await self._answered(replace(turn, calls=tuple(calls)), results)

    async def _rounds(self) -> RunOutcome:
        for number in range(1, self._options.max_rounds + 1):
            turn = await self._round(number)
            self._turns.append(turn)
            if not turn.calls:
                return self._outcome("done")
            results = await self._calls.make(turn.calls, self._offer)
            if (outcome := await self._answered(turn, results)) is not None:
                return outcome
        return self._outcome("max_rounds")

    # -- one round

    async def _offered(self, turn: Turn, tools: Tools) -> Offered:
        wanted: Any = self._options.tools if tools is None else tools
        if callable(wanted):
            wanted = await _awaited(wanted(turn))
        options = self._options
        self._offer = await self._bridge.tools_for(
            options.format,
            tools=wanted,
            strict=options.strict,
            user=options.asked.user,
            tenant=options.asked.tenant,
            run=options.asked.run,
        )
        if wanted is not None and self._offer and any(result.handle for result in self._results):
            self._offer = await self._calls.with_recall(self._offer)  # for the rest of what it was shown a preview of
        return self._offer

    async def _round(self, number: int) -> Turn:
        """Ask the model; what it says is in the history afterwards."""
        before, prepare = self._turns[-1], self._options.prepare
        prepared = await _awaited(prepare(before)) if prepare is not None else None
        if prepared is not None and prepared.messages is not None:
            self._messages = list(prepared.messages)
        offered = await self._offered(before, prepared.tools if prepared is not None else None)
        self._emit(RoundStarted(number))
        request = ModelRequest(tuple(self._messages), offered, self._options.asked.run, number, self._listener)
        response = await _awaited(self._model(request))
        api = self._options.format
        written, text = assistant_message(api, response), text_of(api, response)
        self._messages += written
        self._emit(MessageWritten(written, text))
        calls = self._calls.wanted(self._messages, len(written), offered)
        return replace(self._turn(number), response=response, text=text, calls=tuple(calls), usage=usage_of(response))

    async def _answered(self, turn: Turn, results: Sequence[CallResult[Any]]) -> RunOutcome | None:
        """The calls of the last turn came to this; the outcome, if the run ends with that."""
        self._results += results
        paused = tuple(result.paused for result in results if result.paused is not None)
        if not paused:
            self._messages += results_for(self._options.format, results)
        ended = replace(self._turn(turn.round), results=tuple(results))
        self._turns[-1] = turn = replace(
            turn,
            messages=ended.messages,
            results=ended.results,
            elapsed=ended.elapsed,
            deliverable=ended.deliverable,
        )
        if paused:
            self._emit(RunPaused(paused))
            return replace(self._outcome("paused"), paused=paused)
        stop = self._options.stop_when
        return self._outcome("stopped") if stop is not None and await _awaited(stop(turn)) else None

    # -- what is told

    def _turn(self, number: int) -> Turn:
        """A turn as it is now, of which nothing is said yet."""
        elapsed = asyncio.get_running_loop().time() - self._began
        return Turn(
            number,
            self._options.asked.run,
            tuple(self._messages),
            elapsed=elapsed,
            deliverable=self._calls.deliverable,
        )

    def _outcome(self, status: Status) -> RunOutcome:
        turns = tuple(turn for turn in self._turns if turn.round or turn.calls)
        return RunOutcome(
            status,
            turns[-1].text if turns else "",
            tuple(self._messages),
            self._options.asked.run,
            turns,
            tuple(self._results),
            deliverable=self._calls.deliverable,
            usage=sum((turn.usage for turn in turns), Usage()),
        )


def _unheard(event: RunEvent) -> None:
    """Nobody listens."""


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
