"""Hostile programs, and processes that lie or die: the bridge says so, goes on, and nothing is left of them."""

import asyncio
import json
import os
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from anyio import fail_after
from msgspec import Raw

from mcpbridge.sandbox.python import process as program_process
from mcpbridge.sandbox.python.program import ProgramClock, ProgramLimits, ProgramResult, Programs, Value, why_none

needs_interpreter = pytest.mark.skipif(bool(why_none()), reason="needs the extra `code`")
linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

ATTACKS: dict[str, str] = json.loads(Path(__file__).with_name("program_attacks.json").read_text("utf-8"))["python"]
MORE = {
    "print_flood": "while True:\n    print('x' * 1000)",
    "call_flood": "import asyncio\nawait asyncio.gather(*[echo(n=n) for n in range(100_000)])",
    "call_and_catch": "while True:\n    try:\n        await echo()\n    except RuntimeError:\n        pass",
    "name_flood": "\n".join(f"try:\n    name{n}\nexcept NameError:\n    pass" for n in range(2000)),
    "sleep_flood": "import asyncio\nawait asyncio.gather(*[asyncio.sleep(1000) for _ in range(5000)])",
    "sleep_long": "import time\ntime.sleep(10 ** 9)",
    "sleep_nothing": "import asyncio\nwhile True:\n    await asyncio.sleep(0)",
    "traceback": "try:\n    1 / 0\nexcept Exception as error:\n    x = error.__traceback__.tb_frame.f_globals\nx",
    "format": "'{0.__class__.__init__.__globals__}'.format(1)",
    "tools_inside": "getattr(tools, '__dict__')",
    "function_inside": "echo.__globals__",
    "deep_source": "-" * 50_000 + "1",
    "long_source": "+".join(["1"] * 40_000),
    "huge_argument": "await echo(x='a' * 20_000_000)",
    "deep_argument": "a = {}\nfor _ in range(100_000):\n    a = {'a': a}\nawait echo(x=a)",
    "long_number": "await echo(x=10 ** 5000)",
    "huge_value": "'a' * 20_000_000",
    "memory_in_a_dict": "d = {}\nn = 0\nwhile True:\n    d[n] = str(n) * 100\n    n += 1",
    "decimal": "from decimal import Decimal, getcontext\ngetcontext().prec = 10 ** 6\nDecimal(2).sqrt()",
    "socket": "import socket",
    "exec": "exec('1')",
}
HARMLESS = {"redos", "name_flood", "return_deep", "exec"}
"""Those that need not fail."""

LIMITS = ProgramLimits(seconds=0.3, memory=64 << 20, calls=30, parallel=4)
PATIENT = ProgramLimits(seconds=40, memory=64 << 20, calls=30, parallel=4)
"""For what comes to its end by itself, on a busy machine too."""
TICK = 0.005


class Echo:
    def __init__(self) -> None:
        self.running = 0
        self.called = asyncio.Event()

    def has(self, name: str) -> bool:
        return name == "echo"

    async def call(self, name: str, arguments: Raw, positional: int) -> Value:
        self.running += 1
        self.called.set()
        try:
            await asyncio.sleep(0)
        finally:
            self.running -= 1
        return Value(arguments)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


async def attacked(
    programs: Programs,
    code: str,
    *,
    owner: str = "",
    limits: ProgramLimits = LIMITS,
    altogether: float = 4,
    computing: float = 3,
) -> ProgramResult:
    echo = Echo()
    with fail_after(60):
        watch = ProgramClock(computing=computing, altogether=altogether)
        ended = await programs.run(code, echo, limits=limits, watch=watch, owner=owner)
    assert echo.running == 0
    return ended


