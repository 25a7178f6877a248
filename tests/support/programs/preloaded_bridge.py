"""`mcpbridge` as a process of its own that needs not be imported: forked by one that has it all (Linux).

Four fifths of what a short command costs is the import of the bridge. The process is a real one in all else, with its
own session, files, environment, folder and command line; only its parent is the one that forks. Tests of how the
program starts, and of what it loads, start the interpreter: so does `start` wherever an environment says how.
"""

import asyncio
import os
import signal
import socket
import sys
import tempfile
from asyncio import base_subprocess, subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from support.programs.preloaded_python import Server, ask

__all__ = ["can_fork", "command", "end_all", "start"]

MODULES = (
    *("mcpbridge.app.cli.commands", "mcpbridge.app.cli.serve", "mcpbridge.app.stdio_proxy.main"),
    *("mcpbridge.app.daemon.process", "mcpbridge.app.cli.tools.call", "mcpbridge.app.cli.tools.list"),
    *("mcpbridge.app.cli.tools.own_session", "mcpbridge.app.cli.tools.lock", "mcpbridge.app.cli.access.login"),
    *("mcpbridge.app.cli.daemon.run", "mcpbridge.app.cli.daemon.control", "mcpbridge.app.cli.config.doctor"),
    *("mcpbridge.app.doctor.examination", "mcpbridge.app.logging_setup", "mcpbridge.app.daemon.daemon"),
    *("mcpbridge.app.cli.demo", "mcpbridge.app.demo.play", "mcpbridge.app.demo.terminal"),
    *("mcpbridge.library.client.open_options", "mcpbridge.downstream.stdio", "mcpbridge.downstream.services"),
    *("mcpbridge.downstream.http.server", "mcpbridge.upstream.auth.http", "mcpbridge.upstream.auth.redirect_server"),
    *("mcpbridge.upstream.transports.streamable_http", "mcpbridge.upstream.transports.sse"),
    *("mcpbridge.storage.sqlite.store", "mcpbridge.storage.http_token", "mcpbridge.protocol.reading.client_messages"),
    *("anyio._backends._asyncio", "uvicorn", "uvloop", "httptools", "jsonschema_rs", "sqlite3", "termios"),
)
"""What most commands load, and what is dear of the rest."""

_KEPT = ("PATH", "LANG", "LC_ALL", "PYTHONPATH")

_server: Server | None = None
_folder: "tempfile.TemporaryDirectory[str] | None" = None


def can_fork(environment: Mapping[str, str]) -> bool:
    """Whether a fork is what the interpreter would be with this environment."""
    return sys.platform == "linux" and _for_python(environment) == _for_python(_own_environment())


def command() -> list[str]:
    """What runs `mcpbridge`, to be followed by arguments: for shells and programs that start it by themselves."""
    return [*_running().command(), "mcpbridge"]


async def start(
    *arguments: str, cwd: Path, environment: Mapping[str, str], limit: int, terminal: int | None = None
) -> asyncio.subprocess.Process:
    """`mcpbridge ARGUMENTS` with pipes for its three files, as `asyncio.create_subprocess_exec` gives it.

    `terminal`: what its three files are instead.
    """
    loop = asyncio.get_running_loop()
    protocol = subprocess.SubprocessStreamProtocol(limit=limit, loop=loop)
    connected = loop.create_future()
    how: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE if terminal is None else None)
    what: dict[str, Any] = {"cwd": cwd, "environment": environment, "terminal": terminal}
    transport = _Transport(loop, protocol, ["mcpbridge", *arguments], False, **how, bufsize=0, waiter=connected, **what)
    await connected
    return subprocess.Process(transport, protocol, loop)


def end_all() -> None:
    """End the process that forks, if there is one."""
    global _server, _folder
    if _server is not None and _folder is not None:
        _server.end()
        _folder.cleanup()
        _server = _folder = None


def _running() -> Server:
    global _server, _folder
    if _server is None:
        _folder = tempfile.TemporaryDirectory(prefix="mcpb-", dir="/tmp")  # a socket's path must be short
        _server = Server(Path(_folder.name), "mcpbridge", *MODULES, environment=_own_environment())
    return _server


def _own_environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _KEPT if name in os.environ}


def _for_python(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that an interpreter reads at its start."""
    return {name: value for name, value in environment.items() if name.startswith(("PYTHON", "LANG", "LC_"))}


class _Forked:
    """The part of `subprocess.Popen` that a transport of asyncio needs."""

    stdin: BinaryIO | None = None
    stdout: BinaryIO | None = None
    stderr: BinaryIO | None = None

    def __init__(self, words: list[str], cwd: Path, environment: Mapping[str, str], terminal: int | None) -> None:
        self.returncode: int | None = None
        place = str(_running().socket)
        if terminal is not None:
            self.end, self.pid = ask(place, words, environment, str(cwd), [terminal] * 3)
            self.end.setblocking(False)
            return
        (its_in, to_it), (from_it, its_out), (errors, its_errors) = os.pipe(), os.pipe(), os.pipe()
        try:
            self.end, self.pid = ask(place, words, environment, str(cwd), [its_in, its_out, its_errors])
        except BaseException:
            for file in (to_it, from_it, errors):
                os.close(file)
            raise
        finally:
            for file in (its_in, its_out, its_errors):
                os.close(file)
        self.end.setblocking(False)
        self.stdin = os.fdopen(to_it, "wb", 0)
        self.stdout = os.fdopen(from_it, "rb", 0)
        self.stderr = os.fdopen(errors, "rb", 0)

    def poll(self) -> int | None:
        if self.returncode is None:
            try:
                told = self.end.recv(16)
            except BlockingIOError:
                return None
            self.returncode = int(told) if told else -signal.SIGKILL  # with the process that forks
            self.end.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Transport(base_subprocess.BaseSubprocessTransport):
    def _start(self, args: Any, cwd: Path, environment: Mapping[str, str], terminal: int | None, **_: Any) -> None:  # type: ignore[override]
        self._proc = _Forked(args, cwd, environment, terminal)
        self._end: socket.socket = self._proc.end
        self._loop.add_reader(self._end, self._has_ended)

    def _has_ended(self) -> None:
        self._loop.remove_reader(self._end)
        code = self._proc.poll()
        assert code is not None
        self._process_exited(code)
