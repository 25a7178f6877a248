"""Tables that scripts write into the pages are what the code says (issue 19)."""

import subprocess
import sys
from pathlib import Path

import pytest

from mcpbridge.app.cli.commands import COMMANDS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("script", ["commands_reference.py", "metrics_reference.py"])
def test_the_tables_are_what_the_code_says(script: str) -> None:
    """That of the commands also fails where a command has no table, or a table no command."""
    checked = subprocess.run(
        [sys.executable, ROOT / "scripts" / script, "--check"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr


def test_every_command_has_a_section() -> None:
    page = (ROOT / "docs/reference/commands.md").read_text("utf-8")
    words = {word.strip(",") for line in page.splitlines() if line.startswith("## ") for word in line.split()[1:]}
    assert [name for name in COMMANDS if name not in words] == []
