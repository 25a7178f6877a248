"""No process outlives the bridge, however it ends (issue 2: no orphan)."""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from support.harness import STOP_DEADLINE, Place, eventually, python_server


async def test_a_client_that_leaves_ends_all(place: Place) -> None:
    """The harness looks for survivors at the end of every test."""
    servers = {"bad": python_server("stubborn", "leaves-grandchild"), "healthy": python_server("plain")}
    async with place.bridge(servers) as client:
        await client.initialize()
        await client.tools_with("bad__echo")
        assert len(place.survivors()) >= 3


@pytest.mark.parametrize(("number", "mode"), [(signal.SIGTERM, "ignores-stop"), (signal.SIGINT, "leaves-grandchild")])
async def test_a_signal_ends_all(place: Place, number: signal.Signals, mode: str) -> None:
    config = place.config({"bad": python_server("stubborn", mode)})
    async with place.started("serve", "--config", str(config), "--http", "127.0.0.1:0") as command:
        await command.logged(r"http://127\.0\.0\.1:[1-9]\d*")
        await eventually(lambda: _survivors(place), lambda left: len(left) >= 2)
        command.process.send_signal(number)
        async with asyncio.timeout(STOP_DEADLINE):
            code = await command.process.wait()
        assert code == (0 if number == signal.SIGTERM else 130)
        assert not place.survivors()


@pytest.mark.parametrize("mode", ["ignores-stop", "leaves-grandchild", "plain"])
async def test_kill_9_of_the_bridge_leaves_no_server(place: Place, mode: str) -> None:
    bad = python_server("plain") if mode == "plain" else python_server("stubborn", mode)
    config = place.config({"bad": bad, "healthy": python_server("plain")})
    async with place.started("serve", "--config", str(config), "--http", "127.0.0.1:0") as command:
        await command.logged(r"http://127\.0\.0\.1:[1-9]\d*")
        wanted = 4 if mode == "leaves-grandchild" else 3
        await eventually(lambda: _survivors(place), lambda left: len(left) >= wanted)
        command.process.kill()
        await command.process.wait()
        await eventually(lambda: _survivors(place), lambda left: not left, within=STOP_DEADLINE)


async def test_servers_that_do_not_want_to_stop_are_stopped_side_by_side(place: Place) -> None:
    """Each takes its whole grace; one after the other they would exceed the patience of the harness."""
    servers = {f"bad{n}": python_server("stubborn", "ignores-stop") for n in range(8)}
    async with place.bridge(servers) as client:
        await client.initialize()
        await client.tools_with("bad7__echo")


@pytest.mark.parametrize("front", ["stdio", "http"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_bridge_that_is_told_to_end_answers_what_is_under_way(
    place: Place, tmp_path: Path, front: str, number: signal.Signals
) -> None:
    """The server has the call, then comes the signal, then the server answers."""
    fifo = tmp_path / "answer"
    os.mkfifo(fifo)

    async def opened() -> int:
        with suppress(OSError):  # nobody reads it yet
            return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        return -1

    servers = {"up": python_server("fifo")}
    async with place.bridge(servers) if front == "stdio" else place.http_bridge(servers) as client:
        await client.initialize()
        await client.tools_with("up__read")
        call = asyncio.ensure_future(client.call("up__read", within=60, path=str(fifo)))
        descriptor = await eventually(opened, lambda it: it >= 0, 60)
        client.command.process.send_signal(number)
        await client.command.logged("stopping")
        os.write(descriptor, b"just in time")
        os.close(descriptor)
        assert (await call).text == "just in time"
        async with asyncio.timeout(STOP_DEADLINE):
            assert await client.command.process.wait() == 0


async def _survivors(place: Place) -> dict[int, str]:
    return place.survivors()
