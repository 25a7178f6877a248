"""An object of a class in a module beside the configuration."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

from support.backends.backend_calls import SECRET, made
from support.backends.backend_case import BackendCase

_numbers = count()

MODULE = '''
import asyncio

class Adder:
    """Adds numbers to one that it was made with."""

    made = []

    def __init__(self, base, secret=""):
        self.base, self.secret, self.deployed, self.waiting = base, secret, 0, asyncio.Event()
        self.is_over = False
        Adder.made.append(self)

    def deploy(self):
        self.deployed += 1

    def validate_inputs(self, number):
        if number > 1000:
            raise ValueError("number: at most 1000, " + self.secret)

    async def execute(self, number: int) -> int:
        assert self.deployed == 1
        if number < 0:
            self.waiting.set()
            try:
                await asyncio.sleep(3600)
            finally:
                self.is_over = True
        return self.base + number
'''


@asynccontextmanager
async def case(directory: Path) -> AsyncGenerator[BackendCase]:
    """An addition; the slow one sleeps until it is cancelled."""
    module = f"adding_{next(_numbers)}"
    (directory / f"{module}.py").write_text(MODULE)
    settings = {"executor_class": f"{module}.Adder", "constructor_args": {"base": 40, "secret": SECRET}}

    async def begun() -> None:
        await sys.modules[module].Adder.made[-1].waiting.wait()

    yield BackendCase(
        made("adder", "executor", directory, **settings),
        "adder",
        {"number": 2},
        "42",
        slow_arguments={"number": -1},
        failing_arguments={"number": 1001},
        begun=begun,
        is_over=lambda: sys.modules[module].Adder.made[-1].is_over,
        forbidden=(SECRET,),
    )
    sys.modules.pop(module, None)
