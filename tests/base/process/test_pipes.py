"""Pipes on the event loop: everything arrives, in order, and nothing waits for ever."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio

from mcpbridge.base.process.pipes import FdReader, FdWriter


class Heard:
    """What a reader or a writer said."""

    def __init__(self) -> None:
        self.data = b""
        self.ends = self.broken = self.stalls = self.drains = 0
        self._news = asyncio.Event()

    def said(self, name: str) -> Callable[[], None]:
        def count() -> None:
            setattr(self, name, getattr(self, name) + 1)
            self._news.set()

        return count

    def arrived(self, data: bytes) -> None:
        self.data += data
        self._news.set()

    async def until(self, is_true: Callable[[], object]) -> None:
        with anyio.fail_after(30):
            while not is_true():
                self._news.clear()
                await self._news.wait()


@contextmanager
def pipe() -> Iterator[tuple[int, int]]:
    """Both ends of a pipe; each may be closed inside."""
    ends = os.pipe()
    try:
        yield ends
    finally:
        for end in ends:
            try:
                os.close(end)
            except OSError:
                continue


@asynccontextmanager
async def reading(fd: int) -> AsyncIterator[tuple[FdReader, Heard]]:
    heard = Heard()
    reader = FdReader(fd, heard.arrived, heard.said("ends"))
    yield reader, heard
    reader.close()


@asynccontextmanager
async def writing(fd: int, *, stall_after: float = 60) -> AsyncIterator[tuple[FdWriter, Heard]]:
    heard = Heard()
    writer = FdWriter(
        fd,
        on_broken=heard.said("broken"),
        stall_after=stall_after,
        on_stall=heard.said("stalls"),
        on_drained=heard.said("drains"),
    )
    yield writer, heard
    writer.close()


def fill(writer: FdWriter) -> int:
    """Take more than any pipe holds; returns the bytes taken."""
    for number in range(300):
        writer.write_line(b"%d " % number + b"x" * 10_000)
    return writer.pending


def take_all(fd: int) -> bytes:
    """What stands in a pipe now."""
    os.set_blocking(fd, False)
    data = b""
    try:
        while chunk := os.read(fd, 1 << 20):
            data += chunk
    except BlockingIOError:
        pass
    return data


async def test_lines_of_one_turn_leave_in_one_write_and_arrive_in_order() -> None:
    with pipe() as (out, into):
        async with reading(out) as (_, heard), writing(into) as (writer, _):
            for number in range(100):
                writer.write_line(b"%d" % number)
            assert writer.pending == len(b"".join(b"%d\n" % number for number in range(100)))
            await heard.until(lambda: heard.data.count(b"\n") == 100)
            assert heard.data.split() == [b"%d" % number for number in range(100)]
            assert writer.pending == 0


async def test_more_than_the_pipe_holds_arrives_as_the_reader_takes_it() -> None:
    with pipe() as (out, into):
        async with writing(into) as (writer, _):
            total = fill(writer)
            await asyncio.sleep(0)
            writer.write_line(b"last")  # while the pipe is full
            assert 0 < writer.pending < total + 5
            async with reading(out) as (_, heard):
                await heard.until(lambda: heard.data.endswith(b"last\n"))
            assert len(heard.data) == total + 5
            assert writer.pending == 0


async def test_the_end_of_the_other_side_is_told_once() -> None:
    with pipe() as (out, into):
        async with reading(out) as (reader, heard):
            os.write(into, b"all")
            os.close(into)
            await heard.until(lambda: heard.ends)
            reader.drain()
            assert (heard.data, heard.ends) == (b"all", 1)


async def test_a_closed_reader_says_nothing_more() -> None:
    with pipe() as (out, into):
        async with reading(out) as (reader, heard):
            reader.close()
            os.write(into, b"late")
            os.close(into)
            reader.drain()
            reader.pause()
            reader.resume()
            await asyncio.sleep(0)
            assert (heard.data, heard.ends) == (b"", 0)


async def test_a_paused_reader_leaves_everything_in_the_pipe() -> None:
    with pipe() as (out, into):
        async with reading(out) as (reader, heard):
            reader.pause()
            reader.pause()
            os.write(into, b"x")
            await asyncio.sleep(0)
            assert heard.data == b""
            reader.resume()
            reader.resume()
            await heard.until(lambda: heard.data == b"x")


async def test_draining_reads_what_stands_there_and_does_not_wait() -> None:
    with pipe() as (out, into):
        async with reading(out) as (reader, heard):
            os.write(into, b"x" * 60_000)
            reader.drain()
            assert len(heard.data) == 60_000
            reader.drain()
            assert heard.ends == 0


async def test_a_file_is_read_to_its_end(tmp_path: Path) -> None:
    """`mcpbridge serve < requests`: epoll takes no files."""
    path = tmp_path / "requests"
    path.write_bytes(b"y" * 1_000_000)
    fd = os.open(path, os.O_RDONLY)
    try:
        async with reading(fd) as (reader, heard):
            reader.drain()
            await heard.until(lambda: heard.ends)
            assert heard.data == path.read_bytes()
    finally:
        os.close(fd)


async def test_the_null_device_ends_at_once() -> None:
    fd = os.open(os.devnull, os.O_RDONLY)
    try:
        async with reading(fd) as (_, heard):
            await heard.until(lambda: heard.ends)
            assert heard.data == b""
    finally:
        os.close(fd)


async def test_a_descriptor_that_cannot_be_read_counts_as_ended() -> None:
    folder = os.open(os.sep, os.O_RDONLY)
    try:
        async with reading(folder) as (_, heard):
            await heard.until(lambda: heard.ends)
    finally:
        os.close(folder)


async def test_a_reader_that_is_gone_breaks_the_writer_once() -> None:
    with pipe() as (out, into):
        async with writing(into) as (writer, heard):
            os.close(out)
            writer.write_line(b"a")
            await heard.until(lambda: heard.broken)
            writer.write_line(b"b")
            await asyncio.sleep(0)
            assert heard.broken == 1


async def test_a_pipe_that_takes_nothing_is_told_as_a_stall() -> None:
    with pipe() as (_, into):
        async with writing(into, stall_after=0.01) as (writer, heard):
            fill(writer)
            await heard.until(lambda: heard.stalls)


async def test_a_slow_reader_is_no_stall() -> None:
    """Each byte that the pipe takes starts the time anew."""
    with pipe() as (out, into):
        async with writing(into, stall_after=30) as (writer, heard):
            total = fill(writer)
            taken = 0
            with anyio.fail_after(30):
                while taken < total:
                    taken += len(take_all(out))
                    await asyncio.sleep(0)
            assert heard.stalls == 0


async def test_drained_is_told_once_for_each_time_it_was_asked() -> None:
    with pipe() as (out, into):
        async with writing(into) as (writer, heard):
            fill(writer)
            writer.tell_drained()
            async with reading(out) as (_, arrived):
                await heard.until(lambda: heard.drains)
                writer.write_line(b"more")
                await arrived.until(lambda: arrived.data.endswith(b"more\n"))
            assert heard.drains == 1


async def test_a_closed_writer_drops_what_it_holds() -> None:
    with pipe() as (out, into):
        async with writing(into) as (writer, _):
            writer.write_line(b"a")
            writer.close()
            writer.write_line(b"b")
            writer.flush_blocking(5)
            await asyncio.sleep(0)
            assert take_all(out) == b""


async def test_what_may_not_be_written_any_more_is_not() -> None:
    """Whoever asks is asked in the moment of the write, not when the line was taken."""
    with pipe() as (out, into):
        async with writing(into) as (writer, _):
            answers = [True, False]
            writer.may_write = lambda: answers.pop(0)
            writer.write_line(b"a")
            await asyncio.sleep(0)
            writer.write_line(b"b")
            await asyncio.sleep(0)
            writer.write_line(b"c")
            await asyncio.sleep(0)
            assert (take_all(out), answers) == (b"a\n", [])


async def test_the_last_lines_are_written_before_the_end() -> None:
    with pipe() as (out, into):
        async with writing(into) as (writer, _):
            writer.write_line(b"last words")
            writer.flush_blocking(5)
            assert take_all(out) == b"last words\n"


async def test_the_last_lines_wait_for_a_reader_that_reads() -> None:
    with pipe() as (out, into):
        async with writing(into) as (writer, _):
            total = fill(writer)
            await asyncio.sleep(0)
            taking = asyncio.get_running_loop().run_in_executor(None, _take, out, total)
            writer.flush_blocking(60)
            assert writer.pending == 0
            with anyio.fail_after(30):
                assert await taking == total


async def test_the_last_lines_do_not_wait_for_a_reader_that_does_not_read() -> None:
    """Else a client that stopped reading would keep the bridge, and all its servers, from ending."""
    with pipe() as (out, into):
        async with writing(into) as (writer, _):
            fill(writer)
            await asyncio.sleep(0)
            writer.flush_blocking(0.01)
            assert writer.pending
            assert take_all(out)


def _take(fd: int, total: int) -> int:
    taken = 0
    while taken < total:
        taken += len(os.read(fd, 1 << 16))
    return taken


async def test_a_paused_reader_of_a_regular_file_reads_nothing_until_it_resumes(tmp_path: Path) -> None:
    """`mcpbridge serve < requests`: a client that takes no answers is asked no more either."""
    path = tmp_path / "requests"
    path.write_bytes(b"x" * (3 << 20))
    heard = Heard()
    with path.open("rb") as file:
        reader = FdReader(file.fileno(), heard.arrived, heard.said("ends"))
        await heard.until(lambda: heard.data)
        reader.pause()
        so_far = len(heard.data)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(heard.data) == so_far < 3 << 20
        for _ in range(3):  # each wakes it once, not twice
            reader.resume()
            reader.pause()
        reader.resume()
        await heard.until(lambda: heard.ends)
        assert len(heard.data) == 3 << 20
        assert heard.ends == 1
        reader.close()


async def test_a_reader_that_is_paused_by_what_it_read_stops_there(tmp_path: Path) -> None:
    path = tmp_path / "requests"
    path.write_bytes(b"x" * (3 << 20))
    heard = Heard()
    with path.open("rb") as file:

        def take(data: bytes) -> None:
            heard.arrived(data)
            reader.pause()

        reader = FdReader(file.fileno(), take, heard.said("ends"))
        await heard.until(lambda: heard.data)
        while not heard.ends:
            before = len(heard.data)
            for _ in range(5):
                await asyncio.sleep(0)
            assert len(heard.data) == before
            reader.resume()
            await heard.until(lambda: len(heard.data) > before or heard.ends)  # noqa: B023 - awaited at once
        assert len(heard.data) == 3 << 20
