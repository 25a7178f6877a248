"""The client's side of the shim: its lines, what waits to be written to it, and the wait for whatever comes next."""

import fcntl
import os
import select
import stat
import sys
import time

from mcpbridge.shim.lines import Lines
from mcpbridge.shim.link import Link
from mcpbridge.shim.outlet import Outlet

__all__ = ["ClientEnd", "ClientGone"]

FLUSH_PATIENCE = 2.0
"""Seconds to wait at the end for a client that does not take the last answers."""
FULL = 1 << 20
"""Bytes that wait for the daemon, above which the client is not read."""
FULL_DOWN = 64 << 20
"""Bytes that wait for the client, above which the daemon is not read: answers that are here outlive a daemon."""
MOST_HEAD = 8 << 20
"""Bytes that are read before a daemon has greeted."""

_PIECE = 1 << 16
_WIDE_PIPE = 1 << 20
"""Bytes that a pipe is made to hold once it was full, so that a large message needs fewer turns."""
_SET_PIPE_SIZE = 1031
"""fcntl(2), F_SETPIPE_SZ on Linux."""
_GONE = select.POLLERR | select.POLLHUP


class ClientGone(Exception):
    """It does not read any more."""


class ClientEnd:
    """Descriptors that are open; they are only borrowed."""

    def __init__(self, in_fd: int, out_fd: int, signals_fd: int) -> None:
        """`signals_fd`: can be read once a signal has come (`signal.set_wakeup_fd`), so that no wait outlasts one.

        What handles a signal runs between two instructions of Python: after one that comes just before the wait, only
        when that is over.
        """
        self._in_fd, self._out_fd, self._signals_fd = in_fd, out_fd, signals_fd
        self._poll = select.poll()
        self._poll.register(signals_fd, select.POLLIN)
        self._watched: dict[int, int] = {}
        self._down = Outlet(lambda data: os.write(out_fd, data))
        self._lines = Lines()
        self._wide: set[int] = set()
        self.hears = True
        """The client may say more."""
        self.head: bytearray | None = bytearray()
        """What was read, to the byte; None once a daemon has greeted."""
        kind = os.fstat(out_fd).st_mode
        self._polls_out = stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)
        """What is written to may be full, or gone. A file is neither, and a terminal tells it by a signal."""
        if self._polls_out:
            os.set_blocking(out_fd, False)

    def wait(self, link: Link | None, *, listens: bool, seconds: float | None) -> tuple[bool, int]:
        """Until something can be done, at most so many seconds: whether the client can be read, and what the link can.

        What waits for the client is written. `listens`: its lines can be taken.

        Raises:
            ClientGone: it does not read any more.
        """
        has_room = (link is None or link.up.pending < FULL) and (self.head is None or len(self.head) < MOST_HEAD)
        self._watch(self._in_fd, select.POLLIN if listens and self.hears and has_room else 0)
        if link is not None:
            self._watch(link.descriptor, link.wants(has_room=self._down.pending < FULL_DOWN))
        if self._polls_out:
            self._poll.register(self._out_fd, select.POLLOUT if self._down.pending else 0)
        ready = dict(self._poll.poll(None if seconds is None else max(0.0, seconds * 1000)))
        if ready.pop(self._signals_fd, 0):
            os.read(self._signals_fd, _PIECE)
        flags = ready.pop(self._out_fd, 0)
        if flags & select.POLLOUT:
            self._down.flush()
        if flags & _GONE or self._down.is_broken:
            raise ClientGone
        return self._in_fd in ready, 0 if link is None else ready.get(link.descriptor, 0)

    def forget(self, link: Link) -> None:
        """The link is about to be closed. What passed on it in pieces has no rest."""
        self._watch(link.descriptor, 0)
        if link.lines.is_passing:
            self.tell([b"\n"])
        self._lines.skip()

    def read(self) -> list[bytes]:
        """The lines that have come to their end. At the end of all, a last one without an end gets one."""
        try:
            data = os.read(self._in_fd, _PIECE)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if data:
            if len(data) == _PIECE:
                self._widen(self._in_fd)
            if self.head is not None:
                self.head += data
            return self._lines.feed(data)
        self.hears = False
        rest = self._lines.end()
        return [rest + b"\n"] if rest else []

    def tell(self, lines: list[bytes]) -> None:
        """Write lines to it."""
        if lines:
            self._down.put(lines[0] if len(lines) == 1 else b"".join(lines))
            if self._down.pending:
                self._widen(self._out_fd)

    def write_last(self) -> None:
        """Write what waits, if the client takes it within a moment."""
        give_up = time.monotonic() + FLUSH_PATIENCE
        while self._down.pending and time.monotonic() < give_up:
            self.wait(None, listens=False, seconds=FLUSH_PATIENCE)

    def _widen(self, descriptor: int) -> None:
        """Once for each. Where it cannot be done, it goes as it is."""
        if descriptor not in self._wide and sys.platform == "linux":
            self._wide.add(descriptor)
            try:
                fcntl.fcntl(descriptor, _SET_PIPE_SIZE, _WIDE_PIPE)
            except OSError:
                pass  # no pipe, or the user has too many

    def _watch(self, descriptor: int, flags: int) -> None:
        """Wait for these; 0: not even for the end."""
        if self._watched.get(descriptor, 0) == flags:
            return
        if flags:
            self._poll.register(descriptor, flags)
            self._watched[descriptor] = flags
        else:
            self._poll.unregister(descriptor)
            del self._watched[descriptor]
