"""How commands find the bridges and daemons of this user, start a daemon, and see one end."""

import json
import os
import select
import socket
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any, NoReturn, cast

from mcpbridge.app.admin.control_client import HAS_ENDED, LONGEST_WAIT, SILENT, Document, ask, sockets
from mcpbridge.app.cli.failures import fail
from mcpbridge.app.cli.output import progress
from mcpbridge.app.exit_codes import TIMED_OUT, UNREACHABLE, USAGE
from mcpbridge.app.stdio_proxy.daemon_lock import claim, connect, holder, socket_path
from mcpbridge.app.stdio_proxy.handshake import Greeting, Refusal, read
from mcpbridge.app.stdio_proxy.start_daemon import log_path, start_daemon
from mcpbridge.base.directories import daemon_key, runtime_directory

START_PATIENCE = 60.0
"""Seconds that a daemon has to be up: its machine may be busy with the servers of others."""
END_PATIENCE = 45.0
"""Seconds that it has to end; it grants its clients and servers less."""
_LOOK_AGAIN = 0.05
"""Seconds, where the system reports nothing by itself."""
_SHOWN_LINES = 20
_SIDE_BY_SIDE = 16


@dataclass(frozen=True, slots=True)
class RunningBridge:
    """A bridge that runs: its control socket, and what it says of itself."""

    path: Path
    status: Document

    @property
    def pid(self) -> int:
        """Its process."""
        return int(str(self.status.get("pid")))

    @property
    def daemon(self) -> Mapping[str, Any] | None:
        """What it says of itself as a daemon; None: it is another kind of bridge."""
        return cast("Mapping[str, Any] | None", self.status.get("daemon"))

    def ask(self, do: str, *, patience: float = LONGEST_WAIT, **more: object) -> Document:
        """Put a request to it; `error` is in the answer if that is nothing useful."""
        return ask(self.path, {"do": do, **more}, patience=patience) or {"pid": self.pid, "error": "it has ended"}


