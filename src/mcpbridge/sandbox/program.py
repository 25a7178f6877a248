"""Programs that models write in Python, run where they can do nothing but compute and call tools.

Each runs in a process of its own that nothing else has used, and that is gone afterwards: see `program_process.py` and
`program_worker.py`. One process is kept ready after the first program, so that the next need not wait for it to start.
"""

import asyncio
from collections import Counter
from importlib.util import find_spec

from mcpbridge.sandbox.program_process import PACKAGE, ProcessOver, ProgramProcess
from mcpbridge.sandbox.program_run import CallFailed, Conversation, Ended, ProgramLimits, Toolbox, Value
from mcpbridge.sandbox.program_watch import Watch
from mcpbridge.sandbox.turns import Turns

__all__ = ["CallFailed", "Ended", "ProgramLimits", "Programs", "Toolbox", "Value", "Watch", "why_none"]

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
        self._turns, self._of_one = Turns(LIVE), Counter[str]()
        self._idle_for = idle
        self._processes: set[ProgramProcess] = set()
        self._starting: set[asyncio.Task[ProgramProcess]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._ready: ProgramProcess | None = None
        self._retiring: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def run(self, code: str, toolbox: Toolbox, *, limits: ProgramLimits, watch: Watch, owner: str = "") -> Ended:
        """Run a program to its end. Cancelled, it ends with all its calls. Never raises anything else.

        Its value is that of its last expression, or of a `return` outside of functions. Where there are many
        programs, owners take turns.
        """
        if len(code) > LONGEST_PROGRAM:
            return Ended(error=f"The program is longer than {LONGEST_PROGRAM:,} characters")
        if self._of_one[owner] >= LIVE_OF_ONE:
            return Ended(error=f"{LIVE_OF_ONE} programs of yours run already; try again when one of them has ended")
        self._of_one[owner] += 1
        try:
            return await self._in_turn(code, toolbox, limits, watch, owner)
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

    async def _in_turn(self, code: str, toolbox: Toolbox, limits: ProgramLimits, watch: Watch, owner: str) -> Ended:
        try:
            async with asyncio.timeout(PATIENCE):
                await self._turns.take(owner)
        except TimeoutError:
            return Ended(error="Too many programs run at the moment; try again later")
        try:
            return await self._run(code, toolbox, limits, watch)
        finally:
            self._turns.give_back(owner)

    async def _run(self, code: str, toolbox: Toolbox, limits: ProgramLimits, watch: Watch) -> Ended:
        try:
            process = await self._process()
        except ProcessOver as over:
            return Ended(error=f"Programs cannot be run here now: {over}")
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
