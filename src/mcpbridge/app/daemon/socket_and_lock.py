"""The place of a daemon: its socket and its lock, from whoever claimed them, and how they are given up.

*Why in this order.* The lock says who is the daemon; whoever holds it may remove the socket's file and make a new one.
So the file goes while the lock is still held: after it, that could be the file of the next daemon. Between the two
nobody reaches anybody: who connects finds no file, finds the lock taken, and looks again; it is a moment without any
waiting in it. Who connected before, and was not taken out of the queue, hears the end when the socket is closed,
without a greeting: so it knows that nothing was read, and claims anew. Nobody is left hanging, and there never are two.
They go after the servers have ended: the next daemon starts the same ones, and some cannot run twice.

A daemon that is killed leaves the file; the lock is the system's to release, and who gets it removes the file.

*When the directory was emptied* (by a program that cleans up, or at a logout that some process outlives), the lock that
is held is one of a file without a name, and means nothing to those who come. `Held.renew` makes it good, unless another
daemon has the name by then: whose socket's file that is, is asked before any is touched.

A socket of the service manager's (socket activation) is its own: the file stays, and the next client starts the next
daemon.
"""

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from mcpbridge.app.daemon.service_manager import Supervision
from mcpbridge.app.stdio_proxy.daemon_lock import (
    claim,
    is_served,
    is_still,
    listen,
    lock,
    lock_path,
    make_private,
    sign,
    socket_path,
)
from mcpbridge.base.directories import daemon_key, runtime_directory
from mcpbridge.base.errors import ConfigError


class Held:
    """A listening socket and a lock that are this process's own."""

    def __init__(self, listener: socket.socket, lock_fd: int, *, is_managed: bool = False, locked: str = "") -> None:
        """`is_managed`: the socket is the service manager's. `locked`: the lock's file, if not that of the socket."""
        self.listener, self.is_managed = listener, is_managed
        self.also: list[Held] = []
        """Places of releases before, whose clients still look there."""
        self.lock_fd = lock_fd
        self._path = str(listener.getsockname())
        self._lock_path = locked or lock_path(self._path)
        self._file: os.stat_result | None = None
        """Of the socket's name, while that is ours."""
        if self._is_named():
            self._remember()
        sign(lock_fd, os.getpid())

    @property
    def path(self) -> Path:
        """Where clients connect."""
        return Path(self._path)

    @property
    def listeners(self) -> list[socket.socket]:
        """All sockets that clients come to."""
        return [self.listener, *(one.listener for one in self.also)]

    def renew(self, moved: Callable[[socket.socket, socket.socket], None]) -> bool:
        """Be found again, if the name of the socket or the lock was removed. False: another daemon has the place.

        `moved` is called with a listener, and with the one that takes its place, while both are open.

        Raises:
            OSError: nothing can be made there.
        """
        if self.is_managed:
            return True
        if not self._is_named() and not self._lock_anew():
            return False
        if self._file is None or not is_still(self._path, self._file):
            if is_served(self._path):
                return False
            before, self.listener = self.listener, listen(self._path)
            self._remember()
            moved(before, self.listener)
            before.close()
        return True

    def let_go(self, farewell: bytes = b"") -> None:
        """Make way for the next daemon. See the module for the order. `farewell`: a line for those who wait."""
        for one in self.also:
            one.let_go(farewell)
        if not self.is_managed and self._is_named():
            self.path.unlink(missing_ok=True)
        if farewell:
            self._tell_waiting(farewell)
        self.listener.close()
        os.close(self.lock_fd)

    def hand_over(self) -> list[str]:
        """The options with which a program that takes the place of this one gets all of it."""
        options: list[str] = []
        for one in (self, *self.also):
            for descriptor in (one.listener.fileno(), one.lock_fd):
                os.set_inheritable(descriptor, True)  # noqa: FBT003 - its only parameter
            names = ("--listen-fd", "--lock-fd") if one is self else ("--also-listen-fd", "--also-lock-fd")
            options += [names[0], str(one.listener.fileno()), names[1], str(one.lock_fd)]
        return [*options, *["--managed-socket"] * self.is_managed]

    def _is_named(self) -> bool:
        """The lock's file is still the one that others find."""
        return is_still(self._lock_path, os.fstat(self.lock_fd))

    def _remember(self) -> None:
        with suppress(OSError):
            self._file = os.stat(self._path)  # noqa: PTH116 - as `is_still` does

    def _lock_anew(self) -> bool:
        make_private(os.path.dirname(self._lock_path))  # noqa: PTH120 - as above
        found = lock(self._lock_path)
        if found is None:
            return False
        os.close(self.lock_fd)
        self.lock_fd = found
        sign(found, os.getpid())
        return True

    def _tell_waiting(self, line: bytes) -> None:
        self.listener.setblocking(False)  # noqa: FBT003 - its only parameter
        with suppress(OSError):
            while True:
                waiting, _ = self.listener.accept()
                with waiting, suppress(OSError):
                    waiting.send(line)


