"""The stdio front: a conversation on a pair of descriptors, one message a line (spec, stdio transport).

Several clients never share it, so its end is the end of the bridge.
"""

import asyncio
import select

from mcpbridge.downstream.channel import Client
from mcpbridge.downstream.conversation import READ_LIMIT, Conversation
from mcpbridge.downstream.core import Core
from mcpbridge.wire.fds import FdReader, FdWriter
from mcpbridge.wire.reader import LineReader

__all__ = ["serve_stdio"]

END_GRACE = 2.0
"""Seconds that requests may go on after the client closed its side but still reads (`… | mcpbridge serve | …`)."""
FLUSH_PATIENCE = 2.0
"""Seconds to wait at the end for a client that does not take the last answers."""
PRETTY_WAIT = 1.0
"""Seconds to wait for the rest of a request that spans lines."""


async def serve_stdio(
    core: Core, *, in_fd: int, out_fd: int, max_frame: int = 64 << 20, view: str = "", profile: str = ""
) -> None:
    """Serve the client on these descriptors until it closes its side. Cancel to end earlier.

    `view`, `profile`: see `Client.view` and `Client.profile_name`.
    """
    front = _StdioFront(core, in_fd, out_fd, max_frame, Client(view=view, profile_name=profile))
    try:
        await front.run()
    finally:
        front.close()


class _StdioFront:
    def __init__(self, core: Core, in_fd: int, out_fd: int, max_frame: int, client: Client) -> None:
        self._loop = asyncio.get_running_loop()
        self._out_fd = out_fd
        self._lines = LineReader(max_frame)
        self._ended = asyncio.Event()
        self._pretty_timer: asyncio.TimerHandle | None = None
        self._writer = FdWriter(
            out_fd,
            on_broken=self._gone,
            stall_after=3600,
            on_stall=self._gone,
            on_drained=self._drained,
        )
        self._conversation = Conversation(
            core, client, send=self._writer.write_line, pending=lambda: self._writer.pending
        )
        self._reader = FdReader(in_fd, self._arrived, self._input_ended)

    async def run(self) -> None:
        await self._ended.wait()
        await self._conversation.finish(END_GRACE if self._client_still_reads() else 0)

    def close(self) -> None:
        """Let go of the descriptors; the last answers are written first."""
        self._reader.close()
        self._conversation.close()
        if self._client_still_reads():
            self._writer.flush_blocking(FLUSH_PATIENCE)
        self._writer.close()

    def _arrived(self, data: bytes) -> None:
        self._conversation.take(self._lines.feed(data))
        if self._lines.is_waiting:
            if self._pretty_timer is not None:
                self._pretty_timer.cancel()
            self._pretty_timer = self._loop.call_later(PRETTY_WAIT, self._give_up)
        if self._writer.pending > READ_LIMIT:
            self._reader.pause()
            self._writer.tell_drained()

    def _give_up(self) -> None:
        self._conversation.take(self._lines.give_up())

    def _input_ended(self) -> None:
        self._conversation.take(self._lines.end())
        self._conversation.input_ended()
        self._ended.set()

    def _drained(self) -> None:
        self._reader.resume()

    def _gone(self) -> None:
        self._ended.set()
        self._conversation.cancel()

    def _client_still_reads(self) -> bool:
        try:
            poll = select.poll()
            poll.register(self._out_fd, 0)
            return not any(flags & (select.POLLERR | select.POLLNVAL) for _, flags in poll.poll(0))
        except (AttributeError, OSError):  # Windows has no poll
            return True
