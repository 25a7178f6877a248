"""The guard process, which ends the servers when the bridge was killed, may itself be killed before (issue 2)."""

import os
import signal
from pathlib import Path

from support.harness import STOP_DEADLINE, Place, eventually, python_server


async def test_kill_9_of_the_guard_and_then_of_the_bridge_leaves_no_server(place: Place) -> None:
    servers = {
        "deaf": python_server("stubborn", "ignores-stop"),
        "father": python_server("stubborn", "leaves-grandchild"),
    }
    async with place.http_bridge(servers) as client:
        await client.initialize()
        await client.tools_with("deaf__echo")
        await client.tools_with("father__echo")

        async def guards() -> list[int]:
            return [pid for pid in children(client.command.pid) if "orphan_reaper_main.py" in command_line(pid)]

        [first] = await guards()
        os.kill(first, signal.SIGKILL)
        [second] = await eventually(guards, lambda found: len(found) == 1 and first not in found)
        # An answer shows that the bridge has left the step in which it told the new guard of the servers.
        assert (await client.call("deaf__echo", text="and on")).text == "and on"
        assert len(place.survivors()) >= 4

        client.command.process.kill()
        await client.command.process.wait()

        async def left() -> str:
            return f"{place.survivors() or ''}{command_line(second)}"

        await eventually(left, lambda found: not found, within=STOP_DEADLINE)


def children(parent: int) -> list[int]:
    """The ids of the processes that a process started."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"\nPPid:\t{parent}\n" in (entry / "status").read_text():
                found.append(int(entry.name))
        except OSError:
            continue  # it ended meanwhile
    return found


def command_line(pid: int) -> str:
    """The command line of a process; empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().replace("\0", " ")
    except OSError:
        return ""
