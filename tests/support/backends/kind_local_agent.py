"""A Python callable as an agent."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

from support.backends.backend_calls import made
from support.backends.backend_case import BackendCase

_numbers = count()

MODULE = """
import asyncio

begun, state = asyncio.Event(), {}

async def answer(message: str, history: list):
    "Answers."
    if message == "wait":
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            state["over"] = True
    if message == "fail":
        raise RuntimeError("no answer")
    yield "You "
    yield f"said {message}, after {len(history)} turns."
"""


@asynccontextmanager
async def case(directory: Path) -> AsyncGenerator[BackendCase]:
    """An echo; the slow one sleeps until it is cancelled."""
    module = f"agent_{next(_numbers)}"
    (directory / f"{module}.py").write_text(MODULE)

    async def begun() -> None:
        event: asyncio.Event = sys.modules[module].begun
        await event.wait()

    def is_over() -> bool:
        return bool(sys.modules[module].state.get("over"))

    yield BackendCase(
        made("echo", "agent", directory, agent=f"{module}:answer"),
        "echo",
        {"message": "hello"},
        "You said hello, after 0 turns.",
        slow_arguments={"message": "wait"},
        failing_arguments={"message": "fail"},
        begun=begun,
        is_over=is_over,
    )
    sys.modules.pop(module, None)
