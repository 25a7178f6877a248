"""What the checks of trust cost a plain call: `python -m benchmarks.trust_cost [--rounds N] [--all]`.

Bridges on stdio with one server each run at once, and are at work in turns: with the checks that are on by default,
with them off, and a second one of these, whose distance from the first is the noise. Off are the comparison with what
was agreed to (`pin`), the scanner (`text_trust`), and the look for lines in the bridge's name (`results`). None writes
a call log, so that what is left to compare with is small. `--all` adds what has to be switched on. Batches are short,
so that a ratio is of the same moment. Printed are the CPU time of the bridge's own process for a call, the median of
the rounds' ratios, and the ratio of the cheapest tenths of the rounds, which a busy machine disturbs least. Before
them stand the functions that a call enters, of the bridge and of C: these are the same on every machine.
"""

import argparse
import asyncio
import shutil
import statistics
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.alternating import bridge_of, measured, one_after_another
from benchmarks.call_path import C, Way, trace_call

__all__ = ["main"]

_NO_LOG = "[call_log]\nenabled = false\n"
_RESULTS_OFF = '[results]\nstrategy = "off"\ncode_transform = false\n'
_OFF = f'pin = "off"\n{_NO_LOG}{_RESULTS_OFF}', 'text_trust = "high"'
_DEFAULTS: Mapping[str, tuple[str, str]] = {
    "defaults": (_NO_LOG, ""),
    "off": _OFF,
    "off, again": _OFF,
    "pin and scanner": (f"{_NO_LOG}{_RESULTS_OFF}", ""),
    "results": (f'pin = "off"\n{_NO_LOG}', 'text_trust = "high"'),
}
"""What each configuration says, and what it says of its server."""
_OPTIONAL: Mapping[str, tuple[str, str]] = {
    "hidden shown": (f'{_NO_LOG}[results]\nhidden_characters = "show"\n', ""),
    "strict": (f"{_NO_LOG}[trust]\nstrict = true\n", ""),
    "redact": (_NO_LOG, 'redact = ["secrets"]'),
    "audit": (f"{_NO_LOG}[audit]\nenabled = true\n", ""),
}


_SECONDS = 0.15
"""Of one batch."""


def _cheapest(took: Sequence[float]) -> float:
    return statistics.mean(sorted(took)[: max(1, len(took) // 10)])


def _entries(config: str, server: str) -> tuple[int, int]:
    """Functions that one call enters: the bridge's own, and those of C."""
    way = Way(sections=tomllib.loads(config), server=tomllib.loads(server))
    entries = asyncio.run(trace_call(way, with_c=True))
    of_c = sum(entry.function.startswith(C) for entry in entries)
    return len(entries) - of_c, of_c


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trust_cost", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--all", action="store_true")
    asked = parser.parse_args()
    subjects = {**_DEFAULTS, **_OPTIONAL} if asked.all else _DEFAULTS
    counts = {name: _entries(*subject) for name, subject in subjects.items() if name != "audit"}
    folder = Path(tempfile.mkdtemp(prefix="mcpb-"))
    try:
        with ExitStack() as stack:
            bridges = {
                name: stack.enter_context(bridge_of(config, folder / str(number), server))
                for number, (name, (config, server)) in enumerate(subjects.items())
            }
            found = measured(bridges, partial(one_after_another, seconds=_SECONDS), asked.rounds)
            for name, took in found.items():
                ratio = statistics.median(one / off for one, off in zip(took, found["off"], strict=True))
                cheapest = _cheapest(took) / _cheapest(found["off"])
                figures = (
                    f"{statistics.median(took):7.1f} µs   ratio to off {ratio:.3f}, of the cheapest {cheapest:.3f}"
                )
                ours, of_c = counts.get(name, ("", ""))
                print(f"{name:>16}: {ours:>3} functions, {of_c:>3} of C, {figures}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
