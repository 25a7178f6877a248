"""Programs that models write in Python: how long one may take, its conversation with the bridge, and who runs when.

Each runs in a process of its own that nothing else has used, and that is gone afterwards: see `process.py` and
`worker_main.py`. One process is kept ready after the first program, so that the next need not wait for it to start.
Calls run side by side. Whatever ends a program (its last line, an error, its time, whoever wanted it), its process is
killed and its calls are cancelled before anybody hears of that.

A program has so much time to compute, and so much altogether, waiting for tools included; while a person is asked only
the time of that question runs. Why a program failed is worded so that the next one does not.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Protocol

from msgspec import Raw, Struct

from mcpbridge.sandbox.fair_queue import FairQueue
from mcpbridge.sandbox.python.messages import (
    Done,
    Failed,
    Frame,
    NameLookup,
    Printed,
    SleepRequest,
    ToolCallRequest,
    Waiting,
    framed,
)
from mcpbridge.sandbox.python.process import PACKAGE, ProcessOver, ProgramProcess


class _Countdown:
    """Seconds that are used up while it runs."""

    def __init__(self, seconds: float, over: Callable[[], None]) -> None:
        self._left, self._over = seconds, over
        self._timer: asyncio.TimerHandle | None = None
        self._since = 0.0

    def go(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._since = loop.time()
            self._timer = loop.call_later(max(0.0, self._left), self._over)

    def rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._left -= asyncio.get_running_loop().time() - self._since


class ProgramClock:
    """The time of one program, from `start` to `stop`."""

    def __init__(self, *, computing: float, altogether: float) -> None:
        """Both in seconds."""
        self.computing, self.altogether = computing, altogether
        self.over = ""
        """What has run out: `computing` or `altogether`; empty while nothing has."""
        self._computing = _Countdown(computing, lambda: self._ran_out("computing"))
        self._altogether = _Countdown(altogether, lambda: self._ran_out("altogether"))
        self._asked = 0
        self._runs = False
        self._on_over: Callable[[], None] = lambda: None

    def start(self, on_over: Callable[[], None]) -> None:
        """It begins, and computes; `on_over` is called when its time is over."""
        self._on_over, self._runs = on_over, True
        if not self._asked:
            self._altogether.go()
        self._computing.go()

    def stop(self) -> None:
        """It has ended."""
        self._runs = False
        self._computing.rest()
        self._altogether.rest()

    def computes(self) -> None:
        """It continues."""
        if self._runs:
            self._computing.go()

    def waits(self) -> None:
        """It waits for an answer."""
        self._computing.rest()

    @contextmanager
    def asking(self) -> Generator[None]:
        """A person is asked something, and may take long."""
        self._asked += 1
        self._altogether.rest()
        try:
            yield
        finally:
            self._asked -= 1
            if not self._asked and self._runs:
                self._altogether.go()

    def _ran_out(self, what: str) -> None:
        self.over = self.over or what
        self._on_over()


_LONGEST = 5000
_ABOUT_LANGUAGE = frozenset({"NotImplementedError", "ModuleNotFoundError"})
_MISSING = (
    "Not there: generators (yield), inheritance and exceptions of your own, del, async with, property and "
    "staticmethod, asyncio beside gather and sleep, and modules beside json, re, math, datetime, collections, "
    "itertools, functools and the like. Tools need no import."
)
_OF_LIMITS = {
    "TimeoutError": ("time limit", "The program computed for more than {seconds:g} s; it was stopped"),
    "MemoryError": ("memory limit", "The program needs more than {memory} MiB of memory; it was stopped"),
}


def describe_failure(failed: Failed, seconds: float, memory: int) -> str:
    """What whoever wrote the program gets to know; it may have `seconds` to compute, and `memory` bytes."""
    sign, said = _OF_LIMITS.get(failed.what, ("", ""))
    if sign and sign in failed.message:
        return said.format(seconds=seconds, memory=memory >> 20)
    if failed.what == "Crashed":
        return f"The program was ended with its process: {failed.message[:300]}"
    text = failed.trace.strip() or f"{failed.what}: {failed.message}"
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST // 2]}\n…\n{text[-_LONGEST // 2 :]}"
    return f"{text}\n{_MISSING}" if failed.what in _ABOUT_LANGUAGE else text


def time_is_over(watch: ProgramClock) -> str:
    """The error of a program that the clock stopped; empty if it was not."""
    if watch.over == "computing":
        return f"The program computed for more than {watch.computing:g} s; it was stopped"
    if watch.over == "altogether":
        return f"The program took more than {watch.altogether:g} s, waiting for tools included; it was stopped"
    return ""


MOST_PRINTED = 1 << 20
"""Characters that a program may print; what comes after that is left out."""
LARGEST_RESULT = 32 << 20
"""Bytes of a result that a program is given."""
GRACE = 2.0
"""Seconds by which the interpreter's own limit comes before ours: it can say which line it was."""
FRAMES = 2000
"""Frames that a process may send beside those of its calls: who sends more only wants to keep us busy."""


