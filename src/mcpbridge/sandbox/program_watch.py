"""How long a program may take: so long to compute, and so long altogether, waiting for tools included.

While a person is asked nothing runs out but the time of that question.
"""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager

__all__ = ["Watch"]


class _Budget:
    """Seconds that are used up while it runs."""

    def __init__(self, seconds: float, over: Callable[[], None]) -> None:
        self._left, self._over = seconds, over
        self._timer: asyncio.TimerHandle | None = None
        self._since = 0.0

    def go(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._since = loop.time()
            self._timer = loop.call_later(max(0.0, self._left), self._over)

    def rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._left -= asyncio.get_running_loop().time() - self._since


class Watch:
    """The time of one program, from `start` to `stop`."""

    def __init__(self, *, computing: float, altogether: float) -> None:
        """Both in seconds."""
        self.computing, self.altogether = computing, altogether
        self.over = ""
        """What has run out: `computing` or `altogether`; empty while nothing has."""
        self._computing = _Budget(computing, lambda: self._ran_out("computing"))
        self._altogether = _Budget(altogether, lambda: self._ran_out("altogether"))
        self._asked = 0
        self._runs = False
        self._on_over: Callable[[], None] = lambda: None

    def start(self, on_over: Callable[[], None]) -> None:
        """It begins, and computes; `on_over` is called when its time is over."""
        self._on_over, self._runs = on_over, True
        if not self._asked:
            self._altogether.go()
        self._computing.go()

    def stop(self) -> None:
        """It has ended."""
        self._runs = False
        self._computing.rest()
        self._altogether.rest()

    def computes(self) -> None:
        """It goes on."""
        if self._runs:
            self._computing.go()

    def waits(self) -> None:
        """It waits for an answer."""
        self._computing.rest()

    @contextmanager
    def asking(self) -> Generator[None]:
        """A person is asked something, and may take long."""
        self._asked += 1
        self._altogether.rest()
        try:
            yield
        finally:
            self._asked -= 1
            if not self._asked and self._runs:
                self._altogether.go()

    def _ran_out(self, what: str) -> None:
        self.over = self.over or what
        self._on_over()
