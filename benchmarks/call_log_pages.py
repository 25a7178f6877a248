"""How long a page of many calls takes: python -m benchmarks.call_log_pages [--calls N] [--rounds N]

Milliseconds of one page of 50, with the filters of the console: the median and the worst of some rounds, with what a
count of all of them takes. The file is made here, with content, in a temporary directory.
"""

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from mcpbridge.core.recording import new_uid
from mcpbridge.storage.call_log.format import CallRecord, Outcome, insert_calls
from mcpbridge.storage.call_log.reader import Filter, count_calls, read_page
from mcpbridge.storage.call_log.schema import SCHEMA
from mcpbridge.storage.sqlite.database import open_file

__all__ = ["FILTERS", "NOW", "fill", "main"]

NOW = 1_785_000_000.0
"""Seconds since 1970, when the last of the calls began."""
_EVERY = 2.0
"""Seconds between two calls."""
_BATCH = 5000
_SERVERS = [f"server{n}" for n in range(12)]
_CLIENTS = ["claude-code", "cursor", "codex", "zed"]
_OUTCOMES: list[Outcome] = ["refused", "failed", "failed", "cancelled", *(["tool_error"] * 6), *(["ok"] * 90)]

FILTERS: Mapping[str, Filter] = {
    "none": Filter(),
    "server": Filter(server="server3"),
    "server, glob": Filter(server="*3"),
    "tool": Filter(tool="server3/tool7"),
    "tool's own name": Filter(tool="tool7"),
    "client": Filter(client="codex"),
    "user": Filter(principal="ann"),
    "outcome": Filter(outcome="cancelled"),
    "went wrong": Filter(outcome=("tool_error", "refused", "failed", "cancelled", "interrupted")),
    "last hour": Filter(since=NOW - 3600),
    "an hour of long ago": Filter(since=NOW - 100_000, until=NOW - 96_400),
    "slow": Filter(min_seconds=9.9),
    "text": Filter(text="needle"),
    "text that is in none": Filter(text="no such words"),
    "session": Filter(session="session42"),
    "server, outcome and time": Filter(server="server3", outcome="failed", since=NOW - 50_000),
    "nothing fits": Filter(server="server3", client="nobody"),
}
"""What a person may filter by: common and rare, and what is nowhere."""


def fill(path: Path, calls: int) -> None:
    """A call log with so many calls, the same each time: servers, clients, outcomes and times of all sorts."""
    dice = random.Random(20)
    with closing(open_file(path, SCHEMA)) as connection:
        for start in range(0, calls, _BATCH):
            records = [_record(number, calls, dice) for number in range(start, min(start + _BATCH, calls))]
            with connection:
                connection.execute("BEGIN")
                insert_calls(connection, records, str, 64 * 1024)


def _record(number: int, calls: int, dice: random.Random) -> CallRecord:
    at = NOW - (calls - 1 - number) * _EVERY
    server, outcome = dice.choice(_SERVERS), dice.choice(_OUTCOMES)
    word = "needle" if dice.random() < 0.001 else "straw"
    return CallRecord(
        at=at,
        seconds=dice.expovariate(2),
        method="tools/call",
        server=server,
        tool=f"{server}/tool{dice.randrange(20)}",
        client=dice.choice(_CLIENTS),
        principal=dice.choice(["", "", "", "ann", "bob"]),
        session=f"session{number // 500}",
        run="",
        outcome=outcome,
        error="UpstreamTimeout" if outcome == "failed" else "",
        arguments=b'{"path":"a/b/c.txt","query":"%s %d"}' % (word.encode(), number),
        result=b'{"content":[{"type":"text","text":"%s"}]}' % (b"found it, " * dice.randrange(1, 80)),
        keeps_content=True,
        uid=new_uid(at),
        tokens=100,
        stages=(("shorten the result", 0.0, 0.02), ("server", 0.001, 0.019)),
    )


def main() -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.call_log_pages", description=__doc__)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "calls.db"
        fill(path, options.calls)
        print(f"{options.calls:,} calls, {path.stat().st_size / 1e6:.0f} MB; milliseconds a page of 50")
        print(f"{'filter':28} {'rows':>5} {'page':>8} {'worst':>8} {'count':>8}")
        for name, which in FILTERS.items():
            page = read_page(path, which, limit=50)
            times = _times(lambda which=which: read_page(path, which, limit=50), options.rounds)
            counts = [] if which.text else _times(lambda which=which: count_calls(path, which), 3)
            count = f"{statistics.median(counts):.1f}" if counts else "-"
            print(f"{name:28} {len(page.rows):5} {statistics.median(times):8.1f} {max(times):8.1f} {count:>8}")
    return 0


def _times(work: Callable[[], object], rounds: int) -> list[float]:
    found: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        found.append((time.perf_counter() - began) * 1000)
    return found


if __name__ == "__main__":
    sys.exit(main())
