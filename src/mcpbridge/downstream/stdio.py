"""The stdio front: one client on a pair of descriptors, both eras (spec, stdio transport; 3.5 for the era).

A request with the modern envelope is modern, whatever came before; `initialize` opens the one legacy session
of this channel. Both may be mixed. Requests run side by side, each in one task; answers leave as they come.
"""

import asyncio
import select
from collections.abc import Awaitable, Coroutine
from typing import Any

import structlog

from mcpbridge.downstream.channel import Answer, Client
from mcpbridge.downstream.errors_to_wire import to_answer
from mcpbridge.downstream.modern import modern_client, reads_as_modern
from mcpbridge.downstream.server import Server
from mcpbridge.errors import BadRequest
from mcpbridge.wire.codes import INVALID_REQUEST, PARSE_ERROR
from mcpbridge.wire.fds import FdReader, FdWriter
from mcpbridge.wire.frame import Frame, encode_error
from mcpbridge.wire.reader import LineReader
from mcpbridge.wire.revisions import BATCHING
from mcpbridge.wire.salvage import Batch, Item, Noise, Spoiled

__all__ = ["serve_stdio"]

log = structlog.get_logger("mcpbridge.stdio_front")

END_GRACE = 2.0
"""Seconds that requests may go on after the client closed its side but still reads (`… | mcpbridge serve | …`)."""
PUSH_LIMIT = 16 << 20
"""Bytes waiting for a client that does not read, above which notifications to it are dropped."""
READ_LIMIT = 64 << 20
"""Bytes waiting for a client that does not read, above which no more requests of it are read."""
FLUSH_PATIENCE = 2.0
"""Seconds to wait at the end for a client that does not take the last answers."""
PRETTY_WAIT = 1.0
"""Seconds to wait for the rest of a request that spans lines."""


async def serve_stdio(server: Server, *, in_fd: int, out_fd: int, max_frame: int = 64 << 20) -> None:
    """Serve the client on these descriptors until it closes its side. Cancel to end earlier."""
    front = _StdioFront(server, in_fd, out_fd, max_frame)
    try:
        await front.run()
    finally:
        front.close()


