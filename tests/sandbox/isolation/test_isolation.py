"""Jobs in each sandbox: what they are given, what comes of them, and that nothing of them is left."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from anyio import fail_after, move_on_after

from mcpbridge.base.errors import ToolInactive
from mcpbridge.sandbox.isolation import work_folder as folders
from mcpbridge.sandbox.isolation.readable_files import interpreter
from mcpbridge.sandbox.job import Access, Job, Limits, describe_end
from mcpbridge.sandbox.runner import Isolation
from support.sandbox.sandbox_runs import (
    FILE_SIZE,
    MEMORY,
    TIERS,
    VARIABLES,
    Outside,
    as_user,
    attempts,
    isolation,
    python,
    usable,
)
from support.virtual_time import pass_time

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there are sandboxes on Linux only")

FOREVER = "import time\nwhile True: time.sleep(9)"


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=TIERS)
async def sandbox(request: pytest.FixtureRequest) -> Isolation:
    return await usable(request.param)


def marked(text: str) -> list[int]:
    """Processes with this text among their arguments that still run."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                if text.encode() in (entry / "cmdline").read_bytes() and status not in "ZX":
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


async def started(text: str, count: int = 1) -> None:
    """Return when so many such processes run."""
    with fail_after(100):
        while len(marked(text)) < count:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("tier", TIERS)
async def test_no_way_out_is_open(tier: str) -> None:
    """Network, sockets, files, processes, name spaces and the kernel, each tried for real."""
    with fail_after(150):
        open_ways, tried, is_untouched = await attempts(tier)

    assert open_ways == []
    assert tried > 100
    assert is_untouched


@pytest.mark.skipif(os.geteuid() != 0, reason="the test above is this one")
@pytest.mark.parametrize("tier", TIERS)
async def test_no_way_out_is_open_where_the_bridge_has_no_privileges(tier: str) -> None:
    await usable(tier)
    source = (
        "import asyncio, json; from support.sandbox import sandbox_runs; "
        f"print(json.dumps(asyncio.run(sandbox_runs.attempts({tier!r}))))"
    )

    said = as_user("-c", source)

    open_ways, tried, is_untouched = json.loads(said.stdout or "null") or (said.stderr, 0, False)
    assert open_ways == []
    assert tried > 100
    assert is_untouched


async def test_a_job_gets_what_it_is_given_and_no_more(sandbox: Isolation) -> None:
    source = """
        import json, os, sys
        print(json.dumps([sys.stdin.read(), open("given.txt").read(), os.getcwd(), dict(os.environ), os.listdir()]))
        print("aside", file=sys.stderr)
        sys.exit(3)
    """
    job = python(textwrap.dedent(source), stdin=b"hello", files={"given.txt": b"data"}, env={"OWN": "1"})

    ran = await sandbox.run(job)

    stdin, data, cwd, environ, files = json.loads(ran.stdout)
    assert (stdin, data, files) == ("hello", "data", ["given.txt"])
    assert environ["OWN"] == "1"
    assert environ["HOME"] == environ["TMPDIR"] == cwd
    assert environ.keys() - {*VARIABLES, "OWN"} == set()
    assert (ran.ended, ran.code, ran.stderr) == ("exit", 3, b"aside\n")
    assert not Path(cwd).exists()


async def test_a_program_that_is_not_there_is_named(sandbox: Isolation) -> None:
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        await sandbox.run(Job(("no-such-program",)))


async def test_a_signal_is_told_as_one(sandbox: Isolation) -> None:
    ran = await sandbox.run(python("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"))

    assert (ran.ended, ran.code) == ("signal", signal.SIGSEGV)


async def test_time_is_up_for_all_that_it_started(sandbox: Isolation) -> None:
    mark = f"mark-{os.urandom(6).hex()}"
    source = """
        import os, signal, sys
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for _ in range(3): os.fork()
        print("x", flush=True)
        while True: signal.pause()
    """

    ran = await sandbox.run(python(textwrap.dedent(source), mark, limits=Limits(timeout=0.6)))

    assert ran.ended == "timeout"
    assert marked(mark) == []


