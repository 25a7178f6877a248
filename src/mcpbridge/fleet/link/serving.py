"""Where other bridges of the fleet come in: `LinkServer` has their requests answered, each of which is a `Served`."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from mcpbridge.base.background_tasks import FirstStep, OwnedTasks
from mcpbridge.base.log import get_logger
from mcpbridge.downstream.http.server import listen
from mcpbridge.fleet.link.certificates import LinkContexts
from mcpbridge.fleet.link.connections import LinkConnection
from mcpbridge.fleet.link.frames import NOT_TAKEN, PART, WINDOW, Ask, BadFrame, Kind, Reply, read_ask, with_body
from mcpbridge.protocol.error_codes import INTERNAL_ERROR
from mcpbridge.protocol.jsonrpc import encode_error

log = get_logger("mcpbridge.fleet")

_KINDS = frozenset(Kind)
_NOT_KNOWN = with_body(
    Reply(503, [(b"content-type", b"application/json"), (b"retry-after", b"1"), NOT_TAKEN]),
    encode_error(b"null", INTERNAL_ERROR, "not sent: the bridge that has this is of another version; repeat it later"),
)
"""What a bridge is answered that asks in a way which is not known here. One of an earlier version passes it on."""


class Served:
    """One request of another member."""

    def __init__(
        self, connection: LinkConnection, number: int, head: Ask, body: bytes, *, is_order: bool = False
    ) -> None:
        self.head, self._body, self._size = head, [body], len(body)
        self.is_order = is_order
        """It is of the other bridge itself."""
        self._connection, self._number = connection, number
        self._room = WINDOW
        self._changed: asyncio.Event | None = None
        self.has_left = False
        self.on_left: Callable[[], object] = lambda: None
        """Called when its client has left, or the member that asks."""
        self.run: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]] = asyncio.get_running_loop().create_task
        """Has a task, which somebody owns, continue what was begun without one."""
        self.over: Callable[[], object] = lambda: None
        """To be called when a request that was taken has been answered."""

    @property
    def body_now(self) -> bytes | None:
        """The body, if it is whole; it can still be read."""
        return self._body[0] if len(self._body) == 1 and self._size == self.head.size else None

    def take_part(self, part: bytes) -> None:
        """More of its body."""
        self._body.append(part)
        self._size += len(part)
        self._tell()

    def grant(self, size: int) -> None:
        """Its reader takes more."""
        self._room += size
        self._tell()

    def leave(self) -> None:
        """Its client has left, or the member that asks."""
        self.has_left = True
        self._tell()
        self.on_left()

    async def body(self) -> bytes | None:
        """The whole body; None: the client left before."""
        while self._size < self.head.size and not self.has_left:
            await self._change()
        body, self._body = b"".join(self._body), []
        return None if self.has_left and len(body) < self.head.size else body

    async def until_left(self) -> None:
        """Return when its client has left."""
        while not self.has_left:
            await self._change()

    def _tell(self) -> None:
        if self._changed is not None:
            self._changed.set()

    async def _change(self) -> None:
        if self._changed is None:
            self._changed = asyncio.Event()
        self._changed.clear()
        await self._changed.wait()

    def reply_whole(self, reply: Reply, body: bytes) -> None:
        """Answer in one frame."""
        self._connection.send(Kind.REPLY_WHOLE, self._number, with_body(reply, body))

    def reply(self, reply: Reply) -> None:
        """Begin the answer."""
        self._connection.send(Kind.REPLY, self._number, with_body(reply, b""))

    async def write(self, data: bytes) -> None:
        """A part of the answer; waits while its reader takes no more."""
        for start in range(0, len(data), PART):
            part = data[start : start + PART]
            while self._room <= 0 and not self.has_left:
                await self._change()
            if self.has_left:
                return
            self._room -= len(part)
            self._connection.send(Kind.REPLY_PART, self._number, part)
            await self._connection.drain()

    def end(self) -> None:
        """The answer is whole."""
        self._connection.send(Kind.REPLY_END, self._number)

    def fail(self) -> None:
        """There is no answer."""
        self._connection.send(Kind.BROKEN, self._number)


class LinkServer:
    """Where other members come in. `answer` serves each request of theirs, in a task."""

    def __init__(
        self,
        contexts: LinkContexts,
        answer: Callable[[Served], Awaitable[None]],
        take: Callable[[Served], bool] = lambda served: False,
    ) -> None:
        """`take` is asked first: it may answer a request without a task, and calls `Served.over` then."""
        self._contexts, self._answer, self._take_directly = contexts, answer, take
        self._direct = set[asyncio.Task[None]]()
        self._open = set[LinkConnection]()
        self._tasks = OwnedTasks()

    @asynccontextmanager
    async def running(self, host: str, port: int) -> AsyncGenerator[int]:
        """Listen; gives the port. Leaving ends all connections.

        Raises:
            ConfigError: the address cannot be had.
        """
        with listen(host, port) as listener:
            async with self._tasks.running():
                server = await asyncio.get_running_loop().create_server(
                    self._connect, sock=listener, ssl=self._contexts.listening
                )
                try:
                    yield listener.getsockname()[1]
                finally:
                    server.close()
                    for connection in list(self._open):
                        connection.abort()
                    for task in self._direct:
                        task.cancel()
                    await asyncio.gather(*self._direct, return_exceptions=True)

    def _connect(self) -> LinkConnection:
        served: dict[int, Served] = {}

        def take(kind: int, number: int, payload: bytes) -> None:
            self._take(connection, served, kind, number, payload)

        def lost() -> None:
            self._open.discard(connection)
            for one in list(served.values()):
                one.leave()

        connection = LinkConnection(take, lost)
        connection.is_needed = lambda: bool(served)
        self._open.add(connection)
        return connection

    def _take(
        self, connection: LinkConnection, served: dict[int, Served], kind: int, number: int, payload: bytes
    ) -> None:
        if kind in (Kind.ASK, Kind.ORDER):
            try:
                head, body = read_ask(payload)
            except BadFrame as error:
                log.warning("a request of another bridge cannot be read", reason=str(error))
                connection.send(Kind.REPLY_WHOLE, number, _NOT_KNOWN)
                return
            one = Served(connection, number, head, body, is_order=kind == Kind.ORDER)
            served[number] = one
            one.run, one.over = self._run, lambda: served.pop(number, None)
            try:
                if not self._take_directly(one):
                    self._tasks.spawn(self._serve(one, served, number))
            except Exception as error:  # the other requests of the connection have nothing to do with it
                log.error("a request of another bridge could not be taken", exc_info=error)
                served.pop(number, None)
                one.fail()
            return
        if (known := served.get(number)) is None:
            if kind not in _KINDS:  # a later version asks: what is no request is about one that is open
                connection.send(Kind.REPLY_WHOLE, number, _NOT_KNOWN)
            return
        if kind == Kind.ASK_PART:
            known.take_part(payload)
        elif kind == Kind.ROOM:
            known.grant(int.from_bytes(payload))
        elif kind == Kind.LEFT:
            known.leave()

    def _run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(FirstStep(work))
        self._direct.add(task)
        task.add_done_callback(self._direct.discard)
        return task

    async def _serve(self, one: Served, served: dict[int, Served], number: int) -> None:
        try:
            await self._answer(one)
        except BaseException:
            one.fail()
            raise
        finally:
            served.pop(number, None)
