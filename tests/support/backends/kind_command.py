"""A small shell program in the sandbox; the slow one sleeps until it is ended."""

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from mcpbridge.sandbox.runner import Isolation
from mcpbridge.sandbox.settings import SandboxSettings
from mcpbridge.tools.backend import BackendContext
from mcpbridge.tools.command.backend import CommandBackend
from mcpbridge.tools.command.settings import CommandSettings
from support.backends.backend_calls import SECRET
from support.backends.backend_case import BackendCase

PROGRAM = """
case "$2" in
  fail) echo "cannot greet $1" >&2; exit 4 ;;
  wait) exec 3>"$SIGN"; echo begun >&3; sleep 600 ;;
esac
echo "Hello, $1!"
"""

_SANDBOX = Isolation(SandboxSettings())


@asynccontextmanager
async def case(directory: Path) -> AsyncGenerator[BackendCase]:
    """A greeting; while the slow one runs it has a pipe open, so that its end is seen."""
    if not sys.platform.startswith("linux"):
        pytest.skip("there is no sandbox here")
    open_to_all, signs = directory / "signs", list[int]()
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    sign = open_to_all / "sign"
    os.mkfifo(sign)
    sign.chmod(0o666)
    directory.chmod(0o755)
    signs.append(os.open(sign, os.O_RDONLY | os.O_NONBLOCK))

    async def begun() -> None:
        await anyio.wait_readable(signs[0])
        assert os.read(signs[0], 100).startswith(b"begun")

    def is_over() -> bool:
        try:
            return os.read(signs[0], 100) == b""
        except BlockingIOError:  # somebody has it open still
            return False

    settings = CommandSettings.model_validate(
        {
            "command": ["sh", "-c", PROGRAM, "greet", "{name}", "{how?}"],
            "env": {"SIGN": str(sign), "SECRET": SECRET},
            "timeout": 300,
            "sandbox": {"allow_fs": {"read_write": [str(open_to_all)]}},
        }
    )
    try:
        yield BackendCase(
            CommandBackend("greet", settings, BackendContext(runner=_SANDBOX, directory=directory)),
            "greet",
            {"name": "Ada"},
            "Hello, Ada!",
            slow_arguments={"name": "Ada", "how": "wait"},
            failing_arguments={"name": "Ada", "how": "fail"},
            begun=begun,
            is_over=is_over,
            forbidden=(SECRET,),
        )
    finally:
        os.close(signs[0])
