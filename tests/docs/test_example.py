"""The example that `make run` shows: the scenes of the demo on the real servers of servers.toml."""

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from mcpbridge.app.demo.scenes import SCENES

ROOT = Path(__file__).parents[2]
LONGEST = 300
"""Seconds for a run, on a slow and loaded machine."""


@pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")
async def test_every_scene_holds_on_the_servers_of_the_example() -> None:
    played = json.loads(await shown_by("--json"))
    assert [scene["title"] for scene in played["scenes"]] == list(SCENES)
    assert played["holds"]


async def test_without_node_servers_of_the_demo_take_the_places_and_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "git").symlink_to(shutil.which("git") or "")
    shown = await shown_by(PATH=str(tmp_path))
    assert "Node is missing: 'time' and 'git' are real servers" in shown
    assert shown.count("✓") == len(SCENES)


async def shown_by(*options: str, **variables: str) -> str:
    assert (ROOT / ".venv-servers/.ready").exists(), "run `make example` first: it installs the example's servers"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(ROOT / "examples/show.py"), *options),
        env={**os.environ, **variables},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(LONGEST):
        shown, said = await process.communicate()
    assert process.returncode == 0, (shown + said).decode()
    return shown.decode()
