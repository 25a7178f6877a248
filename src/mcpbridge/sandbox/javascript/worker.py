"""One worker process: started with nothing, asked one question at a time, killed when in doubt.

It carries text fields only; what they mean is decided by the program, `worker_main.py`.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from mcpbridge.sandbox.javascript import limits
from mcpbridge.sandbox.javascript import worker_main as program

_ROOT = Path(sys.executable).anchor
_LARGEST_MESSAGE = 64 << 20
_LARGEST_PIECE = 4 * program.PIECE


class WorkerEnded(Exception):
    """The process is gone, or made no sense and was killed."""


class Worker(asyncio.SubprocessProtocol):
    """A process of its own session, with an empty environment and no descriptors but its pipes."""

    def __init__(self) -> None:
        self._transport: asyncio.SubprocessTransport | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self._is_killed = False
        self._exited = asyncio.Event()
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._answer: asyncio.Future[list[str]] | None = None
        self._received = bytearray()
        self._pieces: list[str] = []
        self._fields: list[str] = []
        self._size = 0
        self.asked = 0
        """Questions put to it so far."""

    async def start(self, engine: str) -> None:
        """Return when it is ready; `engine` is the file of the extension module.

        Raises:
            WorkerEnded: it could not start; the message says why.
            OSError: no process could be started.
        """
        try:
            await asyncio.get_running_loop().subprocess_exec(
                lambda: self,
                *(
                    sys.executable,
                    "-I",
                    "-S",
                    str(Path(program.__file__)),
                    engine,
                    str(os.getpid()),
                    *limits.for_worker(),
                ),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                cwd=_ROOT,
                env=_environment(),
                start_new_session=True,
            )
            async with asyncio.timeout(limits.START_WITHIN):
                kind, why = await self._read()
        except TimeoutError:
            self.kill()
            raise WorkerEnded(f"it was not ready within {limits.START_WITHIN:g} s") from None
        except BaseException:
            self.kill()
            if self._transport is None:
                self._exited.set()
            raise
        if kind != "ready":
            self.kill()
            raise WorkerEnded(why)

    @property
    def is_alive(self) -> bool:
        """Whether it may be asked."""
        return self._transport is not None and not self._is_killed and not self._exited.is_set()

    @property
    def is_gone(self) -> bool:
        """Whether its process has ended and was reaped."""
        return self._exited.is_set()

    @property
    def pid(self) -> int:
        """Its process id, which is also the id of its session."""
        assert self._transport is not None
        pid = self._transport.get_pid()
        assert pid is not None
        return pid

    @property
    def memory(self) -> int:
        """Bytes that it holds now; 0 where the system does not say."""
        try:
            return int(Path(f"/proc/{self.pid}/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError, IndexError, AttributeError):
            return 0

    async def ask(self, *fields: str) -> Sequence[str]:
        """Its answer. The loop is free while the fields are written; whoever is cancelled here kills it.

        Raises:
            WorkerEnded: before it had answered.
        """
        self.asked += 1
        self._answer = asyncio.get_running_loop().create_future()
        try:
            for field in fields:
                for start in range(0, len(field), program.PIECE):
                    await self._write(field[start : start + program.PIECE])
                self._send(bytes(4))
            return await self._read()
        except WorkerEnded:
            raise
        except BaseException:
            self.kill()
            raise
        finally:
            self._forget_answer()

    def kill(self) -> None:
        """End it now; `ended` says when it is gone."""
        self._is_killed = True
        if self._transport is None or self._exited.is_set():
            return
        try:
            if sys.platform == "win32":
                self._transport.kill()
            else:  # not by the transport: it would look whether the process has ended, and so take that from the loop
                os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    async def ended(self) -> None:
        """Return when the process is gone, and nothing of it is left in the process table."""
        await self._exited.wait()

    async def _write(self, text: str) -> None:
        data = text.encode("utf-8", "surrogatepass")
        if b"\xed" in data:  # perhaps half a pair, which UTF-8 cannot say
            data = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
        self._send(len(data).to_bytes(4, "big"))
        self._send(data)
        await self._may_write.wait()

    def _send(self, data: bytes) -> None:
        if not self.is_alive or self._stdin is None:
            raise WorkerEnded("it ended")
        self._stdin.write(data)

    async def _read(self) -> list[str]:
        if self._exited.is_set():
            raise WorkerEnded("it ended")
        if self._answer is None:
            self._answer = asyncio.get_running_loop().create_future()
        try:
            return await self._answer
        finally:
            self._answer = None

    def _forget_answer(self) -> None:
        """Nobody waits for it any more: if it is an error, that would be told as one that nobody heard of."""
        answer, self._answer = self._answer, None
        if answer is not None and not answer.cancel() and not answer.cancelled():
            answer.exception()

    def _take(self) -> None:
        """Read whole pieces off what has arrived."""
        position, received = 0, self._received
        while len(received) - position >= 4:
            size = int.from_bytes(received[position : position + 4], "big")
            if size > _LARGEST_PIECE:
                self._makes_no_sense()
                return
            if len(received) - position - 4 < size:
                break
            piece = received[position + 4 : position + 4 + size]
            position += 4 + size
            if size:
                self._pieces.append(piece.decode("utf-8", "replace"))
            else:
                self._fields.append("".join(self._pieces))
                self._pieces.clear()
            if len(self._fields) == program.ANSWERED:
                self._deliver()
        del received[:position]

    def _deliver(self) -> None:
        fields, self._fields, self._size = self._fields, [], 0
        if self._answer is None:
            self._makes_no_sense()  # an answer that nobody asked for would be taken for the next one
        elif not self._answer.done():
            self._answer.set_result(fields)

    def _makes_no_sense(self) -> None:
        self.kill()
        self._fail("its answer could not be read")

    def _fail(self, why: str) -> None:
        self._may_write.set()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(WorkerEnded(why))

    # What the event loop tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The process runs."""
        # Casts: those of uvloop only behave like the classes.
        self._transport = cast(asyncio.SubprocessTransport, transport)
        self._stdin = cast(asyncio.WriteTransport, self._transport.get_pipe_transport(0))
        if self._is_killed:
            self.kill()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """It answers."""
        self._size += len(data)
        self._received += data
        if self._size > _LARGEST_MESSAGE:
            self._makes_no_sense()
        else:
            self._take()

    def pause_writing(self) -> None:
        """It reads more slowly than we write."""
        self._may_write.clear()

    def resume_writing(self) -> None:
        """It has read."""
        self._may_write.set()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """It ended, or closed a pipe, which none of ours does."""
        self.kill()
        self._fail("it ended")

    def process_exited(self) -> None:
        """It is gone."""
        self._exited.set()
        self._fail("it ended")
        if self._transport is not None:
            self._transport.close()


def _environment() -> dict[str, str]:
    """Nothing; except for what Windows cannot start a program without."""
    return {"SYSTEMROOT": os.environ.get("SYSTEMROOT", "")} if sys.platform == "win32" else {}