async def test_more_output_than_is_kept_is_counted(sandbox: Isolation) -> None:
    source = "import sys; sys.stdout.write('a' * 3_000_000); sys.stderr.write('b' * 10)"

    ran = await sandbox.run(python(source, limits=Limits(output=1000)))

    assert (ran.stdout, ran.cut) == (b"a" * 1000, (2_999_000, 0))
    assert ran.stderr == b"b" * 10


async def test_a_fork_bomb_stays_small(sandbox: Isolation) -> None:
    """RLIMIT_NPROC does not hold for root, and counts the other processes of a user (setrlimit(2))."""
    mark = f"mark-{os.urandom(6).hex()}"
    source = """
        import os
        while True:
            try: os.fork()
            except OSError: pass
    """
    most = looks = 0
    async with asyncio.TaskGroup() as group:
        job = python(textwrap.dedent(source), mark, limits=Limits(pids=16, timeout=100))
        running = group.create_task(sandbox.run(job))
        while not running.done() and looks < 25:  # those after the bomb went off
            most = max(most, len(marked(mark)))
            looks += most >= 8
            await asyncio.sleep(0.02)
        pass_time(100)

    assert running.result().ended == "timeout"
    # beside the program: those that start it and watch over it carry the mark, too; and where the kernel counts all
    # processes of a user, others of him that ended meanwhile make room
    assert 8 <= most <= (16 + 4 if os.geteuid() == 0 else 48)
    assert marked(mark) == []


async def test_memory_is_limited_in_one_process_and_in_all(sandbox: Isolation) -> None:
    """RLIMIT_AS is each process's own (setrlimit(2))."""
    alone = await sandbox.run(python("x = bytearray(200 << 20)", limits=Limits(memory=MEMORY)))
    source = """
        import os, time
        for _ in range(3):
            if os.fork() == 0: break
        held = b"1" * (60 << 20)
        time.sleep(60)
    """
    together = await sandbox.run(python(textwrap.dedent(source), limits=Limits(memory=MEMORY, timeout=100)))

    assert b"MemoryError" in alone.stderr
    assert together.ended == "memory"


async def test_files_are_as_large_as_they_may_be(sandbox: Isolation) -> None:
    source = f"with open('x', 'wb') as file: file.write(bytes({FILE_SIZE} + 1))"

    ran = await sandbox.run(python(source, limits=Limits(file_size=FILE_SIZE)))

    assert b"File too large" in ran.stderr


WRITE = "for number in range(400): file = open(str(number), 'wb'); file.write(bytes(1 << 20)); file.close(); pause()"
HOARDERS = {
    "many files": f"{WRITE}",
    "many entries": "for number in range(301): os.symlink('x', str(number))",
    "files without a name": "kept = []\nfor number in range(20): "
    "kept.append(open('x', 'wb')); os.unlink('x'); os.write(kept[-1].fileno(), bytes(1 << 20))",
    "files in a closed directory": f"os.mkdir('a'); os.chdir('a'); os.chmod('.', 0o300)\n{WRITE}",
    "files very deep": f"for _ in range(150): os.mkdir('d'); os.chdir('d')\n{WRITE}",
}


async def test_what_a_job_writes_in_all_is_limited(sandbox: Isolation) -> None:
    """A limit of the kernel is each file's own."""
    limits = Limits(timeout=100, disk=8 << 20, entries=300)
    begin, end = "import os, time\npause = lambda: time.sleep(0.005)\n", "\nwhile True: time.sleep(9)"
    jobs = [python(begin + source + end, limits=limits) for source in HOARDERS.values()]

    runs = await asyncio.gather(*map(sandbox.run, jobs))

    assert {name: ran.ended for name, ran in zip(HOARDERS, runs, strict=True)} == dict.fromkeys(HOARDERS, "disk")
    assert describe_end(runs[0], limits) == (
        "stopped: it wrote more to its work folder than it may (at most 8 MiB, or 300 files)"
    )


