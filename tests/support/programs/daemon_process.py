"""The daemon as a process, and clients on its socket: what a shim says, and what it makes of the answers."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcpbridge.base.directories import daemon_key
from support.harness import DEADLINE, STOP_DEADLINE, Command, Place, eventually
from support.rpc import StdioClient

__all__ = ["SocketClient", "connected", "daemon", "hello", "socket_of"]

_LINE_LIMIT = 1 << 28


def socket_of(place: Place, config: Path) -> Path:
    """Where the daemon of a configuration listens."""
    return Path(place.environment()["XDG_RUNTIME_DIR"]) / "mcpbridge" / f"daemon-{daemon_key(config)}.sock"


def hello(**said: Any) -> bytes:
    """The first line of a shim."""
    own = {"mcpbridge": 1, "version": "test", "pid": os.getpid(), "cwd": "/tmp", "project": "", "environ": {}}
    return json.dumps({**own, **said}).encode() + b"\n"


@asynccontextmanager
async def daemon(
    place: Place, config: Path, *options: str, through: Sequence[str] = (), pass_fds: Sequence[int] = ()
) -> AsyncIterator[Command]:
    """`mcpbridge daemon`, up. It is ended after the body if it still runs, and must leave nothing.

    `through`: a program that becomes the one which follows.
    """
    words = ("daemon", "--config", str(config), *options)
    if through:
        process = await asyncio.create_subprocess_exec(
            *(*through, sys.executable, "-P", "-m", "mcpbridge", *words),
            pass_fds=pass_fds,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=place.folder,
            env=place.environment(),
            limit=_LINE_LIMIT,
            start_new_session=True,
        )
    else:
        process = await place.start(*words)
        assert process.stdin
        process.stdin.close()
    command = Command(process)
    log = asyncio.create_task(command.read_log())
    place._running += 1  # commands that are run meanwhile leave our processes alone
    try:
        await command.logged("daemon started")
        yield command
        if process.returncode is None:
            process.terminate()
        async with asyncio.timeout(STOP_DEADLINE + 10):
            await process.wait()
        assert process.stdout
        assert await process.stdout.read() == b"", "nothing of the daemon is for standard output"

        async def survivors() -> dict[int, str]:
            return place.survivors()

        await eventually(survivors, lambda left: not left)
    finally:
        place._running -= 1
        if process.returncode is None:
            process.kill()
        place.kill_survivors()
        await process.wait()
        await log
        process._transport.close()  # pyright: ignore


class _Frames:
    """The lines of a daemon that are messages; the others are kept apart."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self.own: list[dict[str, Any]] = []
        self.arrived = asyncio.Event()
        self.ended = asyncio.Event()

    def __aiter__(self) -> "_Frames":
        return self

    async def __anext__(self) -> bytes:
        try:
            while (line := await self._reader.readline()).startswith(b'{"mcpbridge"'):
                self.own.append(json.loads(line))
                self.arrived.set()
        except ConnectionError:
            line = b""
        if not line:
            self.ended.set()
            self.arrived.set()
            raise StopAsyncIteration
        return line


class SocketClient(StdioClient):
    """A client on the daemon's socket."""

    def __init__(self, frames: _Frames, writer: asyncio.StreamWriter, command: Command) -> None:
        super().__init__(frames, writer, command)  # type: ignore[arg-type]
        self.frames = frames
        self.writer = writer

    @property
    def own(self) -> list[dict[str, Any]]:
        """What the daemon said beside messages."""
        return self.frames.own

    async def greeted(self) -> Mapping[str, Any]:
        """The answer to the hello."""
        async with asyncio.timeout(DEADLINE):
            await self.frames.arrived.wait()
        return self.own[0]

    async def ended(self, within: float = DEADLINE) -> None:
        """Return when the daemon has closed the connection."""
        async with asyncio.timeout(within):
            await self.frames.ended.wait()


@asynccontextmanager
async def connected(path: Path, command: Command, *, head: bytes = b"", **said: Any) -> AsyncIterator[SocketClient]:
    """A client that has said hello, and `head` in the same breath."""
    reader, writer = await asyncio.open_unix_connection(path, limit=_LINE_LIMIT)
    client = SocketClient(_Frames(reader), writer, command)
    writer.write(hello(**said) + head)
    try:
        async with client.reading():
            yield client
    finally:
        writer.close()