class ProgramLimits(Struct, frozen=True):
    """What a program may use, beside its time (`ProgramClock`)."""

    seconds: float
    """Computing."""
    memory: int
    """Bytes."""
    calls: int
    parallel: int
    """Calls under way at a time."""


class Value(Struct, frozen=True):
    """What a call gives: a JSON value."""

    data: bytes | Raw
    is_text_of_json: bool = False
    """It is a string, and what it may hold is JSON, to be parsed."""


class CallFailed(Exception):
    """A call came to nothing; the program gets an exception with this message."""

    def __init__(self, message: str, kind: str = "RuntimeError") -> None:
        """`kind`: the name of that exception in Python."""
        super().__init__(message)
        self.kind = kind


class Toolbox(Protocol):
    """What a program can call."""

    def has(self, name: str) -> bool:
        """Whether there is a function of this name."""
        ...

    async def call(self, name: str, arguments: Raw, positional: int) -> Value:
        """Call a tool. `arguments` is an object; `positional`: how many came without a name.

        Raises:
            CallFailed: the program gets it.
        """
        ...


class ProgramResult(Struct, frozen=True):
    """What came of a program."""

    text: str = ""
    """Its value: a text, or JSON."""
    is_json: bool = False
    printed: str = ""
    error: str = ""
    """Why it did not come to its end; empty: it did."""
    calls: int = 0
    """Calls that it made."""


