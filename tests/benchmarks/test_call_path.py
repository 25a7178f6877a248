"""How many functions of the bridge one plain call passes: the way must not grow unseen."""

import re
import subprocess
import sys
from pathlib import Path

MOST_ENTRIES, MOST_FILES = 43, 22
"""What was reached. Lower them with the way; whoever has to raise them says why."""


def test_a_plain_call_passes_no_more_functions_than_it_did() -> None:
    """Promise of the bridge: a tool with nothing configured has the shortest way there is."""
    command = [sys.executable, "-m", "benchmarks.call_path"]
    root = Path(__file__).parents[2]
    ran = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60, check=True)
    counted = re.search(r"(\d+) entries in (\d+) files", ran.stdout)
    assert counted is not None, ran.stdout
    assert int(counted[1]) <= MOST_ENTRIES, ran.stdout
    assert int(counted[2]) <= MOST_FILES, ran.stdout
