"""Programs that call tools: what they can do, what they are told, and that nothing of them goes on when they end."""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from anyio import fail_after
from msgspec import Raw

from mcpbridge.sandbox.python import process as program_process
from mcpbridge.sandbox.python import program
from mcpbridge.sandbox.python.program import (
    CallFailed,
    ProgramClock,
    ProgramLimits,
    ProgramResult,
    Programs,
    Value,
    why_none,
)

pytestmark = pytest.mark.skipif(bool(why_none()), reason="needs the extra `code`")
linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

LIMITS = ProgramLimits(seconds=20, memory=64 << 20, calls=20, parallel=3)


class Toolbox:
    """Tools that a program may call: every name but those that begin with `no`."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any, int]] = []
        self.running = 0
        self.most_at_once = 0
        self.release = asyncio.Event()
        self.begun = asyncio.Event()
        self.cancelled: list[str] = []

    def has(self, name: str) -> bool:
        return not name.startswith("no")

    async def call(self, name: str, arguments: Raw, positional: int) -> Value:
        self.calls.append((name, json.loads(bytes(arguments)), positional))
        if positional:
            raise CallFailed("arguments need names: echo(*, x)", "TypeError")
        if name == "fails":
            raise CallFailed("there is no such issue")
        if name == "waits":
            self.running += 1
            self.most_at_once = max(self.most_at_once, self.running)
            self.begun.set()
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.cancelled.append(name)
                raise
            finally:
                self.running -= 1
        if name == "text":
            return Value(json.dumps(json.loads(bytes(arguments))["of"]).encode(), is_text_of_json=True)
        if name == "raw":
            return Value(json.loads(bytes(arguments))["json"].encode())
        return Value(arguments)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def programs(anyio_backend: str) -> AsyncIterator[Programs]:
    shared = Programs()
    yield shared
    await shared.close()


def watch(computing: float = 25, altogether: float = 30) -> ProgramClock:
    return ProgramClock(computing=computing, altogether=altogether)


async def run(
    programs: Programs, code: str, toolbox: Toolbox | None = None, limits: ProgramLimits = LIMITS
) -> ProgramResult:
    with fail_after(60):
        return await programs.run(code, toolbox or Toolbox(), limits=limits, watch=watch())


async def test_the_last_expression_is_the_value(programs: Programs) -> None:
    code = """
import asyncio
one = await tools.echo(x=12345678901234567890123)
two, three = await asyncio.gather(echo(x=[1]), call_tool("a-b.c", {"x": None}))
print("printed", one["x"] + 1)
{"all": [one, two, three]}
"""
    toolbox = Toolbox()
    ended = await run(programs, code, toolbox)
    assert ended.error == ""
    assert json.loads(ended.text) == {"all": [{"x": 12345678901234567890123}, {"x": [1]}, {"x": None}]}
    assert ended.is_json
    assert ended.printed == "printed 12345678901234567890124\n"
    assert [name for name, _, _ in toolbox.calls] == ["echo", "echo", "a-b.c"]
    assert ended.calls == 3


async def test_what_a_program_gets_and_gives(programs: Programs) -> None:
    """Data as data, text as text, and never anything that the interpreter or JSON cannot take."""
    code = r"""
deep = await raw(json="[" * 60 + "]" * 60)
levels = 0
while isinstance(deep, list) and deep:
    deep, levels = deep[0], levels + 1
deepest = await raw(json="[" * 3000 + "]" * 3000)
[
    await text(of='{"a": [10000000000000000000001, 1.5]}'), await text(of="12"), await text(of="{broken"),
    await raw(json='{"half": "\\ud800 and more"}'), [levels, type(deep).__name__], type(deepest).__name__,
    {3, 1, 2}, (1, 2), b"x", 2 ** 70,
]
"""
    ended = await run(programs, code)
    assert ended.error == ""
    assert json.loads(ended.text) == [
        {"a": [10000000000000000000001, 1.5]},
        "12",
        "{broken",
        {"half": "? and more"},
        [40, "str"],
        "str",
        [1, 2, 3],
        [1, 2],
        "b'x'",
        2**70,
    ]


async def test_return_outside_of_a_function_ends_it(programs: Programs) -> None:
    ended = await run(programs, "return 'text'\nprint('not reached')")
    assert (ended.text, ended.is_json, ended.printed) == ("text", False, "")


async def test_a_failed_call_can_be_caught(programs: Programs) -> None:
    code = """
said = []
try:
    await fails()
except RuntimeError as error:
    said.append(str(error))
