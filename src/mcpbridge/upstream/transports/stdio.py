"""The stdio transport: a server as a child process, one message a line (spec, stdio transport).

Standard error is drained all the time, so that a server which logs a lot never blocks, and its last
lines are kept for error messages and `status`.
"""

import asyncio
import re
import warnings
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from time import perf_counter, time

import anyio

from mcpbridge.base.errors import Overloaded, UpstreamGone, UpstreamUnavailable
from mcpbridge.base.log import get_logger
from mcpbridge.base.masking.lines import LineMasker
from mcpbridge.base.process.pipes import LARGE_READ, SMALL_READ, FdReader, FdWriter
from mcpbridge.base.process.process import ProcessSpec, ServerProcess
from mcpbridge.protocol.batches import Batch
from mcpbridge.protocol.jsonrpc import Frame
from mcpbridge.protocol.reading.framing import LineReader
from mcpbridge.protocol.reading.repair import Item
from mcpbridge.protocol.reading.unreadable import Noise, Spoiled
from mcpbridge.protocol.transport import Channel, Outgoing, Receiver, TransportKind

log = get_logger("mcpbridge.stdio")

_KEPT_LINES = 50
KEPT_LINE_LENGTH = 1000
"""Characters of a line on stderr that are kept."""
_REMEMBERED_LINES = 200
"""Lines on stderr that are remembered with their times, also those of a process that is gone."""
_LONGEST_LINE = 64 << 10
"""Bytes of a line on stderr that are waited for; what follows them until the next line is dropped."""
_NOISE_LENGTH = 200
"""Characters of a line of noise that are shown."""
_BREAK = re.compile(rb"[\r\n]")
_WRITE_LIMIT = 16 << 20
"""Bytes that may wait for a server that does not read; one message may be larger while none waits."""
_STALL_SECONDS = 30.0
"""A server that takes nothing from a full pipe for so long is as good as dead."""
_PRETTY_WAIT = 0.1
"""Seconds to wait for the rest of an object that spans lines (issue 2: a spoiled reply fails within 100 ms)."""
_EXIT_WAIT = 0.5
"""Seconds to wait for the exit code after stdout closed, and for the last output after the exit."""


class StdioTransport:
    """Starts the server anew at every `connect`."""

    kind: TransportKind = "stdio"

    def __init__(
        self,
        name: str,
        spec: ProcessSpec | Callable[[], ProcessSpec],
        *,
        max_bytes: int,
        redact: Callable[[str], str] = lambda text: text,
        memory_limit: int | None = None,
    ) -> None:
        """`spec`: what to start, or a function that returns it, called at each start.

        `memory_limit`: bytes that the server and all that it starts may hold together before it is ended.
        """
        self._memory_limit = memory_limit
        self._name = name
        self._spec = spec
        self._max_bytes = max_bytes
        self._redact = redact
        self._line_masker = LineMasker(redact)
        self._stderr: deque[str] = deque(maxlen=_KEPT_LINES)
        self._written: deque[tuple[float, str]] = deque(maxlen=_REMEMBERED_LINES)
        """The same of earlier processes too, with when each line came, in seconds since 1970."""
        self.lines_written = 0
        """How many lines came on standard error, of earlier processes too."""
        self._noise = ""
        self.pid: int | None = None
        """Process id of the running server."""
        self._process: ServerProcess | None = None

    @property
    def stderr_lines(self) -> list[str]:
        """The last lines the server wrote to standard error, oldest first, secrets masked."""
        return list(self._stderr)

    def stderr_between(self, since: float, until: float) -> list[tuple[float, str]]:
        """Lines that came from `since` to `until` in seconds since 1970, with when; of those that are remembered."""
        return [(at, line) for at, line in self._written if since <= at <= until]

    @property
    def noise(self) -> str:
        """The last text that it wrote to standard output and that is no message, secrets masked; empty: none."""
        return self._noise

    async def memory(self) -> int | None:
        """Bytes that the running server holds, with all that it started; None where the system does not say."""
        from mcpbridge.base.process.memory_limit import memory_of  # asked by few

        return await memory_of(self._process) if self._process is not None else None

    def last_words(self) -> str:
        """The line on stderr that says why it failed; if there is none, the last on stdout that is no message."""
        from mcpbridge.base.process.failure_line import telling_line  # wanted of those that fail

        return telling_line(self._stderr) or self._noise

    @asynccontextmanager
    async def connect(self, receiver: Receiver) -> AsyncGenerator[Channel]:
        """Start the server; leaving ends it with all its descendants.

        Raises:
            UpstreamUnavailable: it cannot be started.
        """
        self._stderr.clear()
        self._noise, self._line_masker = "", LineMasker(self._redact)
        try:
            process = ServerProcess.start(self._spec if isinstance(self._spec, ProcessSpec) else self._spec())
        except OSError as error:
            raise UpstreamUnavailable(self._name, str(error)) from error
        self.pid, self._process = process.pid, process
        channel: _StdioChannel | None = None
        watch: asyncio.Task[None] | None = None
        try:
            channel = _StdioChannel(self._name, process, receiver, self._max_bytes, self._keep_stderr, self._keep_noise)
            if self._memory_limit is not None:
                watch = asyncio.ensure_future(_end_when_too_large(process, self._memory_limit, channel))
            yield channel
        finally:
            if watch is not None:
                watch.cancel()
            if channel is not None:
                channel.close()
            with anyio.CancelScope(shield=True):  # `stop` bounds itself: 2 s, 3 s, then the kill
                await process.stop(before_closing=channel.drop_stderr if channel is not None else _nothing)
            self.pid = self._process = None

    def _keep_stderr(self, line: str) -> None:
        line = self._line_masker(line)[:KEPT_LINE_LENGTH]  # in this order: half a secret would be known as none
        self._stderr.append(line)
        self.lines_written += 1
        self._written.append((time(), line))
        log.debug("server wrote to stderr", upstream=self._name, line=line)

    def _keep_noise(self, text: str) -> None:
        if len(text) >= _NOISE_LENGTH:  # perhaps only a beginning, whose last word may be half a secret
            text = text.rpartition(" ")[0]
        excerpt = " ".join(self._redact(text).split())[:_NOISE_LENGTH]
        if excerpt:
            self._noise = excerpt


