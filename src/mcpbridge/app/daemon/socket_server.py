"""The daemon's socket: a conversation with each shim that connects, and an end in order for all of them.

A connection begins with a hello, which is answered with a greeting or a refusal; the shim sends its client's first
messages along with the hello, without waiting. They are taken after the greeting, never before: a shim that sees the
end without one knows that nothing was read, and goes elsewhere with all of it.

*The end in order* (`finish`): nothing more is read, what was read is answered (in the end with an error that says so),
then comes the last line and the end. So all requests without an answer were not read, and may be made again elsewhere,
calls of tools too.
"""

import asyncio
import os
import socket
import struct
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing, suppress

import anyio
from msgspec import Struct
from msgspec.structs import replace

from mcpbridge.app.daemon.handshake import Hello, HelloRefused, bye, check, cut_short, greeting, project_uri, read_hello
from mcpbridge.base.background_tasks import OwnedTasks
from mcpbridge.base.log import get_logger
from mcpbridge.downstream.client import Client
from mcpbridge.downstream.services import RunningBridge
from mcpbridge.downstream.stdio import END_GRACE, FINISH_GRACE, FLUSH_PATIENCE, LineChannel

log = get_logger("mcpbridge.daemon")

HELLO_PATIENCE = 10.0
"""Seconds that who connects has for its hello."""
ADOPTING_PATIENCE = 5.0
"""Seconds that a client waits for servers that its environment makes possible."""

_LONGEST_HELLO = 8 << 20
"""Bytes; an environment may have 2 MiB, and more once it is written as JSON."""
_AT_ONCE = 64
"""Connections that are taken in one turn of the loop."""
_NO_DESCRIPTORS = 1.0
"""Seconds to wait when this process can open nothing more."""
_PIECE = 1 << 18


class Connection(Struct, frozen=True, eq=False):
    """One client that was greeted."""

    hello: Hello
    client: Client
    channel: LineChannel
    since: float
    """Of the monotonic clock."""

    @property
    def name(self) -> str:
        """What its client calls itself; empty while it has not said so."""
        return self.client.name


