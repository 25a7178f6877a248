"""A server that must run once for a whole fleet: `single.py JOURNAL`. It has a state, and notices another that lives.

Lines of the journal, with what each process wrote in order; times are those of the machine's monotonic clock:

    started PID SECONDS         it is the only one
    beside PID SECONDS          it was started while another lives
    call PID SECONDS ID COUNT   the tool `add` was called, for so many-th time in the life of the process
"""

import fcntl
import json
import os
import sys
import time

from plain import Result, Server, text, tool


class Single(Server):
    """`add(id)` counts. Whoever has the lock of the journal lives: the system frees it at the end of the process."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.tools = [tool("add", id="string")]
        self._file = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._lock = os.open(f"{file}.lock", os.O_WRONLY | os.O_CREAT, 0o600)
        self._count = 0
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._note("started")
        except BlockingIOError:
            self._note("beside")

    def _note(self, what: str, *more: object) -> None:
        words = (what, os.getpid(), time.monotonic(), *more)
        os.write(self._file, f"{' '.join(map(str, words))}\n".encode())

    def tool_add(self, _id: object, arguments: dict[str, object]) -> Result:
        self._count += 1
        self._note("call", arguments["id"], self._count)
        return text(json.dumps([arguments["id"], os.getpid(), self._count]))


if __name__ == "__main__":
    Single(sys.argv[1]).run()