async def ran(programs: Programs, code: str, owner: str = "") -> ProgramResult:
    """The same of a program that comes to its end by itself."""
    return await attacked(programs, code, owner=owner, limits=PATIENT, altogether=50, computing=50)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The processes that ran programs here: each has a group of its own, which what it starts cannot leave."""
    groups: set[int] = set()
    spawned = program_process.ProgramProcess.spawned

    async def noted() -> program_process.ProgramProcess:
        process = await spawned()
        groups.add(process.pid)
        return process

    monkeypatch.setattr(program_process.ProgramProcess, "spawned", noted)
    return groups


async def gone(groups: set[int]) -> None:
    """Return when nothing runs of these groups. What is killed may need a moment; what is not would stay for longer."""
    with fail_after(20):
        while left(groups):
            await asyncio.sleep(0.01)


def left(groups: set[int]) -> set[int]:
    """What still runs of these groups; nothing where the system does not say."""
    found: set[int] = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            status = (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        except OSError:
            continue
        if status[0] not in "ZX" and int(status[2]) in groups:
            found.add(int(entry.name))
    return found


def test_attacks_are_all_there() -> None:
    assert len(ATTACKS) == 23


@needs_interpreter
async def test_every_attack_is_contained(started: set[int]) -> None:
    """Issue 6: contained, with the bridge responsive throughout, and no process left."""
    programs = Programs()
    gaps = list[float]()

    async def tick() -> None:
        last = asyncio.get_running_loop().time()
        while True:
            await asyncio.sleep(TICK)
            now = asyncio.get_running_loop().time()
            gaps.append(now - last)
            last = now

    async def one(name: str, code: str) -> None:
        async with turns:
            ended = await (ran if name in HARMLESS else attacked)(programs, code, owner=name)
        assert len(ended.text) < 500, name
        assert len(ended.error) < 6000, name
        assert "/usr" not in ended.error + ended.text, name
        assert "site-packages" not in ended.error + ended.text, name
        assert bool(ended.error) is (name not in HARMLESS), f"{name}: {ended.text[:100]} {ended.error[:100]}"

    turns = asyncio.Semaphore(3)
    ticker = asyncio.create_task(tick())
    attacks = {**MORE, **{name: f"result = []\n{code}" for name, code in ATTACKS.items()}}
    try:
        await asyncio.gather(*(one(name, code) for name, code in attacks.items()))
        ticker.cancel()
        gaps.sort()
        assert gaps[len(gaps) // 2] < 20 * TICK, "the loop could not tick while attacks ran"
        assert (await ran(programs, "1 + 1")).text == "2"
    finally:
        await programs.close()
    assert len(started) > len(attacks)
    await gone(started)


LIAR = """
import json, os, sys, time
out = sys.stdout.buffer
def raw(data):
    out.write(len(data).to_bytes(4, "big") + data)
    out.flush()
def say(kind, **more):
    raw(json.dumps({"kind": kind, **more}).encode())
def hear():
    size = int.from_bytes(sys.stdin.buffer.read(4), "big")
    return sys.stdin.buffer.read(size)
"""


@pytest.fixture
def liar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes every process one that runs this instead of `sandbox/python/worker_main.py`."""

    def become(source: str) -> None:
        file = tmp_path / "liar.py"
        file.write_text(LIAR + textwrap.dedent(source), "utf-8")
        monkeypatch.setattr(program_process, "_PROGRAM", str(file))

    return become


BEGIN = 'say("ready")\nhear()\n'


@needs_interpreter
@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("sys.exit(1)", "cannot be run here now"),
        ('say("broken", why="no memory")', "no memory"),
        ('say("done", text="1")', "did not begin as it should"),
        ("raw(b'{}')", "made no sense"),
        (BEGIN + "out.write(b'\\xff\\xff\\xff\\xff' + b'x' * 100); out.flush(); time.sleep(60)", "made no sense"),
        (BEGIN + "raw(b'not json'); time.sleep(60)", "made no sense"),
        (BEGIN + "raw(b'\\xff\\xfe'); time.sleep(60)", "made no sense"),
        (BEGIN + 'say("nothing"); time.sleep(60)', "made no sense"),
        (BEGIN + 'say("call", id="x", name=3, arguments={}); time.sleep(60)', "made no sense"),
        (BEGIN + 'say("call", id=1, name="echo", arguments=[1]); time.sleep(60)', "made no sense"),
        (
            BEGIN + 'raw(b\'{"kind":"call","id":1,"name":"echo","arguments":\''
            " + b'[' * 200000 + b']' * 200000 + b'}'); time.sleep(60)",
            "made no sense",
        ),
        (BEGIN + 'say("ready"); time.sleep(60)', "made no sense"),
        (BEGIN + "for n in range(100000): say('printed', text='x')", "sent too much"),
        (BEGIN + "for n in range(100000): say('call', id=n, name='echo', arguments={})", "sent too much"),
        (BEGIN + "for n in range(100000): say('look', name='x')", "sent too much"),
        (BEGIN + 'say("waiting", seen=0); time.sleep(60)', "waits for something that never comes"),
        (BEGIN + 'say("waiting", seen=7); time.sleep(60)', "took more than 0.5 s"),
        (BEGIN + 'say("sleep", id=1, seconds=1e300); say("waiting", seen=0); time.sleep(60)', "took more than 0.5 s"),
        (BEGIN + 'say("sleep", id=1, seconds=1e300); say("waiting", seen=1); time.sleep(60)', "took more than 0.5 s"),
        (
            BEGIN + 'say("sleep", id=1, seconds=-5); hear(); say("waiting", seen=1); time.sleep(60)',
            "waits for something that never comes",
        ),
        (BEGIN + "os.close(0); time.sleep(60)", "took more than 0.5 s"),
        (BEGIN + "os.close(1); time.sleep(60)", "failed"),
        (BEGIN + "out.write(b'\\0\\0'); out.flush(); os._exit(0)", "failed"),
        (BEGIN + "os.kill(os.getpid(), 11)", "failed"),
    ],
)
async def test_a_process_that_lies_is_ended(
    liar: Callable[[str], None], started: set[int], source: str, told: str
) -> None:
    liar(source)
    programs = Programs()
    try:
        ended = await attacked(programs, "1", altogether=0.5 if "more than 0.5 s" in told else 50, computing=50)
    finally:
        await programs.close()
    assert told in ended.error
    assert len(ended.error) < 500
    assert started
    await gone(started)


