"""Server processes, each for real: what they get, how they end, and that nothing of them is left."""

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest
import uvloop

from mcpbridge.base.process import orphan_reaper_main as guard
from mcpbridge.base.process import process
from mcpbridge.base.process.environment import child_environment
from mcpbridge.base.process.process import ProcessSpec, ServerProcess

PYTHON = ("-I", "-S", "-c")
READS_TO_THE_END = "import sys; print('up', flush=True); sys.stdin.read()"
IGNORES_STOP = """
import signal, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(number, signal.SIG_IGN)
print('up', flush=True)
while True: time.sleep(60)
"""
LEAVES_GRANDCHILD = f"""
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        {IGNORES_STOP.strip().replace(chr(10), chr(10) + "        ").replace("print('up', flush=True)", "pass")}
    os._exit(0)
os.wait()
sys.stdin.read()
"""
LEAVES_GROUP_MEMBER = LEAVES_GRANDCHILD.replace("os.setsid()", "pass")


def spec(code: str, *args: str, **more: object) -> ProcessSpec:
    """A Python program."""
    return ProcessSpec(sys.executable, (*PYTHON, code, *args), {"PATH": os.environ["PATH"]}, **more)  # type: ignore[arg-type]


@asynccontextmanager
async def started(what: ProcessSpec) -> AsyncIterator[ServerProcess]:
    with anyio.fail_after(90):
        running = ServerProcess.start(what)
        try:
            yield running
        finally:
            await running.stop(lambda: None)


async def says(running: ServerProcess) -> str:
    """The next thing that the process writes."""
    data = await asyncio.get_running_loop().run_in_executor(None, os.read, running.stdout, 1 << 16)
    return data.decode().strip()


async def ended(pid: int) -> None:
    """Return once this process, whoever's child it is, runs no more."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    gone, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(descriptor, gone.set)
    try:
        with anyio.fail_after(60):
            await gone.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def descriptors_of_waiting() -> int:
    """How many descriptors of this process are there to be waited for alone."""
    found = 0
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found += any(kind in str(entry.readlink()) for kind in ("pidfd", "eventfd"))
    return found


def guards(owner: int) -> list[int]:
    """The guard processes of a bridge."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == owner and b"orphan_reaper_main.py" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except (OSError, ValueError):
            continue
    return found


# -- starting


def test_a_server_inherits_a_safe_base_and_what_was_asked_for() -> None:
    """Secrets of the bridge's own environment stay with the bridge."""
    parent = {"PATH": "/bin", "HOME": "/h", "LANG": "C", "GITHUB_TOKEN": "s3cret", "MY": "1"}
    assert child_environment({}, False, parent) == {"PATH": "/bin", "HOME": "/h", "LANG": "C"}
    assert child_environment({"HOME": "/x", "A": "b"}, ["MY", "NONE"], parent) == {
        "PATH": "/bin", "HOME": "/x", "LANG": "C", "MY": "1", "A": "b",
    }  # fmt: skip
    assert child_environment({"MY": "2"}, True, parent) == {**parent, "MY": "2"}


async def test_a_server_sees_its_environment_its_folder_and_its_arguments(tmp_path: Path) -> None:
    code = "import json,os,sys; print(json.dumps([dict(os.environ), os.getcwd(), sys.argv[1:]]))"
    what = ProcessSpec(sys.executable, (*PYTHON, code, "a b", "$HOME", "-x"), {"A": "ü"}, str(tmp_path))
    async with started(what) as running:
        environment, folder, arguments = json.loads(await says(running))
    assert environment.pop(guard.COOKIE_NAME)
    environment.pop("LC_CTYPE", None)  # Python's own doing
    assert (environment, folder, arguments) == ({"A": "ü"}, str(tmp_path), ["a b", "$HOME", "-x"])


async def test_a_server_dies_of_a_broken_pipe_as_programs_do() -> None:
    """Python ignores SIGPIPE; a server that is no Python program must not inherit that."""
    shell = ProcessSpec("sh", ("-c", "kill -PIPE $$; echo survived"), {"PATH": os.environ["PATH"]})
    async with started(shell) as running:
        await running.wait()
        assert running.exit_text == "killed by SIGPIPE"


