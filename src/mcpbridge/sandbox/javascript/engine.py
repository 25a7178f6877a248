"""Evaluates JavaScript expressions over results, in a worker process of our own.

The worker has an empty environment, no files, no network, little memory, and is killed when its time is up. Each
expression gets a fresh context. Also here: removing what people and models put around an expression (`tidy`), and the
message when one fails, worded so that the next one works (`describe_failure`).
"""

import asyncio
import json
import re
from importlib.util import find_spec
from types import TracebackType
from typing import Self

from mcpbridge.sandbox.fair_queue import FairQueue
from mcpbridge.sandbox.javascript import limits
from mcpbridge.sandbox.javascript.scripts import Binding, TransformFailed
from mcpbridge.sandbox.javascript.worker import Worker, WorkerEnded

_LONGEST = 400
_PLACE = re.compile(r"<input>:(\d+)(?::(\d+))?\)?\s*$")
_CALLEE = re.compile(r"[\w$.\[\]'\"?]{1,60}$")
_NAME = re.compile(r"[\w$]{1,60}")
_OF_THE_ENGINE = (
    ("interrupted", "it took longer than {seconds:g} s"),
    ("out of memory", "it needs more memory than an expression may have"),
    ("call stack", "it goes too deep: too much recursion, or a value that is nested too deeply"),
    ("stack overflow", "it goes too deep: too much recursion, or a value that is nested too deeply"),
)


def describe_failure(source: str, kind: str, payload: str) -> str:
    """One line for whoever wrote `source`; `kind` and `payload` are the worker's answer."""
    if kind == "large":
        most = limits.LARGEST_ANSWER
        return f"the answer would have {int(payload):,} characters, at most {most:,} are given: narrow it"
    if kind == "unread":
        why = _known(payload) or _line(payload.partition("\n")[0])
        return f"the result cannot be bound: {why}"
    if kind == "error":
        name, message, stack, offset, shape = json.loads(payload)
        return _of_javascript(source, str(name), str(message), str(stack), int(offset), str(shape))
    return _known(payload) or f"the engine gave up: {_line(payload)}"


def _of_javascript(source: str, name: str, message: str, stack: str, offset: int, shape: str) -> str:
    if name == "Gave":
        return _line(f"the expression gave {message}") + _hint(shape)
    if name in ("InternalError", "RangeError") and (known := _known(message)):
        return known
    lines = source.split("\n")
    line, column = _place(stack, offset, lines)
    if message == "not a function" and line and (callee := _callee(lines[line - 1], column)):
        message = f"{callee} is not a function"
    said = _line(f"{name}: {message}" if name else message)
    if line:
        said += f" (at {line}:{column})" if len(lines) > 1 else f" (at character {column})"
    if name == "SyntaxError" and line:
        said += _near(lines[line - 1], column)
    if "BigInt" in message:
        return f"{said}; integers beyond 2^53 are kept exact: write Number(…) around one to calculate with it"
    if name == "ReferenceError":
        return f"{said}{_hint(shape)}, `text` its text, `lines` the lines of it"
    return said + (_hint(shape) if name == "TypeError" else "")


def _known(message: str) -> str:
    for sign, said in _OF_THE_ENGINE:
        if sign in message:
            return said.format(seconds=limits.SECONDS)
    return ""


def _place(stack: str, offset: int, lines: list[str]) -> tuple[int, int]:
    """Line and column in the source, from 1; 0, 0 if the stack does not say, or names a place that is ours."""
    for entry in stack.split("\n"):
        if entry and "(native)" not in entry:
            found = _PLACE.search(entry)
            line = int(found[1]) - offset if found else 0
            if not 1 <= line <= len(lines):
                return 0, 0
            return line, min(int((found and found[2]) or 1), len(lines[line - 1]) + 1)
    return 0, 0


def _callee(line: str, column: int) -> str:
    """What is called at this column, which is that of its last name or of the bracket behind it."""
    before, after = _CALLEE.search(line[: column - 1]), _NAME.match(line[column - 1 :])
    return f"{before[0] if before else ''}{after[0] if after else ''}"


def _near(line: str, column: int) -> str:
    around = line[max(0, column - 21) : column + 20].strip()
    return f", near `{around}`" if around and len(line) > 40 else ""


def _hint(shape: str) -> str:
    return f"; `result` is {shape}" if shape else ""


def _line(text: str) -> str:
    """On one line, and short: it may be anything that a result contains."""
    flat = " ".join(text.split())
    return flat if len(flat) <= _LONGEST else f"{flat[:_LONGEST]}…"


_FENCE = re.compile(r"\A```[a-zA-Z]*\n(.*?)\n?```\Z", re.DOTALL)
_MEMBER = re.compile(r"\.[A-Za-z_$]")


