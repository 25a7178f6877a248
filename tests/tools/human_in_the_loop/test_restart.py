"""A paused call outlives the process that made it, and one that was killed while it answered."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from mcpbridge.base.errors import AlreadyResumed
from mcpbridge.library.calls.paused_calls import CLAIM
from support.programs import paused_program

PROGRAM = Path(paused_program.__file__)


@asynccontextmanager
async def killed(folder: Path, *arguments: str) -> AsyncGenerator[str]:
    """Run the program until it has printed a line, which is given; it is killed before that."""
    environment = {
        **os.environ,
        "HOME": str(folder),
        **{f"XDG_{kind}_HOME": str(folder / kind) for kind in ("CACHE", "CONFIG", "DATA", "STATE")},
        "XDG_RUNTIME_DIR": str(folder),
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(PROGRAM), str(folder / "s.db"), *arguments, stdout=asyncio.subprocess.PIPE, env=environment
    )
    try:
        assert process.stdout is not None
        with anyio.fail_after(50):
            line = await process.stdout.readline()
    finally:
        process.kill()
        await process.wait()
    yield line.decode().strip()


async def test_a_call_of_a_process_that_was_killed_is_gone_on_with_in_another(tmp_path: Path) -> None:
    async with killed(tmp_path, "call") as told:
        id_, session = told.split()
    with anyio.fail_after(50):
        async with killed(tmp_path, "answer", id_) as told:
            assert told == "answering"
        async with paused_program.opened(tmp_path / "s.db") as bridge:
            (waiting,) = await bridge.paused_calls(run="run-1")
            assert (waiting.id, waiting.tool, waiting.call_id) == (id_, "tools/release", "call_7")
            assert (waiting.arguments, waiting.reason) == ({"version": "1.2"}, "Release 1.2?")
            with pytest.raises(AlreadyResumed, match="Somebody else"):  # the one that was killed, for a minute at most
                await bridge.resume(id_, "yes")
            await bridge.store.drop(CLAIM, id_, principal="")
            done = await bridge.resume(id_, "yes")
            assert done.text == f"1.2 yes run-1 acme {session}"
        async with paused_program.opened(tmp_path / "s.db") as bridge:
            assert await bridge.answered("run-1", "call_7") is None  # of that name, but of no tenant
            kept = await bridge.answered("run-1", "call_7", tenant="acme")
            assert kept is not None
            assert kept.text == done.text
            assert await bridge.paused_calls() == []