@needs_interpreter
@linux_only
async def test_what_a_process_leaves_behind_is_ended_with_it(liar: Callable[[str], None], tmp_path: Path) -> None:
    mark = tmp_path / "child"
    liar(
        BEGIN
        + f"""
        child = os.fork()
        if child:
            open({str(mark)!r}, "w").write(str(child))
            say("done", text="over", shape="text")
            os._exit(0)
        time.sleep(60)
        """.replace("\n        ", "\n")
    )
    programs = Programs()
    assert (await ran(programs, "1")).text == "over"
    await programs.close()
    assert not is_running(int(mark.read_text("utf-8")))


@needs_interpreter
@linux_only
@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_pipes_that_something_else_holds_are_closed(liar: Callable[[str], None], tmp_path: Path, kind: str) -> None:
    """It left the group, and lives on; the bridge's ends of its pipes must not."""
    mark, closed = tmp_path / "child", tmp_path / "closed"
    liar(
        BEGIN
        + f"""
        reads, writes = os.pipe()
        child = os.fork()
        if child:
            os.read(reads, 1)
            open({str(mark)!r}, "w").write(str(child))
            say("done", text="over", shape="text")
            time.sleep(60)
            os._exit(0)
        os.setsid()
        os.write(writes, b"x")
        os.read(0, 1)
        try:
            while True:
                os.write(1, b"x")
                time.sleep(0.01)
        except OSError:
            open({str(closed)!r}, "w").close()
        time.sleep(60)
        """.replace("\n        ", "\n")
    )

    async def run() -> None:
        programs = Programs()
        assert (await ran(programs, "1")).text == "over"
        await programs.close()
        with fail_after(20):
            while not closed.exists():
                await asyncio.sleep(0.01)

    try:
        anyio.run(run, backend_options={"use_uvloop": kind == "uvloop"})
    finally:
        os.kill(int(mark.read_text("utf-8")), 9)


@needs_interpreter
async def test_one_that_never_begins_is_given_up(liar: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_process, "START_WITHIN", 0.2)
    liar("time.sleep(60)")
    programs = Programs()
    assert "was not ready within" in (await attacked(programs, "1")).error
    await programs.close()


@needs_interpreter
@linux_only
@pytest.mark.parametrize(
    ("whom", "told"),
    [("process", "The program's process failed"), ("interpreter", "The program was ended with its process")],
)
async def test_one_that_is_killed_is_told_of_and_replaced(whom: str, told: str) -> None:
    programs, echo, watch = Programs(), Echo(), ProgramClock(computing=30, altogether=30)
    code, limits = "await echo()\nwhile True:\n    pass", ProgramLimits(30, 64 << 20, 1, 1)
    running = asyncio.create_task(programs.run(code, echo, limits=limits, watch=watch))
    try:
        with fail_after(30):
            await echo.called.wait()
            (busy,) = [process.pid for process in programs._processes]
            child = int(Path(f"/proc/{busy}/task/{busy}/children").read_text("ascii"))
            os.kill(busy if whom == "process" else child, 9)
            error = (await running).error
        assert error.startswith(told)
        assert (await ran(programs, "2")).text == "2"
    finally:
        await programs.close()


def is_running(pid: int) -> bool:
    """Neither gone nor a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@needs_interpreter
@linux_only
def test_it_is_the_same_on_uvloop() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def scenario() -> None:
        programs = Programs()
        assert (await ran(programs, "(await echo(x='é' * 100_000))['x'][-1]")).text == "é"
        began = time.process_time()
        assert "computed for more" in (await attacked(programs, "while True:\n    pass")).error
        assert time.process_time() - began < 10
        running = asyncio.create_task(attacked(programs, "while True:\n    await echo()"))
        for _ in range(10):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await programs.close()

    uvloop.run(scenario())
