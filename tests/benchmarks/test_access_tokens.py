"""The benchmark of access tokens runs, and says of each kind of request what it costs."""

import subprocess
import sys
from pathlib import Path


def test_a_token_that_is_remembered_costs_a_part_of_a_check() -> None:
    """No time is asserted but a ratio: the signature is not looked at again."""
    root = Path(__file__).parents[2]
    program = [sys.executable, "-m", "benchmarks.access_tokens", "500"]
    done = subprocess.run(program, cwd=root, capture_output=True, text=True, check=True, timeout=120)
    lines = [line.split(" µs  ") for line in done.stdout.splitlines()]
    figures = {name: float(figure) for figure, name in lines}
    assert figures["remembered, 2 KB"] * 5 < figures["first check, RS256"]
    assert figures.keys() >= {"remembered, 0.6 KB", "remembered, 8 KB", "a token of http.tokens", "first check, ES256"}
