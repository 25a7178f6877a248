"""Hostile expressions, and workers that die: neither reaches the bridge, the next expression, or the machine."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from anyio import fail_after

from mcpbridge.sandbox.javascript.engine import JavaScript
from mcpbridge.sandbox.javascript.scripts import TransformFailed
from support.virtual_time import pass_time

ATTACKS: dict[str, str] = json.loads(Path(__file__).with_name("attacks.json").read_text("utf-8"))["js"]
ROWS = '[{"id":1,"name":"x"}]'
FOREVER = "Object.prototype.toString = Error.prototype.toString = () => { for (;;); }; for (;;);"
"""Only the clock ends it: its limit of CPU time would do that while a busy machine holds up the test."""
TICK = 0.005

linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def javascript() -> AsyncIterator[JavaScript]:
    async with JavaScript(deadline=20) as engine:
        yield engine


@pytest.fixture(scope="module")
async def engine(anyio_backend: str) -> AsyncIterator[JavaScript]:
    async with JavaScript(deadline=20) as shared:
        yield shared


def pid_of(engine: JavaScript) -> int:
    (worker,) = [worker for worker in engine._workers if worker.is_alive]
    return worker.pid


def is_running(pid: int) -> bool:
    """Neither gone nor a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def is_busy(pid: int) -> None:
    """Return when it computes: it has used CPU time since we first looked."""

    def used() -> int:
        return sum(map(int, Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[11:13]))

    before = used()
    with fail_after(30):
        while used() < before + 3:
            await asyncio.sleep(0.01)


async def test_attacks_are_all_there() -> None:
    assert len(ATTACKS) == 18