class Conversation:
    """With the process of one program."""

    def __init__(self, process: ProgramProcess, toolbox: Toolbox, limits: ProgramLimits, watch: ProgramClock) -> None:
        self._process, self._toolbox, self._limits, self._watch = process, toolbox, limits, watch
        self._places = asyncio.Semaphore(limits.parallel)
        self._under_way: set[asyncio.Task[None]] = set()
        self._calls, self._open, self._answered, self._frames = 0, 0, 0, 0
        self._printed: list[str] = []
        self._room = MOST_PRINTED
        self._left_out = 0

    async def run(self, code: str) -> ProgramResult:
        """Run it to its end. Cancelled, it ends as well."""
        limits = self._limits
        given: dict[str, object] = {"seconds": limits.seconds, "memory": limits.memory, "calls": limits.calls}
        self._watch.start(self._process.kill)
        try:
            await self._process.send(framed({"kind": "run", "code": code, **given}))
            while True:
                frame = await self._process.receive()
                if (ended := await self._heard(frame)) is not None:
                    return ended
        except ProcessOver as over:
            error = time_is_over(self._watch) or f"The program's process failed: {over}"
            return self._ended(error=error)
        finally:
            await self._end()

    async def _heard(self, frame: Frame) -> ProgramResult | None:
        """What a frame asks for; the end, if it is that."""
        self._frames += 1
        if self._frames > FRAMES + 4 * self._calls or self._calls > self._limits.calls:
            return self._ended(error="The program's process sent too much; it was stopped")
        if isinstance(frame, ToolCallRequest):
            self._calls += 1
            if self._calls <= self._limits.calls:
                self._begin(self._answer(frame))
        elif isinstance(frame, SleepRequest):
            self._begin(self._wake(frame))
        elif isinstance(frame, NameLookup):
            await self._process.send(framed({"kind": "found", "known": self._toolbox.has(frame.name)}))
        elif isinstance(frame, Printed):
            self._print(frame.text, frame.left_out)
        elif isinstance(frame, Waiting):
            if frame.seen == self._answered:
                if not self._open:
                    return self._ended(error="The program waits for something that never comes")
                self._watch.waits()
        elif isinstance(frame, Done):
            return self._ended(text=frame.text, is_json=frame.shape == "json")
        elif isinstance(frame, Failed):
            return self._ended(error=describe_failure(frame, self._limits.seconds, self._limits.memory))
        else:
            return self._ended(error="The program's process made no sense")
        return None

    def _begin(self, answering: Coroutine[Any, Any, None]) -> None:
        self._open += 1
        task = asyncio.get_running_loop().create_task(answering)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _answer(self, called: ToolCallRequest) -> None:
        try:
            async with self._places:
                value = await self._toolbox.call(called.name, called.arguments, called.positional)
                if len(value.data) > LARGEST_RESULT:
                    most = LARGEST_RESULT >> 20
                    raise CallFailed(f"the result of {called.name} is larger than {most} MiB: ask for less of it")
                await self._send({"id": called.id, "parse": value.is_text_of_json}, value.data)
        except CallFailed as failed:
            await self._send({"id": called.id, "error": failed.kind, "message": str(failed)})

    async def _wake(self, slept: SleepRequest) -> None:
        await asyncio.sleep(max(0.0, slept.seconds))
        await self._send({"id": slept.id, "parse": False}, b"null")

    async def _send(self, answer: dict[str, object], value: bytes | Raw | None = None) -> None:
        self._answered += 1
        self._open -= 1
        self._watch.computes()
        try:
            await self._process.send(framed({"kind": "result", **answer}, value))
        except ProcessOver:  # whoever receives hears of it too
            return

    def _print(self, text: str, left_out: int) -> None:
        kept = text[: self._room]
        self._room -= len(kept)
        self._left_out += len(text) - len(kept) + max(0, left_out)
        if kept:
            self._printed.append(kept)

    def _ended(self, *, text: str = "", is_json: bool = False, error: str = "") -> ProgramResult:
        printed = "".join(self._printed)
        if self._left_out:
            printed += f"\n[{self._left_out:,} more characters were printed]"
        return ProgramResult(text, is_json, printed, error, min(self._calls, self._limits.calls))

    async def _end(self) -> None:
        """Nothing of it goes on after this."""
        self._watch.stop()
        self._process.kill()
        tasks = list(self._under_way)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)


LONGEST_PROGRAM = 200_000
"""Characters."""
LIVE, LIVE_OF_ONE = 8, 3
"""Programs that run at a time, those that wait for a person among them; and of one owner."""
PATIENCE = 20.0
"""Seconds that a program waits for its turn."""
IDLE = 180.0
"""Seconds after which a process that is kept ready is ended."""


def why_none() -> str:
    """Why no programs can be run here, and what to do about it; empty if they can. Cheap: nothing is imported."""
    if find_spec(PACKAGE) is None:
        return "there is no interpreter for programs here: pip install 'mcpbridge[code]'"
    return ""


