"""Start Python programs many times and import what they need once: a process that has it all forks at every start.

For programs whose start is not under test: half of their running time, or more, is the import of what they use. What
forks is the program as it is, with the files, environment, folder and arguments of a process that stands for it.

    python preloaded_python.py wait SOCKET NAME…           wait there, with what these programs or modules import
    python preloaded_python.py be SOCKET NAME ARGUMENT…    be the program or module with these arguments, to its end

A name that ends in `.py` is a program, another one is a module, as `python -m` runs it.
"""

import marshal
import os
import signal
import socket
import sys
from contextlib import contextmanager, suppress

TYPE_CHECKING = False  # that of `typing`, without the import: each process that stands for another would pay for it
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import NoReturn

__all__ = ["Server", "ask", "prepared"]

ROOM = "ROOM"
"""The name of the variable, and the last argument, that only make room: see `_show`."""


class Server:
    """A process that forks to be programs, from its start to `end`.

    The folder takes the socket and a log; its path must be short. `environment`: what the interpreter is started with.
    """

    def __init__(
        self,
        folder: "Path",
        *names: "str | Path",
        python: str = sys.executable,
        environment: "Mapping[str, str] | None" = None,
    ) -> None:
        import subprocess

        self.socket, log = folder / "prepared", folder / "prepared.log"
        self.python = python
        room = " " * 8000
        with log.open("wb") as told:
            self._process = subprocess.Popen(
                [python, __file__, "wait", str(self.socket), *map(str, names), room],
                stdin=subprocess.PIPE,  # whose end it sees when this process has gone
                stdout=subprocess.PIPE,
                stderr=told,
                env={**(os.environ if environment is None else environment), ROOM: room},
                start_new_session=True,
            )
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            self.end()
            raise AssertionError(log.read_text("utf-8"))

    def command(self) -> list[str]:
        """What runs one of the programs: `[*command, name, *arguments]`."""
        return [self.python, "-ES", __file__, "be", str(self.socket)]

    def end(self) -> None:
        """End it, and all that it still is."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


@contextmanager
def prepared(folder: "Path", *programs: "Path", python: str = sys.executable) -> "Iterator[list[str]]":
    """The command that runs one of the programs (`[*command, str(program), *arguments]`) while the body runs."""
    server = Server(folder, *programs, python=python)
    try:
        yield server.command()
    finally:
        server.end()


def ask(
    place: str, arguments: "Sequence[str]", environment: "Mapping[str, str]", folder: str, files: "Sequence[int]"
) -> tuple[socket.socket, int]:
    """Have the program of `arguments[0]` run with these three files; the connection that tells its end, and its id.

    On the connection comes the exit code, in digits, negative for a signal. Who closes it kills the program.
    """
    start = {"arguments": list(arguments), "environment": dict(environment), "folder": folder}
    told = marshal.dumps(start)
    asking = socket.socket(socket.AF_UNIX)
    try:
        asking.connect(place)
        socket.send_fds(asking, [len(told).to_bytes(8, "big")], files)
        asking.sendall(told)
        return asking, int.from_bytes(_exactly(asking, 8), "big")
    except BaseException:
        asking.close()
        raise


def _exactly(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = source.recv(size - len(data))
        if not more:
            raise ConnectionError("the process that forks has gone")
        data += more
    return data


# -- the process that forks


def _wait(place: str, *names: str) -> "NoReturn":
    import gc
    import importlib
    import runpy
    import select

    del sys.path[0]  # where this file lies
    for name in names[:-1]:  # and room
        if name.endswith(".py") or os.sep in name:
            runpy.run_path(name)  # not as `__main__`: it imports, and does nothing
        else:
            importlib.import_module(name)
    gc.collect()
    gc.freeze()
    ended, wake = os.pipe()
    os.set_blocking(ended, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, _note)
    running: dict[int, socket.socket] = {}
    """The connections of the programs, by process id."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(place)
        listening.listen(64)
        print("ready", flush=True)
        poll = select.poll()
        for file in (0, ended, listening.fileno()):
            poll.register(file, select.POLLIN)
        while True:
            ready = {file for file, _ in poll.poll()}
            if 0 in ready:  # whoever started it has gone
                for pid in running:
                    os.kill(pid, signal.SIGKILL)
                os._exit(0)
            if ended in ready:
                os.read(ended, 4096)
            for pid, status in _ended():
                connection = running.pop(pid)
                poll.unregister(connection)
                with suppress(OSError), connection:
                    connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
            for pid, connection in running.items():
                if connection.fileno() in ready:  # the process that stands for it was killed
                    os.kill(pid, signal.SIGKILL)
                    poll.modify(connection, 0)
            if listening.fileno() in ready:
                asked, _ = listening.accept()
                if (pid := os.fork()) == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for other in (listening, *running.values()):
                        other.close()
                    os.close(ended)
                    os.close(wake)
                    _be(asked)
                running[pid] = asked
                poll.register(asked, select.POLLHUP | getattr(select, "POLLRDHUP", 0))  # Linux alone has that