async def test_a_server_is_found_by_its_own_path(tmp_path: Path) -> None:
    script = tmp_path / "mine"
    script.write_text("#!/bin/sh\necho found\n")
    script.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    async with started(ProcessSpec("mine", (), environment)) as running:
        assert await says(running) == "found"
    async with started(ProcessSpec("./mine", (), environment, str(tmp_path))) as running:
        assert await says(running) == "found"


@pytest.mark.parametrize(
    ("command", "cwd", "error", "words"),
    [
        ("no-such-command", None, FileNotFoundError, "command not found: no-such-command"),
        ("/no/such/command", None, FileNotFoundError, "command not found: /no/such/command"),
        ("./plain-text", ".", PermissionError, "not executable: ./plain-text"),
        ("sh", "/no/such/folder", NotADirectoryError, "working directory does not exist: /no/such/folder"),
        ("sh", "plain-text", NotADirectoryError, "working directory does not exist"),
    ],
)
async def test_what_cannot_be_started_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, cwd: str | None, error: type[OSError], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain-text").write_text("text")
    with pytest.raises(error, match=words):
        ServerProcess.start(ProcessSpec(command, (), {"PATH": os.environ["PATH"]}, cwd))


async def test_a_file_that_is_no_program_says_so_and_exits_as_in_a_shell(tmp_path: Path) -> None:
    file = tmp_path / "odd"
    file.write_bytes(b"\x00\x01\x02")
    file.chmod(0o755)
    async with started(ProcessSpec(str(file), (), {})) as running:
        await running.wait()
        assert running.exit_text == "exit code 126"
        assert b"Exec format error" in os.read(running.stderr, 1000)


async def test_an_interpreter_that_is_missing_says_so(tmp_path: Path) -> None:
    file = tmp_path / "script"
    file.write_text("#!/no/such/interpreter\n")
    file.chmod(0o755)
    async with started(ProcessSpec(str(file), (), {})) as running:
        await running.wait()
        assert running.exit_text == "exit code 127"


