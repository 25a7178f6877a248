"""What recording costs a call: `python -m benchmarks.recording_cost [--rounds N]`.

Three bridges on stdio with one server each run at once, and are at work in turns: with plain defaults, which record;
with `call_log.enabled = false`; and a second one of these, whose distance from the first is the noise. Printed are the
CPU time of the bridge's own process for a call, and the medians of the rounds' ratios. First at a pace at which every
call is recorded (50 a second), then as fast as calls go, when most are only counted. Takes a minute and a half.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from benchmarks.clients import StdioClient, handshake
from benchmarks.readings import cpu_seconds
from benchmarks.subjects import Upstream

__all__ = ["main"]

_OFF = "[call_log]\nenabled = false\n"
_SUBJECTS: Mapping[str, str] = {"recording": "", "off": _OFF, "off, again": _OFF}
"""What each configuration says besides its server."""
_PACE = 0.02
_SECONDS = 2.0
"""Of one batch."""
_CALL = {"name": "up__echo", "arguments": {"text": "a line of text, as tools get them"}}
_MARKER = b"a line of text"


@contextmanager
def _bridge(config: str, folder: Path) -> Iterator[tuple[int, StdioClient]]:
    """A bridge of its own home, by its process's id, and a client of it."""
    folder.mkdir()
    file = folder / "servers.toml"
    command, *args = Upstream.stdio("up").argv
    file.write_text(f"{config}\n[servers.up]\ncommand = {command!r}\nargs = {list(args)!r}\n")
    program = [sys.executable, "-m", "mcpbridge", "serve", "--standalone", "--config", str(file)]
    with subprocess.Popen(
        program,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        env={"HOME": str(folder), "XDG_RUNTIME_DIR": str(folder), "PATH": "/usr/bin:/bin"},
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


def _paced(client: StdioClient) -> int:
    """Calls at a steady pace; how many."""
    count = int(_SECONDS / _PACE)
    began = time.perf_counter()
    for number in range(count):
        client.request("tools/call", _CALL)
        time.sleep(max(0.0, began + (number + 1) * _PACE - time.perf_counter()))
    return count


def _fast(client: StdioClient) -> int:
    """Calls one after another; how many."""
    return client.load("tools/call", _CALL, marker=_MARKER, in_flight=1, seconds=_SECONDS).calls


_WAYS: Mapping[str, Callable[[StdioClient], int]] = {"50 calls a second": _paced, "one after another": _fast}


def _measured(
    bridges: Mapping[str, tuple[int, StdioClient]], work: Callable[[StdioClient], int], rounds: int
) -> Mapping[str, Sequence[float]]:
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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recording_cost", description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    rounds = parser.parse_args().rounds
    folder = Path(tempfile.mkdtemp(prefix="mcpb-"))
    try:
        with ExitStack() as stack:
            bridges = {
                name: stack.enter_context(_bridge(config, folder / str(number)))
                for number, (name, config) in enumerate(_SUBJECTS.items())
            }
            for title, work in _WAYS.items():
                print(f"{title}: CPU of the bridge's process for a call")
                found = _measured(bridges, work, rounds)
                for name, took in found.items():
                    ratio = statistics.median(one / off for one, off in zip(took, found["off"], strict=True))
                    print(f"  {name:>12}: {statistics.median(took):7.1f} µs   ratio to off {ratio:.3f}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
