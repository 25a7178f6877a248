"""How commands find the bridges of this user and talk to them.

Every running bridge listens on a Unix socket named after its process. Whoever connects sends one line with a JSON
object whose `do` says what is wanted, and gets one JSON document and the end. Who sends nothing gets the status, at
once if it says that nothing will come. Who may connect is the file system's business: the directory and the socket are
the user's alone.
"""

import json
import os
import socket
import stat
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import cast

import anyio
from anyio.abc import ByteStream

from mcpbridge.errors import ConfigError
from mcpbridge.logs import get_logger

__all__ = ["Answers", "Document", "ask", "ask_all", "publish", "runtime_directory", "sockets"]

Document = Mapping[str, object]
"""A JSON object: a request, or what is said to it."""

Answers = Mapping[str, Callable[[Document], Document | Awaitable[Document]]]
"""What a bridge answers, by `do`; `status` is one of them."""

_LONGEST_WAIT = 5.0
"""Seconds for a peer to take, or to give, the document."""
_A_MOMENT = 0.3
"""Seconds that a peer has to say what it wants."""
_LARGEST_REQUEST = 64 * 1024
_LARGEST_DOCUMENT = 16 * 1024**2

_STATUS: Document = {"do": "status"}


def runtime_directory(environ: Mapping[str, str]) -> Path:
    """Where this user's bridges put their sockets. It may not exist yet."""
    given = environ.get("XDG_RUNTIME_DIR")
    if given and Path(given).is_dir():
        return Path(given) / "mcpbridge"
    return Path(tempfile.gettempdir()) / f"mcpbridge-{os.getuid()}"


@asynccontextmanager
async def publish(answers: Answers, directory: Path) -> AsyncGenerator[None]:
    """Answer commands for the time of the context.

    It is a convenience: when the socket cannot be made, that is logged and the bridge runs without it.
    """
    path = directory / f"{os.getpid()}.sock"
    try:
        _make_private(directory)
        path.unlink(missing_ok=True)  # left by a process that had the same number
        listener = await anyio.create_unix_listener(path, mode=0o600)
    except (OSError, ConfigError) as error:
        get_logger().warning("no control socket", path=str(path), reason=str(error))
        yield
        return

    async def answer(stream: ByteStream) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError), anyio.move_on_after(_LONGEST_WAIT):
            async with stream:
                await stream.send(await _document(answers, await _request(stream)))

    try:
        async with listener, anyio.create_task_group() as asked:
            asked.start_soon(listener.serve, answer)
            yield
            asked.cancel_scope.cancel()
    finally:
        path.unlink(missing_ok=True)


async def _request(stream: ByteStream) -> bytes:
    """The line that the peer sends; empty if it says nothing within a moment."""
    received = b""
    with suppress(anyio.EndOfStream), anyio.move_on_after(_A_MOMENT):
        while b"\n" not in received and len(received) <= _LARGEST_REQUEST:
            received += await stream.receive(_LARGEST_REQUEST)
    return received.partition(b"\n")[0].strip()


async def _document(answers: Answers, line: bytes) -> bytes:
    try:
        request: object = json.loads(line) if line else _STATUS
    except (ValueError, RecursionError):
        request = None
    if not isinstance(request, dict):
        return _error("invalid", "a request is one line with a JSON object")
    request = cast("dict[str, object]", request)
    handler = answers.get(str(request.get("do")))
    if handler is None:
        return _error("unsupported", f"this bridge does not know {str(request.get('do'))[:40]!r}")
    try:
        document = handler(request)
        document = document if isinstance(document, Mapping) else await document
        return json.dumps(dict(document)).encode()
    except Exception:  # noqa: BLE001 - whatever is wrong with it, who asks must not end the bridge
        get_logger().exception("a command cannot be answered", do=str(request.get("do"))[:40])
        return json.dumps({"pid": os.getpid(), "error": "it cannot tell how it is; see its log"}).encode()


def _error(code: str, message: str) -> bytes:
    return json.dumps({"pid": os.getpid(), "code": code, "error": message}).encode()


# -- for commands


def sockets(directory: Path) -> list[Path]:
    """The sockets of this user's bridges, in order of process number; some may be of dead ones.

    Raises:
        ConfigError: someone else could have put them there.
    """
    if not directory.is_dir():
        return []
    _check_private(directory)
    return sorted(directory.glob("*.sock"), key=lambda path: (len(path.name), path.name))


def ask_all(directory: Path, request: Document = _STATUS) -> list[Document]:
    """What every running bridge of this user says. Sockets of dead ones are removed.

    Raises:
        ConfigError: someone else could have put sockets there.
    """
    found = [ask(path, request) for path in sockets(directory)]
    return [document for document in found if document is not None]


def ask(path: Path, request: Document) -> Document | None:
    """What one bridge says to a request; `error` is in it if that is nothing useful. None: it is dead."""
    try:
        return _ask(path, request)
    except ConnectionRefusedError:
        path.unlink(missing_ok=True)
        return None
    except (OSError, ValueError, RecursionError):
        return {"pid": int(path.stem) if path.stem.isdigit() else None, "error": "it does not answer"}


def _ask(path: Path, request: Document) -> Document:
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as connection:
        connection.settimeout(_LONGEST_WAIT)
        connection.connect(str(path))
        # Bridges of older releases read nothing, and what is unread when they close could cost us their answer.
        words = b"" if request == _STATUS else json.dumps(dict(request)).encode() + b"\n"
        with suppress(OSError):  # it may have answered and closed already
            connection.sendall(words)
            connection.shutdown(socket.SHUT_WR)
        received = bytearray()
        while piece := connection.recv(65536):
            received += piece
            if len(received) > _LARGEST_DOCUMENT:
                raise ValueError("the document is too large")
    document: object = json.loads(received)
    if not isinstance(document, dict):
        raise ValueError("the document is no object")
    return cast("Document", document)


def _make_private(directory: Path) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_private(directory)


def _check_private(directory: Path) -> None:
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        hint = "Remove it, or set XDG_RUNTIME_DIR to a directory of your own."
        raise ConfigError("not a directory that only this user can use", file=str(directory), hint=hint)
