"""Keep the event loop responsive while a thread computes: threads change every half millisecond meanwhile.

Python lets a thread run for 5 ms before another that waits has its turn. A call passes the event loop several times,
and the loop may wait so long at each of its system calls.
"""

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager

_SECONDS = 0.0005
"""How long a thread runs while others wait. Shorter turns cost a measurable part of the work."""

_lock = threading.Lock()
_users = 0
_usual = 0.0


@contextmanager
def short_turns() -> Generator[None]:
    """Turns are short meanwhile, in the whole process; may be entered by several at once."""
    global _users, _usual
    with _lock:
        if not _users:
            _usual = sys.getswitchinterval()
            sys.setswitchinterval(min(_usual, _SECONDS))
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                sys.setswitchinterval(_usual)
