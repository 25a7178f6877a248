"""Find the daemon of a configuration or have it started; how often and how long that is tried, and when to give up."""

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


MOST_CRASHES, WITHIN = 3, 10.0
"""So many daemons may crash in so many seconds."""
MOST_MISSED = 40
"""So often in a row a daemon may be met that is about to end: it has not greeted."""
_FIRST_PAUSE_AFTER_CRASH, _LONGEST_PAUSE_AFTER_CRASH = 0.005, 0.25
"""Seconds before another is tried; as above."""


class Crashes:
    """Counts the crashes of the daemons of one client, and says when to give up."""

    def __init__(self) -> None:
        self._when: list[float] = []
        self._missed = 0

    def pause(self) -> float:
        """Seconds to wait for one to be gone that has not even greeted."""
        return min(_FIRST_PAUSE_AFTER_CRASH * 2**self._missed, _LONGEST_PAUSE_AFTER_CRASH)

    def add(self, now: float, *, was_greeted: bool) -> bool:
        """One has ended without a farewell, at this time of a steady clock. Says whether to give up."""
        if not was_greeted:
            self._missed += 1
            return self._missed >= MOST_MISSED
        self._missed = 0
        self._when = [*(when for when in self._when if when > now - WITHIN), now]
        return len(self._when) >= MOST_CRASHES
