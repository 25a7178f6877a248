"""Runs one function in a process of its own: for work that would hold the interpreter, or take much memory.

Arguments and results cross as MessagePack and are read as the types that the function declares, so that nothing but
data comes out of a process that has read what somebody else wrote. The process has no secrets in its environment, gives
its memory back when it is done, and is killed with the call that wanted it.
"""

import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import anyio
import anyio.abc
import msgspec

from mcpbridge.sandbox.worker_messages import encode_request, encode_rest, type_hints

PROGRAM = "mcpbridge.sandbox.worker_process_main"
_PIECE = 1 << 18

_P = ParamSpec("_P")
_T = TypeVar("_T")


class ProcessBroke(Exception):
    """The process could not be started, was ended from outside (for want of memory, most likely), or failed."""


async def in_process(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """The result of a function at the top of one of our modules, all of whose parameters have types that msgspec knows.

    Raises:
        ProcessBroke: there is no result.
    """
    try:
        request = encode_request(function, *args, **kwargs)
        process = await anyio.open_process(
            [sys.executable, "-P", "-m", PROGRAM],
            stderr=subprocess.DEVNULL,
            env=_environment(),
            start_new_session=True,
        )
    except (OSError, UnicodeEncodeError) as error:
        raise ProcessBroke(str(error)) from error
    async with process:
        try:
            answer = await _exchanged(process, request)
            status = await process.wait()
        except BaseException:
            if process.returncode is None:
                process.kill()
            raise
    if status:
        raise ProcessBroke(f"it ended with status {status}")
    try:
        return cast("_T", msgspec.msgpack.decode(answer, type=type_hints(function)["return"]))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProcessBroke("its answer cannot be read") from error


class DataProcess:
    """A process that has some bytes, and calls functions that get them as their first argument."""

    def __init__(self, process: anyio.abc.Process) -> None:
        self._stdin, self._stdout = cast("Any", process.stdin), cast("Any", process.stdout)

    async def run(self, function: Callable[Concatenate[bytes, _P], _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """The result of a function such as `in_process` takes, for these bytes. One call at a time.

        Raises:
            ProcessBroke: there is no result, nor will there be another.
        """
        try:
            request = encode_rest(function, *args, **kwargs)
            await _send(self._stdin, request)
            size = int.from_bytes(await self._read(8), "big")
            answer = await self._read(size)
            return cast("_T", msgspec.msgpack.decode(answer, type=type_hints(function)["return"]))
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
            raise ProcessBroke("it ended") from error
        except (msgspec.DecodeError, UnicodeError) as error:
            raise ProcessBroke("its answer cannot be read") from error

    async def _read(self, size: int) -> bytes:
        pieces: list[bytes] = []
        while size:
            pieces.append(await self._stdout.receive(min(size, _PIECE)))
            size -= len(pieces[-1])
        return b"".join(pieces)


@asynccontextmanager
async def process_with(data: bytes | msgspec.Raw) -> AsyncGenerator[DataProcess]:
    """A process that has these bytes, until the block is left; then it is killed.

    Raises:
        ProcessBroke: it could not be started, or did not take the bytes.
    """
    try:
        process = await anyio.open_process(
            [sys.executable, "-P", "-m", PROGRAM, "data"],
            stderr=subprocess.DEVNULL,
            env=_environment(),
            start_new_session=True,
        )
    except OSError as error:
        raise ProcessBroke(str(error)) from error
    async with process:
        try:
            try:
                await _send(cast("Any", process.stdin), data)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
                raise ProcessBroke("it ended") from error
            yield DataProcess(process)
        finally:
            if process.returncode is None:
                process.kill()


async def _send(stdin: Any, data: bytes | msgspec.Raw) -> None:
    """A message with its length before it; in pieces, between which others have their turns."""
    whole = memoryview(data)
    await stdin.send(len(whole).to_bytes(8, "big"))
    for start in range(0, len(whole), _PIECE):
        await stdin.send(bytes(whole[start : start + _PIECE]))


async def _exchanged(process: anyio.abc.Process, request: bytes) -> bytes:
    stdin, stdout = cast("Any", process.stdin), cast("Any", process.stdout)
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionError):  # its status says why
        whole = memoryview(request)
        for start in range(0, len(whole), _PIECE):
            await stdin.send(bytes(whole[start : start + _PIECE]))
        await stdin.aclose()
    return b"".join([piece async for piece in stdout])


def _environment() -> dict[str, str]:
    """What it takes to find the same modules, and none of the secrets that the bridge was given."""
    env = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    if sys.platform == "win32":
        env["SYSTEMROOT"] = os.environ.get("SYSTEMROOT", "")
    return env
