"""A function in a module beside the configuration; what it is to do is told by `how`."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import anyio.to_thread

from support.backends.backend_calls import made
from support.backends.backend_case import BackendCase

_numbers = count()

MODULE = '''
import threading
from mcpbridge.core.context import CallContext

begun, over = threading.Event(), threading.Event()

def greet(name: str, context: CallContext, how: str = "Hello") -> str:
    """Greet somebody."""
    if how == "fail":
        raise ValueError(f"cannot greet {name}")
    if how == "wait":
        begun.set()
        while not context.cancelled:
            over.wait(0.01)
        over.set()
    return f"{how}, {name}!"
'''


@asynccontextmanager
async def case(directory: Path) -> AsyncGenerator[BackendCase]:
    """A greeting; the slow one waits until it is cancelled."""
    module = f"greetings_{next(_numbers)}"
    (directory / f"{module}.py").write_text(MODULE)

    async def begun() -> None:
        await anyio.to_thread.run_sync(sys.modules[module].begun.wait, 60)

    def is_over() -> bool:
        return sys.modules[module].over.is_set()

    yield BackendCase(
        made("greet", "function", directory, function=f"{module}:greet"),
        "greet",
        {"name": "Ada"},
        "Hello, Ada!",
        slow_arguments={"name": "Ada", "how": "wait"},
        failing_arguments={"name": "Ada", "how": "fail"},
        begun=begun,
        is_over=is_over,
    )
    sys.modules.pop(module, None)
