"""Several bridges on stdio that run at once and are at work in turns, so that a ratio of two is of the same minutes."""

import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.clients import StdioClient, handshake
from benchmarks.readings import cpu_seconds
from benchmarks.subjects import Upstream

__all__ = [
    "CALL",
    "MARKER",
    "SECONDS",
    "Subjects",
    "bridge_of",
    "environ_of",
    "measured",
    "one_after_another",
    "sixteen_in_flight",
]

SECONDS = 2.0
"""Of one batch."""
CALL = {"name": "up__echo", "arguments": {"text": "a line of text, as tools get them"}}
MARKER = b"a line of text"

Subjects = Mapping[str, tuple[int, StdioClient]]
"""By name: the id of a bridge's process, and a client of it."""


def environ_of(folder: Path) -> Mapping[str, str]:
    """The environment of a bridge whose home this is."""
    return {"HOME": str(folder), "XDG_RUNTIME_DIR": str(folder), "PATH": "/usr/bin:/bin"}


@contextmanager
def bridge_of(
    config: str, folder: Path, server: str = "", *, options: Sequence[str] = ("--standalone",)
) -> Generator[tuple[int, StdioClient]]:
    """A bridge of its own home, by its process's id, and a client of it. `server`: what its server has besides.

    `options` of `serve`; without the first of them, the process is the shim of a daemon, which is left running.
    """
    folder.mkdir()
    file = folder / "servers.toml"
    command, *args = Upstream.stdio("up").argv
    file.write_text(f"{config}\n[servers.up]\ncommand = {command!r}\nargs = {list(args)!r}\n{server}\n")
    program = [sys.executable, "-m", "mcpbridge", "serve", *options, "--config", str(file)]
    with subprocess.Popen(
        program,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        env=environ_of(folder),
    ) as process:
        client = StdioClient(process)
        try:
            handshake(client)
            while "up__echo" not in {tool["name"] for tool in client.request("tools/list", {})["tools"]}:
                time.sleep(0.05)
            yield process.pid, client
        finally:
            with suppress(OSError):
                client.close()
            process.terminate()


def one_after_another(client: StdioClient, seconds: float = SECONDS) -> int:
    """Calls one after another; how many."""
    return client.load("tools/call", CALL, marker=MARKER, in_flight=1, seconds=seconds).calls


def sixteen_in_flight(client: StdioClient, seconds: float = SECONDS) -> int:
    """Calls of which sixteen are under way at any time; how many."""
    return client.load("tools/call", CALL, marker=MARKER, in_flight=16, seconds=seconds).calls


def measured(bridges: Subjects, work: Callable[[StdioClient], int], rounds: int) -> Mapping[str, Sequence[float]]:
    """Microseconds of CPU for a call, by subject and round; each round begins with another subject."""
    names = list(bridges)
    found: dict[str, list[float]] = {name: [] for name in names}
    for number in range(-1, rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            pid, client = bridges[name]
            before = cpu_seconds(pid)
            calls = work(client)
            if number >= 0:  # the first warms up
                found[name].append((cpu_seconds(pid) - before) / calls * 1e6)
    return found
