"""Log lines that cannot be written stop nothing: they are dropped and counted."""

import os
from collections.abc import Iterator
from contextlib import suppress

import pytest

from mcpbridge.base.log_output import LineWriter


@pytest.fixture(autouse=True)
def _count() -> Iterator[None]:
    LineWriter.lost = 0
    yield
    LineWriter.lost = 0


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A pipe: where to read, where to write."""
    ends = os.pipe()
    os.set_blocking(ends[0], False)
    yield ends
    for end in ends:
        with suppress(OSError):
            os.close(end)


def test_a_reader_that_does_not_read_stops_nothing_and_loses_lines_only(pipe: tuple[int, int]) -> None:
    """A client may start the bridge and never look at its standard error."""
    reader, descriptor = pipe
    writer = LineWriter(descriptor)
    for number in range(2000):
        writer.msg(f"line {number} {'x' * 200}")
    lost = LineWriter.lost
    assert lost > 0
    assert f"lost={lost}" in repr(writer)
    assert os.read(reader, 1 << 20).count(b"\n") >= 2000 - lost
    writer.msg("after")
    assert f"({lost} log lines before this one were lost".encode() in os.read(reader, 1 << 20)
    assert LineWriter.lost == 0


def test_a_reader_that_is_gone_stops_nothing(pipe: tuple[int, int]) -> None:
    reader, descriptor = pipe
    os.close(reader)
    LineWriter(descriptor).msg("nobody hears this")
    assert LineWriter.lost == 1