async def test_a_process_that_cannot_be_watched_is_not_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Descriptors may run out at any time: without an owner it would be an orphan."""

    def none_left(pid: int) -> int:
        seen.append(pid)
        raise OSError(24, "Too many open files")

    seen: list[int] = []
    with monkeypatch.context() as patched:
        patched.setattr(os, "pidfd_open", none_left)
        with pytest.raises(OSError, match="Too many open files"):
            ServerProcess.start(spec(IGNORES_STOP))
    await ended(seen[0])
    async with started(spec("print('up')")) as running:
        await running.wait()


async def test_without_process_descriptors_the_end_is_found_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    async with started(spec("raise SystemExit(3)")) as running:
        await running.wait()
        assert running.exit_text == "exit code 3"


# -- ending


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("pass", "exit code 0"),
        ("raise SystemExit(3)", "exit code 3"),
        ("import os; os.abort()", "killed by SIGABRT"),
        ("import os; os.kill(os.getpid(), 40)", "killed by signal 40"),
    ],
)
async def test_the_end_of_a_server_is_told(code: str, text: str) -> None:
    async with started(spec(code)) as running:
        assert running.exit_text == "" or running.exit_text == text
        await running.wait()
        assert running.exit_text == text


async def test_a_server_that_ends_with_its_input_is_not_signalled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "STDIN_GRACE", 60)  # on a busy machine its end takes a while
    async with started(spec(READS_TO_THE_END)) as running:
        assert await says(running) == "up"
    assert running.exit_text == "exit code 0"


async def test_a_server_that_reads_on_is_asked_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "STDIN_GRACE", 0.05)
    async with started(spec("import time; print('up', flush=True); time.sleep(60)")) as running:
        assert await says(running) == "up"
    assert running.exit_text == "killed by SIGTERM"


async def test_a_server_that_ignores_that_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "STDIN_GRACE", 0.05)
    monkeypatch.setattr(process, "TERM_GRACE", 0.05)
    async with started(spec(IGNORES_STOP)) as running:
        assert await says(running) == "up"
    assert running.exit_text == "killed by SIGKILL"


async def test_what_a_server_says_while_it_ends_can_still_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "STDIN_GRACE", 60)  # on a busy machine that takes a while
    told: list[bytes] = []
    with anyio.fail_after(90):
        code = "import sys; print('up', flush=True); sys.stdin.read(); print('bye', file=sys.stderr)"
        running = ServerProcess.start(spec(code))
        assert await says(running) == "up"  # before that, a stop may be in time to end it by a signal
        await running.stop(lambda: told.append(os.read(running.stderr, 100)))
    assert told == [b"bye\n"]


async def test_stopping_is_finished_by_force_when_nobody_waits_for_it_any_more() -> None:
    """The bridge bounds its own end: a cancelled stop must not leave the group alive."""
    with anyio.fail_after(90):
        running = ServerProcess.start(spec(IGNORES_STOP))
        try:
            assert await says(running) == "up"
            stopping = asyncio.ensure_future(running.stop(lambda: None))
            await asyncio.sleep(0)
            stopping.cancel()
            await asyncio.wait([stopping])
            await running.wait()
            assert running.exit_text == "killed by SIGKILL"
        finally:
            await running.stop(lambda: None)


@pytest.mark.parametrize("code", [LEAVES_GRANDCHILD, LEAVES_GROUP_MEMBER], ids=["another session", "the same group"])
async def test_no_descendant_outlives_a_stop_that_was_cancelled(code: str) -> None:
    """At any of its awaits."""
    with anyio.fail_after(90):
        for turns in range(1, 7):
            running = ServerProcess.start(spec(code))
            grandchild = int(await says(running))
            stopping = asyncio.ensure_future(running.stop(lambda: None))
            if turns > 1:
                await running.wait()
            for _ in range(turns):
                await asyncio.sleep(0)
            stopping.cancel()
            await asyncio.wait([stopping])
            await ended(grandchild)


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_no_descendant_outlives_the_loop_that_its_server_ended_on(
    make_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """The server is gone, what it started is not, and nobody gets to look for that: the loop is closed."""

    async def exits() -> tuple[ServerProcess, int]:
        running = ServerProcess.start(spec(LEAVES_GRANDCHILD))
        grandchild = int(await says(running))
        running.close_stdin()
        await running.wait()
        return running, grandchild

    loop = make_loop()
    running, grandchild = loop.run_until_complete(exits())
    loop.close()
    asyncio.run(ended(grandchild))
    assert running.exit_text == "exit code 0"


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_loop_that_is_closed_during_a_stop_leaves_no_descriptor(
    make_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """The stop is cancelled, and the server not gone yet when the loop is closed."""

    async def begins_to_stop() -> int:
        running = ServerProcess.start(spec(IGNORES_STOP))
        assert os.read(running.stdout, 100) == b"up\n"  # not by a thread, whose end the loop would wait for
        stopping.append(asyncio.ensure_future(running.stop(lambda: None)))
        await asyncio.sleep(0)
        return running.pid

    stopping: list[asyncio.Task[None]] = []
    before = descriptors_of_waiting()
    with asyncio.Runner(loop_factory=make_loop) as runner:
        pid = runner.run(begins_to_stop())
    assert stopping[0].cancelled()
    assert descriptors_of_waiting() == before
    asyncio.run(ended(pid))


async def test_no_member_of_the_group_outlives_a_stop_that_was_cancelled_where_nothing_else_finds_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on macOS: no process descriptors, no /proc to look through, and the server is reaped by a thread."""
    monkeypatch.delattr(os, "pidfd_open")
    monkeypatch.setattr(process, "_ON_LINUX", False)
    monkeypatch.setattr(guard, "kill_carriers", lambda _: 0)
    with anyio.fail_after(90):
        running = ServerProcess.start(spec(LEAVES_GROUP_MEMBER))
        member = int(await says(running))
        stopping = asyncio.ensure_future(running.stop(lambda: None))
        await asyncio.sleep(0)
        running._popen.wait()  # the loop is busy meanwhile
        stopping.cancel()
        await asyncio.wait([stopping])
        assert stopping.cancelled()
        monkeypatch.undo()
        await ended(member)


@pytest.mark.parametrize("code", [LEAVES_GRANDCHILD, LEAVES_GROUP_MEMBER], ids=["another session", "the same group"])
async def test_no_descendant_outlives_its_server(code: str) -> None:
    """Issue 2: the sweep for descendants that left the group."""
    async with started(spec(code)) as running:
        grandchild = int(await says(running))
    await ended(grandchild)