class SocketFront:
    """Serves whoever connects, while `serving` is entered."""

    def __init__(
        self,
        bridge: RunningBridge,
        listeners: Sequence[socket.socket],
        *,
        max_frame: int,
        listings: Callable[[], str],
        adopt: Callable[[Hello], Awaitable[None]],
        changed: Callable[[], None],
    ) -> None:
        """`listings`: see `greeting`. `adopt` takes what a hello brings, before the client's first message.

        `changed` is called whenever `connections` changed.
        """
        self.connections = set[Connection]()
        self._bridge, self._listeners, self._max_frame = bridge, list(listeners), max_frame
        self._listings, self._adopt, self._changed = listings, adopt, changed
        self._loop = asyncio.get_running_loop()
        self._tasks = OwnedTasks()
        self._open = set[asyncio.Task[None]]()
        self._bye = b""
        self._last_write = 0.0
        self._is_accepting = False
        self._pause: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        """Take connections meanwhile. Leaving ends what is left of them at once: `finish` comes before, for order."""
        async with self._tasks.running():
            self._accept_from_now()
            try:
                yield
            finally:
                self.stop_accepting()

    def stop_accepting(self) -> None:
        """Leave who connects from now on in the queue of the system."""
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        if self._is_accepting:
            self._is_accepting = False
            for listener in self._listeners:
                self._loop.remove_reader(listener.fileno())

    def replace(self, before: socket.socket, after: socket.socket) -> None:
        """Take who comes to another listener instead of one of ours, and who has come to that already."""
        if not self._is_accepting:
            return
        self._accept(before)
        self._loop.remove_reader(before.fileno())
        self._listeners[self._listeners.index(before)] = after
        self._listen(after)

    async def finish(self, *, again: bool) -> None:
        """End all conversations in order, side by side; takes seconds at most. `again`: see `bye`."""
        self.stop_accepting()
        self.say_at_end(again=again)
        self._last_write = self._loop.time() + FINISH_GRACE + FLUSH_PATIENCE
        for connection in self.connections:
            connection.channel.stop()
        greeted = {task for task in self._open if task.get_name() == _GREETED}
        for task in self._open - greeted:
            task.cancel()
        if self._open:
            await asyncio.wait(self._open, timeout=FINISH_GRACE + FLUSH_PATIENCE + 1)

    def say_at_end(self, *, again: bool) -> None:
        """To all whose conversation has not ended yet."""
        self._bye = bye(again=again)

    def take_waiting(self) -> bool:
        """Accept those who wait in the queue; returns whether there was anybody. For the last look before an end."""
        before = len(self._open)
        for listener in self._listeners if self._is_accepting else ():
            self._accept(listener)
        return len(self._open) > before

    # -- one connection

    def _accept_from_now(self) -> None:
        self._pause = None
        self._is_accepting = True
        for listener in self._listeners:
            self._listen(listener)

    def _listen(self, listener: socket.socket) -> None:
        listener.setblocking(False)  # noqa: FBT003 - its only parameter
        self._loop.add_reader(listener.fileno(), self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                connected, _ = listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("cannot accept connections for a moment", reason=str(error))
                self.stop_accepting()
                self._pause = self._loop.call_later(_NO_DESCRIPTORS, self._accept_from_now)
                return
            if not _is_own(connected):
                log.warning("connection of another user refused")
                connected.close()
                continue
            connected.setblocking(False)  # noqa: FBT003 - its only parameter
            if (task := self._tasks.spawn(self._attend(connected))) is None:
                connected.close()
                return
            self._open.add(task)
            task.add_done_callback(self._open.discard)
            task.add_done_callback(lambda _, connected=connected: connected.close())  # it may not have begun
            self._changed()
            task.add_done_callback(lambda _: self._changed())

    @property
    def is_empty(self) -> bool:
        """Nobody is connected."""
        return not self._open

    async def _attend(self, connected: socket.socket) -> None:
        with closing(connected):
            try:
                async with asyncio.timeout(HELLO_PATIENCE):
                    line, head = await self._first_line(connected)
                if not line:
                    return  # somebody looked whether anybody is there
                hello = read_hello(line)
                with anyio.move_on_after(ADOPTING_PATIENCE):
                    await self._adopt(hello)
                check(hello, servers=self._bridge.server.views, profiles=self._bridge.server.profiles)
            except HelloRefused as refused:
                log.info("client refused", reason=str(refused))
                with suppress(OSError):
                    await self._loop.sock_sendall(connected, refused.line + b"\n")
                return
            except (OSError, TimeoutError):
                return
            # Nobody needs its environment from here on, and it may have secrets.
            await self._converse(connected.fileno(), replace(hello, environ={}), head)

    async def _first_line(self, connected: socket.socket) -> tuple[bytes, bytes]:
        """The line, and what came after it. Empty if the end came first."""
        received = bytearray()
        while (piece := await self._loop.sock_recv(connected, _PIECE)) and len(received) <= _LONGEST_HELLO:
            received += piece
            if b"\n" in piece:
                line, _, head = bytes(received).partition(b"\n")
                return line, head
        return b"", b""

    async def _converse(self, descriptor: int, hello: Hello, head: bytes) -> None:
        project = project_uri(hello.project)
        client = Client(view=hello.server, profile_name=hello.profile, started_in=project, front="stdio")
        channel = LineChannel(
            self._bridge.server, client, in_fd=descriptor, out_fd=descriptor, max_frame=self._max_frame
        )
        connection = Connection(hello, client, channel, time.monotonic())
        self.connections.add(connection)
        if (task := asyncio.current_task()) is not None:
            task.set_name(_GREETED)
        level = "info" if hello.cwd else "debug"  # a command that looks whether the daemon serves
        log.log(level, "client connected", process=hello.pid, directory=hello.cwd)
        try:
            channel.say(greeting(self._listings()))
            channel.take(head)
            await channel.end()
            if self._bye:
                await channel.finish(FINISH_GRACE, last_words=cut_short)
            else:
                await channel.finish(END_GRACE)
            if self._bye:  # it may have come meanwhile
                channel.say(self._bye)
            await self._flush(channel)
        finally:
            self.connections.discard(connection)
            channel.close()
            log.log(level, "client left", name=connection.name, process=hello.pid)

    async def _flush(self, channel: LineChannel) -> None:
        """Wait until what was said has left; at the end of all for as long as any of it leaves."""
        before = channel.unwritten + 1
        while before > channel.unwritten > 0:
            before = channel.unwritten
            await channel.flushed(FLUSH_PATIENCE)
            if self._loop.time() + FLUSH_PATIENCE > self._last_write:
                return


_GREETED = "greeted"
"""The name of a task whose client is being served."""


def _is_own(connected: socket.socket) -> bool:
    """Its other end is a process of this user. The directory lets nobody else in; where it can be seen, it is."""
    if sys.platform != "linux":
        return True
    credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", credentials)
    return user == os.getuid()