def _note(*_: object) -> None:
    """Only so that the signal wakes the loop."""


def _ended() -> "Iterator[tuple[int, int]]":
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            yield pid, status


# -- the program


def _be(asked: socket.socket) -> "NoReturn":
    import io
    import runpy
    import time
    import traceback

    code = 1
    try:
        size, files, _, _ = socket.recv_fds(asked, 8, 3)
        start = marshal.loads(_exactly(asked, int.from_bytes(size, "big")))
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        os.setsid()
        os.environ.clear()
        os.environ.update(start["environment"])
        time.tzset()
        if os.environ.get("PYTHONUNBUFFERED"):
            sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), sys.stdout.encoding, write_through=True)
        os.chdir(start["folder"])
        name, *arguments = start["arguments"]
        is_module = not name.endswith(".py") and os.sep not in name
        _show([sys.executable, *(["-m"] if is_module else []), name, *arguments], start["environment"])
        asked.sendall(os.getpid().to_bytes(8, "big"))
        asked.close()
        sys.argv = [name, *arguments]
        if is_module:
            sys.path.insert(0, start["folder"])
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(name, run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:  # noqa: BLE001 - as an interpreter does, which this stands for
        traceback.print_exc()
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code & 0xFF)


def _show(arguments: "Sequence[str]", environment: "Mapping[str, str]") -> None:
    """Have `/proc` show the command line and the environment, as of a process that was started with them (Linux).

    They are written over those that the process which forks was started with, which has had some room left in both.
    """
    from pathlib import Path

    with suppress(FileNotFoundError):
        places = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()[45:49]
        first, end, first_variable, end_of_variables = map(int, places)
        variables = [f"{name}={value}" for name, value in environment.items()]
        with Path("/proc/self/mem").open("r+b", buffering=0) as memory:
            for start, size, words in (
                (first, end - first, arguments),
                (first_variable, end_of_variables - first_variable, variables),
            ):
                data = b"".join(os.fsencode(word) + b"\0" for word in words)[: size - 1]
                memory.seek(start)
                memory.write(data.ljust(size, b"\0"))


# -- the process that stands for it


def _stand_in(place: str, *arguments: str) -> int:
    folder = os.getcwd()  # noqa: PTH109 - a process that stands for another should import little
    asking, pid = ask(place, arguments, os.environ, folder, [0, 1, 2])
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: os.kill(pid, number))
    for file in (0, 1, 2):
        os.close(file)  # its own from now on: who reads what it writes must see the end
    with asking:
        return int(asking.recv(16) or b"1")


if __name__ == "__main__":
    mode, *rest = sys.argv[1:]
    if mode == "wait":
        _wait(*rest)
    os._exit(_stand_in(*rest) & 0xFF)
