"""The stdio transport with real processes: what arrives, what is kept, and how the end is told."""

import asyncio
import gc
import os
import sys
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import pytest

from mcpbridge.base.errors import BridgeError, Overloaded, UpstreamGone, UpstreamUnavailable
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.base.process import process
from mcpbridge.base.process.process import ProcessSpec
from mcpbridge.protocol.jsonrpc import Frame
from mcpbridge.protocol.transport import Channel, Outgoing
from mcpbridge.upstream.transports import stdio
from mcpbridge.upstream.transports.stdio import StdioTransport
from support.harness import eventually
from support.virtual_time import pass_time

REPEATS = "import os,sys\nfor line in sys.stdin.buffer: os.write(1, line)"
STAYS = "\nimport sys; sys.stdin.read()"


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many servers here end by force only; that is not what these tests are about."""
    monkeypatch.setattr(process, "STDIN_GRACE", 0.1)


class Heard:
    """Keeps what a transport receives, in order."""

    def __init__(self) -> None:
        self.items: list[Frame | tuple[list[bytes], str] | str] = []
        self._news = asyncio.Event()

    def frame(self, frame: Frame, via: bytes) -> None:
        assert via == b""
        self._add(frame)

    def spoiled(self, ids: list[bytes], reason: str, via: bytes) -> None:
        self._add((ids, reason))

    has_unasked = False

    def pause_after(self, seconds: float) -> float:
        raise AssertionError("nothing came unasked")

    def failed(self, id_: bytes, error: BridgeError, *, sent: bool) -> None:
        raise AssertionError("stdio fails no single request")

    def closed(self, reason: str) -> None:
        self._add(reason)

    def _add(self, item: Frame | tuple[list[bytes], str] | str) -> None:
        self.items.append(item)
        self._news.set()

    @property
    def results(self) -> list[bytes]:
        return [bytes(item.result) for item in self.items if isinstance(item, Frame)]

    @property
    def ends(self) -> list[str]:
        return [item for item in self.items if isinstance(item, str)]

    async def until(self, is_true: Callable[[], object]) -> None:
        with anyio.fail_after(30):
            while not is_true():
                self._news.clear()
                await self._news.wait()


def transport(code: str, redact: Callable[[str], str] = lambda text: text) -> StdioTransport:
    what = ProcessSpec(sys.executable, ("-I", "-S", "-c", code), {"PATH": os.environ["PATH"]})
    return StdioTransport("up", what, max_bytes=1 << 20, redact=redact)


@asynccontextmanager
async def connected(code: str | StdioTransport) -> AsyncIterator[tuple[Channel, Heard, StdioTransport]]:
    to, heard = transport(code) if isinstance(code, str) else code, Heard()
    with anyio.fail_after(60):
        async with to.connect(heard) as channel:
            yield channel, heard, to


def says(*lines: bytes) -> str:
    return f"import os; os.write(1, {b''.join(line + bytes([10]) for line in lines)!r})"


async def test_messages_cross_in_order_and_unchanged() -> None:
    odd = b'{"jsonrpc":"2.0","id":%d,"result":{ "big" : 123456789012345678901234567890,"n":null}}'
    async with connected(REPEATS) as (channel, heard, to):
        channel.negotiated("2025-11-25")
        assert not channel.withdraw(b"1")
        for number in range(200):
            channel.send(Outgoing(odd % number, id=b"%d" % number))
        await heard.until(lambda: len(heard.items) == 200)
        assert set(heard.results) == {b'{ "big" : 123456789012345678901234567890,"n":null}'}
        assert [bytes(item.id) for item in heard.items if isinstance(item, Frame)] == [b"%d" % n for n in range(200)]
        assert to.pid
    assert to.pid is None
    assert heard.ends == [], "the end was ours"


async def test_a_channel_shows_its_state_and_warns_when_it_is_dropped_open() -> None:
    """Promise of the bridge: a leaked connection issues a ResourceWarning, as a leaked file does."""
    async with connected(REPEATS) as (channel, _, to):
        assert repr(channel) == f"<StdioChannel 'up' open, process {to.pid}, 0 bytes waiting>"
    assert "closed" in repr(channel)
    channel._is_open = True  # pyright: ignore[reportAttributeAccessIssue] - as one that nobody closed
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del channel
        gc.collect()
    assert [leak.category for leak in caught if "StdioChannel 'up' open" in str(leak.message)] == [ResourceWarning]


async def test_a_long_message_crosses_both_pipes() -> None:
    async with connected(REPEATS) as (channel, heard, _):
        result = b'{"x":"%b"}' % b" ".join(b"%d" % number for number in range(150_000))
        assert len(result) > 900_000
        channel.send(Outgoing(b'{"jsonrpc":"2.0","id":1,"result":%b}' % result))
        await heard.until(lambda: heard.items)
        assert bytes(heard.results[0]) == result


async def test_what_cannot_be_started_is_unavailable_and_says_why() -> None:
    to = StdioTransport("up", ProcessSpec("no-such-command", (), {}), max_bytes=1)
    with pytest.raises(UpstreamUnavailable, match="Server 'up': command not found: no-such-command"):
        async with to.connect(Heard()):
            raise AssertionError("not reached")


async def test_what_a_server_said_before_it_died_comes_before_its_end() -> None:
    code = says(b'{"jsonrpc":"2.0","id":1,"result":{}}', b'{"jsonrpc":"2.0","method":"x"}') + "; os._exit(3)"
    async with connected(code) as (channel, heard, _):
        await heard.until(lambda: heard.ends)
        assert [type(item) for item in heard.items] == [Frame, Frame, str]
        assert heard.ends == ["exit code 3"]
        with pytest.raises(UpstreamGone):
            channel.send(Outgoing(b"{}"))
    assert len(heard.ends) == 1


async def test_how_a_server_ended_is_told_also_after_the_loop_stood_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it is late for everything at once: that it closed its output says less, and is the first to be due."""
    monkeypatch.setattr(stdio, "_EXIT_WAIT", 10)  # over only when this test says so
    code = """
import os
os.close(1)
os.write(2, b"closed\\n")
os.read(0, 1)
os.write(2, b"and so\\ndisk full")
os._exit(3)
"""
    stood: list[str] = []

    def stand_still(text: str) -> str:
        if text == "and so":
            stood.append(text)
            assert to.pid
            os.waitid(os.P_PID, to.pid, os.WEXITED | os.WNOWAIT)
            pass_time(15)
        return text

    to = transport(code, redact=stand_still)
    async with connected(to) as (channel, heard, _):

        async def lines() -> list[str]:
            return to.stderr_lines

        await eventually(lines, bool)  # so that much is seen
        channel.send(Outgoing(b"{}"))
        await heard.until(lambda: heard.ends)
        assert (heard.ends, to.last_words()) == (["exit code 3"], "disk full")
    assert stood == ["and so"]


