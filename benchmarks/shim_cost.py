"""What the way through `mcpbridge serve` to the daemon adds to a call: `python -m benchmarks.shim_cost [--rounds N]`.

One daemon with one server has two clients: one of the shim (`serve`), as all MCP clients have it, and one that speaks
to the daemon's socket itself, as only the shim does. They call in turns, one call after another, so that what the
first takes longer is the shim. Printed are the median of the rounds, and the shim's CPU time for a call. Linux only.
"""

import argparse
import secrets
import shutil
import socket
import statistics
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from benchmarks.alternating import CALL, MARKER, bridge_of, environ_of
from benchmarks.clients import StdioClient, handshake
from benchmarks.readings import cpu_seconds
from mcpbridge.app.stdio_proxy.daemon_lock import socket_path
from mcpbridge.app.stdio_proxy.handshake import hello
from mcpbridge.base.directories import key_of, runtime_path

__all__ = ["main"]

_SECONDS = 0.5
"""Of one batch."""


class _DaemonsSocket:
    """A connection to the daemon, with the shim's hello; two pipes for a client."""

    def __init__(self, path: str, environ: Mapping[str, str], cwd: Path) -> None:
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(path)
        self.stdin = self._connection.makefile("wb", buffering=0)
        self.stdout = self._connection.makefile("rb", buffering=0)
        self.stdin.write(hello(environ, str(cwd)))
        self.stdout.readline()  # its greeting

    def close(self) -> None:
        for end in (self.stdin, self.stdout, self._connection):
            end.close()


@contextmanager
def _clients() -> Generator[tuple[int, StdioClient, StdioClient]]:
    """The process of the shim, its client, and one without it."""
    folder = Path(f"/tmp/mcpb-{secrets.token_hex(4)}")  # a socket's path must be short
    environ = environ_of(folder)
    try:
        with bridge_of("", folder, options=()) as (shim, by_shim):
            path = socket_path(runtime_path(environ), key_of(str(folder / "servers.toml")))
            with closing(_DaemonsSocket(path, environ, folder)) as direct:
                alone = StdioClient(direct)
                handshake(alone)
                yield shim, by_shim, alone
    finally:
        subprocess.run(
            [sys.executable, "-m", "mcpbridge", "down", "--all"], env=environ, capture_output=True, check=False
        )
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shim_cost", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    took: dict[str, list[float]] = {"shim": [], "direct": []}
    cpu: list[float] = []
    with _clients() as (shim, by_shim, alone):
        for number in range(-1, rounds):
            before = cpu_seconds(shim)
            batches = {
                name: client.load("tools/call", CALL, marker=MARKER, in_flight=1, seconds=_SECONDS)
                for name, client in (("shim", by_shim), ("direct", alone))
            }
            if number >= 0:  # the first warms up
                cpu.append((cpu_seconds(shim) - before) / batches["shim"].calls * 1e6)
                for name, batch in batches.items():
                    took[name].append(batch.microseconds(0.5))
    added = statistics.median(one - other for one, other in zip(took["shim"], took["direct"], strict=True))
    print(f"p50 of a call through the shim {statistics.median(took['shim']):.0f} µs,", end=" ")
    print(f"directly {statistics.median(took['direct']):.0f} µs: the shim adds {added:.0f} µs", end=" ")
    print(f"and takes {statistics.median(cpu):.0f} µs of CPU time")


if __name__ == "__main__":
    main()
