"""The two ends of the proxy: lines cut out of bytes, writers that keep what is not taken yet, client and daemon.

Lines are forwarded whole: what was forwarded in part could not be taken back if the other end died in the middle. Only
a line over the limit goes through in pieces: it is more than the bridge takes, and is not kept for it.
"""

import fcntl
import os
import select
import socket
import stat
import sys
import time

from mcpbridge.app.stdio_proxy.handshake import Farewell

TYPE_CHECKING = False  # that of `typing`, without the import
if TYPE_CHECKING:
    from collections.abc import Callable


LONGEST_LINE = 256 << 20
"""Bytes."""


class Lines:
    """Feed it what arrives; it returns the lines that this completes, with their ends."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._parts: list[bytes] = []
        self.held = 0
        """Bytes of a line whose end has not come yet."""
        self._is_skipping = False
        self.is_passing = False
        """The last line that was returned is a piece of one over the limit, whose end has not come yet."""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes; and pieces of one over the limit, as they come."""
        end = data.rfind(b"\n") + 1
        if not end:
            return self._hold(data) if data else []
        if self._is_skipping:
            self._is_skipping = False
            return self.feed(data[data.index(b"\n") + 1 :])
        lines = [line + b"\n" for line in data[: end - 1].split(b"\n")]
        if self.held:
            lines[0] = b"".join([*self._parts, lines[0]])
            self._parts.clear()
        self.held = 0
        self.is_passing = False
        return lines + self._hold(data[end:]) if end < len(data) else lines

    def skip(self) -> None:
        """Leave out the rest of the line that is passing."""
        self._is_skipping, self.is_passing = self.is_passing, False

    def end(self) -> bytes:
        """What is left of a line without an end."""
        rest = b"".join(self._parts)
        self._parts.clear()
        self.held = 0
        return rest

    def _hold(self, data: bytes) -> list[bytes]:
        if self._is_skipping:
            return []
        if self.is_passing:
            return [data]
        self._parts.append(data)
        self.held += len(data)
        if self.held <= self._longest:
            return []
        self.is_passing = True
        return [self.end()]


_PIECE_TO_WRITE = 1 << 18


class Outlet:
    """Keeps what the other side does not take yet, in order."""

    def __init__(self, write: "Callable[[bytes | memoryview], int]") -> None:
        """`write` takes what it can and returns how many bytes; raises BlockingIOError for none, OSError at the end."""
        self._write = write
        self._rest = bytearray()
        self.queued = 0
        """Bytes taken so far, with those that have left."""
        self.is_broken = False
        """The other side takes nothing any more; what comes is dropped."""

    @property
    def pending(self) -> int:
        """Bytes that have not left."""
        return len(self._rest)

    @property
    def sent(self) -> int:
        """Bytes that have left."""
        return self.queued - len(self._rest)

    def put(self, data: bytes) -> None:
        """Take `data`, and write what goes at once."""
        self.queued += len(data)
        if self._rest or self.is_broken:
            self._rest += data
            return
        written = self._try(data)
        if written < len(data):
            self._rest += memoryview(data)[written:]

    def flush(self) -> None:
        """Write what goes now."""
        while self._rest and not self.is_broken:
            with memoryview(self._rest) as rest:
                written = self._try(rest[:_PIECE_TO_WRITE])
            del self._rest[:written]
            if not written:
                return

    def _try(self, data: bytes | memoryview) -> int:
        try:
            return self._write(data)
        except BlockingIOError:
            return 0
        except OSError:
            self.is_broken = True
            return 0


GREETING_PATIENCE = 20.0
"""Seconds that a daemon has until its greeting; clients wait not much longer for a server to start."""
END_PATIENCE = 15.0
"""Seconds that the other side has to end the conversation, once the client says nothing more."""
_PIECE_FROM_DAEMON = 1 << 16


class Link:
    """A socket, what waits to be written to it, and how far the conversation on it has come."""

    def __init__(self, connection: socket.socket, *, is_started: bool = False, greets: bool = True) -> None:
        """`is_started`: the daemon was started for us. A bridge that is no daemon greets nobody."""
        self._connection = connection
        self.up = Outlet(connection.send)
        self.lines = Lines()
        self.is_started, self.is_greeted, self.is_ending = is_started, not greets, False
        self.ending_since = 0.0
        """When the other side was told that the client says nothing more, by the monotonic clock."""
        self.farewell: Farewell | None = None
        self.refusal = ""
        """Why this client is not served."""
        self.due = time.monotonic() + GREETING_PATIENCE if greets else None
        """When it must have greeted, or ended the conversation, by the monotonic clock."""

    @property
    def descriptor(self) -> int:
        """To wait for."""
        return self._connection.fileno()

    def wants(self, *, has_room: bool) -> int:
        """What to wait for. `has_room`: what it says can be taken."""
        writing = select.POLLOUT if self.up.pending and not self.up.is_broken else 0
        return writing | (select.POLLIN if has_room else 0)

    def receive(self) -> bytes | None:
        """What it says; empty: it has ended; None: nothing yet."""
        try:
            return self._connection.recv(_PIECE_FROM_DAEMON)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def greeted(self) -> None:
        """It has greeted."""
        self.is_greeted = True
        self.due = time.monotonic() + END_PATIENCE if self.is_ending else None

    def end(self) -> None:
        """Say that the client sends nothing more. What was put before must have left."""
        self.is_ending, self.ending_since = True, time.monotonic()
        if self.is_greeted:
            self.due = time.monotonic() + END_PATIENCE
        try:
            self._connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # its own end is found where it is read

    def close(self) -> None:
        """Let go of it."""
        self._connection.close()


FLUSH_PATIENCE = 2.0
"""Seconds to wait at the end for a client that does not take the last answers."""
FULL = 1 << 20
"""Bytes that wait for the daemon, above which the client is not read."""
FULL_DOWN = 64 << 20
"""Bytes that wait for the client, above which the daemon is not read: answers that are here outlive a daemon."""
MOST_HEAD = 8 << 20
"""Bytes that are read before a daemon has greeted."""

_PIECE_FROM_CLIENT = 1 << 16
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
            os.read(self._signals_fd, _PIECE_FROM_CLIENT)
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
            data = os.read(self._in_fd, _PIECE_FROM_CLIENT)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if data:
            if len(data) == _PIECE_FROM_CLIENT:
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
