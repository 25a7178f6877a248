"""The memory limit of a server: of all its processes together, and only when they hold too much for some time."""

import os
import sys
from pathlib import Path

import anyio
import pytest

from mcpbridge.base.process import memory_limit
from mcpbridge.base.process.process import ProcessSpec, ServerProcess
from mcpbridge.protocol.jsonrpc import Frame
from mcpbridge.upstream.transports.stdio import StdioTransport

MIB = 1024**2
FATHER = """
import os, sys, time
held = bytearray(os.urandom(1 << 20) * {own})
if os.fork() == 0:
    {apart}
    more = bytearray(os.urandom(1 << 20) * {childs})
    print("up", file=sys.stderr, flush=True)
    time.sleep(60)
sys.stdin.read()
"""


class Ending:
    """A `Receiver` that waits for the end."""

    def __init__(self) -> None:
        self.reason = ""
        self.ended = anyio.Event()

    def frame(self, frame: Frame, via: bytes) -> None: ...

    def spoiled(self, ids: list[bytes], reason: str, via: bytes) -> None: ...

    has_unasked = False

    def pause_after(self, seconds: float) -> float:
        return 0.0

    def failed(self, id_: bytes, error: Exception, *, sent: bool) -> None: ...

    def closed(self, reason: str) -> None:
        self.reason = reason
        self.ended.set()


def server(own: int, childs: int, *, apart: bool = False) -> ProcessSpec:
    """It holds so many MiB, and its child as many more."""
    code = FATHER.format(own=own, childs=childs, apart="os.setsid()" if apart else "pass")
    return ProcessSpec(sys.executable, ("-ISc", code), {"PATH": os.environ["PATH"]})


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_limit, "LOOK_SECONDS", 0.05)


async def test_a_server_whose_processes_hold_too_much_ends_with_that_as_the_reason() -> None:
    """Also what a descendant holds that left its group; neither alone is too much."""
    transport = StdioTransport("up", server(40, 40, apart=True), max_bytes=MIB, memory_limit=64 * MIB)
    ending = Ending()
    with anyio.fail_after(60):
        async with transport.connect(ending):
            await ending.ended.wait()
    assert ending.reason.startswith("it used ")
    assert ending.reason.endswith(" MiB of memory; its `memory_limit` is 64 MiB")


async def test_what_processes_share_counts_once() -> None:
    """As where a server forks workers after it has loaded everything."""
    process = ServerProcess.start(server(60, 1))
    try:
        with anyio.fail_after(60):
            await anyio.to_thread.run_sync(os.read, process.stderr, 10)
            with anyio.move_on_after(0.5):
                pytest.fail(await memory_limit.exceeded(process, 100 * MIB))
    finally:
        await process.stop(lambda: None, at_once=True)
    assert not Path(f"/proc/{process.pid}").exists()


async def test_a_short_peak_is_no_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    found = iter([90, 10, 90, 90])

    def measured(asked: dict[str, tuple[int, int]]) -> dict[str, int]:
        return dict.fromkeys(asked, next(found) * MIB)

    monkeypatch.setattr(memory_limit, "_measured", measured)
    process = ServerProcess.start(server(1, 1))
    try:
        with anyio.fail_after(60):
            assert "90 MiB" in await memory_limit.exceeded(process, 64 * MIB)
        assert next(found, None) is None
    finally:
        await process.stop(lambda: None, at_once=True)
