"""Runs one function in a process of its own: for work that would hold the interpreter, or take much memory.

The process has no secrets in its environment, gives its memory back when it is done, and is killed with the call that
wanted it.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar, cast

import anyio
import anyio.abc

_PROGRAM = "mcpbridge.sandbox.worker_process_main"
_PIECE = 1024**2

_P = ParamSpec("_P")
_T = TypeVar("_T")


class ProcessBroke(Exception):
    """The process could not be started, was ended from outside (for want of memory, most likely), or failed."""


async def in_process(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """What a function of a module of ours gives. All that goes in and comes out is pickled.

    Raises:
        ProcessBroke: nothing came of it.
    """
    asked = pickle.dumps((function.__module__, function.__qualname__, args, kwargs), protocol=5)
    try:
        process = await anyio.open_process(
            [sys.executable, "-P", "-m", _PROGRAM],
            stderr=subprocess.DEVNULL,
            env=_environment(),
            start_new_session=True,
        )
    except OSError as error:
        raise ProcessBroke(str(error)) from error
    async with process:
        try:
            answer = await _exchanged(process, asked)
            status = await process.wait()
        except BaseException:
            if process.returncode is None:
                process.kill()
            raise
    if status:
        raise ProcessBroke(f"it ended with status {status}")
    return cast("_T", pickle.loads(answer))  # noqa: S301 - from a program of ours, by a pipe that nobody else has


async def _exchanged(process: anyio.abc.Process, asked: bytes) -> bytes:
    stdin, stdout = cast("Any", process.stdin), cast("Any", process.stdout)
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionError):  # its status says why
        whole = memoryview(asked)
        for start in range(0, len(whole), _PIECE):
            await stdin.send(bytes(whole[start : start + _PIECE]))
        await stdin.aclose()
    return b"".join([piece async for piece in stdout])


def _environment() -> dict[str, str]:
    """What it takes to find the same modules, and none of the secrets that the bridge was given."""
    found = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    if sys.platform == "win32":
        found["SYSTEMROOT"] = os.environ.get("SYSTEMROOT", "")
    return found
