"""The process that one program runs in: started with nothing, spoken to in frames, killed with all that it started.

It runs `worker_main.py`, which starts the interpreter as a child of its own. Both are in one process group.

Its pipes end with the process: a pipe of `asyncio.create_subprocess_exec` stays open until its far end is closed, which
something that the process started may hold, and at the end of an event loop nobody waits for it.
"""

import asyncio
import os
import signal
import sys
import sysconfig
from asyncio.subprocess import Process, SubprocessStreamProtocol
from contextlib import suppress
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mcpbridge.sandbox.python.messages import HEADER, LARGEST_FRAME, Frame, Garbled, Ready, Unusable, read_frame

_LIMIT = 1 << 16
"""Bytes that a stream holds, twice of which stop the reading; as asyncio has it."""


class PipedProcess:
    """A process, and its pipes as streams."""

    def __init__(self, process: Process, transport: asyncio.SubprocessTransport) -> None:
        self.process = process
        self._transport = transport

    @classmethod
    async def start(cls, *argv: str, **how: Any) -> "PipedProcess":
        """As `asyncio.create_subprocess_exec`.

        Raises:
            OSError: it cannot be started.
        """
        loop = asyncio.get_running_loop()
        made = partial(SubprocessStreamProtocol, limit=_LIMIT, loop=loop)
        transport, protocol = await loop.subprocess_exec(made, *argv, **how)
        return cls(Process(transport, protocol, loop), transport)

    async def close(self) -> None:
        """Close its pipes, once it has ended: also those that others hold open. What they held unread is dropped."""
        stdin = self.process.stdin
        if stdin is not None and not stdin.is_closing():
            stdin.transport.abort()  # nobody reads any more what is still to be written
        self._transport.close()
        await asyncio.sleep(0)  # the loop closes them in its next turn


PACKAGE = "pydantic_monty"
START_WITHIN = 20.0
"""Seconds until it says that it is ready."""
GONE_WITHIN, CHILDREN_GONE_WITHIN = 5.0, 0.25
"""Seconds in which the system ends what was killed, and forgets what that had started."""

_RUNTIME = "pydantic-monty-runtime"
_PROGRAM = str(Path(__file__).with_name("worker_main.py"))
_ROOT = Path(sys.executable).anchor


class ProcessOver(Exception):
    """The process is gone, or made no sense and was killed."""


class ProgramProcess:
    """One process, for one program."""

    def __init__(self, piped: PipedProcess) -> None:
        process = piped.process
        assert process.stdin is not None
        assert process.stdout is not None
        self._piped = piped
        self._process, self._stdin, self._stdout = process, process.stdin, process.stdout
        self._is_killed = False

    @classmethod
    async def spawned(cls) -> "ProgramProcess":
        """A new one, not `ready` yet. Not to be cancelled: the library would wait without end then.

        Raises:
            ProcessOver: there is none; the message says why.
        """
        spec = find_spec(PACKAGE)  # not imported: what runs programs must never be in this process
        interpreter = _interpreter()
        if spec is None or spec.origin is None or not interpreter:
            raise ProcessOver("the interpreter is not installed, or not where its package should have put it")
        site = str(Path(spec.origin).parent.parent)
        try:
            piped = await PipedProcess.start(
                *(sys.executable, "-I", "-S", _PROGRAM, str(os.getpid()), site, interpreter),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                cwd=_ROOT,
                env=_environment(),
                start_new_session=True,
            )
        except OSError as error:
            raise ProcessOver(f"no process can be started: {error.strerror}") from None
        return cls(piped)

    async def ready(self) -> None:
        """Return when it may be given a program.

        Raises:
            ProcessOver: it never will; the message says why.
        """
        try:
            async with asyncio.timeout(START_WITHIN):
                frame = await self.receive()
        except TimeoutError:
            raise ProcessOver(f"it was not ready within {START_WITHIN:g} s") from None
        if not isinstance(frame, Ready):
            raise ProcessOver(frame.why[:200] if isinstance(frame, Unusable) else "it did not begin as it should")

    @property
    def pid(self) -> int:
        """Its process id, which is also that of its group and session."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it may be spoken to."""
        return not self._is_killed and self._process.returncode is None

    async def send(self, data: bytes) -> None:
        """Write a frame, and wait while it reads more slowly than we write.

        Raises:
            ProcessOver: it is gone.
        """
        if not self.is_alive:
            raise ProcessOver("it ended")
        self._stdin.write(data)
        try:
            await self._stdin.drain()
        except (ConnectionError, RuntimeError):  # RuntimeError: what uvloop says of a pipe that is closed
            raise ProcessOver("it ended") from None

    async def receive(self) -> Frame:
        """The next frame.

        Raises:
            ProcessOver: it is gone, or its frame makes no sense.
        """
        try:
            size = int.from_bytes(await self._stdout.readexactly(HEADER), "big")
            if size > LARGEST_FRAME:
                raise Garbled(f"a frame of {size} bytes")
            return read_frame(await self._stdout.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError):
            self.kill()
            raise ProcessOver("it ended") from None
        except Garbled as error:
            self.kill()
            raise ProcessOver(f"its output made no sense: {error}") from None

    def kill(self) -> None:
        """End it now, with what it started; `ended` says when it is gone."""
        was_killed, self._is_killed = self._is_killed, True
        with suppress(ProcessLookupError, PermissionError):
            if sys.platform == "win32":
                self._process.kill()
            elif not was_killed:
                # Not by the library: it would look whether the process has ended, and so take that from the loop.
                os.killpg(self.pid, signal.SIGKILL)

    async def ended(self) -> None:
        """Return when the process is gone, and what it started; or when the system takes very long over that."""
        with suppress(TimeoutError):
            async with asyncio.timeout(GONE_WITHIN):
                await self._process.wait()
            async with asyncio.timeout(CHILDREN_GONE_WITHIN):
                while self._has_children():  # noqa: ASYNC110 - nobody tells when the child of a child is gone
                    await asyncio.sleep(0.005)
        await self._piped.close()

    def _has_children(self) -> bool:
        """Whether a process is left that it started. These are for the system's first process to wait for."""
        if sys.platform == "win32":
            return False
        try:
            with suppress(ChildProcessError):  # in a container we may be that first process
                os.waitpid(-self.pid, os.WNOHANG)
            os.killpg(self.pid, 0)
        except OSError:
            return False
        return True


@cache
def _interpreter() -> str:
    """The file of the interpreter; empty if there is none."""
    name = "monty.exe" if sys.platform == "win32" else "monty"
    beside = Path(sysconfig.get_path("scripts")) / name
    if beside.is_file():
        return str(beside)
    from importlib.metadata import PackageNotFoundError, files

    try:
        listed = [Path(str(file.locate())) for file in files(_RUNTIME) or () if file.name == name]
    except PackageNotFoundError:
        return ""
    return next((str(path.resolve()) for path in listed if path.is_file()), "")


def _environment() -> dict[str, str]:
    """Nothing; except for what Windows cannot start a program without."""
    return {"SYSTEMROOT": os.environ.get("SYSTEMROOT", "")} if sys.platform == "win32" else {}
