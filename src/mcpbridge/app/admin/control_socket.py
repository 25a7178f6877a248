"""How commands find the bridges of this user and talk to them: a Unix socket, one request a connection.

Every running bridge listens on a socket named after its process. Whoever connects sends one line with a JSON object
whose `do` says what is wanted, and gets one JSON document and the end. Who sends nothing gets the status, at once if it
says that nothing will come. Who may connect is the file system's business: the directory and the socket are the user's
alone. The answers are made in `control_commands.py`.
"""

import asyncio
import json
import os
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import cast

import anyio

from mcpbridge.app.admin.control_client import LARGEST_REQUEST, LONGEST_WAIT, STATUS, Document, check_private
from mcpbridge.base.background_tasks import OwnedTasks, is_asked_to_end
from mcpbridge.base.errors import ConfigError
from mcpbridge.base.log import get_logger

Answers = Mapping[str, Callable[[Document], Document | Awaitable[Document]]]
"""What a bridge answers, by `do`; `status` is one of them."""

_TIME_TO_ASK = 2.0
"""Seconds that a peer has to say what it wants: enough for a command on a busy machine."""
_A_MOMENT = 0.3
"""Seconds until something is tried again, or given up."""


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
        request: object = json.loads(line) if line else STATUS
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


def _make_private(directory: Path) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_private(directory)
