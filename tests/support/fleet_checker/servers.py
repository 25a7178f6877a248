"""The servers behind the bridges of a run, and what they write down (issue 24)."""

import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.fleet_checker.talkers import RATE
from support.partitions import Host

_PROGRAMS = Path(__file__).parents[2] / "servers"


@dataclass(frozen=True)
class Servers:
    """All of them."""

    config: str
    """Their part of the bridges' configuration."""
    made: Path
    """Of `s`: the ids that it was called with."""
    journal: Path
    """Of all that a claim is about: ids, and when."""
    single: Path
    """Of `f`, which the bridges share: see `servers/single.py`."""
    reads: Path
    """Of `k`, which is cached: see `servers/slow_reads.py`."""


@contextmanager
def servers(directory: Path, host: Host | None) -> Generator[Servers]:
    """They are there meanwhile. `host`: where the one is that is reached over HTTP; None: on this machine."""
    made, journal, single, reads = (directory / f"{name}.txt" for name in ("made", "journal", "single", "reads"))
    for file in (made, journal, single, reads):
        file.touch()
    config = "".join(
        f'[servers.{name}]\ncommand = "{sys.executable}"\nargs = ["{_PROGRAMS / program}", "{file}"]\n{more}'
        for name, program, file, more in (
            ("s", "once.py", made, ""),
            ("q", "witness.py", journal, 'question_rate = "1000/s"\n'),
            ("w", "witness.py", journal, ""),
            ("rated", "witness.py", journal, f'rate_limit = "{RATE}"\n'),
            ("f", "single.py", single, 'share = "fleet"\n'),
            ("k", "slow_reads.py", reads, '[servers.k.tool]\nread.cache = "10min"\n'),
        )
    )
    before: Sequence[str] = host.run_there if host else ()
    address = host.inside if host else "127.0.0.1"
    command = [*before, sys.executable, str(_PROGRAMS / "rounds.py"), str(journal), address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as rounds:
        try:
            assert rounds.stdout
            port = int(rounds.stdout.readline())
            config += f'[servers.n]\nurl = "http://{address}:{port}/mcp"\nquestion_rate = "1000/s"\n'
            yield Servers(config, made, journal, single, reads)
        finally:
            rounds.kill()
