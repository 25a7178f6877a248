"""Start what answers the client: the daemon for all of this user's clients, or a bridge for this one alone.

Find the daemon of a configuration, or start it.

When daemons end too often to try another. Pure: the time is passed in.
"""

import os
import signal
import socket
import stat
import sys
import time

from mcpbridge.app.stdio_proxy.daemon_lock import Claim, claim, connect, holder, make_private, socket_path
from mcpbridge.base.directories import state_path

TYPE_CHECKING = False  # that of `typing`, without the import
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from subprocess import Popen


# Without `pathlib` and, where the daemon runs already, without `subprocess`: a client waits for it.
# ruff: noqa: PTH100, PTH103, PTH105, PTH118, PTH120


STANDALONE = "MCPBRIDGE_STANDALONE"
"""The variable that says: no daemon, unless it is empty or `0`."""

COOKIE = "MCPBRIDGE_COOKIE"
"""The variable by which a bridge finds, and ends, what its servers started; one of them may be a shim of another."""

LARGEST_LOG = 5 << 20
"""Bytes; a log that is larger when a daemon starts is put aside, one old one is kept."""

_PYTHON = (sys.executable, "-P", "-m", "mcpbridge")
"""This program. `-P`: else modules in the directory that it is started in would be taken for Python's own."""


def log_path(key: str, environ: "Mapping[str, str]") -> str:
    """Where the daemon of this key logs."""
    return os.path.join(state_path(environ), f"daemon-{key}.log")


def start_daemon(claim: Claim, config: str, log: str, environ: "Mapping[str, str]", *options: str) -> None:
    """Start the daemon for this file on what was claimed; `options` are more of its command line.

    It is nobody's child and in no group of ours: some clients end all descendants of what they started, and so does a
    bridge one of whose servers we are. Nothing that is open here is open there. Whether it came up is found out on its
    socket.

    Raises:
        OSError: no process can be made.
    """
    config = os.path.abspath(config)
    handed = [claim.listener.fileno(), claim.lock_fd]
    command = [*_PYTHON, "daemon", "--config", config, "--idle-exit"]
    command += ["--listen-fd", str(handed[0]), "--lock-fd", str(handed[1]), *options]
    own = {name: value for name, value in environ.items() if name not in (STANDALONE, COOKIE)}
    streams = [os.open(os.devnull, os.O_RDONLY), os.open(os.devnull, os.O_WRONLY), _open_log(log)]
    try:
        between = os.fork()
        if not between:
            _become(command, own, handed, streams, os.path.dirname(config))
        os.waitpid(between, 0)
    finally:
        for descriptor in streams:
            os.close(descriptor)


def start_standalone(arguments: "Sequence[str]", environ: "Mapping[str, str]") -> "tuple[socket.socket, Popen[bytes]]":
    """A bridge in a process of its own, and the other end of what is its standard input and output.

    It ends when that is closed, as a bridge does whose client has gone. Its errors are seen on our standard error.

    Raises:
        OSError: no process can be made.
    """
    from subprocess import Popen

    ours, its = socket.socketpair()
    ours.setblocking(False)  # noqa: FBT003 - its only parameter
    command = [*_PYTHON, "serve", *arguments]
    with its:
        try:
            own, end = {**environ, STANDALONE: "1"}, its.fileno()
            return ours, Popen(command, stdin=end, stdout=end, env=own, start_new_session=True)
        except BaseException:
            ours.close()
            raise


def _become(
    command: "list[str]", environ: "Mapping[str, str]", handed: "list[int]", streams: "list[int]", directory: str
) -> None:
    """In the new process: make another, be gone, and let that one be the command. Does not return."""
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # what is ignored stays so, also for the servers
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        os.chdir(directory)
        for target, descriptor in enumerate(streams):
            os.dup2(descriptor, target)
        for descriptor in handed:
            os.set_inheritable(descriptor, True)  # noqa: FBT003 - its only parameter
        _close_all_but(0, 1, 2, *handed)
        os.execve(command[0], command, environ)
    finally:
        os._exit(127)


def _close_all_but(*kept: int) -> None:
    """What a client has let its servers inherit, knowingly or not: whoever waits for its end would wait for ours."""
    try:
        found = [int(name) for name in os.listdir("/dev/fd")]  # noqa: PTH208 - without `pathlib`
    except OSError:
        found = list(range(1024))
    for descriptor in found:
        if descriptor not in kept:
            try:
                os.close(descriptor)
            except OSError:
                pass  # that of the listing itself


def _open_log(path: str) -> int:
    """The log, to append to. Where none can be written, nowhere: that is no reason not to start."""
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        found = os.fstat(log)
        if stat.S_ISREG(found.st_mode) and found.st_size > LARGEST_LOG:
            os.close(log)
            os.replace(path, f"{path}.1")
            log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        log = os.open(os.devnull, os.O_WRONLY)
    return log


PATIENCE = 20.0
"""Seconds to wait while somebody holds the lock and does not listen: a daemon that ends takes some."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.1


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


class Crashes:
    """Of the daemons of one client."""

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
