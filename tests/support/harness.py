"""Run the bridge as people do, as a process, with a configuration written for the test.

Every process that a test starts, and every one that those start, carries the test's cookie in its
environment. Leaving a context proves that no such process is left.
"""

import asyncio
import json
import os
import re
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from anyio.abc import ByteReceiveStream
from anyio.streams.buffered import BufferedByteReceiveStream

from support.json_output import documents
from support.programs import preloaded_bridge
from support.rpc import Client, HttpClient, Reply, StdioClient

__all__ = [
    "DEADLINE",
    "Command",
    "Finished",
    "Place",
    "eventually",
    "explains",
    "first_line",
    "python_server",
    "undisturbed",
]

DEADLINE = 10.0
"""Seconds in which anything that should happen at once must have happened; generous, for busy machines."""

STOP_DEADLINE = 15.0
"""Seconds in which the bridge must have stopped, whatever its upstreams do."""

COOKIE = "MCPBRIDGE_TEST_COOKIE"

_SERVERS = Path(__file__).parents[1] / "servers"
_LINE_LIMIT = 1 << 28

T = TypeVar("T")


def python_server(script: str, *args: str, **settings: object) -> dict[str, Any]:
    """The configuration of one of the servers in `servers/`, with further settings."""
    return {"command": sys.executable, "args": ["-ES", str(_SERVERS / f"{script}.py"), *args], **settings}


async def first_line(output: ByteReceiveStream) -> str:
    """What a process prints first, without the end of the line. It may come in parts."""
    return (await BufferedByteReceiveStream(output).receive_until(b"\n", 10_000)).decode().strip()


async def eventually(attempt: Callable[[], Awaitable[T]], accept: Callable[[T], bool], within: float = 30.0) -> T:
    """The first acceptable outcome of `attempt`; for states that the bridge announces to nobody.

    Raises:
        AssertionError: none came in time; names the last.
    """
    outcome: T | None = None
    try:
        async with asyncio.timeout(within):
            while not accept(outcome := await attempt()):
                await asyncio.sleep(0.05)
            return outcome
    except TimeoutError:
        raise AssertionError(f"not within {within:g} s; the last outcome was {outcome!r}") from None


@asynccontextmanager
async def undisturbed(client: Client, tool: str = "healthy__echo", within: float = 15.0) -> AsyncIterator[None]:
    """Calls to another server go on for as long as the body runs, and each is answered in time."""
    finished = asyncio.Event()

    async def go_on() -> None:
        number = 0
        while number < 3 or not finished.is_set():
            number += 1
            assert (await client.call(tool, text=f"still {number}", within=within)).text == f"still {number}"
            await asyncio.sleep(0.01)  # steps, not a flood: the body needs the processor too

    calling = asyncio.create_task(go_on())
    try:
        yield
    finally:
        finished.set()
        await calling


def explains(reply: Reply, server: str, *facts: str) -> None:
    """Assert that a tool result says which server failed, what happened, and what to do."""
    assert reply.failed, f"not an error: {reply.message}"
    words = reply.text
    assert f"'{server}'" in words, f"names no server: {words}"
    for fact in facts:
        assert fact in words, f"does not say {fact!r}: {words}"
    assert re.search(r"[.;] |\?$", words), f"says not what to do: {words}"


@dataclass(frozen=True)
class Finished:
    """What a command that has ended left behind."""

    code: int
    out: str
    err: str


