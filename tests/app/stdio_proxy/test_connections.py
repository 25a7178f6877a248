"""The wait of the shim: no signal is overlooked by it."""

import ctypes
import operator
import os
import select
import signal
from collections.abc import Generator
from functools import partial
from typing import Any

import pytest

from mcpbridge.app.stdio_proxy.connections import ClientEnd


class JustBefore:
    """Polls after it has raised a signal, with no instruction of Python in between that would let a handler run."""

    def __init__(self, number: signal.Signals) -> None:
        self._poll, self._number = select.poll(), number
        self.register, self.unregister = self._poll.register, self._poll.unregister
        self.found: Any = None

    def poll(self, timeout: float | None) -> Any:
        steps = (partial(ctypes.CDLL(None)["raise"], self._number), partial(self._poll.poll, timeout))
        _, self.found = map(operator.call, steps)
        return self.found


@pytest.fixture
def told() -> Generator[list[int]]:
    """The signals that were handled; SIGUSR1 is."""
    numbers: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: numbers.append(number))
    yield numbers
    signal.signal(signal.SIGUSR1, before)


@pytest.fixture
def pipes() -> Generator[list[tuple[int, int]]]:
    """Three pipes: from the client, to the client, for signals."""
    made = [os.pipe() for _ in range(3)]
    os.set_blocking(made[2][1], False)
    before = signal.set_wakeup_fd(made[2][1], warn_on_full_buffer=False)
    yield made
    signal.set_wakeup_fd(before)
    for ends in made:
        for end in ends:
            os.close(end)


def test_a_signal_in_the_moment_before_the_wait_ends_it(
    told: list[int], pipes: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    came = JustBefore(signal.SIGUSR1)
    monkeypatch.setattr(select, "poll", lambda: came)
    signals_fd = pipes[2][0]
    end = ClientEnd(pipes[0][0], pipes[1][1], signals_fd)
    for times in (1, 2):
        assert end.wait(None, listens=True, seconds=5) == (False, 0)
        assert came.found == [(signals_fd, select.POLLIN)], "it did not last"
        assert told == [signal.SIGUSR1] * times
