"""A shim as a process, and a daemon in the test's hands: it says what the test says, on the socket of the real one."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from mcpbridge.app.stdio_proxy.daemon_lock import claim
from mcpbridge.base.directories import daemon_key
from support.harness import Place, eventually, python_server
from support.rpc import Message, StdioClient

LIMIT = 1 << 28
PATIENCE = 60.0
"""Seconds after which what a test waits for does not come any more."""


class Line:
    """One connection of a shim."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def raw(self) -> bytes:
        """The next line; empty at the end."""
        async with asyncio.timeout(PATIENCE):
            return await self.reader.readline()

    async def heard(self) -> Any:
        """The next line, parsed; None at the end."""
        line = await self.raw()
        return json.loads(line) if line else None

    def say(self, *messages: Message | list[Message]) -> None:
        """Frames as the bridge writes them."""
        for message in messages:
            self.write(json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode() + b"\n")

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    def answer(self, request: Message, result: Message | None = None) -> None:
        self.say({"jsonrpc": "2.0", "id": request["id"], "result": result or {}})

    def notify(self, method: str, **params: Any) -> None:
        self.say({"jsonrpc": "2.0", "method": method, **({"params": params} if params else {})})

    async def greet(self, listings: str = "same") -> Message:
        """Take the hello and answer it; returns the hello."""
        said = await self.heard()
        self.say({"mcpbridge": 1, "version": "x", "pid": 1, "listings": listings})
        return said

    async def crash(self) -> None:
        """End without a word."""
        await self.writer.drain()
        self.writer.close()

    async def leave(self, *, again: bool = True) -> None:
        """End in order."""
        self.say({"mcpbridge": 1, "bye": True, "again": again})
        await self.crash()

    async def finish(self) -> None:
        """Read to the end, and end."""
        with suppress(ConnectionResetError):
            async with asyncio.timeout(PATIENCE):
                while await self.reader.read(1 << 20):
                    pass
        self.writer.close()

    async def introduced(self, **capabilities: Any) -> None:
        """The handshake of a legacy client, as the one who answers."""
        opening = await self.heard()
        assert opening["method"] == "initialize"
        self.answer(opening, {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": {}})
        assert (await self.heard())["method"] == "notifications/initialized"


class Daemon:
    """The socket that shims of one configuration find, and who connected to it."""

    def __init__(self, place: Place) -> None:
        self.config = place.config({})
        self._place = place
        self._lines = asyncio.Queue[Line]()
        self._last: Line | None = None

    @property
    def runtime(self) -> Path:
        """Where the socket is."""
        return Path(self._place.environment()["XDG_RUNTIME_DIR"]) / "mcpbridge"

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Be there."""
        claimed = claim(self.runtime, daemon_key(self.config))
        assert claimed is not None
        try:
            async with await asyncio.start_unix_server(self._take, sock=claimed.listener, limit=LIMIT):
                yield
        finally:
            os.close(claimed.lock_fd)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._lines.put_nowait(Line(reader, writer))

    async def next(self) -> Line:
        """The next connection."""
        async with asyncio.timeout(PATIENCE):
            self._last = await self._lines.get()
            return self._last

    async def finish(self) -> None:
        """End the last connection as daemons do whose client has gone."""
        if self._last is not None:
            await self._last.finish()

    def is_alone(self) -> bool:
        """Nobody else has connected."""
        return self._lines.empty()


# -- with the real daemon

SERVERS = {"one": python_server("plain")}
DAEMON, SERVER = "mcpbridge daemon", "plain.py"


@pytest.fixture
async def shared(place: Place) -> AsyncIterator[Place]:
    """A place whose shims find or start a daemon; none is left in the end, and nothing else."""
    place.env["MCPBRIDGE_STANDALONE"] = ""
    place.config(SERVERS)
    place._running += 1  # a shim that ends leaves the daemon
    try:
        yield place
        for pid in processes(place, DAEMON):
            os.kill(pid, signal.SIGTERM)

        async def survivors() -> dict[int, str]:
            return place.survivors()

        await eventually(survivors, lambda left: not left, within=60)
    finally:
        place._running -= 1
        place.kill_survivors()


@asynccontextmanager
async def served(place: Place, *options: str) -> AsyncIterator[StdioClient]:
    config = str(place.folder / "servers.toml")
    async with place.started("serve", "--config", config, *options, is_start_tested=True) as command:
        assert command.process.stdin
        assert command.process.stdout
        client = StdioClient(command.process.stdout, command.process.stdin, command)
        async with client.reading():
            yield client


def processes(place: Place, words: str) -> list[int]:
    return [pid for pid, line in place.survivors().items() if words in line]


# -- with a daemon in the test's hands

Shim = Callable[..., AbstractAsyncContextManager[StdioClient]]


@pytest.fixture
async def daemon(place: Place) -> AsyncIterator[Daemon]:
    """A daemon that is there."""
    place.env["MCPBRIDGE_STANDALONE"] = ""
    daemon = Daemon(place)
    async with daemon.listening():
        yield daemon


@pytest.fixture
def shim(place: Place, daemon: Daemon) -> Shim:
    """`mcpbridge serve` with these options, and its client."""

    @asynccontextmanager
    async def started(*options: str) -> AsyncIterator[StdioClient]:
        async with place.started("serve", "--config", str(daemon.config), *options, is_start_tested=True) as command:
            assert command.process.stdin
            assert command.process.stdout
            client = StdioClient(command.process.stdout, command.process.stdin, command)
            async with client.reading():
                yield client
                await client.close()
                await daemon.finish()

    return started
