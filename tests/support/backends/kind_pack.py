"""A pack in a module beside the configuration."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import anyio.to_thread

from mcpbridge.sandbox.runner import Isolation
from mcpbridge.sandbox.settings import SandboxSettings
from mcpbridge.tools.backend import BackendContext
from mcpbridge.tools.packs import PackBackend
from support.backends.backend_case import BackendCase

_numbers = count()

MODULE = """
import threading
from mcpbridge.tools.packs import Pack, PackTool

begun = threading.Event()

def forecast(place: dict, days: int = 1):
    "The weather to come."
    if place["name"] == "nowhere":
        raise LookupError("no such place")
    return {"place": place["name"], "days": [{"high": 20 + day} for day in range(days)]}

def slow():
    begun.set()
    for step in range(10**9):
        yield step

pack = Pack(
    name="weather",
    tools=[
        PackTool(
            function=forecast,
            input={"place": {"name": "{city}"}, "days": "{days?}"},
            output="{place}: {days.0.high} degrees",
        ),
        slow,
    ],
    commands={"warmup": lambda data: {"warmed": data}},
)
"""


@asynccontextmanager
async def case(directory: Path) -> AsyncGenerator[BackendCase]:
    """A forecast; the slow tool counts until it is cancelled."""
    module = f"weather_{next(_numbers)}"
    (directory / f"{module}.py").write_text(MODULE)

    async def begun() -> None:
        await anyio.to_thread.run_sync(sys.modules[module].begun.wait, 60)

    yield BackendCase(
        PackBackend(f"{module}:pack", BackendContext(Isolation(SandboxSettings()), directory=directory)),
        "forecast",
        {"city": "Ulm", "days": 2},
        "Ulm: 20 degrees",
        slow_tool="slow",
        slow_arguments={},
        failing_arguments={"city": "nowhere"},
        begun=begun,
    )
    sys.modules.pop(module, None)