async def test_a_last_message_without_a_line_end_counts() -> None:
    async with connected("""import os; os.write(1, b'{"jsonrpc":"2.0","id":1,"result":{}}')""") as (_, heard, _):
        await heard.until(lambda: heard.ends)
        assert heard.results == [b"{}"]


async def test_a_descendant_that_keeps_the_pipes_does_not_hide_the_end() -> None:
    code = says(b'{"jsonrpc":"2.0","id":1,"result":{}}') + "\nimport time\nif os.fork(): os._exit(4)\ntime.sleep(60)"
    async with connected(code) as (_, heard, _):
        await heard.until(lambda: heard.ends)
        assert (heard.results, heard.ends) == ([b"{}"], ["exit code 4"])


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import os, time; os.close(1); time.sleep(60)", "it closed its standard output"),
        ("import os, time; os.close(0); time.sleep(60)", "it closed its standard input"),
    ],
)
async def test_a_server_that_closes_a_pipe_and_lives_on_counts_as_ended(code: str, reason: str) -> None:
    async with connected(code) as (channel, heard, _):
        with anyio.fail_after(30):
            while not heard.ends:
                channel.send(Outgoing(b"{}"))  # a closed input shows when something is written
                await asyncio.sleep(0.01)
        assert heard.ends == [reason]


async def test_noise_is_ignored_and_what_is_spoiled_is_named() -> None:
    lines = [b"starting...", b"", b"42", b'{"jsonrpc":"2.0","id":7,"result":{oops}}', b'{"jsonrpc":"2.0","id":8}']
    async with connected(says(*lines) + STAYS) as (_, heard, _):
        await heard.until(lambda: len(heard.items) == 2)
        ids, reason = heard.items[0]  # type: ignore[misc]
        assert ids == [b"7"]
        assert reason


async def test_the_members_of_a_batch_arrive_one_by_one() -> None:
    """Revision 2025-03-26."""
    line = b'[{"jsonrpc":"2.0","id":1,"result":{"a":1}},{"id":2,"method":5},{"jsonrpc":"2.0","method":"x"}]'
    async with connected(says(line) + STAYS) as (_, heard, _):
        await heard.until(lambda: len(heard.items) == 3)
        assert [type(item) for item in heard.items] == [Frame, tuple, Frame]


async def test_an_object_that_is_never_finished_is_given_up_soon() -> None:
    """Issue 2: within 100 ms, though later lines might have finished it."""
    async with connected(says(b'{"jsonrpc":"2.0","id":5,', b'"result":') + STAYS) as (_, heard, _):
        await heard.until(lambda: heard.items)
        assert heard.items == [([b"5"], "Input data was truncated")]


