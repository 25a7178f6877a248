"""The agent loop: ask the model, make the calls that it wants, send it the results, until it is done.

`run` creates a `Run`: await it for the outcome, or iterate it for events. The history is the model's own messages from
the first to the last; nothing in it is translated.

A pause is a turn of which some calls wait for an answer from outside. Its history ends with the model's message, since
most APIs take the results of a turn all together or not at all. The results of its other calls and what the paused
ones wait for are kept in the store (`calls.py`); whoever resumes, in this process or another, repeats nothing.
"""

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self

from msgspec.structs import replace

from mcpbridge.core.context import new_run
from mcpbridge.core.tool_calls_and_results import CallResult
from mcpbridge.library.agent.calls import RunCalls
from mcpbridge.library.agent.defaults import MAX_ROUNDS
from mcpbridge.library.agent.models.model import Model, ModelRequest, format_of
from mcpbridge.library.agent.options import Prepare, Running, RunOptions, StopWhen, Tools, ToolsOf
from mcpbridge.library.calls.call import Asked
from mcpbridge.library.calls.calls import CallingHooks, OnCall, OnResult
from mcpbridge.library.calls.run_events import (
    MessageWritten,
    RoundStarted,
    RunEvent,
    RunFailed,
    RunFinished,
    RunOutcome,
    RunPaused,
    Status,
    Turn,
    Usage,
    usage_of,
)
from mcpbridge.library.llm_formats.format import assistant_message, results_for, text_of, unanswered
from mcpbridge.library.llm_formats.tool_definitions import Offered, Strictness


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
        """Continue until there is an outcome.

        Raises:
            RunFailed: the model or a function of the program raised something.
        """
        try:
            return await self._go_on(self._turn(0)) or await self._rounds()
        except Exception as error:
            self._results += self._calls.unreported
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


Emit = Callable[[RunEvent], object]


def run(
    bridge: Running,
    model: Model,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Tools | ToolsOf = None,
    max_rounds: int = MAX_ROUNDS,
    stop_when: StopWhen | None = None,
    prepare: Prepare | None = None,
    run: str = "",
    user: str = "",
    tenant: str = "",
    metadata: Mapping[str, Any] | None = None,
    strict: Strictness = False,
    approvals: Literal["pause", "wait"] = "pause",
    on_call: OnCall | None = None,
    on_result: OnResult | None = None,
) -> "Run":
    """A run, which begins when it is awaited or iterated. The parameters are those of `Bridge.run`.

    Raises:
        ValueError: `max_rounds` or `approvals` is none.
        ConfigError: a name is none.
        FormatError: the model speaks a format that there is not.
    """
    if max_rounds < 1:
        raise ValueError("max_rounds must be at least 1")
    if approvals not in ("pause", "wait"):
        raise ValueError(f'approvals must be "pause" or "wait", not {approvals!r}')
    options = RunOptions(
        format=format_of(model),
        asked=Asked(run or new_run(), user, tenant, metadata),
        tools=tools,
        strict=strict,
        max_rounds=max_rounds,
        pauses=approvals == "pause",
        stop_when=stop_when,
        prepare=prepare,
        hooks=CallingHooks(on_call, on_result),
    )
    return Run(options.asked.run, lambda emit: Loop(bridge, model, messages, options, emit).run())


class Run:
    """One run, usable once: `outcome = await run`, or `async for event in run` and then `run.outcome`.

    Cancelling whoever awaits or iterates it cancels it: the question to the model, and every call at its server. So
    does ending the iteration early; `async with run:` around it says when that is done for certain.
    """

    def __init__(self, id_: str, start: Callable[[Emit | None], Coroutine[Any, Any, RunOutcome]]) -> None:
        """`start` runs it, given who hears of events; None: nobody does."""
        self.id = id_
        """By which its calls, its events and what is paused in it are found."""
        self._start = start
        self._task: asyncio.Task[RunOutcome] | None = None

    @property
    def outcome(self) -> RunOutcome:
        """What came of it.

        Raises:
            RuntimeError: it has not ended yet. RunFailed: it failed.
        """
        if self._task is None or not self._task.done():
            raise RuntimeError("the run has not ended yet: await it, or iterate to the end")
        return self._task.result()

    def __await__(self) -> Generator[Any, Any, RunOutcome]:
        return self._begin(None).__await__()

    def __aiter__(self) -> AsyncIterator[RunEvent]:
        heard = _Heard()
        task = self._begin(heard.put)
        task.add_done_callback(lambda _: heard.end())
        return _events(task, heard)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            await _ended(self._task)

    def _begin(self, emit: Emit | None) -> asyncio.Task[RunOutcome]:
        if self._task is not None:
            raise RuntimeError("a run can be awaited or iterated once; `outcome` is what came of it")
        self._task = asyncio.create_task(self._start(emit), name=f"run {self.id}")
        return self._task


class _Heard:
    """Events on their way to who iterates. Not bounded: a model and its tools say only so much in a round."""

    def __init__(self) -> None:
        self._events = deque[RunEvent]()
        self._news = asyncio.Event()
        self._is_over = False

    def put(self, event: RunEvent) -> None:
        self._events.append(event)
        self._news.set()

    def end(self) -> None:
        self._is_over = True
        self._news.set()

    async def next(self) -> RunEvent | None:
        """The next event; None: there are no more."""
        while not self._events:
            if self._is_over:
                return None
            self._news.clear()
            await self._news.wait()
        return self._events.popleft()


async def _events(task: asyncio.Task[RunOutcome], heard: _Heard) -> AsyncGenerator[RunEvent]:
    try:
        while (event := await heard.next()) is not None:
            yield event
        yield RunFinished(await task)
    finally:
        await _ended(task)


async def _ended(task: asyncio.Task[RunOutcome]) -> None:
    """Cancel it if it has not ended, and wait for its end; how it ends is not asked here."""
    task.cancel()
    await asyncio.wait([task])