def hold(
    config: Path,
    environ: Mapping[str, str],
    supervision: Supervision,
    *,
    listen_fd: int | None,
    lock_fd: int | None,
    is_managed: bool = False,
) -> Held | None:
    """Take what was handed over, or claim it. None: another daemon serves this configuration.

    Raises:
        ConfigError: what was handed over is not what it should be, or no socket can be made.
    """
    directory, key = runtime_directory(environ), daemon_key(config)
    own_lock = lock_path(socket_path(directory, key))
    if listen_fd is not None and lock_fd is not None:
        locked = own_lock if is_managed else ""
        return Held(_listening(listen_fd), _not_inherited(lock_fd), is_managed=is_managed, locked=locked)
    try:
        if supervision.sockets:
            listener = _listening(supervision.sockets[0])
            make_private(directory)
            found = lock(own_lock)
            if found is None:
                listener.close()
                return None
            return Held(listener, found, is_managed=True, locked=own_lock)
        claimed = claim(directory, key)
    except OSError as error:
        hint = "The daemon needs a place for its socket; XDG_RUNTIME_DIR names it."
        raise ConfigError(f"cannot be used: {error.strerror or error}", file=str(directory), hint=hint) from error
    return None if claimed is None else Held(claimed.listener, _not_inherited(claimed.lock_fd))


def keep(
    held: Held, config: Path, environ: Mapping[str, str], more: Sequence[tuple[int, int]], *, is_anew: bool
) -> Held:
    """All that a daemon has that continues in the places of another: `more` are sockets with their locks.

    `is_anew`: it continued in the same process. If that was of another release, its clients look elsewhere; then
    that place is claimed too, unless another daemon has it, and is the first of all.
    """
    held.also += [Held(_listening(listener), _not_inherited(lock_fd)) for listener, lock_fd in more]
    own = socket_path(runtime_directory(environ), daemon_key(config))
    if not is_anew or held.is_managed or own in (str(one.path) for one in (held, *held.also)):
        return held
    with suppress(OSError):
        claimed = claim(runtime_directory(environ), daemon_key(config))
        if claimed is not None:
            first = Held(claimed.listener, _not_inherited(claimed.lock_fd))
            first.also, held.also = [held, *held.also], []
            return first
    return held


def _listening(descriptor: int) -> socket.socket:
    try:
        listener = socket.socket(fileno=descriptor)
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - its only parameter
        if listener.family == socket.AF_UNIX and listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return listener
        listener.detach()
    except OSError:
        pass
    raise ConfigError(f"descriptor {descriptor} is no listening Unix socket", key="--listen-fd")


def _not_inherited(descriptor: int) -> int:
    """The same, without the servers inheriting it: a lock lives as long as anybody has it."""
    try:
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - its only parameter
    except OSError as error:
        raise ConfigError(f"descriptor {descriptor} is not open", key="--lock-fd") from error
    return descriptor
