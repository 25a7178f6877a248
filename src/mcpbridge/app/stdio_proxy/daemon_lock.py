"""Who may be the daemon of a configuration: the holder of a lock, and of the socket that clients connect to.

Both come to be in one step, before there is a daemon, and are handed to it as open descriptors. So there is no gap:
from then on everybody can connect, and what they write waits in the system until the daemon reads it.

The lock file stays for ever: if it were removed, two could hold "the" lock, each on a file of its own. The socket's
file is a name only, and stale if nobody listens; it is removed and made by whoever holds the lock, by nobody else. A
daemon writes its process number into the lock file, for those who wonder why it does not answer.
"""

# Without `pathlib`, `dataclasses` and `typing`, as all of the shim: a client waits for it.
# ruff: noqa: PTH101, PTH103, PTH108, PTH116, PTH118

import fcntl
import os
import socket
import stat

BACKLOG = 256
"""Clients that may wait to be taken by a daemon that starts."""


class NotPrivate(OSError):
    """Someone else could put sockets there, or has."""

    def __init__(self, directory: str) -> None:
        super().__init__(f"{directory} is not a directory that only this user can use")


class Claim:
    """The right to be the daemon. Whoever gets it hands both to a process, or closes them."""

    __slots__ = ("listener", "lock_fd")

    def __init__(self, listener: socket.socket, lock_fd: int) -> None:
        """`lock_fd`: the lock is released once this descriptor and all its copies are closed."""
        self.listener, self.lock_fd = listener, lock_fd

    def close(self) -> None:
        """Let go of this process's share. If it was the only one, the socket is stale and may be claimed anew."""
        self.listener.close()
        os.close(self.lock_fd)


def socket_path(directory: "str | os.PathLike[str]", key: str) -> str:
    """Where the daemon of this key listens."""
    return os.path.join(directory, f"daemon-{key}.sock")


def lock_path(socket: str) -> str:
    """The lock file that belongs to a socket."""
    return f"{socket.removesuffix('.sock')}.lock"


def sign(lock_fd: int, pid: int) -> None:
    """Let the lock file say which process holds it; 0: none yet."""
    os.ftruncate(lock_fd, 0)
    if pid:
        os.pwrite(lock_fd, b"%d\n" % pid, 0)


def holder(socket: str) -> int:
    """The process that says in the lock file of this socket that it holds it; 0: none does, or it has ended."""
    try:
        with open(lock_path(socket), "rb") as file:  # noqa: PTH123 - without `pathlib`
            pid = int(file.read(32) or b"0")
        os.kill(pid, 0)
    except (OSError, ValueError, OverflowError):
        return 0
    return pid


def claim(directory: "str | os.PathLike[str]", key: str) -> Claim | None:
    """Try to become the daemon, or to start it. None: somebody else is, or does.

    Raises:
        NotPrivate: the directory is not this user's alone.
        OSError: it cannot be made or written, or its path is too long for a socket.
    """
    make_private(directory)
    path = socket_path(directory, key)
    lock_fd = lock(lock_path(path))
    if lock_fd is None:
        return None
    try:
        if is_served(path):  # its lock file was removed under it, by who cleans up
            os.close(lock_fd)
            return None
        sign(lock_fd, 0)
        return Claim(listen(path), lock_fd)
    except BaseException:
        os.close(lock_fd)
        raise


def connect(path: str) -> socket.socket | None:
    """A connection to whoever listens there. None: nobody does, or too many wait already.

    Raises:
        OSError: it may not be reached, or its path is too long for a socket.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)  # noqa: FBT003 - its only parameter
        connection.connect(path)
    except (FileNotFoundError, ConnectionRefusedError, BlockingIOError):
        connection.close()
        return None
    except BaseException:
        connection.close()
        raise
    return connection


def make_private(directory: "str | os.PathLike[str]") -> None:
    """Make sure that the directory exists and is this user's alone.

    Raises:
        NotPrivate: it is not.
        OSError: it cannot be made.
    """
    os.makedirs(directory, mode=0o700, exist_ok=True)
    if not is_private(directory):
        raise NotPrivate(os.fspath(directory))


def is_private(directory: "str | os.PathLike[str]") -> bool:
    """Whether it is a directory, no link to one, and this user's alone.

    Raises:
        OSError: it is not there, or cannot be looked at.
    """
    found = os.lstat(directory)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def lock(path: str) -> int | None:
    """The descriptor of the file, locked; None: somebody else has locked it.

    Raises:
        OSError: it cannot be opened or made.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_still(path, os.fstat(descriptor)):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # the file was removed meanwhile: that lock means nothing to those who come


def is_still(path: str, before: os.stat_result) -> bool:
    """Whether a path leads to the same file as before."""
    try:
        return os.path.samestat(os.stat(path), before)
    except (FileNotFoundError, NotADirectoryError):
        return False


def is_served(path: str) -> bool:
    """Somebody listens there."""
    connection = connect(path)
    if connection is None:
        return False
    connection.close()
    return True


def listen(path: str) -> socket.socket:
    """A new socket there, in the place of what may have been left. Only for who has the lock."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(path)  # nobody else can enter the directory
        os.chmod(path, 0o600)
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener
