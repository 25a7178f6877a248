"""Runs one function in a process of its own: for work that would hold the interpreter, or take much memory.

Arguments and results cross as MessagePack and are read as the types that the function declares, so that nothing but
data comes out of a process that has read what somebody else wrote. The process has no secrets in its environment, gives
its memory back when it is done, and is killed with the call that wanted it.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar, cast

import anyio
import anyio.abc
import msgspec

from mcpbridge.sandbox.worker_messages import encode_request, type_hints

PROGRAM = "mcpbridge.sandbox.worker_process_main"
_PIECE = 1024**2

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
