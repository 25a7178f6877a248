"""Making a large result small: the work that it takes, and the pause of the garbage collector."""

import gc
import json
import sys
from threading import Barrier, Thread
from types import FrameType
from typing import Any

import pytest

from mcpbridge.core.call_options import ResultOptions
from mcpbridge.results.shorten import HeaderLine, shorten, uncollected

STATES = ("open", "closed", "merged")


def answer(rows: int) -> bytes:
    """A result of rows as JSON, 100 characters and a little more each."""
    value = [
        {
            "id": 1000 + n,
            "name": f"Customer {n * 7919 % 99_991}",
            "email": f"u{n * 31 % 5003}@example.com",
            "amount": n * 37 % 9973 / 100,
            "state": STATES[n % 3],
            "created": f"2026-05-{n % 28 + 1:02d}",
        }
        for n in range(rows)
    ]
    return json.dumps({"content": [{"type": "text", "text": json.dumps(value)}]}).encode()


def entries(data: bytes) -> int:
    """How many functions are entered, Python's own included, to make a result small."""
    shorten(data, ResultOptions(), HeaderLine("a" * 26, "recall"), "estimate")  # whatever is loaded or compiled once
    count = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        shorten(data, ResultOptions(), HeaderLine("a" * 26, "recall"), "estimate")
    finally:
        sys.setprofile(None)
    return count


def test_the_work_for_a_hundred_kilobytes_of_rows_is_bounded() -> None:
    """It was 52,000 when each row was written anew for each number of columns that was tried."""
    data = answer(800)
    assert 100_000 < len(data) < 120_000
    assert entries(data) < 25_000


@pytest.mark.parametrize("rows", [800, 4000])
def test_the_work_grows_in_proportion(rows: int) -> None:
    assert entries(answer(2 * rows)) < 2.5 * entries(answer(rows))


def test_the_collector_runs_again_after_the_last_pause() -> None:
    inside, seen = Barrier(2), list[bool]()

    def pausing() -> None:
        with uncollected():
            inside.wait()
            seen.append(gc.isenabled())

    with uncollected():
        thread = Thread(target=pausing)
        thread.start()
        inside.wait()
        thread.join()
        assert not gc.isenabled()
    assert seen == [False]
    assert gc.isenabled()


def test_a_collector_that_is_off_stays_off() -> None:
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
