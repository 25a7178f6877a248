"""`pkg.mod:name`: what a configuration calls a Python object, and how it is brought in.

Modules that are beside the configuration can be named too: while a backend runs, their directory is the last place
where Python looks, so that nothing there can replace what is installed.
"""

import importlib
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import reduce
from pathlib import Path

_IDENTIFIER = r"[^\W\d]\w*"
OBJECT_NAME = rf"^{_IDENTIFIER}(\.{_IDENTIFIER})*:{_IDENTIFIER}(\.{_IDENTIFIER})*$"
"""The pattern of `pkg.mod:name`, or `pkg.mod:Class.name`."""

_searched: Counter[str] = Counter()
_changing = threading.Lock()


class NotImportable(Exception):
    """A Python object cannot be brought in; the message says where (file and line) and why."""


@contextmanager
def beside(directory: Path) -> Generator[None]:
    """Modules of this directory can be imported meanwhile."""
    place = str(directory.absolute())
    with _changing:
        if place not in sys.path:
            sys.path.append(place)
            _searched[place] += 1
        elif place in _searched:
            _searched[place] += 1
        else:
            place = ""  # it was there before, and stays
    try:
        yield
    finally:
        with _changing:
            if place and _searched[place] <= 1:
                del _searched[place]
                if place in sys.path:
                    sys.path.remove(place)
            elif place:
                _searched[place] -= 1


@contextmanager
def mendable(name: str) -> Generator[None]:
    """A module that turns out to be of no use is forgotten again: the next time it is read anew, as it was mended.

    `name`: `pkg.mod:name` or `pkg.mod.name`.
    """
    module = name.partition(":")[0] if ":" in name else name.rpartition(".")[0]
    was_known = module in sys.modules
    try:
        yield
    except BaseException:
        if not was_known:
            sys.modules.pop(module, None)
        raise


def import_object(name: str, directory: Path) -> object:
    """The object that `pkg.mod:name` names. Runs the module's code, which may take its time: not on an event loop.

    `directory`: where people expect modules of their own, for messages.

    Raises:
        NotImportable: there is no such module or name, or the module fails.
    """
    module_name, _, attribute = name.partition(":")
    _look_anew()  # the file may have been written a moment ago
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            where = f"it is neither installed nor beside the configuration, in {directory.absolute()}"
            raise NotImportable(f"no module is called '{error.name}': {where}") from error
        raise NotImportable(_failure_text(error, directory)) from error
    except BaseException as error:  # a module may even call `exit`; it takes nobody else down
        raise NotImportable(_failure_text(error, directory)) from error
    try:
        return reduce(getattr, attribute.split("."), module)
    except AttributeError as error:
        file = getattr(module, "__file__", None) or module_name
        raise NotImportable(f"{file} has no '{attribute}'") from error


def _look_anew() -> None:
    """Forget what directories held, as `importlib.invalidate_caches` does, beside threads that import.

    CPython goes through `sys.path_importer_cache` without a lock: what another thread brings in meanwhile may fail it.
    """
    for _ in range(100):
        with suppress(RuntimeError, KeyError):  # the dictionary changed size, or another thread dropped the entry
            with _changing:  # so that at least ours do not disturb each other
                importlib.invalidate_caches()
            return


def _failure_text(error: BaseException, directory: Path) -> str:
    """`weather.py:12: ImportError: …`: the last line of the user's own code that led to it."""
    if isinstance(error, SyntaxError) and error.filename:
        place = f"{error.filename}:{error.lineno}"
    else:
        own = str(directory.absolute())
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename != __file__ and "importlib" not in frame.filename
        ]
        frame = next((one for one in reversed(frames) if one.filename.startswith(own)), frames[-1] if frames else None)
        place = f"{frame.filename}:{frame.lineno}" if frame else "its import"
    said = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{place}: {type(error).__name__}: {said}"[:1000]
