"""Start the process that answers the client: the daemon for all clients of a user, or a bridge for this one alone."""

import os
import signal
import socket
import sys

from mcpbridge.base.directories import state_path

TYPE_CHECKING = False  # that of `typing`, without the import
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from subprocess import Popen

    from mcpbridge.app.stdio_proxy.daemon_lock import Claim


# Without `pathlib` and, where the daemon runs already, without `subprocess`: a client waits for it.
# ruff: noqa: PTH100, PTH118, PTH120


STANDALONE = "MCPBRIDGE_STANDALONE"
"""The variable that says: no daemon, unless it is empty or `0`."""

SNAPSHOT = "MCPBRIDGE_SNAPSHOT"
"""The variable that turns snapshots off, if it is `0`: every answer comes from a daemon then."""

COOKIE = "MCPBRIDGE_COOKIE"
"""The variable by which a bridge finds, and ends, what its servers started; one of them may be a shim of another."""

_PYTHON = (sys.executable, "-P", "-m", "mcpbridge")
"""This program. `-P`: else modules in the directory that it is started in would be taken for Python's own."""


def log_path(key: str, environ: "Mapping[str, str]") -> str:
    """Where the daemon of this key logs."""
    return os.path.join(state_path(environ), f"daemon-{key}.log")


def start_daemon(claim: "Claim", config: str, log: str, environ: "Mapping[str, str]", *options: str) -> None:
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
    between = os.fork()
    if not between:
        _become(command, own, handed, log, os.path.dirname(config))
    os.waitpid(between, 0)


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


def _become(command: "list[str]", environ: "Mapping[str, str]", handed: "list[int]", log: str, directory: str) -> None:
    """In the new process: make another, be gone, and let that one be the command. Does not return."""
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        from pathlib import Path  # here, as the next: the client does not wait for this process

        from mcpbridge.app.daemon.log_rotation import open_log

        streams = [os.open(os.devnull, os.O_RDONLY), os.open(os.devnull, os.O_WRONLY), open_log(Path(log))]
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
