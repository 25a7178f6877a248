"""The loop of an agent: ask the model, make the calls that it wants, tell it what came of them, until it is done.

`run` makes a `Run`: awaited it gives the outcome, iterated it tells of events while it goes on. The history is the
model's own messages from the first to the last; nothing in it is translated. How one round goes is `running_loop.py`.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self

from mcpbridge.context import new_run
from mcpbridge.library.calling import CallingHooks, OnCall, OnResult
from mcpbridge.library.formats.front import Strictness
from mcpbridge.library.models.model import Model, format_of
from mcpbridge.library.one_call import Asked
from mcpbridge.library.run_events import RunEvent, RunFinished
from mcpbridge.library.run_outcome import RunOutcome
from mcpbridge.library.running_loop import Loop
from mcpbridge.library.running_options import Prepare, Running, RunOptions, StopWhen, Tools, ToolsOf

__all__ = ["Run", "run"]

Emit = Callable[[RunEvent], object]


def run(
    bridge: Running,
    model: Model,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Tools | ToolsOf = None,
    max_rounds: int = 10,
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
