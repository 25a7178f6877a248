"""JavaScript expressions over results, evaluated in a worker process of our own.

The worker has an empty environment, no files, no network, little memory, and is killed when its time is up. Each
expression gets a fresh context.
"""

import asyncio
from importlib.util import find_spec
from types import TracebackType
from typing import Self

from mcpbridge.sandbox.complaints import complaint
from mcpbridge.sandbox.scripts import Binding, TransformFailed
from mcpbridge.sandbox.tidy import tidy
from mcpbridge.sandbox.turns import Turns
from mcpbridge.sandbox.worker import Worker, WorkerEnded

__all__ = ["JavaScript", "TransformFailed"]

LARGEST_INPUT = 64 << 20
"""Characters of a result that an expression may be given."""
LARGEST_EXPRESSION = 100_000
"""Characters."""
DEADLINE = 10.0
"""Seconds by the clock until a worker is killed, more for large results: its time to compute is limited by itself
(`javascript_worker.SECONDS`), and one that was idle for long may have to be read back into memory first."""
_GONE_WITHIN = 3.0
"""Seconds for a worker that was killed to be gone."""
PATIENCE = 20.0
"""Seconds that a call waits for a worker to be free."""
IDLE = 180.0
"""Seconds after which a worker that has nothing to do is ended."""
EVALUATIONS = 1000
"""After so many a worker is replaced."""
LARGEST_WORKER = 160 << 20
"""Bytes: a worker that holds more after an answer is replaced."""


class JavaScript:
    """Evaluates expressions; `async with`, or `close` at the end. Workers start with the first expression."""

    def __init__(self, *, workers: int = 2, deadline: float = DEADLINE, idle: float = IDLE) -> None:
        """`workers`: how many run at most; the second one starts when a call finds the first one busy."""
        self._deadline, self._idle_for = deadline, idle
        self._turns = Turns(workers)
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
        if len(source) > LARGEST_EXPRESSION:
            raise TransformFailed(f"the expression is longer than {LARGEST_EXPRESSION:,} characters")
        size = len(text) + len(rows)
        if size > LARGEST_INPUT:
            raise TransformFailed(f"the result has {size:,} characters; expressions take at most {LARGEST_INPUT:,}")
        try:
            async with asyncio.timeout(PATIENCE):
                await self._turns.take(owner)
        except TimeoutError:
            raise TransformFailed("too many expressions run at the moment; try again later") from None
        try:
            kind, payload = await self._ask(binding, source, rows, text)
        finally:
            self._turns.give_back(owner)
        if kind == "value":
            return payload
        raise TransformFailed(complaint(source, kind, payload))

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
                async with asyncio.timeout(_GONE_WITHIN):
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
        if self._is_closed or worker.asked >= EVALUATIONS or worker.memory > LARGEST_WORKER:
            worker.kill()
            return
        timer = asyncio.get_running_loop().call_later(self._idle_for, self._retire, worker)
        self._idle.append((worker, timer))

    def _retire(self, worker: Worker) -> None:
        self._idle = [entry for entry in self._idle if entry[0] is not worker]
        worker.kill()