class _StdioFront:
    def __init__(self, server: Server, in_fd: int, out_fd: int, max_frame: int) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._out_fd = out_fd
        self._lines = LineReader(max_frame)
        self._tasks: set[asyncio.Task[None]] = set()
        self._listens: list[asyncio.Task[None]] = []
        """Open listen streams: they have no end of their own to wait for."""
        self._ended = asyncio.Event()
        self._idle = asyncio.Event()
        self._pretty_timer: asyncio.TimerHandle | None = None
        self._writer = FdWriter(
            out_fd,
            on_broken=self._gone,
            stall_after=3600,
            on_stall=self._gone,
            on_drained=self._drained,
        )
        self._client = Client(push=self._push)
        server.open(self._client)
        self._reader = FdReader(in_fd, self._arrived, self._input_ended)

    async def run(self) -> None:
        await self._ended.wait()
        listens = list(self._listens)
        for task in listens:
            task.cancel()
        await asyncio.gather(*listens, return_exceptions=True)
        if self._tasks and self._client_still_reads():
            self._idle.clear()
            try:
                async with asyncio.timeout(END_GRACE):
                    await self._idle.wait()
            except TimeoutError:
                log.info("client left with requests under way; cancelling them", requests=len(self._tasks))
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def close(self) -> None:
        """Let go of the descriptors; the last answers are written first."""
        self._reader.close()
        for task in list(self._tasks):
            task.cancel()
        self._server.close(self._client)
        if self._client_still_reads():
            self._writer.flush_blocking(FLUSH_PATIENCE)
        self._writer.close()

    # -- in

    def _arrived(self, data: bytes) -> None:
        self._take(self._lines.feed(data))
        if self._lines.is_waiting:
            if self._pretty_timer is not None:
                self._pretty_timer.cancel()
            self._pretty_timer = self._loop.call_later(PRETTY_WAIT, lambda: self._take(self._lines.give_up()))
        if self._writer.pending > READ_LIMIT:
            self._reader.pause()
            self._writer.tell_drained()

    def _input_ended(self) -> None:
        self._take(self._lines.end())
        self._ended.set()

    def _take(self, items: list[Item]) -> None:
        for item in items:
            if isinstance(item, Frame):
                if item.method and bytes(item.id):
                    task = self._start(self._answer(item))
                    if item.method == "subscriptions/listen":
                        self._listens.append(task)
                elif item.method:
                    # A request begins in the first turn of its task: what may concern it must not overtake it.
                    self._loop.call_soon(self._server.notification, self._client, item)
                elif stray := _to_stray(item):
                    self._writer.write_line(stray)
            elif isinstance(item, Batch):
                self._start(self._answer_batch(item))
            else:
                self._refuse(item)

    def _refuse(self, item: Spoiled | Noise) -> None:
        if isinstance(item, Noise):
            self._writer.write_line(encode_error(b"null", PARSE_ERROR, "Parse error: the line is no JSON object"))
            return
        id_ = item.ids[0] if item.ids else b"null"
        code = INVALID_REQUEST if item.reason.startswith("not a JSON-RPC") else PARSE_ERROR
        what = "Invalid request" if code == INVALID_REQUEST else "Parse error"
        self._writer.write_line(encode_error(id_, code, f"{what}: {item.reason}"))

    # -- answering

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._listens and task in self._listens:
            self._listens.remove(task)
        if not self._tasks:
            self._idle.set()

    async def _answer(self, frame: Frame) -> None:
        answer = await self._ask(frame)
        if answer.data:
            self._writer.write_line(answer.data)

    def _ask(self, frame: Frame) -> Awaitable[Answer]:
        if reads_as_modern(frame):
            return self._ask_as_modern(frame)
        return self._server.answer(self._client, frame, self._notify)

    async def _ask_as_modern(self, frame: Frame) -> Answer:
        try:
            client = modern_client(frame)
        except BadRequest as error:
            return to_answer(error, bytes(frame.id), frame.method, modern=True)
        # Cancelling goes by the channel: the ids of all its requests are of one space.
        return await self._server.answer(client, frame, self._notify, cancel_as=self._client)

    async def _answer_batch(self, batch: Batch) -> None:
        if self._client.version != BATCHING or not batch.members:
            text = "An empty batch" if not batch.members else f"Batches are part of revision {BATCHING} only"
            self._writer.write_line(encode_error(b"null", INVALID_REQUEST, text))
            return
        asked: list[Frame] = []
        answers: list[bytes] = []
        for member in batch.members:
            if isinstance(member, Spoiled):
                id_ = member.ids[0] if member.ids else b"null"
                answers.append(encode_error(id_, INVALID_REQUEST, member.reason))
            elif member.method and bytes(member.id):
                asked.append(member)
            elif member.method:
                self._server.notification(self._client, member)
            elif stray := _to_stray(member):
                answers.append(stray)
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(self._gather(frame)) for frame in asked]
        answers += [answer.data for task in running if (answer := task.result()).data]
        if answers:
            self._writer.write_line(b"[%b]" % b",".join(answers))

    async def _gather(self, frame: Frame) -> Answer:
        return await self._ask(frame)

    # -- out

    def _notify(self, message: bytes) -> None:
        if self._writer.pending < PUSH_LIMIT:
            self._writer.write_line(message)

    _push = _notify

    def _drained(self) -> None:
        self._reader.resume()

    def _gone(self) -> None:
        self._ended.set()
        for task in list(self._tasks):
            task.cancel()

    def _client_still_reads(self) -> bool:
        try:
            poll = select.poll()
            poll.register(self._out_fd, 0)
            return not any(flags & (select.POLLERR | select.POLLNVAL) for _, flags in poll.poll(0))
        except (AttributeError, OSError):  # Windows has no poll
            return True


def _to_stray(frame: Frame) -> bytes:
    """What to say to a message without a method; empty for an answer, which answers nothing of ours."""
    if bytes(frame.result) or bytes(frame.error):
        log.debug("answer to nothing from the client")
        return b""
    error = BadRequest(INVALID_REQUEST, "Not a JSON-RPC message: it has neither a method nor a result")
    return to_answer(error, bytes(frame.id) or b"null", "", modern=False).data