async def test_what_left_its_session_and_closed_its_streams_does_not_survive(sandbox: Isolation) -> None:
    """Measured: after killpg alone three of three survive, and hold the pipes of the caller."""
    mark = f"mark-{os.urandom(6).hex()}"
    source = """
        import os, signal
        if os.fork() == 0:
            try: os.setsid()
            except OSError: pass
            if os.fork(): os._exit(0)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if os.fork(): os.closerange(0, 3)
            while True: signal.pause()
        print("done")
    """
    with fail_after(60):
        ran = await sandbox.run(python(textwrap.dedent(source), mark))

    assert (ran.ended, ran.stdout) == ("exit", b"done\n")
    assert marked(mark) == []


async def test_killing_everything_kills_nothing_outside(sandbox: Isolation) -> None:
    outside = Outside()
    try:
        await sandbox.run(python("import os; os.kill(-1, 9)"))
        await sandbox.run(python("import os; os.kill(0, 9)"))
        assert outside.is_untouched()
    finally:
        outside.close()


async def test_cancelled_it_is_gone_before_the_cancellation_returns(sandbox: Isolation) -> None:
    mark = f"mark-{os.urandom(6).hex()}"
    running = asyncio.ensure_future(sandbox.run(python(f"import os; os.fork(); {FOREVER}", mark)))
    await started(mark, 3)

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert marked(mark) == []


def test_the_end_of_the_loop_leaves_no_process_and_none_that_nobody_waits_for() -> None:
    """Whoever ends a loop cancels every task, also those that are just ending the job."""
    mark, before = f"mark-{os.urandom(6).hex()}", children()

    async def run() -> None:
        running = asyncio.ensure_future(isolation("off").run(python(f"import os; os.fork(); {FOREVER}", mark)))
        await started(mark, 2)
        while not running.done():
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await asyncio.sleep(0)

    asyncio.run(run())

    deadline = time.monotonic() + 60
    while (marked(mark) or children() - before) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert marked(mark) == []
    assert children() - before == set()


def children() -> set[int]:
    """Our processes that run, or have ended and were not waited for."""
    found: set[int] = set()
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            found.update(map(int, (thread / "children").read_text().split()))
    return found


async def test_who_asks_for_a_sandbox_may_be_cancelled_and_the_last_one_ends_the_trial() -> None:
    """The trial belongs to those who wait for it: nothing of it runs when none of them is left."""
    before, tasks = children(), asyncio.all_tasks()
    sandbox = isolation()

    first, second = (asyncio.ensure_future(sandbox.readiness()) for _ in range(2))
    await _until(lambda: children() - before)
    first.cancel()
    await asyncio.wait([first])
    with fail_after(100):
        assert (await second).chosen

    again = isolation()
    last = asyncio.ensure_future(again.readiness())
    await _until(lambda: children() - before)
    last.cancel()
    await asyncio.wait([last])
    assert last.cancelled()
    assert asyncio.all_tasks() == tasks
    assert children() - before == set()
    with fail_after(100):
        assert (await again.readiness()).chosen == (await sandbox.readiness()).chosen


async def test_who_asks_while_a_trial_ends_that_nobody_wants_gets_an_answer() -> None:
    before, sandbox = children(), isolation()
    first = asyncio.ensure_future(sandbox.readiness())
    await _until(lambda: children() - before)
    first.cancel()
    await asyncio.sleep(0)

    second = asyncio.ensure_future(sandbox.readiness())

    with fail_after(100):
        await asyncio.wait([first])
        assert (await second).chosen
    assert first.cancelled()


async def _until(is_so: Callable[[], object]) -> None:
    with fail_after(100):
        while not is_so():
            await asyncio.sleep(0.001)


async def test_a_deadline_around_it_is_kept(sandbox: Isolation) -> None:
    mark = f"mark-{os.urandom(6).hex()}"

    with move_on_after(0.3) as scope:
        await sandbox.run(python(FOREVER, mark))

    assert scope.cancelled_caught
    assert marked(mark) == []


