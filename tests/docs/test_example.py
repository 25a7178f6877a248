"""The example that `make run` shows: servers.toml with real servers, over stdio and HTTP on both sides."""

import asyncio
import re
import shutil
import sys
from pathlib import Path

from mcpbridge.config.load import read

ROOT = Path(__file__).parents[2]


async def test_the_example_shows_a_tool_of_every_server_on_both_fronts() -> None:
    """Without Node, of every server that needs none; the rest is said to be missing."""
    assert (ROOT / ".venv-servers/.ready").exists(), "run `make example` first: it installs the example's servers"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(ROOT / "examples/show.py")),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(120):
        shown = (await process.communicate())[0].decode()
    assert process.returncode == 0, shown
    called = re.findall(r"^  (\w+)__\S+ -> \S", shown, re.MULTILINE)
    expected = set(read(ROOT / "servers.toml", {}).settings.servers)
    if shutil.which("node") is None:
        assert "Node is missing" in shown
        expected = {"time", "git"}
    if not (ROOT / ".git").exists():
        expected.discard("git")
    assert sorted(called) == sorted([*expected, *expected]), shown
