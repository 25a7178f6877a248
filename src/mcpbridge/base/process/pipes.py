"""Reading and writing pipe descriptors on the event loop, with as few system calls as the traffic allows.

Writes made in one turn of the loop leave in one system call. Descriptors are only borrowed: whoever
opened one closes it.
"""

import asyncio
import os
import select
import stat
import sys
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress

if sys.platform != "win32":
    import fcntl


SMALL_READ = 1 << 16
"""Bytes asked for in a read. A read of 256 KiB costs 15 times as much, whatever comes: its buffer is mapped anew."""
LARGE_READ = 1 << 18
"""Bytes asked for once a small read came back full. Not more: each request in it becomes a task before one can end."""
WIDE_PIPE = 1 << 20
"""Bytes that a pipe with so much in it is made to hold."""

LARGE_WRITE = 1 << 18
"""Bytes of a chunk that is not joined with others to be written."""
MOST_A_TURN = 1 << 20
"""Bytes that are written in one turn of the loop."""

_SET_PIPE_SIZE = 1031
"""fcntl(2), F_SETPIPE_SZ on Linux."""


class FdReader:
    """Calls `on_data` with what arrives, and `on_end` once when the other side has closed."""

    def __init__(self, fd: int, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._fd, self._on_data, self._on_end = fd, on_data, on_end
        self._loop = asyncio.get_running_loop()
        self._is_open = True
        self._is_paused = False
        self._is_scheduled = False
        """The next read of a regular file is on its way."""
        self._count = 0
        self._size = SMALL_READ
        self.largest = LARGE_READ
        """Bytes asked for in a read, at most."""
        # epoll takes no regular files (`mcpbridge serve < requests`): those are always readable, so just read.
        self._polls = not stat.S_ISREG(os.fstat(fd).st_mode)
        if self._polls:
            try:
                self._loop.add_reader(fd, self._readable)
            except PermissionError:  # /dev/null
                self._polls = False
        if not self._polls:
            self._read_on()

    def close(self) -> None:
        """Stop reading. `on_end` is not called for it."""
        if self._is_open:
            self._is_open = False
            if self._polls and not self._is_paused:
                self._loop.remove_reader(self._fd)

    def pause(self) -> None:
        """Leave what comes in the pipe or file, until `resume`."""
        if self._is_open and not self._is_paused:
            self._is_paused = True
            if self._polls:
                self._loop.remove_reader(self._fd)

    def resume(self) -> None:
        """Read again."""
        if self._is_open and self._is_paused:
            self._is_paused = False
            if self._polls:
                self._loop.add_reader(self._fd, self._readable)
            else:
                self._read_on()

    def drain(self) -> None:
        """Read what is in the pipe now, without waiting for more: at most what a pipe can hold.

        Bounded, since a descendant of a dead server may write to the pipe as fast as we read it.
        """
        if self._is_open and self._polls:
            os.set_blocking(self._fd, False)
            for _ in range(WIDE_PIPE // SMALL_READ):
                before = self._count
                self._size = SMALL_READ
                self._readable()
                if not self._is_open or before == self._count:
                    break

    def _readable(self) -> None:
        if not self._is_open:
            return
        try:
            data = os.read(self._fd, self._size)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._count += 1
        if data:
            if len(data) == SMALL_READ:
                _widen(self._fd)
            self._size = self.largest if len(data) >= SMALL_READ else SMALL_READ
            self._on_data(data)
            if not self._polls:
                self._read_on()
        else:
            self.close()
            self._on_end()

    def _read_on(self) -> None:
        """Read a regular file again in the next turn: it is always readable."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._read_file)

    def _read_file(self) -> None:
        self._is_scheduled = False
        if not self._is_paused:
            self._readable()


class FdWriter:
    """Takes whole lines, writes them when the pipe can take them, in order."""

    def __init__(
        self,
        fd: int,
        *,
        on_broken: Callable[[], None],
        stall_after: float,
        on_stall: Callable[[], None],
        on_drained: Callable[[], None] = lambda: None,
        watches: bool = False,
    ) -> None:
        """`on_stall`: the pipe took nothing for `stall_after` seconds. `on_drained`: see `tell_drained`.

        `watches`: `on_broken` is called as soon as the other side has closed, also while there is nothing to write.
        """
        self._fd, self._on_broken, self._on_stall, self._stall_after = fd, on_broken, on_stall, stall_after
        self._on_drained = on_drained
        self._tells_drained = False
        self._loop = asyncio.get_running_loop()
        self._chunks: deque[bytes | memoryview] = deque()
        self._rest: memoryview = memoryview(b"")
        self.pending = 0
        """Bytes taken and not yet written."""
        self._is_scheduled = self._is_polling = False
        self._is_open = True
        self.may_write: Callable[[], bool] | None = None
        """Asked in the moment of each write; after a no nothing is written any more."""
        self._stall: asyncio.TimerHandle | None = None
        if not os.isatty(fd):  # a terminal's description is shared with the shell: leave its mode alone
            os.set_blocking(fd, False)
        self._watches = watches
        if watches:
            self._loop.add_reader(fd, self._reader_closed)  # the end for writing is "readable" once it is broken

    def write_line(self, line: bytes) -> None:
        """Take a line (without its end). After the pipe broke lines are dropped."""
        if not self._is_open:
            return
        self._chunks.append(line)
        self._chunks.append(b"\n")
        self.pending += len(line) + 1
        if not self._is_scheduled and not self._is_polling:
            self._is_scheduled = True
            self._loop.call_soon(self._flush)

    def write_pieces(self, pieces: Iterable[bytes | memoryview], size: int) -> None:
        """The same for a line of so many bytes in pieces. Large ones are written as they are, without a copy."""
        if not self._is_open:
            return
        self._chunks.extend(pieces)
        self._chunks.append(b"\n")
        self.pending += size + 1
        if not self._is_scheduled and not self._is_polling:
            self._is_scheduled = True
            self._loop.call_soon(self._flush)

    def tell_drained(self) -> None:
        """Call `on_drained` once when everything taken until then is written."""
        self._tells_drained = True

    def close(self) -> None:
        """Stop writing; what is pending is dropped."""
        self._is_open = False
        self._stop_polling()
        if self._watches:
            self._watches = False
            self._loop.remove_reader(self._fd)

    def flush_blocking(self, patience: float) -> None:
        """Write what is pending now, without the loop: for the last answers before an exit.

        A pipe that takes nothing for `patience` seconds is left: whoever does not read must not keep us from ending.
        """
        self._stop_polling()
        while self._is_open and self.pending and _takes_data(self._fd, patience):
            self._flush()
            self._stop_polling()

    def _flush(self) -> None:
        self._is_scheduled = False
        if not self._is_open:
            return
        if self.may_write is not None and not self.may_write():
            self.close()
            return
        data = self._rest
        if self._chunks:
            if self.pending < LARGE_WRITE:  # the usual case, without a call
                data = memoryview(b"".join((data, *self._chunks)))
                self._chunks.clear()
            elif len(data) < LARGE_WRITE:
                data = self._joined(data)
        left = MOST_A_TURN
        try:
            while data:
                written = os.write(self._fd, data[:left])
                self.pending -= written
                left -= written
                data = data[written:]
                if self._stall is not None:
                    self._restart_stall()
                if not data and self._chunks:
                    data = self._joined(data)
                if left <= 0 and data:
                    raise BlockingIOError  # others have their turn first
        except BlockingIOError:
            self._rest = data
            if len(data) > SMALL_READ:
                _widen(self._fd)
            self._start_polling()
            return
        except OSError:
            self.close()
            self._on_broken()
            return
        self._rest = memoryview(b"")
        if self._is_polling or self._stall is not None:
            self._stop_polling()
        if self._tells_drained:
            self._tells_drained = False
            self._on_drained()

    def _joined(self, rest: memoryview) -> memoryview:
        """What is to be written next: the rest of what was begun, and what follows until that is large."""
        if not rest and len(self._chunks[0]) >= LARGE_WRITE:
            return memoryview(self._chunks.popleft())
        parts: list[bytes | memoryview] = [rest] if rest else []
        size = len(rest)
        while self._chunks and size < LARGE_WRITE and len(self._chunks[0]) < LARGE_WRITE:
            size += len(part := self._chunks.popleft())
            parts.append(part)
        return memoryview(b"".join(parts))

    def _reader_closed(self) -> None:
        if self._is_open:
            self.close()
            self._on_broken()

    def _start_polling(self) -> None:
        if not self._is_polling:
            self._is_polling = True
            self._loop.add_writer(self._fd, self._flush)
            self._restart_stall()

    def _stop_polling(self) -> None:
        if self._is_polling:
            self._is_polling = False
            self._loop.remove_writer(self._fd)
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _restart_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
        self._stall = self._loop.call_later(self._stall_after, self._on_stall)


def _widen(fd: int) -> None:
    """Let a pipe hold more than 64 KiB, so that a large message does not need a wake-up for each. Linux only."""
    if sys.platform == "linux":
        with suppress(OSError):  # no pipe, or the user's limit is reached: it works as it is
            fcntl.fcntl(fd, _SET_PIPE_SIZE, WIDE_PIPE)


def _takes_data(fd: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    return bool(poll.poll(seconds * 1000))