@pytest.mark.parametrize("tier", [*TIERS, "off"])
async def test_nothing_is_left_when_the_bridge_is_killed(tier: str) -> None:
    """SIGKILL leaves the bridge no moment to clean up."""
    if tier != "off":
        await usable(tier)
    mark = f"mark-{os.urandom(6).hex()}"
    bridge = """
        import asyncio, sys
        from support.sandbox import sandbox_runs
        source = "import os, signal; os.fork(); os.fork(); signal.signal(15, signal.SIG_IGN); signal.pause()"
        sandbox = sandbox_runs.isolation(sys.argv[1])
        asyncio.run(sandbox.run(sandbox_runs.python(source, "mark-" + sys.argv[2])))
    """
    command = [sys.executable, "-c", textwrap.dedent(bridge), tier, mark.removeprefix("mark-")]
    popen = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])})
    try:
        await started(mark, 4)
    finally:
        popen.kill()
        popen.wait()

    with fail_after(60):
        while marked(mark):
            await asyncio.sleep(0.01)


async def test_files_and_directories_may_be_allowed(sandbox: Isolation) -> None:
    outside = Outside()
    try:
        (outside.place / "inside").mkdir()
        (outside.place / "inside").chmod(0o777)
        source = """
            import sys
            from pathlib import Path
            place, file = Path(sys.argv[1]), Path(sys.argv[2])
            print(file.read_text())
            (place / "written").write_text("yes")
            for path in (file, place.parent / "other"):
                try: path.write_text("no")
                except OSError as error: print(type(error).__name__)
        """
        inside = str(outside.place / "inside")
        access = Access(read_only=(str(outside.file),), read_write=(inside,))
        ran = await sandbox.run(python(textwrap.dedent(source), inside, str(outside.file), access=access, cwd=inside))
        said = ran.stdout.decode().split()

        assert said[0] == outside.secret
        assert len(said) == 3
        assert (outside.place / "inside" / "written").read_text() == "yes"
        assert outside.file.read_text() == outside.secret
    finally:
        outside.close()


async def test_a_path_that_only_root_may_change_leaves_root_without_processes(
    sandbox: Isolation, tmp_path: Path
) -> None:
    """Where no user of its own could do what was allowed, limits on processes do not hold: so none are started."""
    if os.geteuid() != 0:
        pytest.skip("it is about root")
    tmp_path.chmod(0o700)
    source = "import os, sys; open(sys.argv[1] + '/x', 'w').write('y'); print(os.getuid()); os.fork()"

    ran = await sandbox.run(python(source, str(tmp_path), access=Access(read_write=(str(tmp_path),))))

    assert (tmp_path / "x").read_text() == "y"
    assert ran.stdout == b"0\n"
    assert b"BlockingIOError" in ran.stderr


async def test_the_network_may_be_allowed(sandbox: Isolation) -> None:
    outside = Outside()
    try:
        source = """
            import socket, sys
            with socket.create_connection(("127.0.0.1", int(sys.argv[1]))): print("reached")
            try: socket.socket(socket.AF_UNIX).connect(sys.argv[2])
            except OSError: print("refused")
        """
        world = outside.world("")
        job = python(textwrap.dedent(source), str(world["port"]), str(world["socket"]), access=Access(network=True))

        ran = await sandbox.run(job)

        assert ran.stdout == b"reached\nrefused\n", ran.stderr
    finally:
        outside.close()


async def test_threads_work_where_processes_may_not_be_started(sandbox: Isolation) -> None:
    source = """
        import os, threading
        thread = threading.Thread(target=print, args=("thread",))
        thread.start(); thread.join()
        os.fork()
    """
    ran = await sandbox.run(python(textwrap.dedent(source), limits=Limits(pids=1)))

    assert ran.stdout == b"thread\n"
    assert b"BlockingIOError" in ran.stderr


async def test_programs_that_start_programs_work(sandbox: Isolation) -> None:
    ran = await sandbox.run(Job(("sh", "-c", "echo $(seq 3 | sort -r | tr -d '\\n') > file; cat file; rm file")))

    assert (ran.stdout, ran.stderr) == (b"321\n", b"")


async def test_variables_of_the_loader_reach_the_program_alone(sandbox: Isolation, tmp_path: Path) -> None:
    """With them a job would run its own code in what sets up its sandbox."""
    ran = await sandbox.run(python("import os; print(os.environ['LD_PRELOAD'])", env={"LD_PRELOAD": "/nowhere.so"}))

    assert ran.stdout == b"/nowhere.so\n"
    assert ran.stderr.count(b"cannot be preloaded") == 1


