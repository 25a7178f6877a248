"""Starts the orphan reaper and informs it which servers there are; it ends them if the bridge is killed.

The reaper is a program of its own (`orphan_reaper_main.py`). It is started with the first server, and again if it was
killed. It hears of a server before that is started, and is dismissed with the last one.
"""

import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

from mcpbridge.base.process import orphan_reaper_main as guard


class OrphanReaper:
    """The one reaper of this process; it runs while there are servers. Threads may share this object."""

    def __init__(self) -> None:
        self._changes = threading.RLock()
        self._popen: subprocess.Popen[bytes] | None = None
        self._alive: dict[str, int] = {}

    def let_go(self) -> None:
        """In a fork of this process: lets go of the pipe, so that the reaper sees when its own bridge ends."""
        if self._popen is not None and self._popen.stdin is not None:
            self._popen.returncode = 0  # it is no child of this process
            self._popen.stdin.close()
        self._changes, self._popen, self._alive = threading.RLock(), None, {}

    def expects(self, cookie: str) -> None:
        """Notifies the reaper that a server is about to be started."""
        self.started(0, cookie)

    def started(self, pid: int, cookie: str) -> None:
        """Notifies the reaper that a server was started."""
        with self._changes:
            self._alive[cookie] = pid
            self._send(f"+{cookie} {pid}\n")

    def ended(self, cookie: str) -> None:
        """Notifies the reaper that nothing is left of a server. After the last one the reaper is dismissed."""
        with self._changes:
            self._alive.pop(cookie, None)
            self._send(f"-{cookie}\n")
            if not self._alive:
                self._dismiss()

    def _send(self, line: str) -> None:
        if self._popen is None or self._popen.poll() is not None:
            if not self._alive:
                return
            self._start()
            line = "".join(f"+{cookie} {pid}\n" for cookie, pid in self._alive.items())
        assert self._popen is not None
        assert self._popen.stdin is not None
        with suppress(OSError):
            self._popen.stdin.write(line.encode())

    def _start(self) -> None:
        if self._popen is not None and self._popen.stdin is not None:
            self._popen.stdin.close()  # of one that was killed
        self._popen = popen = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(guard.__file__)), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            cwd="/" if sys.platform != "win32" else None,
            env={},
            start_new_session=True,
        )
        # Not on the loop that is here now: others may go on after it.
        threading.Thread(target=self._watch, args=(popen,), name=f"wait for {popen.pid}", daemon=True).start()

    def _watch(self, popen: subprocess.Popen[bytes]) -> None:
        """Starts another one if it was killed and not dismissed: servers must not be without a reaper."""
        popen.wait()
        with self._changes, suppress(OSError, RuntimeError):  # the interpreter exits
            if self._popen is popen:
                self._send("")

    def _dismiss(self) -> None:
        """Closes the input of the reaper: with no server left to end, it exits."""
        popen, self._popen = self._popen, None
        if popen is not None and popen.stdin is not None:
            with suppress(OSError):
                popen.stdin.close()


orphan_reaper = OrphanReaper()
"""The one of this process, for all bridges that run in it."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=orphan_reaper.let_go)