async def test_servers_that_stop_together_are_swept_together() -> None:
    async with started(spec(LEAVES_GRANDCHILD)) as first, started(spec(LEAVES_GRANDCHILD)) as second:
        grandchildren = [int(await says(running)) for running in (first, second)]
        third = ServerProcess.start(spec(READS_TO_THE_END))
        await asyncio.gather(*(running.stop(lambda: None) for running in (first, second, third)))
        for pid in grandchildren:
            await ended(pid)


# -- the guard


async def test_one_guard_watches_all_servers_and_leaves_with_the_last() -> None:
    for earlier in guards(os.getpid()):
        await ended(earlier)
    async with started(spec(READS_TO_THE_END)):
        async with started(spec(READS_TO_THE_END)):
            [pid] = guards(os.getpid())
        assert guards(os.getpid()) == [pid]
    await ended(pid)


async def test_a_guard_that_was_killed_is_replaced_and_knows_all_servers() -> None:
    for earlier in guards(os.getpid()):
        await ended(earlier)
    async with started(spec(READS_TO_THE_END)):
        [first] = guards(os.getpid())
        os.kill(first, signal.SIGKILL)
        await ended(first)
        async with started(spec(READS_TO_THE_END)):
            with anyio.fail_after(60):
                while not (others := [pid for pid in guards(os.getpid()) if pid != first]):
                    await anyio.sleep(0.01)  # a thread sees the end of the first
            [second] = others
        os.kill(second, signal.SIGKILL)
        await ended(second)


async def test_the_guard_ends_what_is_listed_when_its_input_closes() -> None:
    """As when the bridge was killed: the group, and what left it, but nothing that had ended before."""
    cookies = [secrets.token_hex(16), secrets.token_hex(16)]
    servers = [
        subprocess.Popen(
            [sys.executable, *PYTHON, LEAVES_GRANDCHILD],
            env={guard.COOKIE_NAME: cookie},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        for cookie in cookies
    ]
    grandchildren: list[int] = []
    try:
        for server in servers:
            assert server.stdout
            grandchildren.append(int(server.stdout.readline()))
        command = [sys.executable, "-I", "-S", guard.__file__, str(os.getpid())]
        watching = subprocess.Popen(command, stdin=subprocess.PIPE)
        lines = [f"+{cookie} {server.pid}\n" for server, cookie in zip(servers, cookies, strict=True)]
        watching.communicate("".join([*lines, f"-{cookies[1]}\n"]).encode(), timeout=60)
        await ended(servers[0].pid)
        await ended(grandchildren[0])
        assert servers[1].poll() is None
    finally:
        guard.kill_carriers(set(cookies))
        for server in servers:
            server.communicate()
    for pid in grandchildren:
        await ended(pid)


OWNER = """
import asyncio, json, os, sys
from mcpbridge.base.process.process import ProcessSpec, ServerProcess

async def main():
    server = ServerProcess.start(ProcessSpec(sys.executable, ("-I", "-S", "-c", sys.argv[1]), {}))
    first = os.read(server.stdout, 100).decode().strip()
    print(json.dumps([server.pid, first]), flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@asynccontextmanager
async def owner(code: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, int, str]]:
    """A process that owns a server: itself, the server's id, and the first thing that the server said."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", OWNER, code, stdout=subprocess.PIPE)
    assert process.stdout
    with anyio.fail_after(90):
        pid, said = json.loads(await process.stdout.readline())
        try:
            yield process, pid, said
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def test_a_server_dies_with_its_owner_even_without_the_guard() -> None:
    """The parent-death signal: the owner was killed and so could do nothing."""
    async with owner(IGNORES_STOP) as (bridge, server, _):
        for pid in guards(bridge.pid):
            os.kill(pid, signal.SIGKILL)
        bridge.kill()
        await ended(server)


@pytest.mark.parametrize("code", [LEAVES_GRANDCHILD, LEAVES_GROUP_MEMBER], ids=["another session", "the same group"])
async def test_no_descendant_outlives_an_owner_that_was_killed(code: str) -> None:
    """The guard: the parent-death signal reaches the server alone."""
    async with owner(code) as (bridge, server, grandchild):
        bridge.kill()
        await ended(server)
        await ended(int(grandchild))
