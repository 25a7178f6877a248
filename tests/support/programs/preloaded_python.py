"""Start Python programs many times and import what they need once: a process that has it all forks at every start.

For programs that are not under test themselves, and of whose running time half is the import of the official SDK. What
forks is the program as it is, with the files, environment, folder and arguments of a process that stands for it.

    python prepared.py wait SOCKET PROGRAM…          wait there, with what the programs import
    python prepared.py be SOCKET PROGRAM ARGUMENT…   be the program with these arguments, to its end
"""

import contextlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

__all__ = ["prepared"]


@contextlib.contextmanager
def prepared(folder: Path, *programs: Path, python: str = sys.executable) -> Iterator[list[str]]:
    """The command that runs one of the programs (`[*command, str(program), *arguments]`) while the body runs.

    The folder takes the socket and a log; its path must be short.
    """
    place, told = folder / "prepared", folder / "prepared.log"
    with told.open("wb") as log:
        process = subprocess.Popen(
            [python, "-P", __file__, "wait", str(place), *map(str, programs)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    try:
        assert process.stdout is not None
        assert process.stdout.readline(), told.read_text("utf-8")
        yield [python, "-ES", __file__, "be", str(place)]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # and all that it still is
        process.communicate()


def _wait(place: str, *programs: str) -> NoReturn:
    for program in programs:
        runpy.run_path(program)  # not as `__main__`: it imports, and does nothing
    signal.signal(signal.SIGCHLD, _reap)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(place)
        listening.listen(64)
        print("ready", flush=True)
        while True:
            asked, _ = listening.accept()
            with asked:
                if os.fork() == 0:
                    listening.close()
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    _be(asked)


def _reap(*_: object) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _be(asked: socket.socket) -> NoReturn:
    code = 1
    try:
        size, files, _, _ = socket.recv_fds(asked, 8, 3)
        start = json.loads(asked.makefile("rb").read(int.from_bytes(size, "big")))
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        os.environ.clear()
        os.environ.update(start["environment"])
        os.chdir(start["folder"])
        sys.argv = start["arguments"]
        threading.Thread(target=_end_with, args=[asked], daemon=True).start()
        runpy.run_path(sys.argv[0], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - as an interpreter does, which this stands for
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        with contextlib.suppress(OSError):
            asked.sendall(str(code).encode())
        os._exit(code)


def _end_with(asked: socket.socket) -> None:
    """End when the process that stands for this one was killed."""
    with contextlib.suppress(OSError):
        asked.recv(1)
    os._exit(1)


def _ask(place: str, *arguments: str) -> int:
    start: dict[str, Any] = {"arguments": arguments, "environment": dict(os.environ), "folder": str(Path.cwd())}
    told = json.dumps(start).encode()
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(place)
        socket.send_fds(asking, [len(told).to_bytes(8, "big")], [0, 1, 2])
        asking.sendall(told)
        for file in (0, 1, 2):
            os.close(file)  # its own from now on: who reads what it writes must see the end
        return int(asking.recv(16) or b"1")


if __name__ == "__main__":
    mode, *rest = sys.argv[1:]
    if mode == "wait":
        _wait(*rest)
    os._exit(_ask(*rest))
