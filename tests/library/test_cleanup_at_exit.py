"""No process survives the program whose bridge started it, however that program ends."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import anyio

from support.harness import Place, eventually, python_server
from support.programs import ending_programs

T = TypeVar("T")

ENDS = {
    "raises": 1,
    "exits-during-a-call": 3,
    "exits-at-once": 3,
    "stops-the-loop": 0,
    "runs-in-a-daemon-thread": 0,
    "sync-raises": 1,
    "sync-never-closes": 0,
    "sync-exits-during-calls": 1,
    "sync-does-not-heed-its-end": 0,
}
"""Ways to end by itself, and the exit code."""
SIGNALS = [
    ("waits", signal.SIGINT),
    ("waits", signal.SIGTERM),
    ("waits", signal.SIGKILL),
    ("sync-waits", signal.SIGINT),
    ("sync-waits", signal.SIGKILL),
]


@asynccontextmanager
async def program(place: Place, way: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The program, as soon as its server's tree stands."""
    config = place.config({"rooted": python_server("rooted")}, store={"path": str(place.folder / "s.db")})
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, ending_programs.__file__, way, str(config)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=place.environment(),
        start_new_session=True,
    )
    try:
        with anyio.fail_after(40):
            yield running
    finally:
        place.kill_survivors()
        running._transport.close()  # pyright: ignore  # no other way to close its pipes
        await running.wait()


async def says(running: asyncio.subprocess.Process, word: str) -> None:
    assert running.stdout
    assert running.stderr
    line = (await running.stdout.readline()).decode().strip()
    assert line == word, f"said {line!r}: {(await running.stderr.read()).decode()}"


async def nothing_is_left(place: Place, *, but: int = 0) -> None:
    """Except the process `but`."""

    async def left() -> dict[int, str]:
        return {pid: line for pid, line in place.survivors().items() if pid != but}

    await eventually(left, lambda found: not found)


async def side_by_side(folder: Path, ends: Sequence[T], ends_well: Callable[[Place, T], Awaitable[None]]) -> None:
    """Each in a place of its own, a few at a time: most of it is waiting for the guard."""
    at_once = asyncio.Semaphore(4)

    async def end(number: int, one: T) -> None:
        (folder / str(number)).mkdir()
        place = Place(folder / str(number))
        try:
            async with at_once:
                await ends_well(place, one)
        except BaseException as error:
            error.add_note(f"the way was {one}")
            raise
        finally:
            place.clean()

    async with asyncio.TaskGroup() as tasks:
        for number, one in enumerate(ends):
            tasks.create_task(end(number, one))


async def test_nothing_is_left_when_a_program_ends_by_itself(tmp_path: Path) -> None:
    """Promise of issue 9: exceptions, exits of all kinds, what was never closed, daemon threads."""

    async def ends_well(place: Place, end: tuple[str, int]) -> None:
        way, code = end
        async with program(place, way) as running:
            await says(running, "up")
            assert running.stderr
            told = (await running.stderr.read()).decode()
            assert await running.wait() == code, told
            assert ("Traceback" in told) == ("ValueError: of the program" in told), told
            await nothing_is_left(place)

    await side_by_side(tmp_path, list(ENDS.items()), ends_well)


async def test_nothing_is_left_when_a_program_is_ended_during_a_call(tmp_path: Path) -> None:
    async def ends_well(place: Place, end: tuple[str, signal.Signals]) -> None:
        way, number = end
        async with program(place, way) as running:
            await says(running, "up")
            assert len(place.survivors()) >= 4, "the program, the server, and what that started"
            os.kill(running.pid, number)
            assert await running.wait() == -number
            await nothing_is_left(place)

    await side_by_side(tmp_path, SIGNALS, ends_well)


async def test_nothing_is_left_of_a_bridge_that_its_program_outlives(place: Place) -> None:
    """Its loop ended without its end, or was closed, or nobody holds it any more, or it cannot be left."""
    async with program(place, "lives-on") as running:
        for _ in range(6):
            await says(running, "up")
        await says(running, "over")
        await nothing_is_left(place, but=running.pid)


async def test_a_forked_child_does_not_keep_servers_alive(place: Place) -> None:
    """It inherits every pipe, also the one whose end tells the guard that the program is gone."""
    async with program(place, "leaves-a-forked-child") as running:
        await says(running, "up")
        await says(running, "forked")
        os.kill(running.pid, signal.SIGKILL)
        child = {pid for pid, line in place.survivors().items() if "ending_programs.py" in line} - {running.pid}
        await running.wait()

        async def left() -> dict[int, str]:
            return {pid: line for pid, line in place.survivors().items() if pid not in child}

        await eventually(left, lambda found: not found)
        assert child
        assert all(Path(f"/proc/{pid}").exists() for pid in child)


_CLOSES_THE_LOOP = """
import asyncio, gc
from mcpbridge import Bridge

def hello(name: str) -> str:
    "Greets."
    return f"hello {name}"

async def resolver(context):
    return [hello]

async def main():
    bridge = Bridge.open({}, resolver=resolver, remember=False)
    await bridge.__aenter__()
    print((await bridge.call_tool("hello", {"name": "you"})).text)
    KEPT

kept = []
loop = asyncio.new_event_loop()
loop.run_until_complete(main())
loop.close()
gc.collect()
"""


async def test_tools_of_a_resolver_that_outlive_the_loop_print_nothing(place: Place) -> None:
    """There is no loop left in which they could be ended, so nobody tries to (issue 18)."""
    for kept in ("pass", "kept.append(bridge)", "kept.append((bridge, bridge.client()))"):
        script = _CLOSES_THE_LOOP.replace("KEPT", kept)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", script),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=place.environment(),
        )
        with anyio.fail_after(60):
            said, told = await process.communicate()
        assert (process.returncode, said) == (0, b"hello you\n")
        assert b"Error" not in told, told.decode()
        assert b"Exception ignored" not in told, told.decode()
