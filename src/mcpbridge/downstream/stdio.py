"""The stdio front: a conversation on a pair of file descriptors, one message a line (MCP, stdio transport).

The descriptors are standard input and output, or one socket of the daemon. They are borrowed: whoever opened them
closes them, after `close` here. `LineChannel` serves one client of the daemon; `serve_stdio` serves the only client
of a bridge, so its end is the end of the bridge.
"""

import asyncio
import select
import sys
from collections.abc import Coroutine
from typing import Any

from mcpbridge.base.process.pipes import FdReader, FdWriter
from mcpbridge.downstream.client import Client
from mcpbridge.downstream.conversation import READ_LIMIT, Conversation, FinalAnswer
from mcpbridge.downstream.services import Core
from mcpbridge.protocol.payload import Pieces
from mcpbridge.protocol.reading.client_messages import find_client_ids, refuse_client_line
from mcpbridge.protocol.reading.framing import LineReader
from mcpbridge.protocol.settings import LARGEST_FRAME

END_GRACE = 2.0
"""Seconds that requests may continue after the client closed its side but still reads (`… | mcpbridge serve | …`)."""
FLUSH_PATIENCE = 2.0
"""Seconds to wait at the end for a client that does not take the last answers."""
FINISH_GRACE = 10.0
"""Seconds that requests may continue when the bridge ends."""
PRETTY_WAIT = 1.0
"""Seconds to wait for the rest of a request that spans lines."""


class LineChannel:
    """One client: its messages come in on one descriptor and leave on another, or on the same if that is a socket."""

    def __init__(self, core: Core, client: Client, *, in_fd: int, out_fd: int, max_frame: int) -> None:
        """What the client sends is taken from here on, as soon as the loop turns."""
        self._loop = asyncio.get_running_loop()
        self._out_fd = out_fd
        self._is_gone = False
        self._lines = LineReader(max_frame, rescue=refuse_client_line, find_ids=find_client_ids)
        self._ended = asyncio.Event()
        self._drained = asyncio.Event()
        self._pretty_timer: asyncio.TimerHandle | None = None
        self._writer = FdWriter(
            out_fd,
            on_broken=self._gone,
            stall_after=3600,
            on_stall=self._gone,
            on_drained=self._written,
        )
        self._conversation = Conversation(
            core,
            client,
            send=self._writer.write_line,
            pending=lambda: self._writer.pending,
            send_large=self._write_large,
        )
        self._reader = FdReader(in_fd, self.take, self._input_ended)

    @property
    def running(self) -> int:
        """Requests that are being answered."""
        return self._conversation.running

    @property
    def unwritten(self) -> int:
        """Bytes that wait for the client to take them; 0 if it takes nothing any more."""
        return 0 if self._is_gone else self._writer.pending

    def take(self, data: bytes) -> None:
        """Handle these bytes as the next that the client sent."""
        self._conversation.take(self._lines.feed(data))
        if self._lines.unfinished:
            if self._pretty_timer is not None:
                self._pretty_timer.cancel()
            self._pretty_timer = self._loop.call_later(PRETTY_WAIT, self._give_up)
        if self._writer.pending > READ_LIMIT:
            self._reader.pause()
            self._writer.tell_drained()

    def _write_large(self, message: Pieces) -> None:
        self._writer.write_pieces(message.views(len(message)), len(message))

    def say(self, line: bytes) -> None:
        """Send a line that is no message of the conversation."""
        self._writer.write_line(line)

    async def end(self) -> None:
        """Return when the client says nothing more, is gone, or when `stop` was called."""
        await self._ended.wait()

    def stop(self) -> None:
        """Read nothing more. What was read is being answered; a message that had come in part was not read."""
        self._reader.close()
        if self._pretty_timer is not None:
            self._pretty_timer.cancel()
        self._ended.set()

    async def finish(self, grace: float, *, last_words: FinalAnswer | None = None) -> None:
        """Wait for the answers to what was read, as `Conversation.finish` does; not for a client that reads none."""
        await self._conversation.finish(grace if self._client_still_reads() else 0, last_words=last_words)

    async def flushed(self, patience: float) -> None:
        """Return when everything sent has left, the client takes nothing more, or `patience` seconds are over."""
        if not self._writer.pending or self._is_gone:
            return
        self._drained.clear()
        self._writer.tell_drained()
        try:
            async with asyncio.timeout(patience):
                await self._drained.wait()
        except TimeoutError:
            return

    def close(self, *, flush: float = 0) -> None:
        """Let go of the descriptors: the client is gone. What still runs is cancelled.

        What was not written is dropped, but first that takes `flush` seconds of a standing loop, for the end of a
        process.
        """
        self._reader.close()
        if self._pretty_timer is not None:
            self._pretty_timer.cancel()
        self._conversation.close()
        if flush and self._client_still_reads():
            self._writer.flush_blocking(flush)
        self._writer.close()

    def _give_up(self) -> None:
        self._conversation.take(self._lines.give_up())

    def _input_ended(self) -> None:
        self._conversation.take(self._lines.end())
        self._conversation.input_ended()
        self._ended.set()

    def _written(self) -> None:
        self._drained.set()
        self._reader.resume()

    def _gone(self) -> None:
        self._is_gone = True
        self._ended.set()
        self._drained.set()
        self._conversation.cancel()

    def _client_still_reads(self) -> bool:
        try:
            poll = select.poll()
            poll.register(self._out_fd, 0)
            return not any(flags & _NOBODY_READS for _, flags in poll.poll(0))
        except (AttributeError, OSError):  # Windows has no poll
            return True


if sys.platform == "win32":
    _NOBODY_READS = 0
else:  # only on Linux a socket whose peer has closed one direction does not count as hung up
    _NOBODY_READS = select.POLLERR | select.POLLNVAL | (select.POLLHUP if sys.platform == "linux" else 0)


async def serve_stdio(
    core: Core,
    *,
    in_fd: int,
    out_fd: int,
    max_frame: int = LARGEST_FRAME,
    view: str = "",
    profile: str = "",
    project: str = "",
    head: bytes = b"",
    stopping: asyncio.Event | None = None,
    last_words: FinalAnswer | None = None,
) -> None:
    """Serve the client on these descriptors until it closes its side, or `stopping` is set.

    Then nothing more is read, and requests under way have `FINISH_GRACE` seconds; `last_words` are what
    those get that take longer. Cancelling drops them instead.

    `view`, `profile`, `project`: see `view`, `profile_name` and `started_in` of `Client`. `head`: what was read from
    `in_fd` already.
    """
    client = Client(view=view, profile_name=profile, started_in=project, front="stdio")
    channel = LineChannel(core, client, in_fd=in_fd, out_fd=out_fd, max_frame=max_frame)
    try:
        if head:
            channel.take(head)
        if stopping is None:
            await channel.end()
        else:
            await _first(channel.end(), stopping.wait())
        if stopping is not None and stopping.is_set():
            channel.stop()
            await channel.finish(FINISH_GRACE, last_words=last_words)
        else:
            await channel.finish(END_GRACE)
    finally:
        channel.close(flush=FLUSH_PATIENCE)


async def _first(*waits: Coroutine[Any, Any, object]) -> None:
    """Return when one of them is over; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
