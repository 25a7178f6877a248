"""How `mcpbridge status` finds the bridges of this user and asks them.

Every running bridge listens on a Unix socket named after its process. Whoever connects gets one JSON document and the
end; nothing is read. Who may connect is the file system's business: the directory and the socket are the user's alone.
"""

import json
import os
import socket
import stat
import tempfile
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import cast

import anyio
import structlog
from anyio.abc import ByteStream

from mcpbridge.errors import ConfigError

__all__ = ["Status", "ask_all", "publish", "runtime_directory"]

Status = Mapping[str, object]
"""What `Bridge.status` says, as JSON values."""

_LONGEST_WAIT = 5.0
"""Seconds for a peer to take, or to give, the document."""

_LARGEST_DOCUMENT = 16 * 1024**2


def runtime_directory(environ: Mapping[str, str]) -> Path:
    """Where this user's bridges put their sockets. It may not exist yet."""
    given = environ.get("XDG_RUNTIME_DIR")
    if given and Path(given).is_dir():
        return Path(given) / "mcpbridge"
    return Path(tempfile.gettempdir()) / f"mcpbridge-{os.getuid()}"


@asynccontextmanager
async def publish(status: Callable[[], Status], directory: Path) -> AsyncGenerator[None]:
    """Answer `mcpbridge status` for the time of the context.

    It is a convenience: when the socket cannot be made, that is logged and the bridge runs without it.
    """
    path = directory / f"{os.getpid()}.sock"
    try:
        _make_private(directory)
        path.unlink(missing_ok=True)  # left by a process that had the same number
        listener = await anyio.create_unix_listener(path, mode=0o600)
    except (OSError, ConfigError) as error:
        structlog.get_logger().warning("no status socket", path=str(path), reason=str(error))
        yield
        return

    async def answer(stream: ByteStream) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError), anyio.move_on_after(_LONGEST_WAIT):
            async with stream:
                await stream.send(_document(status))

    try:
        async with listener, anyio.create_task_group() as asked:
            asked.start_soon(listener.serve, answer)
            yield
            asked.cancel_scope.cancel()
    finally:
        path.unlink(missing_ok=True)


def _document(status: Callable[[], Status]) -> bytes:
    try:
        return json.dumps(dict(status())).encode()
    except Exception:  # noqa: BLE001 - whatever is wrong with it, who asks how the bridge is must not end the bridge
        structlog.get_logger().exception("status cannot be told")
        return json.dumps({"pid": os.getpid(), "error": "it cannot tell how it is; see its log"}).encode()


def ask_all(directory: Path) -> list[Status]:
    """What every running bridge of this user says, in order of process number. Sockets of dead ones are removed.

    Raises:
        ConfigError: someone else could have put sockets there.
    """
    if not directory.is_dir():
        return []
    _check_private(directory)
    found: list[Status] = []
    for path in sorted(directory.glob("*.sock"), key=lambda path: (len(path.name), path.name)):
        try:
            found.append(_ask(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
        except (OSError, ValueError):
            found.append({"pid": int(path.stem) if path.stem.isdigit() else None, "error": "it does not answer"})
    return found


def _ask(path: Path) -> Status:
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as connection:
        connection.settimeout(_LONGEST_WAIT)
        connection.connect(str(path))
        received = bytearray()
        while piece := connection.recv(65536):
            received += piece
            if len(received) > _LARGEST_DOCUMENT:
                raise ValueError("the document is too large")
    document: object = json.loads(received)
    if not isinstance(document, dict):
        raise ValueError("the document is no object")
    return cast("Status", document)


def _make_private(directory: Path) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_private(directory)


def _check_private(directory: Path) -> None:
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        hint = "Remove it, or set XDG_RUNTIME_DIR to a directory of your own."
        raise ConfigError("not a directory that only this user can use", file=str(directory), hint=hint)