def tidy(expression: str) -> str:
    """The expression: no code fence, no `=>` or `|` before it; `.map(…)` means `result.map(…)`."""
    source = expression.strip()
    if fenced := _FENCE.match(source):
        source = fenced[1].strip()
    for before in ("=>", "|"):
        if source.startswith(before) and not source.startswith("||"):
            source = source[len(before) :].lstrip()
    return f"result{source}" if _MEMBER.match(source) else source


class JavaScript:
    """Evaluates expressions; `async with`, or `close` at the end. Workers start with the first expression."""

    def __init__(
        self, *, workers: int = limits.WORKERS, deadline: float = limits.DEADLINE, idle: float = limits.IDLE
    ) -> None:
        """`workers`: how many run at most."""
        self._deadline, self._idle_for = deadline, idle
        self._queue = FairQueue(workers)
        self._idle: list[tuple[Worker, asyncio.TimerHandle]] = []
        self._workers: set[Worker] = set()
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def evaluate(self, expression: str, text: str, *, binding: Binding, rows: str = "", owner: str = "") -> str:
        """What the expression says of `result`: strings as they are, everything else as JSON.

        `binding`: what `result` is: the parsed JSON of `text`, the list of its parsed lines, or the text itself. `text`
        is bound as well, and so is `rows`, if given: the JSON of a list of objects (CSV and the like). Of one `owner`
        only one expression runs while others wait. A cancelled evaluation ends with its worker.

        Raises:
            TransformFailed: with a message for whoever wrote the expression.
        """
        source = tidy(expression)
        if not source.strip("; \t\r\n"):
            raise TransformFailed("the expression is empty")
        if len(source) > limits.LARGEST_EXPRESSION:
            raise TransformFailed(f"the expression is longer than {limits.LARGEST_EXPRESSION:,} characters")
        size = len(text) + len(rows)
        if size > limits.LARGEST_INPUT:
            raise TransformFailed(
                f"the result has {size:,} characters; expressions take at most {limits.LARGEST_INPUT:,}"
            )
        try:
            async with asyncio.timeout(limits.PATIENCE):
                await self._queue.acquire(owner)
        except TimeoutError:
            raise TransformFailed("too many expressions run at the moment; try again later") from None
        try:
            kind, payload = await self._ask(binding, source, rows, text)
        finally:
            self._queue.release(owner)
        if kind == "value":
            return payload
        raise TransformFailed(describe_failure(source, kind, payload))

    async def close(self) -> None:
        """End the workers. What is being evaluated fails."""
        self._is_closed = True
        for _, timer in self._idle:
            timer.cancel()
        self._idle.clear()
        for worker in self._workers:
            worker.kill()
        while self._workers:
            worker = next(iter(self._workers))
            try:
                async with asyncio.timeout(limits.GONE_WITHIN):
                    await worker.ended()
            except TimeoutError:  # the kernel holds it; there is nothing more to do
                pass
            self._workers.discard(worker)

    async def _ask(self, binding: str, source: str, rows: str, text: str) -> tuple[str, str]:
        worker = await self._worker()
        seconds = self._deadline + (len(text) + len(rows)) / 10_000_000
        try:
            async with asyncio.timeout(seconds):
                kind, payload = await worker.ask(binding, source, rows, text)
        except TimeoutError:
            raise TransformFailed(f"it took longer than {seconds:.0f} s and was stopped") from None
        except WorkerEnded:
            closing = "mcpbridge is closing" if self._is_closed else "the engine ended while it ran"
            raise TransformFailed(closing) from None
        self._keep(worker)
        return kind, payload

    async def _worker(self) -> Worker:
        """An idle worker, or a new one."""
        if self._is_closed:
            raise TransformFailed("mcpbridge is closing")
        self._workers = {worker for worker in self._workers if not worker.is_gone}
        while self._idle:
            worker, timer = self._idle.pop()
            timer.cancel()
            if worker.is_alive:
                return worker
        spec = find_spec("_quickjs")
        if spec is None or spec.origin is None:
            raise TransformFailed("there is no JavaScript engine here: install mcpbridge[js]")
        worker = Worker()
        self._workers.add(worker)  # before it starts, so that `close` ends it meanwhile
        try:
            await worker.start(spec.origin)
        except (WorkerEnded, OSError) as error:
            raise TransformFailed("the JavaScript engine could not be started") from error
        return worker

    def _keep(self, worker: Worker) -> None:
        """For the next expression, unless it has grown old."""
        if self._is_closed or worker.asked >= limits.EVALUATIONS or worker.memory > limits.LARGEST_WORKER:
            worker.kill()
            return
        timer = asyncio.get_running_loop().call_later(self._idle_for, self._retire, worker)
        self._idle.append((worker, timer))

    def _retire(self, worker: Worker) -> None:
        self._idle = [entry for entry in self._idle if entry[0] is not worker]
        worker.kill()