@dataclass(frozen=True, slots=True)
class Survey:
    """The bridges of this user that run now."""

    bridges: list[RunningBridge]
    """Those with the configuration that was asked for."""
    silent: list[int]
    """Processes that do not answer; what they serve is not known."""

    @property
    def daemons(self) -> list[RunningBridge]:
        """Those of the bridges that are daemons."""
        return [one for one in self.bridges if one.daemon is not None]

    def ask(self, do: str, *, patience: float, **more: object) -> list[Document]:
        """What each of the bridges says to a request, in their order; they are asked side by side."""
        told: list[Document] = [{"pid": one.pid} for one in self.bridges]

        def ask(number: int) -> None:
            told[number] = self.bridges[number].ask(do, patience=patience, **more)

        # Of no pool: that would be waited for at the end, and who presses Ctrl-C is not to wait for the answers.
        threads = [Thread(target=ask, args=(number,), daemon=True) for number in range(len(told))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return told

    def describe_silent(self) -> list[str]:
        """What there is to say to people of those that do not answer."""
        hint = "does not answer, so it is not known what it serves; `kill -9 {0}` ends it"
        return [f"process {pid} {hint.format(pid)}" for pid in self.silent]

    def require_answer(self, config: Path) -> None:
        """Make sure that the daemon of this configuration is not among those that do not answer.

        Raises:
            CommandFailed: it is.
        """
        pid = _holder(config)
        if pid in self.silent and pid:
            fail_silent(pid)


def fail_silent(pid: int) -> NoReturn:
    """End the command: this daemon hangs."""
    advice = f"`mcpbridge logs` may say why. `kill -9 {pid}` ends it and its servers; the next client starts another."
    fail(TIMED_OUT, f"the daemon of this configuration, process {pid}, does not answer", advice)


def survey(config: Path | None) -> Survey:
    """Ask every running bridge, side by side, and keep those with this configuration; None: with any."""
    paths = sockets(runtime_directory(os.environ))
    with ThreadPoolExecutor(max_workers=max(1, min(len(paths), _SIDE_BY_SIDE))) as threads:
        told = list(threads.map(_status, paths))
    found: list[RunningBridge] = []
    silent: list[int] = []
    for path, status in zip(paths, told, strict=True):
        if status is None or status.get("error") == HAS_ENDED:
            continue
        source = status.get("config")
        if status.get("code") == SILENT:
            silent.append(int(path.stem))
        elif "error" not in status and (config is None or (source and Path(str(source)).resolve() == config)):
            found.append(RunningBridge(path, status))
    return Survey(found, silent)


def _status(path: Path) -> Document | None:
    return ask(path, {"do": "status"})


def daemons(config: Path | None) -> list[RunningBridge]:
    """Every running daemon with this configuration, also of other releases; None: with any."""
    return survey(config).daemons


def _holder(config: Path) -> int:
    """The process that has the place of this configuration's daemon; 0: none, or it does not say so."""
    return holder(socket_path(runtime_directory(os.environ), daemon_key(config)))


def is_held(config: Path) -> bool:
    """Whether somebody listens for clients of this configuration."""
    connection = connect(socket_path(runtime_directory(os.environ), daemon_key(config)))
    if connection is None:
        return False
    connection.close()
    return True


def log_of(config: Path) -> Path:
    """Where a daemon of this configuration logs, unless it says otherwise."""
    return Path(log_path(daemon_key(config), os.environ))


def ensure_daemon(config: Path, *, stays: bool = True, is_found: bool = False) -> RunningBridge:
    """The daemon of this configuration, started if none runs, once it serves.

    `stays`: it does not end for want of clients. `is_found`: nobody named the file, so it must stay trusted.

    Raises:
        CommandFailed: it does not come up.
    """
    with progress("starting the daemon …"):
        return _started_daemon(config, stays=stays, is_found=is_found)


def _started_daemon(config: Path, *, stays: bool, is_found: bool) -> RunningBridge:
    path = socket_path(runtime_directory(os.environ), daemon_key(config))
    log = log_of(config)
    before = log.stat().st_size if log.is_file() else 0
    deadline = time.monotonic() + START_PATIENCE
    is_ours = False
    while True:
        connection = connect(path)
        if connection is None:
            claimed = claim(runtime_directory(os.environ), daemon_key(config))
            if claimed is not None:
                options = [*["--no-idle-exit"] * stays, *["--found"] * is_found]
                start_daemon(claimed, str(config), str(log), os.environ, *options)
                claimed.close()
                is_ours = True
                continue
            if time.monotonic() > deadline:
                pid = _holder(config)
                what = f"process {pid} holds" if pid else "another process holds"
                fail(TIMED_OUT, f"{what} the place of this configuration's daemon, and cannot be reached")
            time.sleep(_LOOK_AGAIN)  # it is about to come or to go
            continue
        with connection:
            greeted = _greeted(connection, deadline - time.monotonic())
        if greeted is not None:
            break
        if is_ours or time.monotonic() > deadline:
            fail(USAGE, "the daemon did not come up", _error_in(log, before))
        time.sleep(_LOOK_AGAIN)  # that was one of somebody else, which has ended
    around = survey(config)
    found = [one for one in around.daemons if (one.daemon or {}).get("socket") == path]
    if not found:
        around.require_answer(config)
        fail(UNREACHABLE, "the daemon runs, but does not report its status", f"Its log is {log}.")
    return found[0]


def _greeted(connection: socket.socket, seconds: float) -> Greeting | Refusal | None:
    """What a daemon says first; None: it ended without. A refusal is a sign of life, too."""
    connection.settimeout(max(seconds, 1))
    received = b""
    with suppress(ConnectionError):
        connection.sendall(json.dumps({"mcpbridge": 1, "pid": os.getpid()}).encode() + b"\n")
        try:
            while b"\n" not in received and (piece := connection.recv(65536)):
                received += piece
        except TimeoutError:
            fail(TIMED_OUT, f"the daemon did not come up within {START_PATIENCE:g} s")
    told = read(received.partition(b"\n")[0]) if received else None
    return told if isinstance(told, Greeting | Refusal) else None


def _error_in(log: Path, start: int) -> str:
    """What the log says since it had `start` bytes: the error that ended the daemon, else the last lines."""
    try:
        with log.open("rb") as file:
            file.seek(start if log.stat().st_size >= start else 0)
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return f"There is no log at {log}."
    said = [number for number, line in enumerate(lines) if line.startswith("mcpbridge:")]
    shown = lines[said[-1] :] if said else lines
    return "\n  ".join([*(line.removeprefix("mcpbridge: ") for line in shown[-_SHOWN_LINES:]), f"Its log is {log}."])


def end_and_wait(one: RunningBridge, do: str = "stop") -> bool:
    """Ask it, and return when its process is gone. False: it is still there after all the time it has."""
    process = process_handle(one.pid)
    try:
        with progress(f"waiting for the end of process {one.pid} and its servers …"):
            one.ask(do)
            return has_ended(one.pid, process)
    finally:
        if process is not None:
            os.close(process)


def has_ended(pid: int, process: int | None, *, within: float = END_PATIENCE) -> bool:
    """Wait for the end of a process, by its handle where there is such a thing."""
    if process is not None:
        poll = select.poll()
        poll.register(process, select.POLLIN)
        return bool(poll.poll(within * 1000))
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(_LOOK_AGAIN)
    return False


def process_handle(pid: int) -> int | None:
    """A descriptor that stands for a process, and for no other that gets its number; None where there is no such thing.

    The caller closes it.
    """
    with suppress(AttributeError, OSError):
        return os.pidfd_open(pid)
    return None
