"""How commands find the bridges of this user and talk to them: a Unix socket, one request a connection.

Every running bridge listens on a socket named after its process. Whoever connects sends one line with a JSON object
whose `do` says what is wanted, and gets one JSON document and the end. Who sends nothing gets the status, at once if it
says that nothing will come. Who may connect is the file system's business: the directory and the socket are the user's
alone. What is answered stands in `control_commands.py`.
"""

import asyncio
import json
import os
import socket
import stat
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import cast

import anyio

from mcpbridge.base.background_tasks import OwnedTasks, is_asked_to_end
from mcpbridge.base.errors import ConfigError
from mcpbridge.base.log import get_logger
from mcpbridge.base.units import show_bytes

Document = Mapping[str, object]
"""A JSON object: a request, or what is said to it."""

Answers = Mapping[str, Callable[[Document], Document | Awaitable[Document]]]
"""What a bridge answers, by `do`; `status` is one of them."""

SILENT = "silent"
"""`code` of what is put in the place of a document by `ask`, where no answer of a bridge comes that can be read."""

LONGEST_WAIT = 10.0
"""Seconds for a peer to take, or to give, the document, unless it takes long to make. What did nothing for long may
have to be read back into memory first, and does not hang."""
_TIME_TO_ASK = 2.0
"""Seconds that a peer has to say what it wants: enough for a command on a busy machine."""
_A_MOMENT = 0.3
"""Seconds until something is tried again, or given up."""
LARGEST_REQUEST = 64 * 1024
"""Bytes of a request, without the end of its line."""
_LARGEST_DOCUMENT = 16 * 1024**2

_STATUS: Document = {"do": "status"}
_ENDED = "it ended before it had answered"


@asynccontextmanager
async def publish(answers: Answers, directory: Path, *, look_every: float = 5.0) -> AsyncGenerator[None]:
    """Answer commands for the time of the context.

    It is a convenience: when the socket cannot be made, that is logged and the bridge runs without it. `look_every`:
    seconds between two looks whether it is still there; programs that clean up remove such files, and it is made anew.
    """
    path = directory / f"{os.getpid()}.sock"
    try:
        listener = _listen(path)
    except (OSError, ConfigError) as error:
        get_logger().warning("no control socket", path=str(path), reason=str(error))
        yield
        return

    asked = OwnedTasks()  # of no anyio group: whatever an answer does to its own task, it ends alone

    async def answer(connected: socket.socket) -> None:
        with suppress(OSError):
            document = await _document(answers, await _request(connected))
            with anyio.move_on_after(LONGEST_WAIT):
                await asyncio.get_running_loop().sock_sendall(connected, document)

    async def accept(listener: socket.socket) -> None:
        # Not anyio's listener: who connects in the moment in which that is cancelled makes it log an error.
        while True:
            try:
                connected, _ = await asyncio.get_running_loop().sock_accept(listener)
            except OSError:  # there are no descriptors left, or it has gone already
                await anyio.sleep(_A_MOMENT)
                continue
            answering = asked.spawn(answer(connected))
            assert answering is not None, "it accepts only while they run"
            answering.add_done_callback(lambda _, connected=connected: connected.close())  # also if it never began

    async def listen(listener: socket.socket) -> None:
        while True:
            with listener:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(accept, listener)
                    await _removed(path, look_every)
                    tasks.cancel_scope.cancel()
            listener = await _listen_anew(path, look_every)

    try:
        async with asked.running():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(listen, listener)
                yield
                tasks.cancel_scope.cancel()
            if answering := asked.under_way():  # for who asked for the end
                await asyncio.wait(answering, timeout=_A_MOMENT)
    finally:
        listener.close()
        path.unlink(missing_ok=True)


def _listen(path: Path) -> socket.socket:
    _make_private(path.parent)
    path.unlink(missing_ok=True)  # left by a process that had the same number
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))  # nobody else can enter the directory
        path.chmod(0o600)
        listener.listen()
        listener.setblocking(False)  # noqa: FBT003 - its only parameter
    except BaseException:
        listener.close()
        raise
    return listener


async def _removed(path: Path, look_every: float) -> None:
    """Return when there is no such file any more."""
    while True:
        await anyio.sleep(look_every)
        if not _is_there(path):
            return


def _is_there(path: Path) -> bool:
    return path.exists()


async def _listen_anew(path: Path, look_every: float) -> socket.socket:
    while True:
        with suppress(OSError, ConfigError):
            return _listen(path)
        await anyio.sleep(look_every)


async def _request(connected: socket.socket) -> bytes:
    """The line that the peer sends; empty if it says nothing in time."""
    connected.setblocking(False)  # noqa: FBT003 - its only parameter
    loop, received = asyncio.get_running_loop(), b""
    with anyio.move_on_after(_TIME_TO_ASK):
        while b"\n" not in received and len(received) <= LARGEST_REQUEST:
            piece = await loop.sock_recv(connected, LARGEST_REQUEST)
            if not piece:
                break
            received += piece
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
    except (Exception, asyncio.CancelledError) as error:  # whatever is wrong with it, who asks must not end the bridge
        if isinstance(error, asyncio.CancelledError) and is_asked_to_end():
            raise
        get_logger().exception("a command cannot be answered", do=str(request.get("do"))[:40])
        return json.dumps({"pid": os.getpid(), "error": "it cannot report its status; see its log"}).encode()


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
    found = [path for path in directory.glob("*.sock") if path.stem.isdecimal()]  # the others are of daemons
    return sorted(found, key=lambda path: (len(path.name), path.name))


def ask_all(directory: Path, request: Document = _STATUS) -> list[Document]:
    """What every running bridge of this user says. Sockets of dead ones are removed.

    Raises:
        ConfigError: someone else could have put sockets there.
    """
    found = [ask(path, request) for path in sockets(directory)]
    return [document for document in found if document is not None]


def ask(path: Path, request: Document, *, patience: float = LONGEST_WAIT) -> Document | None:
    """What one bridge says to a request; `error` is in it if that is nothing useful. None: it is dead.

    `patience`: seconds that it has for the answer.
    """
    try:
        return _ask(path, request, patience)
    except ConnectionRefusedError:
        if not _is_alive(path):  # else it is about to listen, or not any more
            path.unlink(missing_ok=True)
        return None
    except FileNotFoundError:
        return None
    except _Unread as error:
        why = str(error)
    except ConnectionError:
        why = _ENDED
    except OSError:
        why = "it does not answer"
    except (ValueError, RecursionError):
        why = "its answer cannot be read"
    return {"pid": int(path.stem) if path.stem.isdigit() else None, "code": SILENT, "error": why}


class _Unread(Exception):
    """There is no whole answer; says why."""


def _is_alive(path: Path) -> bool:
    """The process that a socket is named after may still be there."""
    try:
        os.kill(int(path.stem), 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _ask(path: Path, request: Document, patience: float) -> Document:
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as connection:
        connection.settimeout(patience)
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
                raise _Unread(f"its answer is larger than {show_bytes(_LARGEST_DOCUMENT)}")
    if not received:
        raise _Unread(_ENDED)
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
