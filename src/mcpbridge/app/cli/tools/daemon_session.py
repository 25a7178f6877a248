"""A command's session with the daemon of its configuration: a light MCP client on the daemon's socket.

Commands wait for this module: the standard library is all that it loads, and each request blocks. What is not MCP
(`ask`) goes to the daemon's control socket.
"""

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, cast

from mcpbridge.app.admin.control_client import SILENT, ask
from mcpbridge.app.cli.failures import CommandFailed, fail, failure_code, failure_page
from mcpbridge.app.cli.output import StatusLine, is_at_terminal, progress, visible
from mcpbridge.app.cli.tools.session import print_notes
from mcpbridge.app.exit_codes import TIMED_OUT, UNREACHABLE
from mcpbridge.app.stdio_proxy.connections import GREETING_PATIENCE
from mcpbridge.app.stdio_proxy.daemon_lock import connect, holder, socket_path
from mcpbridge.app.stdio_proxy.handshake import Farewell, Refusal, hello, is_own, project_of, read, working_directory
from mcpbridge.base.config_file import find_config
from mcpbridge.base.directories import key_of, runtime_path
from mcpbridge.base.version import __version__

_REVISION = "2025-11-25"
"""Of MCP; with it the daemon can ask questions in the middle of a call."""
_PATIENCE = 900.0
"""Seconds for a document: servers may be starting, which the daemon bounds."""
_LARGEST = 512 * 1024**2
"""Bytes of a document: whole lists of thousands of tools."""
_FRESH = 3.0
"""Seconds after an edit in which the daemon may not have read it yet."""
_METHOD_NOT_FOUND = -32601


@contextmanager
def connected(config: str | None) -> "Generator[DaemonSession | None]":
    """A session with the daemon of this configuration; None where none runs, or it ends at this moment.

    Raises:
        CommandFailed: it hangs, or does not serve this client.
    """
    path = find_config(config, os.environ)
    link = None if path is None else _reach(path)
    if path is None or link is None:
        yield None
        return
    with link, _ended_by_signals():
        session = _greeted(link, path)
        if session is None:
            yield None
        else:
            yield session


def _reach(path: str) -> socket.socket | None:
    try:
        return connect(_place(path))
    except OSError:  # not to be reached by this user, or its path is too long for a socket
        return None


def _place(path: str) -> str:
    return socket_path(runtime_path(os.environ), key_of(path))


def _greeted(link: socket.socket, path: str) -> "DaemonSession | None":
    link.settimeout(GREETING_PATIENCE)
    lines = _Lines(link)
    cwd = working_directory()
    try:
        link.sendall(hello(os.environ, cwd))
        line = lines.next()
    except TimeoutError:
        pid = holder(_place(path))
        who = f"the daemon of this configuration, process {pid}," if pid else "the daemon of this configuration"
        fail(TIMED_OUT, f"{who} does not answer", "`mcpbridge logs` may say why; --standalone works without it.")
    except OSError:
        return None  # it ended before it had taken this
    said = read(line) if is_own(line) else None
    if isinstance(said, Refusal):
        fail(UNREACHABLE, f"the daemon refused: {said.message}", "--standalone works without it.")
    if said is None or isinstance(said, Farewell):
        return None
    session = DaemonSession(link, lines, int(json.loads(line)["pid"]), cwd)
    with suppress(OSError):
        if time.time() - os.stat(path).st_mtime < _FRESH:  # noqa: PTH116 - `find_config` gives text
            session.reload()
    return session


