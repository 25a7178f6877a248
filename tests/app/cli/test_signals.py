"""The signals that end a command: whenever they come, it ends soon, with its code, and leaves nothing."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator

import pytest

from support.harness import Command, Place, python_server

LOST = """\
import os, signal, sys

class Drops:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass

class Import:
    def find_spec(self, name, *_):
        if name == 'mcpbridge.config.load':
            Drops()

sys.meta_path.insert(0, Import())
"""
"""A `sitecustomize` that interrupts the program in a finalizer, whose exceptions Python drops."""

STUBBORN = """\
import asyncio, os, signal
from mcpbridge.app.cli.signals import ended_by_signals

async def body():
    with ended_by_signals(print, within=0.05):
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

asyncio.run(body())
"""


@pytest.fixture
def config(place: Place) -> str:
    return str(place.config({"one": python_server("plain")}))


@pytest.fixture
def ignored(request: pytest.FixtureRequest) -> Iterator[None]:
    """This signal is ignored, also in what the test starts."""
    before = signal.signal(request.param, signal.SIG_IGN)
    yield
    signal.signal(request.param, before)


async def both_run(place: Place) -> None:
    """Return when there are two processes: the bridge and, if only just, its server."""
    async with asyncio.timeout(15):
        while len(place.survivors()) < 2:
            await asyncio.sleep(0.02)


async def ends_with(code: int, command: Command, place: Place) -> None:
    async with asyncio.timeout(15):
        assert await command.process.wait() == code
    assert place.survivors() == {}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
async def test_a_signal_ends_a_command_in_order(place: Place, config: str, number: signal.Signals, code: int) -> None:
    async with place.started("call", "one/hold", "--config", config) as command:
        await both_run(place)
        command.process.send_signal(number)
        await ends_with(code, command, place)


@pytest.mark.parametrize("line", [["call", "one/hold"], ["serve"], ["serve", "--http", "127.0.0.1:0"]])
async def test_an_interrupt_that_python_dropped_while_it_imported_counts(
    place: Place, config: str, line: list[str]
) -> None:
    """An exception in a finalizer is only printed; without more ado the command would go on for ever."""
    (place.folder / "sitecustomize.py").write_text(LOST)
    place.env["PYTHONPATH"] = os.pathsep.join([str(place.folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    async with place.started(*line, "--config", config) as command:
        await ends_with(130, command, place)
    assert "Exception ignored" in command.told(), "the test has lost its point"


@pytest.mark.usefixtures("ignored")
@pytest.mark.parametrize("ignored", [signal.SIGINT], indirect=True)
@pytest.mark.parametrize("line", [["call", "one/hold"], ["serve"]])
async def test_an_interrupt_counts_where_interrupts_were_ignored_at_the_start(
    place: Place, config: str, line: list[str]
) -> None:
    """So does a shell start what a script puts into the background, also a test run."""
    async with place.started(*line, "--config", config, is_start_tested=True) as command:
        await both_run(place)
        command.process.send_signal(signal.SIGINT)
        await ends_with(130, command, place)


@pytest.mark.usefixtures("ignored")
@pytest.mark.parametrize("ignored", [signal.SIGHUP], indirect=True)
async def test_a_hang_up_that_was_ignored_at_the_start_stays_ignored(place: Place) -> None:
    """What `nohup` promises."""
    async with place.bridge({"one": python_server("plain")}, is_start_tested=True) as client:
        await client.initialize()
        client.command.process.send_signal(signal.SIGHUP)
        assert (await client.call("one__echo", text="still here")).text == "still here"


async def test_what_does_not_end_in_order_ends_without_and_says_where_it_hung(place: Place) -> None:
    script = place.folder / "stubborn.py"
    script.write_text(STUBBORN)
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(script), stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(15):
        _, said = await process.communicate()
    assert process.returncode == 130
    assert "did not stop within 0.05 s" in said.decode()
    assert "body:" in said.decode()
    assert "Event.wait:" in said.decode()
