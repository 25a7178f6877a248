"""The demo before a person: what it shows, the keys that it waits for, and its end when it is interrupted."""

import asyncio
import os
import pty
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from app.demo.conftest import LONGEST, left_behind
from mcpbridge.app.demo.scenes import SCENES
from support.programs import preloaded_bridge

DEMO = (sys.executable, "-m", "mcpbridge", "demo")


class Terminal:
    """A program at a terminal; what it shows is read until something awaited comes."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment, self.shown = environment, ""

    async def __aenter__(self) -> "Terminal":
        self._ours, theirs = pty.openpty()
        os.set_blocking(self._ours, False)
        self.process = await start(self._environment, *self.options, terminal=theirs)
        os.close(theirs)
        return self

    options: Sequence[str] = ()

    async def __aexit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        os.close(self._ours)

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    async def shows(self, awaited: str) -> None:
        """Return when it is shown after what was awaited before."""
        before = self.shown.count(awaited)
        while self.shown.count(awaited) == before:
            assert await self._more(), f"{awaited!r} was not shown: {self.shown}"

    async def ends(self) -> int:
        while await self._more():
            pass
        return await self.process.wait()

    async def _more(self) -> bool:
        loop = asyncio.get_running_loop()
        readable = loop.create_future()
        loop.add_reader(self._ours, lambda: readable.done() or readable.set_result(None))
        try:
            await readable
            piece = os.read(self._ours, 65536)
        except OSError:  # Linux says so when the other side is closed
            return False
        finally:
            loop.remove_reader(self._ours)
        self.shown += piece.decode(errors="replace")
        return bool(piece)


async def test_a_person_says_yes_and_sees_colours(environment: dict[str, str], place: Path) -> None:
    async with asyncio.timeout(LONGEST), Terminal(environment) as terminal:
        await terminal.shows("Approve? [y/n]")
        terminal.type("y")
        assert await terminal.ends() == 0, terminal.shown
    assert "\x1b[" in terminal.shown
    assert "by this demo's own client" not in terminal.shown
    assert "was made after it" in terminal.shown
    assert left_behind(place) == []


async def test_a_person_says_no_and_presses_keys_between_scenes(environment: dict[str, str]) -> None:
    terminal = Terminal({**environment, "NO_COLOR": "1"})
    terminal.options = ["--pause"]
    async with asyncio.timeout(LONGEST), terminal:
        for number in range(2, len(SCENES) + 1):
            if number == 7:
                await terminal.shows("Approve? [y/n]")
                terminal.type("n")
            await terminal.shows("Press a key")
            assert f"{number} of {len(SCENES)}" not in terminal.shown
            terminal.type(" ")
        assert await terminal.ends() == 0, terminal.shown
    assert "Without a yes the server saw nothing of it" in terminal.shown
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", terminal.shown), "NO_COLOR"


async def test_nobody_answers_and_the_demo_says_so(environment: dict[str, str]) -> None:
    async with asyncio.timeout(LONGEST), Terminal(environment) as terminal:
        assert await terminal.ends() == 0, terminal.shown
    assert "by this demo's own client: nobody answered in 10 s" in terminal.shown


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_an_end_in_the_middle_leaves_nothing_behind(
    environment: dict[str, str], place: Path, number: signal.Signals, code: int
) -> None:
    async with asyncio.timeout(LONGEST), Terminal(environment) as terminal:
        await terminal.shows("Approve? [y/n]")
        os.killpg(terminal.process.pid, number)  # as Ctrl-C does: all of its group get it
        assert await terminal.ends() == code, terminal.shown
    assert "Traceback" not in terminal.shown
    assert left_behind(place) == []


async def test_without_a_terminal_it_says_who_answers_and_what_to_type_next(environment: dict[str, str]) -> None:
    code, shown = await run(environment)
    assert code == 0, shown
    assert "\x1b" not in shown
    assert "yes, by this demo's own client: there is no terminal to ask at" in shown
    *scenes, after = re.split(r"^── ", shown, flags=re.MULTILINE)[1:]
    assert len(scenes) == len(SCENES)
    for scene in scenes:
        _, *lines, happened = scene.strip().splitlines()
        assert 2 <= len(lines) <= 6 or "The bill" in scene, scene
        assert happened.startswith("  ✓ "), scene
    assert [line.split("#")[0].split()[-1] for line in after.strip().splitlines()[1:]] == ["init", "doctor", "tokens"]


async def test_whoever_reads_only_its_beginning_ends_it(environment: dict[str, str], place: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mcpbridge", "demo"),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    async with asyncio.timeout(LONGEST):
        await process.stdout.readline()
        process._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined] # as `head -1` does
        said = await process.stderr.read()
        assert await process.wait() == 0, said.decode()
    assert said == b""
    assert left_behind(place) == []


async def test_keys_cannot_be_awaited_without_a_terminal(environment: dict[str, str]) -> None:
    code, shown = await run(environment, "--pause")
    assert code == 2
    assert "--pause waits for keys, and there is no terminal" in shown


@pytest.mark.parametrize("price", ["0", "-1", "cheap"])
async def test_a_price_is_more_than_nothing(environment: dict[str, str], price: str) -> None:
    code, shown = await run(environment, "--price", price)
    assert code == 2
    assert "--price" in shown


async def run(environment: dict[str, str], *options: str) -> tuple[int | None, str]:
    process = await start(environment, *options)
    async with asyncio.timeout(LONGEST):
        out, err = await process.communicate()
    return process.returncode, (out + err).decode()


async def start(environment: dict[str, str], *options: str, terminal: int | None = None) -> asyncio.subprocess.Process:
    """`mcpbridge demo`, with pipes or on a terminal; forked by a process that has imported it."""
    if preloaded_bridge.can_fork(environment):
        how: dict[str, Any] = {"cwd": Path.cwd(), "environment": environment, "limit": 1 << 20, "terminal": terminal}
        return await preloaded_bridge.start("demo", *options, **how)
    file = asyncio.subprocess.PIPE if terminal is None else terminal
    return await asyncio.create_subprocess_exec(
        *DEMO, *options, stdin=file, stdout=file, stderr=file, env=environment, start_new_session=True
    )
