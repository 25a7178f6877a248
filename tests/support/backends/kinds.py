"""The kinds of backends that the contract suite runs over: each in a file `kind_<kind>.py` beside this one.

Such a file defines `case(directory)`, an async context manager that gives a `BackendCase` (`backend_case.py`): a
backend that is made and not running yet, with what it works with (a server, a module, a program) there until the
context is left. Each one that is asked for is independent of the others: the suite runs two at a time. Where a package
is missing that the kind needs, `case` calls `pytest.importorskip`.
"""

import importlib
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from support.backends.backend_case import BackendCase

__all__ = ["KINDS", "Factory"]


Factory = Callable[[Path], AbstractAsyncContextManager[BackendCase]]


def _found() -> dict[str, Factory]:
    files = sorted(Path(__file__).parent.glob("kind_*.py"))
    return {
        file.stem.removeprefix("kind_"): importlib.import_module(f"support.backends.{file.stem}").case for file in files
    }


KINDS: dict[str, Factory] = _found()
"""How a case of each kind is made, by kind."""
