"""The signals that end a command (SIGINT, SIGTERM, SIGHUP), whenever they come.

Before there is an event loop, SIGINT raises KeyboardInterrupt, as usual in Python. That alone can get lost: an
exception that arises in a finalizer or in a callback of C code is dropped ("Exception ignored in ..."), and imports
are full of both. So the handler remembers what came, and `ended_by_signals` looks. On the loop `asyncio.Runner` would
cancel the main task, once, and not at all where SIGINT was ignored when the program began, as it is in the background
of a script; here the caller is notified, and cancels a scope.

A second signal ends the process at once, and so does the first if the end in order does not come in time. The servers
go with it: by the parent-death signal, and by the guard process.
"""

import os
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from mcpbridge.app.exit_codes import INTERRUPTED

END_WITHIN = 12.0
"""Seconds for the end in order; servers that do not want to stop are granted 5 of them before they are killed."""


class _Handler:
    """What is called on such a signal, for the whole life of the process."""

    def __init__(self) -> None:
        self.received: list[signal.Signals] = []
        self.tell: Callable[[signal.Signals], object] | None = None

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        self.received.append(signal.Signals(number))
        if len(self.received) > 1:
            os._exit(INTERRUPTED)
        if self.tell is None:
            raise KeyboardInterrupt
        self.tell(self.received[0])


def remember_interrupts() -> None:
    """Let SIGINT be handled here from now on. To be called before the imports that take time."""
    if not isinstance(signal.getsignal(signal.SIGINT), _Handler):
        signal.signal(signal.SIGINT, _Handler())


@contextmanager
def ended_by_signals(
    tell: Callable[[signal.Signals], object],
    *,
    within: float = END_WITHIN,
    hang_up: Callable[[], object] | None = None,
) -> Generator[None]:
    """Call `tell` on the running loop with the signal that came, also with a lost one from before.

    Once notified, the body has `within` seconds to end. With `hang_up`, each SIGHUP calls that instead.
    Only on the main thread.
    """
    import asyncio  # not before SIGINT is handled

    loop = asyncio.get_running_loop()
    handler = signal.getsignal(signal.SIGINT)
    handler = handler if isinstance(handler, _Handler) else _Handler()
    last: asyncio.TimerHandle | None = None

    def on_signal(number: signal.Signals) -> None:
        nonlocal last
        last = loop.call_later(within, _give_up, within)
        tell(number)

    lost = handler.received[:1]
    handler.tell = lambda number: loop.call_soon_threadsafe(on_signal, number)
    before = {number: signal.signal(number, handler) for number in _ending() if not _asks(hang_up, number)}
    if hang_up is not None and hasattr(signal, "SIGHUP"):

        def hung_up(_number: int, _frame: FrameType | None) -> None:
            loop.call_soon_threadsafe(hang_up)

        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, hung_up)
    for number in lost:
        on_signal(number)
    try:
        yield
    finally:
        handler.tell = None
        if last is not None:
            last.cancel()
        for number, previous in before.items():
            signal.signal(number, signal.SIG_DFL if previous is None else previous)


def _asks(hang_up: Callable[[], object] | None, number: signal.Signals) -> bool:
    return hang_up is not None and number.name == "SIGHUP"


def _ending() -> list[signal.Signals]:
    """What asks for the end. A SIGHUP that was ignored from the beginning stays so: that is what `nohup` is for."""
    asks = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    return [number for number in asks if number.name != "SIGHUP" or signal.getsignal(number) != signal.SIG_IGN]


def _give_up(seconds: float) -> None:
    """End now, and say what kept us: it is a fault of the bridge."""
    import asyncio

    print(f"mcpbridge: did not stop within {seconds:g} s, ends without order; it waited in", file=sys.stderr)
    for task in asyncio.all_tasks():
        print(f"  {task.get_name()}: {' > '.join(_where(task.get_coro()))}", file=sys.stderr)
    sys.stderr.flush()
    os._exit(INTERRUPTED)


def _where(waiting: Any) -> list[str]:
    """The lines on which a suspended coroutine, and what it awaits, stand."""
    lines: list[str] = []
    while frame := getattr(waiting, "cr_frame", None) or getattr(waiting, "ag_frame", None):
        lines.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "ag_await", None)
    return lines
