"""Whatever is killed, and whenever: nothing of a server is left (promise of the bridge: no orphans, ever)."""

import asyncio
import os
import random
import secrets
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest

MARK = "MCPBRIDGE_TEST_COOKIE"
DEAF = "for n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)"
"""Ends neither with its input nor when it is asked to."""

CHILD = f"""
import os, signal, time
{DEAF}
{{how}}
print("up", flush=True)
while True: time.sleep(60)
"""
KINDS = {
    "in its group": CHILD.format(how="os.fork()"),
    "in another session": CHILD.format(how="os.fork() or os.setsid()"),
    "a daemon": CHILD.format(how="os.fork() or (os.setsid(), os.fork() and os._exit(0))"),
    "behind a shell": "import os; os.execvp('sh', ['sh', '-c', 'trap \"\" TERM; {python} -ISc \"$CODE\" & wait'])",
}
"""Servers that start processes, as `npx` and shells do."""

BRIDGE = """
import asyncio, os, sys
from mcpbridge.base.process.process import ProcessSpec, ServerProcess

async def main():
    print("begins", flush=True)
    specs = [ProcessSpec(sys.executable, ("-ISc", code), dict(os.environ)) for code in sys.argv[1:]]
    servers = [ServerProcess.start(spec) for spec in specs]
    for server in servers:
        await asyncio.get_running_loop().run_in_executor(None, os.read, server.stdout, 100)
    print("ready", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


class Killed:
    """A bridge with servers, in a process of its own, and how to see what it leaves behind."""

    def __init__(self, process: asyncio.subprocess.Process, mark: str) -> None:
        self.process, self.mark = process, mark

    async def says(self, word: str) -> None:
        assert self.process.stdout
        assert (await self.process.stdout.readline()).decode().strip() == word

    def left(self) -> set[int]:
        """Every process that it, or what it started, has started."""
        found: set[int] = set()
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.add(int(entry.name))
            except OSError:
                continue
        return found

    def guards(self) -> list[int]:
        """Both guards, the first one first."""
        first = [pid for pid in children(self.process.pid) if b"orphan_reaper_main.py" in command_line(pid)]
        return [*first, *(pid for one in first for pid in children(one))]

    async def both_guards(self) -> tuple[int, int]:
        """As soon as there are two: a server may be up before the first guard, a program of its own, has forked."""
        while len(guards := self.guards()) < 2:
            await asyncio.sleep(0.01)
        return guards[0], guards[1]

    async def leaves_nothing(self) -> None:
        while self.left():
            await asyncio.sleep(0.05)  # they are nobody's children any more: there is nothing to wait for


def children(parent: int) -> list[int]:
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"\nPPid:\t{parent}\n" in (entry / "status").read_text():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@asynccontextmanager
async def bridge(*servers: str) -> AsyncGenerator[Killed]:
    """One that starts these servers, each a program of Python."""
    mark = secrets.token_hex(8)
    codes = [server.replace("{python}", sys.executable) for server in servers]
    environ = {"PATH": os.environ["PATH"], MARK: mark, "CODE": KINDS["in another session"]}
    command = [sys.executable, "-c", BRIDGE, *codes]
    process = await asyncio.create_subprocess_exec(*command, env=environ, stdout=subprocess.PIPE)
    running = Killed(process, mark)
    try:
        with anyio.fail_after(120):
            yield running
            await running.leaves_nothing()
    finally:
        for pid in running.left():
            os.kill(pid, signal.SIGKILL)
        await process.wait()


async def test_kill_9_of_the_bridge_leaves_no_process_of_any_server() -> None:
    async with bridge(*KINDS.values()) as one:
        await one.says("begins")
        await one.says("ready")
        assert len(one.left()) >= 1 + 2 * len(KINDS)
        one.process.kill()


@pytest.mark.parametrize("order", ["guards first", "bridge first", "the first guard alone"])
async def test_kill_9_of_the_bridge_and_a_guard_at_once_leaves_no_process(order: str) -> None:
    """The second guard is there for that. Without any, the server itself still dies with its bridge."""
    async with bridge(KINDS["in another session"]) as one:
        await one.says("begins")
        await one.says("ready")
        first, second = await one.both_guards()
        pids = {"guards first": [first, one.process.pid], "bridge first": [one.process.pid, first]}
        for pid in pids.get(order, [first]):
            with suppress(ProcessLookupError):  # a guard ends with its bridge, if this process is slow to get here
                os.kill(pid, signal.SIGKILL)
        if order == "the first guard alone":
            while first in await one.both_guards():
                await asyncio.sleep(0.01)
            assert one.left() - {one.process.pid}, "the bridge goes on, and so do its servers"
            one.process.kill()
        with anyio.fail_after(60):
            while b"orphan_reaper_main.py" in command_line(second):
                await asyncio.sleep(0.05)


async def test_kill_9_in_the_middle_of_starting_servers_leaves_no_process() -> None:
    """At any moment: before a server is forked, before it is its own program, before anybody knows its process id."""

    async def try_once(seconds: float) -> None:
        async with bridge(*KINDS.values()) as one:
            await one.says("begins")
            await asyncio.sleep(seconds)
            one.process.kill()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(8):
            tasks.create_task(try_once(random.uniform(0, 0.15)))


async def test_servers_get_none_of_the_descriptors_of_the_bridge() -> None:
    """A listening socket or a lock that the bridge was given as inherited descriptors would outlive it in a server."""
    code = """
import asyncio, os, sys
from mcpbridge.base.process.process import ProcessSpec, ServerProcess

async def main():
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    show = "import os; print(sorted(os.listdir('/proc/self/fd')), flush=True); import sys; sys.stdin.read()"
    server = ServerProcess.start(ProcessSpec(sys.executable, ("-ISc", show), dict(os.environ)))
    said = await asyncio.get_running_loop().run_in_executor(None, os.read, server.stdout, 1000)
    os.close(writer)
    assert os.read(reader, 1) == b"", "somebody has the other end"
    print(said.decode().strip(), flush=True)
    await server.stop(lambda: None)

asyncio.run(main())
"""
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.strip() == "['0', '1', '2', '3']", done.stderr  # 3: the listing itself
