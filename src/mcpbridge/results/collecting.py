"""No garbage collection while a large result is read.

Reading one makes a million small values, none of them garbage, and the collector looks through all of them again and
again: a third to a half of the time (measured on 1 MB of JSON, CSV and tables). The pause is for the whole process and
ends with the last who wants it.
"""

import gc
import threading
from collections.abc import Generator
from contextlib import contextmanager

__all__ = ["uncollected"]

_lock = threading.Lock()
_paused = 0
_was_on = False


@contextmanager
def uncollected() -> Generator[None]:
    """Nothing is collected meanwhile; may be entered by several threads at once."""
    global _paused, _was_on
    with _lock:
        if not _paused:
            _was_on = gc.isenabled()
            gc.disable()
        _paused += 1
    try:
        yield
    finally:
        with _lock:
            _paused -= 1
            if not _paused and _was_on:
                gc.enable()
