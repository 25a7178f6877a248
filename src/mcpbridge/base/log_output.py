"""Write log lines to a file descriptor. Writing never waits and never fails: lines that cannot be written are dropped.

A client that starts the bridge may never read its standard error, and a full pipe would stop everything. Dropped lines
are counted; the next line that can be written says how many there were.
"""

import os
import select
import sys

_PIECE = 4096
"""Bytes that a pipe takes without waiting once it is writable (PIPE_BUF on Linux)."""


class LineWriter:
    """Writes lines to a file descriptor without ever waiting or failing; what does not fit is dropped and counted."""

    lost = 0
    """Lines dropped since the last one that was written, by all loggers of the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __repr__(self) -> str:
        return f"<LineWriter descriptor={self._descriptor} lost={LineWriter.lost}>"

    def msg(self, message: str) -> None:
        """Write one line."""
        if LineWriter.lost:
            message = f"({LineWriter.lost} log lines before this one were lost: nobody read them)\n{message}"
        if self._write(f"{message}\n".encode(errors="replace")):
            LineWriter.lost = 0
        else:
            LineWriter.lost += 1

    log = debug = info = warn = warning = error = critical = exception = fatal = msg

    def _write(self, data: bytes) -> bool:
        try:
            for start in range(0, len(data), _PIECE):
                if not _writable(self._descriptor):
                    return False
                os.write(self._descriptor, data[start : start + _PIECE])
        except OSError:  # nobody listens any more; that is no reason to stop working
            return False
        return True


def _writable(descriptor: int) -> bool:
    if sys.platform == "win32":
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(0))
