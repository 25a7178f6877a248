"""A hook that is a program: the event on its standard input, the answer on its standard output.

It is started for each call, in a process group of its own, and ended with all that it started: when it has answered,
when its time is over, and when the call is cancelled. What it writes to standard error goes to the log alone.
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence

import anyio

from mcpbridge.hooks.answers import LARGEST_ANSWER, HookFailedError
from mcpbridge.logs import get_logger
from mcpbridge.wire.fds import FdReader, FdWriter
from mcpbridge.wire.process import ProcessSpec, ServerProcess, child_environment

__all__ = ["HookProgram"]

log = get_logger("mcpbridge.hooks")

MAX_RUNNING = 8
"""Processes of one hook that run at a time; further calls wait for their turn."""
_KEPT_OF_STDERR = 4096


class HookProgram:
    """Runs the program of one hook."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        env: Mapping[str, str],
        *,
        directory: str | None,
        redact: Callable[[str], str],
    ) -> None:
        """`directory`: where it runs, and where a relative path of it starts; None: the bridge's own."""
        program, *args = command
        whole = child_environment(env, inherit=False, parent=os.environ)
        self._name, self._redact = name, redact
        self._spec = ProcessSpec(program, tuple(args), whole, directory)
        self._turns = asyncio.Semaphore(MAX_RUNNING)

    async def __call__(self, event: bytes) -> bytes:
        """What it answers to the event.

        Raises:
            HookFailedError: it cannot be started, failed, or answered too much.
        """
        async with self._turns:
            try:
                process = ServerProcess.start(self._spec)
            except OSError as error:
                raise HookFailedError(f"it cannot be started: {error}") from error
            run = _Run(process)
            has_ended = False
            try:
                await run.answer(event)
                has_ended = True
            finally:
                run.stop_talking()
                with anyio.CancelScope(shield=True):  # bounded: it is killed unless it has ended by itself
                    await process.stop(before_closing=run.close, at_once=True)
                if run.stderr and not (has_ended and process.exit_text == "exit code 0"):
                    said = self._redact(run.stderr.decode("utf-8", "replace")).strip()
                    log.warning("hook wrote to stderr", hook=self._name, text=said[-1000:])
            if run.failure:
                raise HookFailedError(run.failure)
            if process.exit_text != "exit code 0":
                raise HookFailedError(f"it ended with {process.exit_text}")
            return bytes(run.stdout)


class _Run:
    """One run: feeds the process, and gathers what it says."""

    def __init__(self, process: ServerProcess) -> None:
        self._process = process
        self.stdout, self.stderr, self.failure = bytearray(), bytearray(), ""
        self._over = asyncio.Event()
        self._out = FdReader(process.stdout, self._answered, lambda: None)
        self._err = FdReader(process.stderr, self._complained, lambda: None)
        self._in: FdWriter | None = None

    async def answer(self, event: bytes) -> None:
        """Return when the program has ended, or said too much."""
        self._in = FdWriter(
            self._process.stdin,
            on_broken=self._not_read,
            stall_after=3600,
            on_stall=_nothing,
            on_drained=self._fed,
        )
        self._in.write_line(event)
        self._in.tell_drained()
        watch = asyncio.ensure_future(self._watch())
        try:
            await self._over.wait()
        finally:
            watch.cancel()

    def stop_talking(self) -> None:
        """Feed it nothing more, and read no further answer."""
        if self._in is not None:
            self._in.close()
        self._out.close()

    def close(self) -> None:
        """Let go of the last pipe."""
        self._err.close()

    async def _watch(self) -> None:
        await self._process.wait()
        # What it wrote before it ended may still stand in the pipes; a descendant may hold them open for ever.
        self._out.drain()
        self._err.drain()
        self._over.set()

    def _fed(self) -> None:
        self._process.close_stdin()

    def _not_read(self) -> None:
        """It did not want to know all, or anything: that is its business."""
        self._process.close_stdin()

    def _answered(self, data: bytes) -> None:
        self.stdout += data
        if len(self.stdout) > LARGEST_ANSWER:
            self.failure = f"its answer is larger than {LARGEST_ANSWER >> 20} MiB"
            self._out.close()
            self._over.set()

    def _complained(self, data: bytes) -> None:
        self.stderr += data
        del self.stderr[:-_KEPT_OF_STDERR]


def _nothing() -> None:
    """The time limit of the hook sees to it."""
