"""A tool with a human in the loop that answers by itself; what it is to do is told by `how`."""

import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio.to_thread

from mcpbridge.core.context import CallContext
from mcpbridge.tools.human_in_the_loop.human import HumanBackend
from support.backends.backend_case import BackendCase


@asynccontextmanager
async def case(directory: Path) -> AsyncGenerator[BackendCase]:
    """A greeting; the slow one waits until it is cancelled."""
    begun, over = threading.Event(), threading.Event()

    def greet(name: str, context: CallContext, how: str = "Hello") -> str | None:
        """Greet somebody, once somebody agrees."""
        if how == "fail":
            raise ValueError(f"cannot greet {name}")
        if how == "wait":
            begun.set()
            while not context.cancelled:
                over.wait(0.01)
            over.set()
        return f"{how}, {name}!"

    def answered(response: str) -> str:
        return response

    async def has_begun() -> None:
        await anyio.to_thread.run_sync(begun.wait, 60)

    yield BackendCase(
        HumanBackend.of(greet, answered),
        "greet",
        {"name": "Ada"},
        "Hello, Ada!",
        slow_arguments={"name": "Ada", "how": "wait"},
        failing_arguments={"name": "Ada", "how": "fail"},
        begun=has_begun,
        is_over=over.is_set,
    )
