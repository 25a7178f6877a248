"""What a daemon that was killed in the middle of a call leaves in the call log (issue 18)."""

import asyncio
import os
import signal

from support.harness import Place, eventually, python_server
from support.programs.daemon_process import connected, daemon, socket_of

GATED = python_server("gated")


async def log_of(place: Place, *options: str) -> list[str]:
    """The lines of `mcpbridge log` without their titles and times."""
    finished = await place.run("log", "--config", str(place.folder / "servers.toml"), *options)
    assert finished.code == 0, finished.err
    return [" ".join(line.split()[2:]) for line in finished.out.splitlines()[1:]]


async def test_a_call_during_which_the_daemon_is_killed_is_in_the_log(place: Place) -> None:
    """It may have taken effect; nobody else knows of it."""
    config = place.config({"gated": GATED}, call_log={"enabled": True})
    gate = place.folder / "gate"
    os.mkfifo(gate)
    async with daemon(place, config) as command, connected(socket_of(place, config), command) as client:
        await client.initialize()
        await client.tools_with("gated__pass_gate")
        assert (await client.call("gated__echo", text="a")).text == "a"
        call = asyncio.create_task(client.call("gated__pass_gate", gate=str(gate), within=60))
        with await asyncio.to_thread(gate.open, "wb"):  # returns when the server waits for it: the call was sent
            # The row of the call before goes with its record, which may come a moment later.
            [running] = await eventually(lambda: log_of(place, "--outcome", "running"), lambda rows: len(rows) == 1)
            assert "gated/pass_gate" in running
            command.process.send_signal(signal.SIGKILL)
            await command.process.wait()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    assert await log_of(place, "--outcome", "running") == []
    [line] = await log_of(place, "--outcome", "interrupted")
    assert "gated/pass_gate" in line
    assert "it may have taken effect" in line
    async with daemon(place, config) as command, connected(socket_of(place, config), command) as client:
        await client.initialize()
        await client.tools_with("gated__echo")
        await client.call("gated__echo", text="b")  # answered after the daemon had opened the log
        [line] = await log_of(place, "--outcome", "interrupted")
        assert "gated/pass_gate" in line
    tools = [line.split()[0] for line in await log_of(place)]
    assert sorted(tools) == ["gated/echo", "gated/echo", "gated/pass_gate"]
    assert tools.count("gated/pass_gate") == 1, "the record is made once"


async def test_a_call_that_was_sent_in_the_moment_of_the_kill_is_in_the_log(place: Place) -> None:
    """The server has it, and no row was written yet."""
    config = place.config({"gated": GATED}, call_log={"enabled": True})
    gate = place.folder / "gate"
    os.mkfifo(gate)
    async with daemon(place, config) as command, connected(socket_of(place, config), command) as client:
        await client.initialize()
        await client.tools_with("gated__pass_gate")
        assert (await client.call("gated__echo", text="a")).text == "a"
        await eventually(lambda: log_of(place), lambda rows: len(rows) == 1)
        call = asyncio.create_task(client.call("gated__pass_gate", gate=str(gate), within=60))
        with await asyncio.to_thread(gate.open, "wb"):
            command.process.send_signal(signal.SIGKILL)
            await command.process.wait()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    lines = await log_of(place, "--outcome", "interrupted")
    assert sum("gated/pass_gate" in line for line in lines) == 1