class DaemonSession:
    """Meets `Session`; its coroutines never suspend."""

    def __init__(self, link: socket.socket, lines: "_Lines", pid: int, cwd: str) -> None:
        """`link` is greeted, and stays the caller's to close. `pid`: the daemon's process."""
        self._link, self._lines, self._pid = link, lines, pid
        directory = project_of(os.environ, cwd)
        self.project = Path(directory).as_uri() if directory else ""
        self._control = Path(runtime_path(os.environ)) / f"{pid}.sock"
        self._requests = 0

    def reload(self) -> None:
        """Have it read its configuration, which was edited just now. The documents say what is wrong with it."""
        ask(self._control, {"do": "reload"}, patience=_PATIENCE)

    async def ask(self, do: str, **more: object) -> Mapping[str, Any]:
        """See `Session`."""
        with progress("asking the daemon …"):
            document = ask(self._control, {"do": do, **more}, patience=_PATIENCE, largest=_LARGEST)
        if document is None:
            fail(UNREACHABLE, "the daemon has ended", "Repeat the command.")
        if "error" in document:
            advice = "`mcpbridge logs` may say more; --standalone works without it."
            if document.get("code") == "unsupported":
                advice = "It is of another release: `mcpbridge restart` brings the installed one."
            code = TIMED_OUT if document.get("code") == SILENT else UNREACHABLE
            fail(code, f"the daemon, process {self._pid}: {document['error']}", advice)
        return print_notes(cast("Mapping[str, Any]", document))

    async def request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """See `Session`."""
        if not self._requests:
            self._initialize()
        number = self._next()
        if sys.stderr.isatty():
            params = {**params, "_meta": {**params.get("_meta", {}), "progressToken": number}}
        try:
            self._send({"id": number, "method": method, "params": params})
            return self._answer_to(number)
        except (KeyboardInterrupt, CommandFailed):
            with suppress(OSError):
                self._send({"method": "notifications/cancelled", "params": {"requestId": number}})
            raise
        except OSError as error:
            self._lost(error)

    def _initialize(self) -> None:
        capabilities = json.loads('{"elicitation": {"form": {}, "url": {}}}' if is_at_terminal() else "{}")
        # Without a name, as the commands' own bridges see them: rules and lists are the same.
        info = {"name": "", "version": __version__}
        params: dict[str, object] = {"protocolVersion": _REVISION, "capabilities": capabilities, "clientInfo": info}
        number = self._next()
        self._send({"id": number, "method": "initialize", "params": params})
        self._answer_to(number)
        self._send({"method": "notifications/initialized"})

    def _answer_to(self, number: int) -> dict[str, Any]:
        self._link.settimeout(None)  # the bridge bounds it
        with progress() as shown:
            while True:
                line = self._lines.next()
                if is_own(line):
                    self._ended(read(line))
                message = json.loads(line)
                if message.get("id") == number and "method" not in message:
                    break
                if "method" in message:
                    self._hear(message, shown)
        if "error" in message:
            error = message["error"]
            fail(
                failure_code(error.get("data")),
                visible(str(error.get("message"))),
                page=failure_page(error.get("data")),
            )
        return message["result"]

    def _hear(self, message: Mapping[str, Any], status_line: StatusLine) -> None:
        """A request of the bridge, or a notification."""
        params: Mapping[str, Any] = message.get("params") or {}
        if message["method"] == "notifications/progress":
            total = f" of {params['total']:g}" if params.get("total") else ""
            status_line.show(f"{params.get('message') or 'progress'} ({params.get('progress', 0):g}{total})")
        if "id" not in message:
            return
        status_line.clear()
        if message["method"] == "elicitation/create":
            from mcpbridge.app.cli.tools.questions import answer_question

            self._send({"id": message["id"], "result": answer_question(params)})
        elif message["method"] == "ping":
            self._send({"id": message["id"], "result": {}})
        else:
            error = {"code": _METHOD_NOT_FOUND, "message": "a command at a terminal does not answer this"}
            self._send({"id": message["id"], "error": error})

    def _ended(self, message: object) -> NoReturn:
        if isinstance(message, Farewell):  # what has no answer by now was not read
            fail(UNREACHABLE, "the daemon ended before it had read this", "Nothing was done. Repeat the command.")
        fail(UNREACHABLE, "the daemon says something that is not known here", "`mcpbridge restart` may help.")

    def _lost(self, error: OSError) -> NoReturn:
        what = "the daemon ended before it had answered; it is not known whether this took effect"
        raise CommandFailed(
            UNREACHABLE, what, "Check that before you repeat it. `mcpbridge logs` may say why."
        ) from error

    def _next(self) -> int:
        self._requests += 1
        return self._requests

    def _send(self, message: Mapping[str, Any]) -> None:
        text = json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False, separators=(",", ":"))
        self._link.sendall(text.encode(errors="surrogatepass") + b"\n")


class _Lines:
    """Lines out of a socket."""

    def __init__(self, link: socket.socket) -> None:
        self._link, self._received = link, bytearray()

    def next(self) -> bytes:
        """The next line, without its end.

        Raises:
            OSError: the other side has ended.
            TimeoutError: nothing came in the time of the socket.
        """
        looked = 0
        while (end := self._received.find(b"\n", looked)) < 0:
            looked = len(self._received)
            piece = self._link.recv(1 << 18)
            if not piece:
                raise ConnectionResetError("it has ended")
            self._received += piece
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        return line


@contextmanager
def _ended_by_signals() -> Generator[None]:
    """SIGTERM and SIGHUP end the command with their exit codes, as they do with a bridge of its own."""

    def end(number: int, _: FrameType | None) -> NoReturn:
        raise CommandFailed(128 + number, f"ended by {signal.Signals(number).name}")

    asked = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) == signal.SIG_DFL]
    for number in asked:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in asked:
            signal.signal(number, signal.SIG_DFL)
