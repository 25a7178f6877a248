"""Deadlines of the requests under way on one channel. One timer serves them all: a timer for each costs more.

A clock stops while the other side waits for us: the time that a person takes for an answer is not the server's.
"""

import asyncio
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from msgspec import Struct


class Timeouts(Struct, frozen=True):
    """Deadlines of one request, in seconds."""

    idle: float
    """No answer and no progress for so long ends it."""
    total: float
    """Nothing extends it beyond this."""
    used: float = 0.0
    """How much of both had passed before it was sent."""


class Timed(Protocol):
    """What a request under way keeps for its deadlines: all zero at first, and changed by `Deadlines` alone."""

    began: float
    """Loop time, as the others that are no lengths."""
    seconds: float
    """Length of the idle time that it may have."""
    idle_ends: float
    ends: float
    """0 for one that waits without a deadline, such as a listen stream."""
    held: int
    """How many reasons there are to stop its clock."""
    held_since: float


_Request = TypeVar("_Request", bound=Timed)


class Deadlines(Generic[_Request]):
    """The clocks of some requests."""

    def __init__(self, pending: Mapping[bytes, _Request], expire: Callable[[_Request, float], None]) -> None:
        """`pending`: the requests under way. `expire` gets one whose time is up, and how much that was."""
        self._pending, self._expire = pending, expire
        self._loop = asyncio.get_running_loop()
        self._sweep: asyncio.TimerHandle | None = None
        self._sweep_at = 0.0

    def start(self, request: _Request, timeouts: Timeouts) -> None:
        """Its time begins now, or began a while ago."""
        now = self._loop.time() - timeouts.used
        request.began = now
        request.seconds = timeouts.idle
        request.idle_ends = now + timeouts.idle
        request.ends = now + timeouts.total
        first = now + min(timeouts.idle, timeouts.total)
        if self._sweep is None or first < self._sweep_at:
            self._sweep_no_later_than(first)

    def moved(self, request: _Request) -> None:
        """There was a sign of life of it: its idle time begins anew."""
        request.idle_ends = self._loop.time() + request.seconds

    @contextmanager
    def held(self, requests: Iterable[_Request]) -> Generator[None]:
        """Stop the clocks of these requests meanwhile."""
        held = list(requests)
        for request in held:
            if not request.held:
                request.held_since = self._loop.time()
            request.held += 1
        try:
            yield
        finally:
            now = self._loop.time()
            for request in held:
                request.held -= 1
                if not request.held and request.ends:
                    request.ends += now - request.held_since
                    request.idle_ends = now + request.seconds
                    self._sweep_no_later_than(min(request.idle_ends, request.ends, self._next_sweep()))

    def end(self) -> None:
        """Nothing waits any more."""
        if self._sweep is not None:
            self._sweep.cancel()

    def _next_sweep(self) -> float:
        return self._sweep_at if self._sweep is not None else float("inf")

    def _sweep_no_later_than(self, when: float) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
        self._sweep_at = when
        self._sweep = self._loop.call_at(when, self._look)

    def _look(self) -> None:
        """Let go of what is over its deadline; come back when the next one may be."""
        self._sweep = None
        now = self._loop.time()
        following = float("inf")
        for request in list(self._pending.values()):
            if not request.ends or request.held:
                continue
            ends = min(request.idle_ends, request.ends)
            if ends > now:
                following = min(following, ends)
            else:
                self._expire(request, round(ends - request.began, 3))
        if following < float("inf"):
            self._sweep_no_later_than(following)
