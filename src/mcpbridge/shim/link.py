"""One connection to whoever answers the client."""

import select
import socket
import time

from mcpbridge.shim.hello import Farewell
from mcpbridge.shim.lines import Lines
from mcpbridge.shim.outlet import Outlet

__all__ = ["END_PATIENCE", "GREETING_PATIENCE", "Link"]

GREETING_PATIENCE = 20.0
"""Seconds that a daemon has until its greeting; clients wait not much longer for a server to start."""
END_PATIENCE = 15.0
"""Seconds that the other side has to end the conversation, once the client says nothing more."""
_PIECE = 1 << 16


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
            return self._connection.recv(_PIECE)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def greeted(self) -> None:
        """It has greeted."""
        self.is_greeted = True
        self.due = time.monotonic() + END_PATIENCE if self.is_ending else None

    def end(self) -> None:
        """Tell that the client says nothing more. What was put before must have left."""
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