@dataclass
class Command:
    """A running `mcpbridge`, and what it wrote to standard error."""

    process: asyncio.subprocess.Process
    log: list[str] = field(default_factory=list[str])
    _grown: asyncio.Event = field(default_factory=asyncio.Event)
    _ended: bool = False

    @property
    def pid(self) -> int:
        return self.process.pid

    async def read_log(self) -> None:
        """Keep standard error, line by line, until it ends."""
        assert self.process.stderr
        async for line in self.process.stderr:
            self.log.append(line.decode(errors="replace").rstrip("\n"))
            self._grown.set()
        self._ended = True
        self._grown.set()

    async def logged(self, pattern: str, within: float = 60.0) -> re.Match[str]:
        """The first match in standard error, now or later."""
        try:
            async with asyncio.timeout(within):
                while True:
                    self._grown.clear()
                    for line in self.log:
                        if match := re.search(pattern, line):
                            return match
                    assert not self._ended, f"it ended; its log is:\n{self.told()}"
                    await self._grown.wait()
        except TimeoutError:
            raise AssertionError(f"{pattern!r} was not logged; the log is:\n{self.told()}") from None

    def told(self) -> str:
        """The end of standard error, for messages of failed tests."""
        return "\n".join(self.log[-40:])

    def peak_memory(self) -> int:
        """Bytes that the process held at most (Linux)."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found
        return int(found[1]) * 1024


class Place:
    """A folder, an environment and a cookie for one test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cookie = secrets.token_hex(8)
        self.env: dict[str, str] = {}
        """Variables that the bridge gets beside the fewest that it needs."""
        self._runtime = Path(f"/tmp/mcpb-{self.cookie}")  # a socket's path must be short
        self._running = 0

    def environment(self) -> dict[str, str]:
        """The environment of the bridge: nothing of the developer's own settings."""
        self._runtime.mkdir(mode=0o700, exist_ok=True)
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "PYTHONPATH") if name in os.environ}
        own = {"HOME": str(self.folder), "XDG_RUNTIME_DIR": str(self._runtime), COOKIE: self.cookie}
        own["MCPBRIDGE_STANDALONE"] = "1"  # most tests are about one process
        return {**kept, **own, **self.env}

    def config(self, servers: Mapping[str, Mapping[str, Any]], **sections: Mapping[str, Any]) -> Path:
        """Write a `servers.toml`; its commands get the cookie.

        Results pass as they come unless a test says otherwise: most tests are about what crosses unchanged.
        """
        sections = sections if "results" in sections else {**sections, "results": {"strategy": "off"}}
        marked = {
            name: {**server, "env": {COOKIE: self.cookie, **server.get("env", {})}} if "command" in server else server
            for name, server in servers.items()
        }
        path = self.folder / "servers.toml"
        path.write_text(
            "".join(f"{name} = {_toml(value)}\n" for name, value in {"servers": marked, **sections}.items())
        )
        return path

    async def start(
        self, *args: str, is_start_tested: bool = False, terminal: int | None = None
    ) -> asyncio.subprocess.Process:
        """`mcpbridge ARGS`, with pipes or on a terminal, for whoever waits for its end and looks what is left.

        Where the start is not what is tested, the process is forked by one that has imported the bridge.
        """
        environment = self.environment()
        if not is_start_tested and preloaded_bridge.can_fork(environment):
            return await preloaded_bridge.start(
                *args, cwd=self.folder, environment=environment, limit=_LINE_LIMIT, terminal=terminal
            )
        file = asyncio.subprocess.PIPE if terminal is None else terminal
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "mcpbridge", *args),
            stdin=file,
            stdout=file,
            stderr=file,
            cwd=self.folder,
            env=environment,
            limit=_LINE_LIMIT,
            start_new_session=True,
        )

    @asynccontextmanager
    async def started(self, *args: str, is_start_tested: bool = False) -> AsyncIterator[Command]:
        """`mcpbridge ARGS`, running. It may be asked to stop inside; it must have stopped soon after."""
        process = await self.start(*args, is_start_tested=is_start_tested)
        self._running += 1
        command = Command(process)
        log = asyncio.create_task(command.read_log())
        try:
            yield command
            await self._stop(command)
        finally:
            self._running -= 1
            if process.returncode is None:
                process.kill()
            if not self._running:
                self.kill_survivors()
            # asyncio offers no other way to close its pipes, and a full one that nobody reads would hold up `wait`.
            process._transport.close()  # pyright: ignore
            await process.wait()
            await log

    async def _stop(self, command: Command) -> None:
        """End it as clients do, by closing its input, or politely by a signal. Nothing may be left."""
        process = command.process
        if process.returncode is None:
            assert process.stdin
            process.stdin.close()
            if "--http" in " ".join(_argv(process.pid)):
                process.terminate()
            try:
                async with asyncio.timeout(STOP_DEADLINE):
                    await process.wait()
            except TimeoutError:
                raise AssertionError(f"the bridge did not stop; its log:\n{command.told()}") from None
            assert process.returncode == 0, f"the bridge ended with {process.returncode}; its log:\n{command.told()}"
        left = self.survivors() if self._running == 1 else None  # else they may be another's
        assert not left, f"processes were left behind: {left}"

    @asynccontextmanager
    async def bridge(
        self, servers: Mapping[str, Mapping[str, Any]], *, is_start_tested: bool = False, **sections: Mapping[str, Any]
    ) -> AsyncIterator[StdioClient]:
        """`mcpbridge serve` on stdio, and a client that has not said anything yet."""
        config = self.config(servers, **sections)
        async with self.started("serve", "--config", str(config), is_start_tested=is_start_tested) as command:
            assert command.process.stdin
            assert command.process.stdout
            client = StdioClient(command.process.stdout, command.process.stdin, command)
            async with client.reading():
                yield client

    @asynccontextmanager
    async def http_bridge(
        self, servers: Mapping[str, Mapping[str, Any]], **sections: Mapping[str, Any]
    ) -> AsyncIterator[HttpClient]:
        """`mcpbridge serve --http` on a free port, and a client of it. No token is needed unless one is configured."""
        config = self.config(servers, **sections)
        words = ("serve", "--config", str(config), "--http", "127.0.0.1:0", "--no-auth")
        async with self.started(*words) as command:
            found = await command.logged(r"http://127\.0\.0\.1:[1-9]\d*")
            async with HttpClient(f"{found[0]}/mcp", command) as client:
                yield client

    async def run(self, *args: str, within: float = 30.0, stdin: str = "") -> Finished:
        """`mcpbridge ARGS` to its end. What it prints with `--json` must be as it is documented."""
        async with self.started(*args) as command:
            assert command.process.stdin
            assert command.process.stdout
            command.process.stdin.write(stdin.encode())
            command.process.stdin.close()
            try:
                async with asyncio.timeout(within):
                    out = await command.process.stdout.read()
                    code = await command.process.wait()
            except TimeoutError:
                raise AssertionError(f"mcpbridge {' '.join(args)} did not end; its log:\n{command.told()}") from None
        finished = Finished(code, out.decode(), "\n".join(command.log))
        documents(args, finished.out, finished.err)
        return finished

    def survivors(self) -> dict[int, str]:
        """Living processes with the cookie, by id, with their command lines."""
        marked = f"{COOKIE}={self.cookie}".encode()
        found: dict[int, str] = {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if marked in (entry / "environ").read_bytes() and (argv := _argv(int(entry.name))):
                    found[int(entry.name)] = " ".join(argv)
            except OSError:
                continue  # it ended meanwhile, or belongs to someone else
        return found

    def kill_survivors(self) -> None:
        """End what a failed test left."""
        for pid in self.survivors():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def clean(self) -> None:
        """Remove what lies outside the test's folder."""
        for path in [*self._runtime.rglob("*")][::-1]:
            path.rmdir() if path.is_dir() else path.unlink()
        if self._runtime.exists():
            self._runtime.rmdir()


def _argv(pid: int) -> list[str]:
    """The command line of a process; empty for a zombie."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").rstrip("\0")
        return line.split("\0") if line else []
    except OSError:
        return []


def _toml(value: object) -> str:
    """A value as TOML writes it on one line. JSON's strings, numbers and booleans are TOML's too."""
    if isinstance(value, Mapping):
        inner = ", ".join(f"{json.dumps(str(key))} = {_toml(item)}" for key, item in value.items())
        return f"{{ {inner} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(item) for item in value)}]"
    return json.dumps(value, ensure_ascii=False)