async def _end_when_too_large(process: ServerProcess, limit: int, channel: "_StdioChannel") -> None:
    from mcpbridge.base.process.memory_limit import exceeded  # few servers have a limit

    channel.end(await exceeded(process, limit))


def _nothing() -> None:
    """There is nothing to do."""


class _StdioChannel:
    _is_open = False
    """Until it is set up, and once it is closed."""

    def __init__(
        self,
        name: str,
        process: ServerProcess,
        receiver: Receiver,
        max_bytes: int,
        keep_stderr: Callable[[str], None],
        keep_noise: Callable[[str], None],
    ) -> None:
        self._name = name
        self._process = process
        self._receiver = receiver
        self._loop = asyncio.get_running_loop()
        self._lines = LineReader(max_bytes, slices=True)
        self._is_open = True
        self._noise = 0
        self._pretty_timer: asyncio.TimerHandle | None = None
        self._keep_stderr = keep_stderr
        self._keep_noise = keep_noise
        self._asked = ""
        self._has_spoken = False
        self._stderr_rest = b""
        self._is_line_too_long = False
        self._stdout = FdReader(process.stdout, self._arrived, self._stdout_closed)
        self._stderr = FdReader(process.stderr, self._stderr_arrived, lambda: None)
        self._stdin = FdWriter(
            process.stdin,
            on_broken=self._stdin_broken,
            stall_after=_STALL_SECONDS,
            on_stall=lambda: self.end(f"it did not read its input for {_STALL_SECONDS:g} s"),
            watches=True,
        )
        self._watch = asyncio.ensure_future(self._watch_exit())

    def __del__(self) -> None:
        if self._is_open:
            warnings.warn(f"{self!r} was dropped while it was open", ResourceWarning, 2, self)

    def __repr__(self) -> str:
        state = "open" if self._is_open else "closed"
        return (
            f"<StdioChannel {self._name!r} {state}, process {self._process.pid}, {self._stdin.pending} bytes waiting>"
        )

    def send(self, message: Outgoing) -> None:
        if not self._is_open:
            raise UpstreamGone(self._name, "the connection has ended")
        waiting = self._stdin.pending
        if waiting and waiting + len(message.data) > _WRITE_LIMIT:
            raise Overloaded(f"Server '{self._name}' does not read its input: {waiting >> 20} MiB already wait for it")
        self._stdin.write_line(message.data)
        if message.id and message.method:
            self._asked = message.method

    def fence(self, may_write: Callable[[], bool]) -> None:
        """See `FencedChannel`."""
        self._stdin.may_write = may_write

    def withdraw(self, id_: bytes) -> bool:
        return False

    def negotiated(self, version: str) -> None:
        pass

    def close(self) -> None:
        """Stop both directions; the process is the transport's to end."""
        self._is_open = False
        self._watch.cancel()
        self._stdout.close()
        self._stdin.close()
        if self._pretty_timer is not None:
            self._pretty_timer.cancel()

    def end(self, reason: str) -> None:
        """The connection ends here, for this reason, as if the server had ended by itself."""
        if self._is_open:
            self.close()
            self._receiver.closed(reason)

    def drop_stderr(self) -> None:
        """Stop draining stderr: last, so that what the server says while it ends is kept."""
        self._keep_last_words()
        self._stderr.close()

    def _arrived(self, data: bytes) -> None:
        began = perf_counter()
        for item in self._lines.feed(data):
            if isinstance(item, Frame):  # as nearly always: one function less for each answer
                self._has_spoken = True
                self._receiver.frame(item, b"")
            else:
                self._deliver([item])
        if len(data) >= SMALL_READ:  # each read of a large message is work, and others have their turns between two
            self._stdout.largest = SMALL_READ if self._lines.is_within_large else LARGE_READ
        if self._lines.unfinished:
            if self._pretty_timer is not None:
                self._pretty_timer.cancel()
            self._pretty_timer = self._loop.call_later(_PRETTY_WAIT, self._give_up_pretty)
        if self._receiver.has_unasked and (pause := self._receiver.pause_after(perf_counter() - began)):
            self._stdout.pause()
            self._loop.call_later(pause, self._stdout.resume)

    def _give_up_pretty(self) -> None:
        self._deliver(self._lines.give_up())

    def _deliver(self, items: list[Item]) -> None:
        for item in items:
            if isinstance(item, Frame):
                self._has_spoken = True
                self._receiver.frame(item, b"")
            elif isinstance(item, Batch):
                self._deliver(list(item.members))
            elif isinstance(item, Spoiled):
                self._receiver.spoiled(item.ids, item.reason, b"")
            else:
                self._heard_noise(item)

    def _heard_noise(self, noise: Noise) -> None:
        self._noise += 1
        self._keep_noise(noise.text)
        if self._noise <= 3:  # more of it says nothing new
            log.warning("server writes text to stdout that is not a message", upstream=self._name, size=len(noise.text))

    def _stderr_arrived(self, data: bytes) -> None:
        if self._is_line_too_long:
            end = _BREAK.search(data)
            if end is None:
                return
            self._is_line_too_long = False
            data = data[end.end() :]
        *lines, self._stderr_rest = (self._stderr_rest + data).split(b"\n")
        if len(self._stderr_rest) > _LONGEST_LINE:
            lines.append(self._stderr_rest)
            self._stderr_rest = b""
            self._is_line_too_long = True
        for line in lines[-_KEPT_LINES:]:
            self._keep_stderr(line.decode("utf-8", "replace").rstrip())

    def _flush_stderr(self) -> None:
        if self._stderr_rest:
            self._stderr_arrived(b"\n")

    def _stdout_closed(self) -> None:
        self._deliver(self._lines.end())
        self._loop.call_later(_EXIT_WAIT, self._end_unless_exited, "it closed its standard output")

    def _stdin_broken(self) -> None:
        self._loop.call_later(_EXIT_WAIT, self._end_unless_exited, "it closed its standard input")

    def _end_unless_exited(self, reason: str) -> None:
        """How it exited says more: a loop that stood still may come here before it hears of that."""
        if not self._process.has_exited:
            self.end(reason)

    def _keep_last_words(self) -> None:
        self._stderr.drain()
        self._flush_stderr()

    async def _watch_exit(self) -> None:
        await self._process.wait()
        # What it wrote before it died may still stand in the pipes; a descendant may hold them open for ever.
        await asyncio.sleep(0)
        self._stdout.drain()
        self._keep_last_words()
        self.end(self._exit_reason())

    def _exit_reason(self) -> str:
        how = self._process.exit_text
        if how == "exit code 0" and self._asked and not self._has_spoken:
            return f"ended without answering `{self._asked}` ({how})"  # it thinks that nothing went wrong
        return how
