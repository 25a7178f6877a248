"""A server whose tool may run once for all that call it alike: `slow_reads.py JOURNAL`.

A line of the journal is a run: `ID BEGAN ENDED`, in seconds of the machine's monotonic clock.
"""

import json
import os
import sys
import threading
import time

from plain import Result, Server, text, tool

SECONDS = 0.3
"""How long a run takes: equal calls that are sent together come while it lasts."""


class SlowReads(Server):
    """`read(id)`: several run side by side."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.tools = [tool("read", id="string")]
        self._file = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def tool_read(self, id_: object, arguments: dict[str, object]) -> Result | None:
        threading.Thread(target=self._run, args=(id_, arguments["id"])).start()
        return None

    def _run(self, id_: object, name: object) -> None:
        began = time.monotonic()
        time.sleep(SECONDS)
        os.write(self._file, f"{name} {began} {time.monotonic()}\n".encode())
        self.answer(id_, text(json.dumps([name, os.getpid(), began])))


if __name__ == "__main__":
    SlowReads(sys.argv[1]).run()
