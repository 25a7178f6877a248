"""What recording costs a call: `python -m benchmarks.recording_cost [--rounds N]`.

Three bridges on stdio with one server each run at once, and are at work in turns: with plain defaults, which record;
with `call_log.enabled = false`; and a second one of these, whose distance from the first is the noise. Printed are the
CPU time of the bridge's own process for a call, and the medians of the rounds' ratios. First at a pace at which every
call is recorded (50 a second), then as fast as calls go, when most are only counted. Takes a minute and a half.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from benchmarks.alternating import CALL, SECONDS, bridge_of, measured, one_after_another
from benchmarks.clients import StdioClient

__all__ = ["main"]

_OFF = "[call_log]\nenabled = false\n"
_SUBJECTS: Mapping[str, str] = {"recording": "", "off": _OFF, "off, again": _OFF}
"""What each configuration says besides its server."""
_PACE = 0.02


def _paced(client: StdioClient) -> int:
    """Calls at a steady pace; how many."""
    count = int(SECONDS / _PACE)
    began = time.perf_counter()
    for number in range(count):
        client.request("tools/call", CALL)
        time.sleep(max(0.0, began + (number + 1) * _PACE - time.perf_counter()))
    return count


_WAYS: Mapping[str, Callable[[StdioClient], int]] = {
    "50 calls a second": _paced,
    "one after another": one_after_another,
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recording_cost", description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    rounds = parser.parse_args().rounds
    folder = Path(tempfile.mkdtemp(prefix="mcpb-"))
    try:
        with ExitStack() as stack:
            bridges = {
                name: stack.enter_context(bridge_of(config, folder / str(number)))
                for number, (name, config) in enumerate(_SUBJECTS.items())
            }
            for title, work in _WAYS.items():
                print(f"{title}: CPU of the bridge's process for a call")
                found = measured(bridges, work, rounds)
                for name, took in found.items():
                    ratio = statistics.median(one / off for one, off in zip(took, found["off"], strict=True))
                    print(f"  {name:>12}: {statistics.median(took):7.1f} µs   ratio to off {ratio:.3f}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
