"""Reads kept results beside the event loop: small ones in it, larger ones in a thread, large ones in a process."""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Literal, TypeVar, cast

import anyio
import anyio.abc
import anyio.to_thread
import msgspec

from mcpbridge.base.log import get_logger
from mcpbridge.protocol.body import Body
from mcpbridge.results.errors import QueryRefused
from mcpbridge.results.query.script_input import Source
from mcpbridge.tools.builtin.recall.read import Reading
from mcpbridge.tools.builtin.recall.worker_main import LENGTH, Question, Reply, text_of

log = get_logger("mcpbridge.results")

SLOW = 32 * 1024
"""Bytes of results from which they are read in a thread: a hundred KB may take 50 ms."""

LARGE = 4 * 1024**2
"""Bytes from which they are read in a process of its own: that takes a fifth of a second to start."""

_PROCESSES, _THREADS = 2, 4
"""At the same time. Each takes some ten times the memory of what it reads."""
_PIECE = 1024**2
T = TypeVar("T")
_PROGRAM = "mcpbridge.tools.builtin.recall.worker_main"


class _Broken(Exception):
    """The process could not be started, or made no sense."""


class Apart:
    """Reads results for the calls of one bridge."""

    def __init__(self) -> None:
        """Within an event loop, for that alone."""
        self._processes, self._threads = anyio.CapacityLimiter(_PROCESSES), anyio.CapacityLimiter(_THREADS)

    async def answer(self, reading: Reading, params: Body) -> str:
        """`Reading.answer`, wherever that is best. Raises QueryRefused as it does."""
        if reading.size > LARGE:
            found = await self._by_process(reading, params, is_bound=False)
            if found is not None:
                return found.text
        if reading.size > SLOW:
            return await self._by_thread(reading.answer)
        return reading.answer()

    async def bound(self, reading: Reading, params: Body) -> Source:
        """`Reading.bound`, wherever that is best. Raises QueryRefused as it does."""
        if reading.size > LARGE:
            found = await self._by_process(reading, params, is_bound=True)
            if found is not None:
                return found
        if reading.size > SLOW:
            return await self._by_thread(reading.bound)
        return reading.bound()

    async def _by_thread(self, function: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(function, limiter=self._threads, abandon_on_cancel=True)

    async def _by_process(self, reading: Reading, params: Body, *, is_bound: bool) -> Source | None:
        """What a process says of it; None if there is none to be had here."""
        results = {handle: len(data) for handle, data in reading.results.items()}
        question = Question(bytes(params.data), results, reading.room, is_bound)
        try:
            async with self._processes:
                reply = await _asked(question, list(reading.results.values()))
        except (_Broken, OSError) as error:
            log.warning("no worker process; shortening a large result in the bridge itself", reason=str(error)[:200])
            return None
        if reply.refused:
            raise QueryRefused(text_of(reply.refused))
        binding = cast('Literal["json", "ndjson", "text"]', reply.binding or "text")
        return Source(text_of(reply.text), binding, text_of(reply.rows))


async def _asked(question: Question, results: list[bytes]) -> Reply:
    """Start a process, ask it, and see it end; who is cancelled meanwhile ends it.

    Raises:
        QueryRefused: it was ended from outside: for want of memory, most likely.
        OSError: it could not be started.
        _Broken: it failed.
    """
    process = await anyio.open_process(
        [sys.executable, "-P", "-m", _PROGRAM], stderr=subprocess.DEVNULL, env=_environment(), start_new_session=True
    )
    async with process:
        try:
            answer = await _exchanged(process, question, results)
            status = await process.wait()
        except BaseException:
            if process.returncode is None:
                process.kill()
            raise
    if status < 0:
        raise QueryRefused("there was not enough memory to read so large a result: ask the tool for less of it")
    try:
        if not status:
            return msgspec.msgpack.decode(answer, type=Reply)
    except msgspec.DecodeError:
        pass
    raise _Broken(f"its process ended with status {status}")


async def _exchanged(process: anyio.abc.Process, question: Question, results: list[bytes]) -> bytes:
    asked = msgspec.msgpack.encode(question)
    stdin, stdout = cast("Any", process.stdin), cast("Any", process.stdout)
    try:
        for data in (len(asked).to_bytes(LENGTH, "big"), asked, *results):
            whole = memoryview(data)
            for start in range(0, len(whole), _PIECE):
                await stdin.send(bytes(whole[start : start + _PIECE]))
        await stdin.aclose()
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionError):
        pass  # it has ended; its status says how
    return b"".join([piece async for piece in stdout])


def _environment() -> dict[str, str]:
    """What it takes to find the same modules, and none of the secrets that the bridge was given."""
    found = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    if sys.platform == "win32":
        found["SYSTEMROOT"] = os.environ.get("SYSTEMROOT", "")
    return found