class Programs:
    """Runs programs; `close` at the end. Processes start with the first program."""

    def __init__(self, *, idle: float = IDLE) -> None:
        self._queue, self._of_one = FairQueue(LIVE), Counter[str]()
        self._idle_for = idle
        self._processes: set[ProgramProcess] = set()
        self._starting: set[asyncio.Task[ProgramProcess]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._ready: ProgramProcess | None = None
        self._retiring: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def run(
        self,
        code: str,
        toolbox: Toolbox,
        *,
        limits: ProgramLimits,
        watch: ProgramClock,
        owner: str = "",
        is_nested: bool = False,
    ) -> ProgramResult:
        """Run a program to its end. Cancelled, it ends with all its calls. Never raises anything else.

        Its value is that of its last expression, or of a `return` outside of functions. Where there are many
        programs, owners take turns. `is_nested`: the code of a tool runs it, so it waits for nobody's turn: all
        programs that run may wait for that tool.
        """
        if len(code) > LONGEST_PROGRAM:
            return ProgramResult(error=f"The program is longer than {LONGEST_PROGRAM:,} characters")
        if self._of_one[owner] >= LIVE_OF_ONE:
            return ProgramResult(
                error=f"{LIVE_OF_ONE} programs of yours run already; try again when one of them has ended"
            )
        self._of_one[owner] += 1
        try:
            return await self._in_turn(code, toolbox, limits, watch, owner, is_nested=is_nested)
        finally:
            self._of_one[owner] -= 1
            if not self._of_one[owner]:
                del self._of_one[owner]

    async def close(self) -> None:
        """End all processes. Programs that run fail."""
        self._is_closed = True
        self._retire()
        for process in self._processes:
            process.kill()
        await asyncio.gather(*self._starting, return_exceptions=True)
        while self._processes:
            await self._gone(next(iter(self._processes)))

    async def _in_turn(
        self,
        code: str,
        toolbox: Toolbox,
        limits: ProgramLimits,
        watch: ProgramClock,
        owner: str,
        *,
        is_nested: bool,
    ) -> ProgramResult:
        if is_nested:
            self._queue.take(owner)
        else:
            try:
                async with asyncio.timeout(PATIENCE):
                    await self._queue.acquire(owner)
            except TimeoutError:
                return ProgramResult(error="Too many programs run at the moment; try again later")
        try:
            return await self._run(code, toolbox, limits, watch)
        finally:
            self._queue.release(owner)

    async def _run(self, code: str, toolbox: Toolbox, limits: ProgramLimits, watch: ProgramClock) -> ProgramResult:
        try:
            process = await self._process()
        except ProcessOver as over:
            return ProgramResult(error=f"Programs cannot be run here now: {over}")
        try:
            return await Conversation(process, toolbox, limits, watch).run(code)
        finally:
            self._discard(process)
            self._prepare()

    async def _process(self) -> ProgramProcess:
        """One that nobody has used, ready or new."""
        if self._is_closed:
            raise ProcessOver("mcpbridge is closing")
        process, self._ready = self._ready, None
        if self._retiring is not None:
            self._retiring.cancel()
        if process is not None and process.is_alive:
            return process
        task = self._start()
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(self._keep)  # for the next
            raise

    def _start(self) -> "asyncio.Task[ProgramProcess]":
        """Start one. Not cancelled with who wants it: a process that is half started cannot be left alone."""
        task = asyncio.get_running_loop().create_task(self._started())
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)
        return task

    async def _started(self) -> ProgramProcess:
        process = await ProgramProcess.spawned()
        self._processes.add(process)
        if self._is_closed:
            process.kill()
        try:
            await process.ready()
        except BaseException:
            self._discard(process)
            raise
        return process

    def _prepare(self) -> None:
        """Have one ready for the next program."""
        if not (self._is_closed or self._ready or self._starting):
            self._start().add_done_callback(self._keep)

    def _keep(self, task: "asyncio.Task[ProgramProcess]") -> None:
        if task.cancelled() or task.exception() is not None:
            return  # whoever needs one will see the reason
        process = task.result()
        if self._ready is not None or self._is_closed:
            self._discard(process)
            return
        self._ready = process
        self._retiring = asyncio.get_running_loop().call_later(self._idle_for, self._retire)

    def _retire(self) -> None:
        """Nobody has wanted it for a while."""
        process, self._ready = self._ready, None
        if self._retiring is not None:
            self._retiring.cancel()
        if process is not None:
            self._discard(process)

    def _discard(self, process: ProgramProcess) -> None:
        process.kill()
        task = asyncio.get_running_loop().create_task(self._gone(process))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _gone(self, process: ProgramProcess) -> None:
        await process.ended()
        self._processes.discard(process)
