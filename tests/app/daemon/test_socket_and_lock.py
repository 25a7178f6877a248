"""The daemon's place when somebody tidies up around it, and the end of one that has begun to start anew (issue 7)."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcpbridge.app.admin.control_client import ask
from mcpbridge.app.stdio_proxy.daemon_lock import is_served
from support.harness import Command, Place, eventually, python_server
from support.programs.daemon_process import connected, daemon, socket_of

SERVERS = {"gated": python_server("gated")}
OFTEN, NEVER = ("--look-every", "0.05"), ("--look-every", "1000")


def told(command: Command, place: Place, do: str) -> Any:
    """What the daemon says to a command."""
    return ask(Path(place.environment()["XDG_RUNTIME_DIR"]) / "mcpbridge" / f"{command.pid}.sock", {"do": do})


async def exit_code(command: Command) -> int:
    async with asyncio.timeout(60):
        return await command.process.wait()


async def test_one_that_ends_leaves_the_socket_of_another(place: Place) -> None:
    """The directory was emptied under the first: from then on its name is somebody else's."""
    config = place.config(SERVERS)
    async with daemon(place, config, *NEVER) as first:
        shutil.rmtree(socket_of(place, config).parent)
        async with daemon(place, config) as second:
            first.process.terminate()
            assert await exit_code(first) == 0
            async with connected(socket_of(place, config), second) as client:
                assert (await client.greeted())["pid"] == second.pid


async def test_one_whose_files_were_removed_is_found_again(place: Place) -> None:
    config = place.config(SERVERS)
    path = socket_of(place, config)
    async with daemon(place, config, *OFTEN) as command:
        async with connected(path, command) as before:
            await before.initialize()

            def remove_all() -> None:
                gone = path.parent.rename(path.parent.with_name("gone"))  # at once: the daemon may look at any moment
                shutil.rmtree(gone)

            for remove in (remove_all, path.unlink, path.with_suffix(".lock").unlink):
                remove()

                async def is_whole() -> bool:
                    return path.with_suffix(".lock").exists() and is_served(str(path))  # named before it listens

                await eventually(is_whole, bool)
                async with connected(path, command) as client:
                    assert (await client.greeted())["pid"] == command.pid
            assert "gated__echo" in await before.tools_with("gated__echo"), "who was there noticed nothing"

            async def is_listed() -> bool:  # commands find it too
                found = await place.run("status", "--json")
                return found.code == 0

            await eventually(is_listed, bool)
        others = await place.run("daemon", "--config", str(config))
        assert "another daemon serves" in others.err, "it holds the lock that others see"
    assert not path.exists()


async def test_one_whose_place_is_taken_ends_when_its_clients_have_gone(place: Place) -> None:
    config = place.config(SERVERS)
    path = socket_of(place, config)
    async with daemon(place, config, *OFTEN) as first, connected(path, first) as client:
        await client.initialize()
        first.process.send_signal(signal.SIGSTOP)
        shutil.rmtree(path.parent)
        async with daemon(place, config) as second:
            first.process.send_signal(signal.SIGCONT)
            await first.logged("another daemon is in its place")
            assert "gated__echo" in await client.tools_with("gated__echo")
            client.writer.close()
            assert await exit_code(first) == 0
            async with connected(path, second) as other:
                assert (await other.greeted())["pid"] == second.pid


def by_signal(command: Command, _: Place) -> None:
    command.process.send_signal(signal.SIGTERM)


def by_command(command: Command, place: Place) -> None:
    assert told(command, place, "stop")["stopping"] is True


@pytest.mark.parametrize(("end", "again"), [(by_signal, True), (by_command, False)])
async def test_who_wants_its_end_gets_it_although_it_is_starting_anew(
    place: Place, end: Callable[[Command, Place], None], again: bool
) -> None:
    config = place.config(SERVERS)
    gate = place.folder / "gate"
    os.mkfifo(gate)
    async with daemon(place, config) as command, connected(socket_of(place, config), command) as client:
        await client.initialize()
        await client.tools_with("gated__pass_gate")
        call = asyncio.create_task(client.call("gated__pass_gate", gate=str(gate), within=20))
        opened = await asyncio.to_thread(gate.open, "wb")
        assert (await asyncio.to_thread(told, command, place, "restart"))["restarting"] is True
        await command.logged("daemon stopping")
        reader, writer = await asyncio.open_unix_connection(socket_of(place, config))
        await asyncio.to_thread(end, command, place)
        await command.logged("not restarted")
        assert (await asyncio.to_thread(told, command, place, "restart"))["restarting"] is False
        opened.close()
        assert (await call).text == "passed"
        await client.ended()
        assert client.own[-1] == {"mcpbridge": 1, "bye": True, "again": again}
        assert await exit_code(command) == 0
        waiting = b""
        with contextlib.suppress(ConnectionError):
            waiting = await reader.readline()
        assert waiting == b"" if again else json.loads(waiting)["again"] is False, "nor is one started for who waits"
        writer.close()


async def test_what_ended_before_it_starts_anew_is_buried(place: Place) -> None:
    config = place.config({"gated": {**python_server("gated"), "start": "eager"}})

    async def zombies(of: int) -> list[str]:
        found: list[str] = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # it ended meanwhile
                state, parent, *_ = path.read_text().rpartition(")")[2].split()
                found += [state] if parent == str(of) and state == "Z" else []
        return found

    async with daemon(place, config) as command:
        async with connected(socket_of(place, config), command) as client:
            await client.initialize()
            await client.tools_with("gated__echo")
        before = told(command, place, "status")["daemon"]["instance"]
        assert told(command, place, "restart")["instance"] == before

        async def instance() -> str:
            status = await asyncio.to_thread(told, command, place, "status") or {}
            return str((status.get("daemon") or {}).get("instance", before))

        assert await eventually(instance, lambda found: found != before) != before
        assert await zombies(command.pid) == []
