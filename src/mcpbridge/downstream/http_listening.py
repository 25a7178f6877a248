"""Take the address that the HTTP front listens on: a port, or a path in the file system.

A path is for programs of the same user: the file system keeps everyone else out.
"""

import errno
import os
import socket
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from mcpbridge.errors import ConfigError

__all__ = ["listen", "listen_at_path"]

_BACKLOG = 2048
_LONGEST_PATH = 100
"""Bytes of a socket's path; systems allow 104 to 108."""


@contextmanager
def listen(host: str, port: int) -> Generator[socket.socket]:
    """A listening socket; closed at the end.

    Raises:
        ConfigError: the address cannot be had; says why.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as error:
        raise ConfigError(f"cannot find the address of {host!r}: {error}", hint="Use an IP address.") from error
    family, kind, protocol, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    listener = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":  # elsewhere the option would let two programs share the port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen(_BACKLOG)
        except OSError as error:
            raise _cannot_listen(host, port, error) from error
        listener.setblocking(False)  # noqa: FBT003 - its only argument
        yield listener
    finally:
        listener.close()


@contextmanager
def listen_at_path(path: Path) -> Generator[socket.socket]:
    """A listening Unix-domain socket that only this user can use; closed and removed at the end.

    One that a dead bridge left there is replaced.

    Raises:
        ConfigError: the path cannot be had; says why.
    """
    if not hasattr(socket, "AF_UNIX"):
        raise ConfigError("this system has no Unix-domain sockets", key="--http", hint="Use HOST:PORT.")
    # It gets its name when it listens and nobody else may use it: there is no moment in which it refuses a client, or
    # lets a stranger in.
    fresh = path.with_name(f".mcpb{os.getpid()}")
    if max(len(os.fsencode(path)), len(os.fsencode(fresh))) > _LONGEST_PATH:
        raise ConfigError(f"the path of a socket must be short: {path}", key="--http", hint="Use one in /run or /tmp.")
    _refuse_taken(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    own: os.stat_result | None = None
    try:
        try:
            fresh.unlink(missing_ok=True)  # left by a process that had the same number
            listener.bind(str(fresh))
            fresh.chmod(0o600)
            listener.listen(_BACKLOG)
            own = fresh.lstat()
            fresh.replace(path)
        except OSError as error:
            hint = "The directory must exist, and this user must be able to write there."
            raise ConfigError(f"cannot listen on {path}: {error.strerror}", key="--http", hint=hint) from error
        listener.setblocking(False)  # noqa: FBT003 - its only argument
        yield listener
    finally:
        listener.close()
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
            if own is not None and os.path.samestat(own, path.lstat()):  # else it is a later bridge's by now
                path.unlink()


def _refuse_taken(path: Path) -> None:
    """Raise unless nothing is at the path, or the socket of a program that is gone."""
    try:
        found = path.lstat()
    except OSError:
        return  # whatever else is wrong, `bind` says it
    if not stat.S_ISSOCK(found.st_mode):
        raise ConfigError(f"{path} exists and is no socket", key="--http", hint="Choose another path.")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # noqa: FBT003 - its only argument; one that is too busy to answer lives
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return
        except OSError:
            pass  # it may be another user's, whose programs cannot be asked
    hint = "Is another bridge running (`mcpbridge status`)? Stop it, or choose another path."
    raise ConfigError(f"another program listens on {path}", key="--http", hint=hint)


def _cannot_listen(host: str, port: int, error: OSError) -> ConfigError:
    where = f"{host}:{port}"
    if error.errno == errno.EADDRINUSE:
        hint = (
            "Is another bridge running (`mcpbridge status`)? Stop it, or choose another port with `--http HOST:PORT`."
        )
        return ConfigError(f"cannot listen on {where}: the port is in use", hint=hint)
    if error.errno == errno.EACCES:
        return ConfigError(f"cannot listen on {where}: not permitted", hint="Ports below 1024 need privileges.")
    if error.errno == errno.EADDRNOTAVAIL:
        hint = "Use 127.0.0.1, or 0.0.0.0 for all addresses of this machine."
        return ConfigError(f"cannot listen on {where}: this machine has no such address", hint=hint)
    return ConfigError(f"cannot listen on {where}: {error.strerror}")