@pytest.mark.parametrize("name", ATTACKS)
async def test_an_attack_is_contained(engine: JavaScript, name: str) -> None:
    """Issue 5: all contained, with the daemon responsive throughout."""
    assert await engine.evaluate("result.length", ROWS, binding="json") == "1"
    memory = own_memory()
    gaps: list[float] = []

    async def tick() -> None:
        last = asyncio.get_running_loop().time()
        while True:
            await asyncio.sleep(TICK)
            now = asyncio.get_running_loop().time()
            gaps.append(now - last)
            last = now

    ticker = asyncio.create_task(tick())
    try:
        with fail_after(60):
            answer = await engine.evaluate(ATTACKS[name], ROWS, binding="json")
    except TransformFailed as failed:
        answer = str(failed)
        assert name not in ("globals", "ctor_escape", "proto_pollution")
    finally:
        ticker.cancel()
    if len(gaps) > 20:
        gaps.sort()
        assert gaps[len(gaps) // 2] < 20 * TICK, "the loop could not tick while the attack ran"
    assert own_memory() - memory < 32 << 20
    assert len(answer) < 500
    if name == "globals":
        assert answer == "[]"
    if name == "ctor_escape":
        assert answer == "undefined" * 5
    assert (
        await engine.evaluate("[({}).zz, result.length, Object.keys(globalThis)]", ROWS, binding="json")
        == "[null,1,[]]"
    )


def own_memory() -> int:
    """Bytes of our own, wherever the system has them at the moment."""
    if not sys.platform.startswith("linux"):
        return 0
    held = dict(re.findall(r"^(\w+):\s+(\d+) kB$", Path("/proc/self/status").read_text("ascii"), re.MULTILINE))
    return (int(held["VmRSS"]) - int(held.get("RssFile", 0)) + int(held.get("VmSwap", 0))) * 1024


@pytest.mark.parametrize(
    "expression",
    [
        "throw {get stack() { for (;;); }, get message() { for (;;); }}",
        FOREVER,
        "(async () => { for (;;) await 1 })()",
        "({toJSON() { for (;;); }})",
        "({then(f) { for (;;); }})",
        "Array.prototype.join = () => { throw 1 }; JSON.stringify = null; String.prototype.includes = null; throw 1",
        "(function* () { for (;;) yield 1 })()",
        "const a = []; for (;;) a.push(a.slice())",
        "Object.defineProperty(Object.prototype, 'toJSON', {get() { for (;;); }}); ({})",
    ],
)
async def test_what_breaks_the_way_out_is_contained(engine: JavaScript, expression: str) -> None:
    assert await engine.evaluate("result.length", ROWS, binding="json") == "1"
    running = asyncio.create_task(engine.evaluate(expression, ROWS, binding="json"))
    await asyncio.wait([running], timeout=3)
    if not running.done():  # it is for the clock to end it
        pass_time(20)
    with fail_after(30), pytest.raises(TransformFailed):
        await running
    assert await engine.evaluate("result.length", ROWS, binding="json") == "1"


async def test_no_expression_sees_what_another_left(javascript: JavaScript) -> None:
    await javascript.evaluate("globalThis.left = 1; Array.prototype.map = null; var other = 1; 1", ROWS, binding="json")
    said = await javascript.evaluate("[typeof left, typeof other, typeof [].map, typeof rows]", ROWS, binding="json")
    assert said == '["undefined","undefined","function","undefined"]'


@linux_only
async def test_a_worker_that_is_killed_is_replaced(javascript: JavaScript) -> None:
    await javascript.evaluate("1", ROWS, binding="json")
    (worker,), pid = javascript._workers, pid_of(javascript)
    running = asyncio.create_task(javascript.evaluate(FOREVER, ROWS, binding="json"))
    await is_busy(pid)
    os.kill(pid, signal.SIGKILL)
    with fail_after(30):
        with pytest.raises(TransformFailed, match="ended"):
            await running
        await worker.ended()
    assert await javascript.evaluate("2", ROWS, binding="json") == "2"
    assert pid_of(javascript) != pid
    assert not Path(f"/proc/{pid}").exists()


@linux_only
async def test_a_worker_that_stands_still_is_killed_by_the_clock() -> None:
    async with JavaScript(deadline=0.5) as engine:
        with fail_after(30):
            while True:  # a busy machine may need several starts until one fits the deadline
                try:
                    await engine.evaluate("1", ROWS, binding="json")
                except TransformFailed:
                    continue
                break
        pid = pid_of(engine)
        os.kill(pid, signal.SIGSTOP)
        with fail_after(30), pytest.raises(TransformFailed, match="was stopped"):
            await engine.evaluate("1", ROWS, binding="json")
        assert engine._idle == []
    assert not Path(f"/proc/{pid}").exists()


@linux_only
async def test_a_cancelled_evaluation_ends_its_worker(javascript: JavaScript) -> None:
    await javascript.evaluate("1", ROWS, binding="json")
    pid = pid_of(javascript)
    running = asyncio.create_task(javascript.evaluate(FOREVER, ROWS, binding="json"))
    await is_busy(pid)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    with fail_after(10):
        while is_running(pid):
            await asyncio.sleep(0.01)
    assert await javascript.evaluate("2", ROWS, binding="json") == "2"


@linux_only
async def test_closing_ends_what_runs_and_leaves_nothing() -> None:
    engine = JavaScript(deadline=20)
    await engine.evaluate("1", ROWS, binding="json")
    pid = pid_of(engine)
    running = asyncio.create_task(engine.evaluate(FOREVER, ROWS, binding="json"))
    await is_busy(pid)
    with fail_after(10):
        await engine.close()
        with pytest.raises(TransformFailed, match="closing"):
            await running
    assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(TransformFailed, match="closing"):
        await engine.evaluate("1", ROWS, binding="json")


async def test_closing_while_a_worker_starts_leaves_nothing() -> None:
    engine = JavaScript()
    running = asyncio.create_task(engine.evaluate("1", ROWS, binding="json"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    with fail_after(30):
        await engine.close()
        with pytest.raises(TransformFailed):
            await running
    assert engine._workers == set()


async def test_a_second_worker_starts_only_for_a_call_that_would_wait(javascript: JavaScript) -> None:
    for _ in range(3):
        await javascript.evaluate("1", ROWS, binding="json")
    assert len(javascript._workers) == 1
    said = await asyncio.gather(*(javascript.evaluate(str(n), ROWS, binding="json") for n in range(6)))
    assert said == list("012345")
    assert len(javascript._workers) == 2


@linux_only
async def test_an_idle_worker_is_ended() -> None:
    async with JavaScript(deadline=20, idle=0.01) as engine:
        await engine.evaluate("1", ROWS, binding="json")
        (worker,) = engine._workers
        with fail_after(30):
            await worker.ended()
        assert engine._idle == []
        assert await engine.evaluate("2", ROWS, binding="json") == "2"


@linux_only
async def test_a_worker_has_nothing(javascript: JavaScript) -> None:
    reading, writing = os.pipe()
    os.set_inheritable(reading, True)
    os.environ["A_SECRET_OF_THE_BRIDGE"] = "x"
    try:
        await javascript.evaluate("1", ROWS, binding="json")
    finally:
        del os.environ["A_SECRET_OF_THE_BRIDGE"]
        os.close(reading)
        os.close(writing)
    proc = Path(f"/proc/{pid_of(javascript)}")
    assert sorted(entry.name for entry in (proc / "fd").iterdir()) == ["0", "1", "2"]
    assert (proc / "environ").read_bytes() == b""
    assert (proc / "cwd").readlink() == Path("/")
    limits = dict(re.findall(r"^(Max [a-z ]+?) {2,}(\S+)", (proc / "limits").read_text("ascii"), re.MULTILINE))
    assert (limits["Max file size"], limits["Max core file size"], limits["Max processes"]) == ("0", "0", "0")
    assert limits["Max address space"] == str(1 << 30)
    assert limits["Max open files"] == "8"
    assert limits["Max cpu time"] != "unlimited"
    assert "NoNewPrivs:\t1" in (proc / "status").read_text("ascii")
    assert os.getsid(pid_of(javascript)) == pid_of(javascript)


@linux_only
async def test_a_worker_dies_with_the_bridge() -> None:
    """Killed while the worker computes, so that it is not the end of its input that ends it."""
    parent = textwrap.dedent("""
        import asyncio
        from contextlib import suppress
        from mcpbridge.sandbox.javascript.engine import JavaScript
        from mcpbridge.sandbox.javascript.scripts import TransformFailed

        async def main():
            javascript = JavaScript(deadline=60)
            await javascript.evaluate("1", "1", binding="json")
            (worker,) = javascript._workers
            print(worker.pid, flush=True)
            while True:
                with suppress(TransformFailed):
                    await javascript.evaluate("for (;;);", "1", binding="json")

        asyncio.run(main())
    """)
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        pid = int(await asyncio.to_thread(process.stdout.readline))
        await is_busy(pid)
        process.kill()
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    with fail_after(10):
        while is_running(pid):
            await asyncio.sleep(0.01)


@linux_only
def test_it_is_the_same_on_uvloop() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def scenario() -> None:
        reading, writing = os.pipe()
        os.set_inheritable(reading, True)
        try:
            async with JavaScript(deadline=20) as engine:
                assert await engine.evaluate("result.length", "x" * 3_000_000, binding="text") == "3000000"
                pid = pid_of(engine)
                assert sorted(entry.name for entry in Path(f"/proc/{pid}/fd").iterdir()) == ["0", "1", "2"]
                assert Path(f"/proc/{pid}/environ").read_bytes() == b""
                running = asyncio.create_task(engine.evaluate(FOREVER, ROWS, binding="json"))
                await is_busy(pid)
                running.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await running
                assert await engine.evaluate("'é'.repeat(2e6).length", ROWS, binding="json") == "2000000"
            assert not Path(f"/proc/{pid}").exists()
        finally:
            os.close(reading)
            os.close(writing)

    uvloop.run(scenario())
