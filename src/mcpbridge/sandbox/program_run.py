"""One program from its first frame to its last: calls that run side by side, what is printed, and the end of it all.

Whatever ends it (its last line, an error, its time, whoever wanted it), its process is killed and its calls are
cancelled before anybody hears of that.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

from msgspec import Raw, Struct

from mcpbridge.sandbox.program_complaints import complaint, time_is_over
from mcpbridge.sandbox.program_frames import Called, Done, Failed, Frame, Looked, Printed, Slept, Waiting, framed
from mcpbridge.sandbox.program_process import ProcessOver, ProgramProcess
from mcpbridge.sandbox.program_watch import Watch

__all__ = ["CallFailed", "Conversation", "Ended", "ProgramLimits", "Toolbox", "Value"]

MOST_PRINTED = 1 << 20
"""Characters that a program may print; what comes after that is left out."""
LARGEST_RESULT = 32 << 20
"""Bytes of a result that a program is given."""
GRACE = 2.0
"""Seconds by which the interpreter's own limit comes before ours: it can say which line it was."""
FRAMES = 2000
"""Frames that a process may send beside those of its calls: who sends more only wants to keep us busy."""


class ProgramLimits(Struct, frozen=True):
    """What a program may use, beside its time (`Watch`)."""

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
            CallFailed: the program is told.
        """
        ...


class Ended(Struct, frozen=True):
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

    def __init__(self, process: ProgramProcess, toolbox: Toolbox, limits: ProgramLimits, watch: Watch) -> None:
        self._process, self._toolbox, self._limits, self._watch = process, toolbox, limits, watch
        self._places = asyncio.Semaphore(limits.parallel)
        self._under_way: set[asyncio.Task[None]] = set()
        self._calls, self._open, self._answered, self._frames = 0, 0, 0, 0
        self._printed: list[str] = []
        self._room = MOST_PRINTED
        self._left_out = 0

    async def run(self, code: str) -> Ended:
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

    async def _heard(self, frame: Frame) -> Ended | None:
        """What a frame asks for; the end, if it is that."""
        self._frames += 1
        if self._frames > FRAMES + 4 * self._calls or self._calls > self._limits.calls:
            return self._ended(error="The program's process sent too much; it was stopped")
        if isinstance(frame, Called):
            self._calls += 1
            if self._calls <= self._limits.calls:
                self._begin(self._answer(frame))
        elif isinstance(frame, Slept):
            self._begin(self._wake(frame))
        elif isinstance(frame, Looked):
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
            return self._ended(error=complaint(frame, self._limits.seconds, self._limits.memory))
        else:
            return self._ended(error="The program's process made no sense")
        return None

    def _begin(self, answering: Coroutine[Any, Any, None]) -> None:
        self._open += 1
        task = asyncio.get_running_loop().create_task(answering)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _answer(self, called: Called) -> None:
        try:
            async with self._places:
                value = await self._toolbox.call(called.name, called.arguments, called.positional)
                if len(value.data) > LARGEST_RESULT:
                    most = LARGEST_RESULT >> 20
                    raise CallFailed(f"the result of {called.name} is larger than {most} MiB: ask for less of it")
                await self._send({"id": called.id, "parse": value.is_text_of_json}, value.data)
        except CallFailed as failed:
            await self._send({"id": called.id, "error": failed.kind, "message": str(failed)})

    async def _wake(self, slept: Slept) -> None:
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

    def _ended(self, *, text: str = "", is_json: bool = False, error: str = "") -> Ended:
        printed = "".join(self._printed)
        if self._left_out:
            printed += f"\n[{self._left_out:,} more characters were printed]"
        return Ended(text, is_json, printed, error, min(self._calls, self._limits.calls))

    async def _end(self) -> None:
        """Nothing of it goes on after this."""
        self._watch.stop()
        self._process.kill()
        tasks = list(self._under_way)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)
