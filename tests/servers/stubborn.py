"""Servers that are hard to start, to use or to stop; the first argument says which.

The hostile part is the process, not the protocol: apart from it each is a plain server.
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from plain import Result, Server, text, tool

PINGS = 20_000


class LeavesOnProbe(Server):
    """Ends at any request before `initialize`, as servers built on rmcp do."""

    def take(self, line: bytes) -> None:
        if not self.journal and b'"initialize"' not in line:
            print("Error: expected initialize request", file=sys.stderr, flush=True)
            os._exit(1)
        super().take(line)


class Silent(Server):
    """Never answers a method that it does not know."""

    def unknown(self, message: dict[str, Any]) -> None:
        pass


class Mute(Server):
    """Reads everything and never answers."""

    def take(self, line: bytes) -> None:
        print("still loading the model", file=sys.stderr, flush=True)


class Chatters(Server):
    """Writes a lot to standard error, of which nobody reads more than the end."""

    def __init__(self) -> None:
        super().__init__()
        self.tools.append(tool("chatter"))

    def tool_chatter(self, _id: object, _arguments: dict[str, Any]) -> Result:
        for _ in range(50):
            os.write(2, b"no line end in sight " * 50_000)
        os.write(2, b"\n" * 100_000)
        return text("all said")


class IgnoresStop(Server):
    """Goes on after SIGTERM and after the end of its input."""

    def run(self) -> None:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        super().run()
        while True:
            signal.pause()


class LeavesGrandchild(Server):
    """Starts a process of a session of its own, which ignores every polite signal."""

    def run(self) -> None:
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                IgnoresStop().run()
            os._exit(0)
        os.wait()
        super().run()


class FloodsPings(Server):
    """Sends 20,000 requests of its own before it answers."""

    def __init__(self) -> None:
        super().__init__()
        self.tools.append(tool("flood"))

    def tool_flood(self, _id: object, _arguments: dict[str, Any]) -> Result:
        self.write(b"".join(b'{"jsonrpc":"2.0","id":"p%d","method":"ping"}\n' % n for n in range(PINGS)))
        return text("after the flood")


class StopsReading(Server):
    """Answers the call of `stall`, and reads nothing more."""

    def __init__(self) -> None:
        super().__init__()
        self.tools.append(tool("stall"))

    def tool_stall(self, id_: object, _arguments: dict[str, Any]) -> None:
        self.answer(id_, text("stalled"))
        while True:
            signal.pause()


def fails_at_start() -> None:
    """Says why, and ends."""
    print("loading configuration", file=sys.stderr)
    print("FATAL: database is locked", file=sys.stderr)
    sys.exit(7)


class Signs(Server):
    """Says with each echo who it is."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def tool_echo(self, _id: object, arguments: dict[str, Any]) -> Result:
        return text(f"{self.name} {arguments['text']}")


def starts_slowly(seconds: str = "4", name: str = "") -> None:
    """Takes four seconds to come up, as many real servers do."""
    time.sleep(float(seconds))
    (Signs(name) if name else Server()).run()


def starts_when_told(marker: str) -> None:
    """Comes up once there is a file of that name."""
    while not Path(marker).exists():
        time.sleep(0.01)
    Server().run()


if __name__ == "__main__":
    {
        "chatters": lambda: Chatters().run(),
        "fails-at-start": fails_at_start,
        "floods-pings": lambda: FloodsPings().run(),
        "ignores-stop": lambda: IgnoresStop().run(),
        "leaves-grandchild": lambda: LeavesGrandchild().run(),
        "leaves-on-probe": lambda: LeavesOnProbe().run(),
        "mute": lambda: Mute().run(),
        "silent": lambda: Silent().run(),
        "starts-slowly": lambda: starts_slowly(*sys.argv[2:]),
        "starts-when-told": lambda: starts_when_told(sys.argv[2]),
        "stops-reading": lambda: StopsReading().run(),
    }[sys.argv[1]]()