async def test_the_last_lines_of_stderr_are_kept_masked_and_short() -> None:
    code = """
import os
os.write(2, b"".join(b"line %d\\n" % number for number in range(100)))
os.write(2, b"token=s3cret\\n" + b"x" * 20_000 + b"\\n\\xff\\n\\n")
os.write(2, b"no line end")
"""
    to = transport(code, redact=lambda text: text.replace("s3cret", "***"))
    async with connected(to) as (_, heard, _):
        await heard.until(lambda: heard.ends)
        lines = to.stderr_lines
    assert len(lines) == 50
    assert lines[0] == "line 55"
    assert lines[-5:] == ["token=***", "x" * 1000, "\ufffd", "", "no line end"]
    assert to.last_words() == "no line end"


async def test_stderr_without_line_ends_costs_bounded_memory() -> None:
    async with connected("import os; os.write(2, b'x' * 500_000)") as (_, heard, to):
        await heard.until(lambda: heard.ends)
        assert {len(line) for line in to.stderr_lines} <= set(range(1001))


async def test_a_new_start_forgets_the_last_words_of_the_old_one() -> None:
    to = transport("import sys; print('oh no', file=sys.stderr)")
    async with connected(to) as (_, heard, _):
        await heard.until(lambda: heard.ends)
    assert to.last_words() == "oh no", "kept for error messages after the end"
    to._spec = ProcessSpec(sys.executable, ("-I", "-c", "pass"), {})
    async with connected(to) as (_, heard, _):
        await heard.until(lambda: heard.ends)
        assert to.last_words() == ""


async def test_what_a_server_says_while_it_is_stopped_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "STDIN_GRACE", 60)  # it may take its time to start
    async with connected("import sys; sys.stdin.read(); print('saved', file=sys.stderr)") as (_, _, to):
        pass
    assert to.stderr_lines == ["saved"]


async def test_a_server_that_does_not_read_is_sent_no_more_than_fits() -> None:
    async with connected("import time; time.sleep(60)") as (channel, _, _):
        big = Outgoing(b"x" * (17 << 20))
        channel.send(big)  # whatever its size: nothing else waits
        with pytest.raises(Overloaded, match=r"'up' does not read its input: 1[67] MiB already wait"):
            channel.send(Outgoing(b"{}"))


async def test_a_server_that_never_reads_counts_as_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "_STALL_SECONDS", 0.05)
    async with connected("import time; time.sleep(60)") as (channel, heard, _):
        channel.send(Outgoing(b"x" * 8_000_000))
        await heard.until(lambda: heard.ends)
        assert heard.ends == ["it did not read its input for 0.05 s"]


SECRET = "s3cret-value-" + "v" * 40


@pytest.mark.parametrize("before", [990, 3990, 8185])
async def test_a_secret_across_the_place_where_a_line_of_stderr_is_cut_is_masked(before: int) -> None:
    code = f"import os; os.write(2, b' ' * {before} + b'{SECRET}')"
    async with connected(transport(code, Redactor([SECRET]))) as (_, heard, to):
        await heard.until(lambda: heard.ends)
        assert len(to.stderr_lines) == 1
        assert "s3c" not in to.stderr_lines[0]


async def test_the_rest_of_a_line_too_long_to_wait_for_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may begin with the second half of a secret. A carriage return ends a line too: so do progress bars."""
    monkeypatch.setattr(stdio, "_LONGEST_LINE", 100)
    code = """
import os, sys
os.write(2, b'x' * 101)
sys.stdin.readline()
os.write(2, b'dropped')
sys.stdin.readline()
os.write(2, b' too' + bytes([13]) + b'kept' + bytes([10]))
"""
    async with connected(code) as (channel, heard, to):

        async def lines() -> list[str]:
            return to.stderr_lines

        await eventually(lines, bool)
        channel.send(Outgoing(b"{}"))
        channel.send(Outgoing(b"{}"))
        await heard.until(lambda: heard.ends)
        assert to.stderr_lines == ["x" * 101, "kept"]


async def test_a_program_that_is_no_server_is_shown_by_what_it_printed() -> None:
    code = f"print('Usage: foo [options]'); print(' ' * 60 + 'token {SECRET}  is   set')"
    async with connected(transport(code, Redactor([SECRET]))) as (channel, heard, to):
        channel.send(Outgoing(b'{"jsonrpc":"2.0","id":1,"method":"initialize"}', "initialize", b"1"))
        await heard.until(lambda: heard.ends)
        assert heard.ends == ["ended without answering `initialize` (exit code 0)"]
        assert to.last_words() == "token [redacted] is set"


async def test_of_long_noise_no_half_secret_is_shown() -> None:
    code = f"print('a' * 100 + ' ' + 'b' * 80 + ' ' + '{SECRET}' + ' end')"
    async with connected(transport(code, Redactor([SECRET]))) as (_, heard, to):
        await heard.until(lambda: heard.ends)
        assert "s3c" not in to.last_words()
        assert 100 < len(to.last_words()) <= 200


async def test_what_a_server_writes_to_stderr_says_more_than_its_noise() -> None:
    async with connected("import sys; print('noise'); print('reason', file=sys.stderr)") as (_, heard, to):
        await heard.until(lambda: heard.ends)
        assert to.last_words() == "reason"
