"""What each stage of a call costs: `python -m benchmarks.stage_costs [--rounds N] [--only NAME]... [--in-flight 1]`.

For each stage that can be on without a person there is a bridge on stdio with one server; all run at once and are at
work in turns. Printed is what the stage adds to the bare way: functions of the bridge and of C that a call enters on
the loop's thread, which are the same on every machine, and CPU time of the bridge's process, with all its threads.
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
from typing import NamedTuple

from benchmarks.alternating import bridge_of, measured, one_after_another, sixteen_in_flight
from benchmarks.call_path import C, Way, trace_call
from benchmarks.rows import FULL, FULL_SERVER

__all__ = ["STAGES", "main"]

_BARE: Mapping[str, str] = {
    "results.strategy": '"off"',
    "results.code_transform": "false",
    "calls.arguments": '"pass"',
    "calls.inject_defaults": "false",
    "observe.metrics": "false",
    "call_log.enabled": "false",
}
"""Everything off that can be."""
_READS = "trusted = true\n[servers.up.tool.echo]\nread_only = true\n"
_ECHO = "[servers.up.tool.echo]\n"


class Stage(NamedTuple):
    """What is configured in other words than the bare way has it."""

    keys: Mapping[str, str] = {}
    tables: str = ""
    server: str = ""
    """Keys of the server, and of its tool."""


STAGES: Mapping[str, Stage] = {
    "bare": Stage(),
    "bare, again": Stage(),
    "metrics": Stage({"observe.metrics": "true"}),
    "arguments checked": Stage({"calls.arguments": '"coerce"'}),
    "results looked at": Stage({"results.strategy": '"preview"'}),
    "rule on clients": Stage(tables='[[permissions]]\nprincipals = ["nobody"]\npermission = "deny"\n'),
    "rule on arguments": Stage(
        tables='[[permissions]]\ntools = ["up/*"]\nwhen = "args.text.startsWith(\'secret\')"\n'
        'permission = "require_approval"\n'
    ),
    "call budget": Stage({"calls.max_calls": "1000000000"}),
    "rate of each client": Stage({"calls.rate_limit": '"1000000/s"'}),
    "rate of the server": Stage(server='rate_limit = "1000000/s"\n'),
    "slots of each client": Stage({"calls.max_per_client": "64"}),
    "slots of the tool": Stage(server=f"{_ECHO}max_concurrent = 64\n"),
    "deadline": Stage(server=f'{_ECHO}call_timeout = "20s"\n'),
    "retries": Stage(server=f"{_READS}retry = 3\n"),
    "call log, reads": Stage({"call_log.enabled": "true"}, server=_READS),
    "call log, changes": Stage({"call_log.enabled": "true"}),
    "secrets redacted": Stage(server='redact = ["secrets"]\n'),
    "audit log": Stage({"audit.enabled": "true"}),
    "cache": Stage(server=f'{_READS}cache = "10 min"\n'),
    "hook that sees no call": Stage(
        tables='[[hooks]]\nevent = "tool_call.before"\ntools = ["rows"]\ncommand = ["true"]\n'
    ),
    "everything": Stage(tables=FULL, server=FULL_SERVER),
}
"""`everything` is that of the row `way`, with results and arguments as they are by default."""


def _toml_of(name: str) -> str:
    stage = STAGES[name]
    keys = {} if name == "everything" else {**_BARE, **stage.keys}
    return "".join(f"{key} = {value}\n" for key, value in keys.items()) + stage.tables


def _entries(name: str) -> tuple[int, int]:
    """Functions that one call enters: the bridge's own, and those of C."""
    stage = STAGES[name]
    settings = tomllib.loads(f"{_toml_of(name)}\n[servers.up]\n{stage.server}")
    server = settings.pop("servers")["up"]
    if name == "audit log":
        folder = tempfile.mkdtemp(prefix="mcpb-")
        settings["audit"] |= {"path": f"{folder}/log", "anchor": f"{folder}/anchor"}
    entries = asyncio.run(trace_call(Way(sections=settings, server=server), with_c=True))
    of_c = sum(entry.function.startswith(C) for entry in entries)
    return len(entries) - of_c, of_c


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stage_costs", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.3, help="of one batch")
    parser.add_argument("--only", action="append", choices=list(STAGES), help="beside the bare way; default: all")
    parser.add_argument("--in-flight", type=int, choices=(1, 16), default=16)
    asked = parser.parse_args()
    names = [name for name in STAGES if not asked.only or name == "bare" or name in asked.only]
    counts = {name: _entries(name) for name in names}
    work = partial(one_after_another if asked.in_flight == 1 else sixteen_in_flight, seconds=asked.seconds)
    folder = Path(tempfile.mkdtemp(prefix="mcpb-"))
    try:
        with ExitStack() as stack:
            bridges = {
                name: stack.enter_context(bridge_of(_toml_of(name), folder / str(number), STAGES[name].server))
                for number, name in enumerate(names)
            }
            found = measured(bridges, work, asked.rounds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    _report(counts, found)


def _report(counts: Mapping[str, tuple[int, int]], found: Mapping[str, Sequence[float]]) -> None:
    bare, c_of_bare = counts["bare"]
    print(f"{'':>24} {'functions':>9} {'of C':>6} {'µs CPU':>8} {'× bare':>7}")
    for name, took in found.items():
        ours, of_c = counts[name]
        added = statistics.median(one - off for one, off in zip(took, found["bare"], strict=True))
        ratio = statistics.median(one / off for one, off in zip(took, found["bare"], strict=True))
        if name == "bare":
            print(f"{name:>24} {bare:>9} {c_of_bare:>6} {statistics.median(took):>8.1f} {1:>7.2f}")
        else:
            print(f"{name:>24} {ours - bare:>+9} {of_c - c_of_bare:>+6} {added:>+8.1f} {ratio:>7.2f}", flush=True)


if __name__ == "__main__":
    main()
