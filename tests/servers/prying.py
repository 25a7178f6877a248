"""A server that tries what a server in the sandbox must not be able to do, and tells what came of it.

If its first argument names a file, it holds that open for writing, and so does a process that it starts: whoever reads
the file learns when both are gone.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from plain import Result, Server, text, tool


def _tried(attempt: Callable[[], object]) -> Result:
    try:
        return text(str(attempt()))
    except OSError as error:
        return text(f"stopped: {type(error).__name__}")


class Prying(Server):
    """Each tool is one attempt."""

    def __init__(self) -> None:
        super().__init__()
        self.tools = [
            tool("read", path="string"),
            tool("write", path="string"),
            tool("connect", port="integer"),
            tool("variable", of="string"),
            tool("home"),
            tool("spawn"),
            tool("run", line="array"),
            tool("processors"),
            tool("hold", processes="integer", size="integer"),
        ]

    def tool_read(self, _id: object, arguments: dict[str, Any]) -> Result:
        return _tried(lambda: Path(arguments["path"]).read_text())

    def tool_write(self, _id: object, arguments: dict[str, Any]) -> Result:
        return _tried(lambda: Path(arguments["path"]).write_text("written"))

    def tool_connect(self, _id: object, arguments: dict[str, Any]) -> Result:
        return _tried(lambda: socket.create_connection(("127.0.0.1", int(arguments["port"])), 2).getpeername()[0])

    def tool_variable(self, _id: object, arguments: dict[str, Any]) -> Result:
        return text(os.environ.get(arguments["of"], "not there"))

    def tool_home(self, _id: object, _arguments: dict[str, Any]) -> Result:
        home = Path(os.environ["HOME"])
        found = sorted(path.name for path in home.iterdir())
        (home / "kept").write_text("x")
        return text(f"{found} {home.samefile(Path.cwd())}")

    def tool_run(self, _id: object, arguments: dict[str, Any]) -> Result:
        ran = subprocess.Popen(
            arguments["line"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        printed = ran.communicate()[0].strip()
        return text(f"{ran.returncode} {printed}")

    def tool_processors(self, _id: object, _arguments: dict[str, Any]) -> Result:
        had = len(os.sched_getaffinity(0))
        try:
            os.sched_setaffinity(0, range(64))
        except OSError as error:
            return text(f"{had} stopped: {type(error).__name__}")
        return text(f"{had} {len(os.sched_getaffinity(0))}")

    def tool_hold(self, _id: object, arguments: dict[str, Any]) -> Result:
        source = f"held = b'x' * {int(arguments['size'])}; import time; time.sleep(120)"
        started = [subprocess.Popen([sys.executable, "-c", source]) for _ in range(int(arguments["processes"]))]
        return text(str([process.wait() for process in started]))

    def tool_spawn(self, _id: object, _arguments: dict[str, Any]) -> Result:
        return _tried(lambda: subprocess.check_output(["echo", "started"], text=True))


def _leave_somebody_behind() -> None:
    if os.fork():
        return
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        os.setsid()
    except OSError:
        pass
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    signal.pause()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        held = Path(sys.argv[1]).open("w")  # noqa: SIM115 - for life
        _leave_somebody_behind()
    Prying().run()