async def test_what_is_promised_must_be_there(sandbox: Isolation) -> None:
    with pytest.raises(ToolInactive, match="/no/such/place"):
        await sandbox.run(python("", access=Access(read_only=("/no/such/place",))))
    with pytest.raises(ToolInactive, match="working directory"):
        await sandbox.run(python("", cwd="/var"))


async def test_a_long_running_program_keeps_its_streams(sandbox: Isolation) -> None:
    source = "import os, sys\nfor line in sys.stdin: print(line.upper().strip(), os.getcwd(), flush=True)"
    wrapped = await sandbox.wrapped([interpreter(), "-I", "-S", "-c", source], {"OWN": "1"}, "", Limits(), Access())
    process = await asyncio.create_subprocess_exec(
        *wrapped.argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=wrapped.env,
        cwd=wrapped.cwd,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with fail_after(60):
        process.stdin.write(b"hello\n")
        line = await process.stdout.readline()
        process.stdin.close()
        await process.wait()
    sandbox.discard(wrapped.folder)

    assert line.decode().split() == ["HELLO", wrapped.folder]
    assert not Path(wrapped.folder).exists()


async def test_a_folder_that_was_made_unreadable_is_removed(sandbox: Isolation) -> None:
    source = "import os; os.makedirs('a/b'); a = os.open('a', 0); os.fchmod(a, 0); print(os.getcwd())"

    ran = await sandbox.run(python(source))

    assert ran.stdout, ran.stderr
    assert not Path(ran.stdout.decode().strip()).exists()


async def test_what_a_killed_bridge_left_behind_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tmp_path.chmod(0o755)
    left, used = (Path(folders.make_folder({"file": b""}, None)) for _ in range(2))
    os.close(folders._locks.pop(str(left)))
    for folder in (left, used):
        os.utime(folder, (1, 1))

    await isolation("off").readiness()

    assert [left.exists(), used.exists()] == [False, True]
    folders.remove_folder(str(used))


async def test_many_jobs_at_a_time_do_not_disturb_each_other(sandbox: Isolation) -> None:
    source = "import sys, os; open('mine', 'w').write(sys.argv[1]); print(open('mine').read(), len(os.listdir()))"

    runs = await asyncio.gather(*(sandbox.run(python(source, str(number))) for number in range(8)))

    assert [ran.stdout.decode().split() for ran in runs] == [[str(number), "1"] for number in range(8)]


async def test_what_was_found_out_is_remembered_for_the_next_start(tmp_path: Path) -> None:
    first = await isolation_with(tmp_path).readiness()
    (kept,) = tmp_path.iterdir()
    said = json.loads(kept.read_text())
    kept.write_text(json.dumps({**said, "note": "from the file"}))

    again = await isolation_with(tmp_path).readiness()
    anew = await isolation_with(tmp_path).readiness(whole=True)
    kept.write_text(json.dumps({**said, "fingerprint": "of another kernel", "note": "from the file"}))
    elsewhere = await isolation_with(tmp_path).readiness()

    assert [first.tiers[0].note, again.tiers[0].note, anew.tiers[0].note, elsewhere.tiers[0].note] == [
        "", "from the file", "", ""
    ]  # fmt: skip


async def test_a_sandbox_that_is_not_enabled_is_not_even_tried() -> None:
    sandbox = isolation(enabled=False)

    with pytest.raises(ToolInactive, match="enabled"):
        await sandbox.run(python("print(1)"))
    assert await sandbox.why_none()
    assert sandbox.known is None


def isolation_with(cache: Path) -> Isolation:
    from mcpbridge.sandbox.settings import SandboxSettings

    return Isolation(SandboxSettings(mode="launcher"), cache=cache)


def test_a_folder_nested_without_end_is_removed_all_the_same() -> None:
    """Deeper than Python recurses, longer than a path may be, and closed to its owner in the end."""
    folder = folders.make_folder({"a": b"1"}, None)
    step = "os.mkdir('d'); os.chdir('d'); open('f', 'w').close()"
    code = f"import os\nfor _ in range(3000):\n    {step}\nos.chmod('.', 0)"
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)
    folders.remove_folder(folder)
    assert not Path(folder).exists()