try:
    await echo(1, x=2)
except TypeError as error:
    said.append(str(error))
try:
    await echo(x={1})
except TypeError as error:
    said.append(str(error))
try:
    nothing()
except NameError as error:
    said.append(str(error))
try:
    tools.nothing(x=1)
except AttributeError as error:
    said.append(str(error))
try:
    await call_tool(3)
except TypeError as error:
    said.append(str(error))
said
"""
    assert json.loads((await run(programs, code)).text) == [
        "there is no such issue",
        "arguments need names: echo(*, x)",
        "arguments of echo must be JSON values: set is not one (text, numbers, booleans, None, lists and dicts are)",
        "name 'nothing' is not defined",
        "no tool is called 'nothing'",
        "use call_tool('name', {'argument': value, …})",
    ]


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("x = 1\nawait fails()", "line 2, in <module>\n    await fails()"),
        ("def f(:\n    pass", "SyntaxError"),
        ("def f():\n    yield 1", "does not yet support yield"),
        ("import subprocess", "No module named 'subprocess'"),
        ("open('/etc/passwd')", "no files, network or environment"),
        ("import os\nos.environ['HOME']", "no files, network or environment"),
        ("async def main():\n    return 1\nmain()", ""),
        ("await call_tool('fails', {})", "there is no such issue"),
    ],
)
async def test_errors_say_where_and_why(programs: Programs, code: str, told: str) -> None:
    ended = await run(programs, code)
    if not told:
        assert ended.text == "<coroutine object main>; await it"
        return
    assert told in ended.error
    assert "/" not in re.sub(r"'/etc/passwd'|and/or", "", ended.error), "a path of this machine"


async def test_calls_run_side_by_side_but_not_too_many(programs: Programs) -> None:
    toolbox = Toolbox()
    code = "import asyncio\nlen(await asyncio.gather(*[waits(n=n) for n in range(9)]))"
    running = asyncio.create_task(run(programs, code, toolbox))
    with fail_after(30):
        while toolbox.running < 3:
            await asyncio.sleep(0.01)
    toolbox.release.set()
    assert (await running).text == "9"
    assert toolbox.most_at_once == 3


async def test_calls_are_counted(programs: Programs) -> None:
    loop = "    while True:\n        await echo(n=n)\n        n += 1\n"
    code = f"n = 0\ntry:\n{loop}except RuntimeError as error:\n    print(error)\nn"
    ended = await run(programs, code)
    assert (ended.text, ended.calls) == ("20", 20)
    assert ended.printed == "no calls left: a program may make 20\n"


async def test_no_call_goes_on_after_the_end(programs: Programs) -> None:
    toolbox = Toolbox()
    ended = await run(programs, "waits(n=1)\nwaits(n=2)\nawait echo(x=1)\n'over'", toolbox)
    assert ended.text == "over"
    assert toolbox.cancelled == ["waits", "waits"]
    assert toolbox.running == 0


async def test_whoever_cancels_a_program_ends_its_calls_too(programs: Programs) -> None:
    toolbox = Toolbox()
    running = asyncio.create_task(run(programs, "await waits()", toolbox))
    with fail_after(30):
        await toolbox.begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert toolbox.cancelled == ["waits"]


async def test_waiting_is_no_computing(programs: Programs) -> None:
    """Sleep and calls may take longer than a program may compute."""
    toolbox = Toolbox()
    limits = ProgramLimits(seconds=20, memory=64 << 20, calls=5, parallel=5)
    clock = watch(computing=5)
    code = "import asyncio, time\ntime.sleep(0.01)\nawait asyncio.gather(asyncio.sleep(0.01), waits())\n1"
    running = asyncio.create_task(programs.run(code, toolbox, limits=limits, watch=clock))
    with fail_after(30):
        await toolbox.begun.wait()
        while clock._computing._timer is not None:
            await asyncio.sleep(0.005)
    toolbox.release.set()
    with fail_after(30):
        assert (await running).text == "1"
    assert clock.over == ""


async def test_a_program_that_takes_too_long_altogether_is_stopped(programs: Programs) -> None:
    toolbox = Toolbox()
    with fail_after(30):
        ended = await programs.run(
            "print('before')\nawait waits()", toolbox, limits=LIMITS, watch=watch(altogether=0.2)
        )
    assert ended.error == "The program took more than 0.2 s, waiting for tools included; it was stopped"
    assert toolbox.cancelled in (["waits"], [])


async def test_large_output_is_capped(programs: Programs) -> None:
    ended = await run(programs, "for n in range(30):\n    print('x' * 99_999)\n'y' * 5_000_000")
    assert ended.printed.endswith("[1,951,424 more characters were printed]")
    assert len(ended.printed) < 1_100_000
    assert ended.error.endswith("the value has 5,000,000 characters, at most 4,194,304 are given: return less")
    assert "characters" in (await run(programs, r"'\0' * 4_000_000")).error
    assert len((await run(programs, "'é' * 2_000_000")).text) == 2_000_000


async def test_an_owner_cannot_take_all_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "LIVE_OF_ONE", 1)
    programs, toolbox = Programs(), Toolbox()
    try:
        first = asyncio.create_task(programs.run("await waits()", toolbox, limits=LIMITS, watch=watch(), owner="a"))
        with fail_after(30):
            await toolbox.begun.wait()
        refused = await programs.run("1", toolbox, limits=LIMITS, watch=watch(), owner="a")
        assert refused.error.startswith("1 programs of yours run already")
        with fail_after(30):
            other = await programs.run("1", toolbox, limits=LIMITS, watch=watch(), owner="b")
        assert other.text == "1"
        toolbox.release.set()
        with fail_after(30):
            await first
    finally:
        await programs.close()


async def test_a_program_too_long_to_be_one_is_not_started() -> None:
    programs = Programs()
    assert "longer than" in (await run(programs, "1" * 200_001)).error
    assert not programs._processes
    await programs.close()


async def test_closing_ends_what_runs() -> None:
    programs, toolbox = Programs(), Toolbox()
    running = asyncio.create_task(programs.run("await waits()", toolbox, limits=LIMITS, watch=watch()))
    with fail_after(30):
        await toolbox.begun.wait()
        await programs.close()
        assert "failed" in (await running).error
    assert toolbox.cancelled == ["waits"]
    assert "closing" in (await run(programs, "1")).error


async def test_closing_while_a_process_starts_leaves_nothing() -> None:
    programs = Programs()
    running = asyncio.create_task(run(programs, "1"))
    for _ in range(3):
        await asyncio.sleep(0)
    with fail_after(30):
        await programs.close()
        await asyncio.gather(running, return_exceptions=True)
    assert not programs._processes


@linux_only
async def test_each_program_has_a_process_of_its_own_and_one_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = Programs(idle=0.05)
    toolbox = Toolbox()
    running = asyncio.create_task(programs.run("await waits()", toolbox, limits=LIMITS, watch=watch()))
    with fail_after(30):
        await toolbox.begun.wait()
    (process,) = programs._processes
    assert_has_nothing(process.pid)
    toolbox.release.set()
    with fail_after(30):
        await running
        while not programs._ready:  # at each turn of the loop: it is soon ended
            await asyncio.sleep(0)
        assert programs._ready.pid != process.pid
        while programs._processes:  # it is ended when nobody wants it
            await asyncio.sleep(0.005)
    assert not Path(f"/proc/{process.pid}").exists()
    await programs.close()


def assert_has_nothing(pid: int) -> None:
    """Of the process itself and of the interpreter that it started."""
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()]
    assert len(children) == 1
    for one in (pid, *children):
        proc = Path(f"/proc/{one}")
        assert (proc / "environ").read_bytes() == b""
        assert (proc / "cwd").readlink() == Path("/")
        limits = dict(re.findall(r"^(Max [a-z ]+?) {2,}(\S+)", (proc / "limits").read_text("ascii"), re.MULTILINE))
        assert (limits["Max file size"], limits["Max core file size"], limits["Max open files"]) == ("0", "0", "64")
        assert limits["Max address space"] == str((1 << 30) + 2 * LIMITS.memory)
        assert limits["Max cpu time"] == "25"
        assert one == pid or limits["Max processes"] == "0"
        assert "NoNewPrivs:\t1" in (proc / "status").read_text("ascii")
        assert os.getpgid(one) == pid
        kinds = [str(entry.readlink()) for entry in (proc / "fd").iterdir()]
        assert all(re.match(r"pipe:|anon_inode:|/dev/null|socket:", kind) for kind in kinds), kinds


def test_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "PACKAGE", "mcpbridge_of_another_world")
    assert why_none().endswith("pip install 'mcpbridge[code]'")


async def test_without_the_interpreter_every_program_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_process, "_interpreter", lambda: "")
    programs = Programs()
    assert (await run(programs, "1")).error.startswith("Programs cannot be run here now")
    await programs.close()
