"""Find the daemon of a configuration or have it started; how long that is tried."""

import socket
import time

from mcpbridge.app.stdio_proxy.daemon_lock import Claim, claim, connect, holder, make_private, socket_path

TYPE_CHECKING = False  # that of `typing`, without the import
if TYPE_CHECKING:
    from collections.abc import Callable


PATIENCE = 20.0
"""Seconds to wait while somebody holds the lock and does not listen: a daemon that ends takes some."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.1
"""Seconds between two tries to reach it; the pause doubles until it is the longest."""


class Unreachable(Exception):
    """There is no daemon, and none can be started."""


class Daemons:
    """The daemons that there are one after the other."""

    def __init__(self, directory: str, key: str, start: "Callable[[Claim], None]") -> None:
        """`start` makes a process that serves what was claimed."""
        self._directory, self._key, self._start = directory, key, start

    def reach(self, pause: "Callable[[float], None]") -> tuple[socket.socket, bool]:
        """A connection to the daemon, and whether it was started for that. It may not have read its configuration yet.

        `pause` waits so many seconds.

        Raises:
            Unreachable: with the reason.
        """
        try:
            make_private(self._directory)
            return self._reach(pause)
        except OSError as error:
            raise Unreachable(str(error)) from None

    def find(self) -> socket.socket | None:
        """A connection to the daemon if there is one."""
        try:
            make_private(self._directory)
            return connect(socket_path(self._directory, self._key))
        except OSError:
            return None

    def _reach(self, pause: "Callable[[float], None]") -> tuple[socket.socket, bool]:
        path, wait = socket_path(self._directory, self._key), _FIRST_PAUSE
        give_up = time.monotonic() + PATIENCE
        while time.monotonic() < give_up:
            if (connection := connect(path)) is not None:
                return connection, False
            if (claimed := claim(self._directory, self._key)) is not None:
                try:
                    self._start(claimed)
                    connection = connect(path)  # while the socket is ours too, so that it is the right one
                finally:
                    claimed.close()
                if connection is not None:
                    return connection, True
            pause(wait)
            wait = min(2 * wait, _LONGEST_PAUSE)
        pid = holder(path)
        raise Unreachable(f"{f'process {pid}' if pid else 'somebody'} holds {path} and does not answer")
