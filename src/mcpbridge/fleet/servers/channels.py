"""The ways to the one process of a server for a fleet: from its own bridge, and from another one over the link."""

import asyncio
from collections import deque

import msgspec

from mcpbridge.base.errors import Overloaded, UpstreamGarbled, UpstreamGone, UpstreamUnavailable
from mcpbridge.fleet.link.connections import CONNECT_SECONDS, Links, NotSent, OutcomeUnknown, Stream
from mcpbridge.fleet.link.frames import Ask, Kind, Reply
from mcpbridge.fleet.records import Member
from mcpbridge.fleet.servers.process import SharedProcess, line_of
from mcpbridge.protocol.jsonrpc import Frame, decode_frame
from mcpbridge.protocol.transport import Outgoing, Receiver

ATTACH, SEND = "fleet/attach", "fleet/send"
"""Kinds of requests on the link, in the place of an HTTP method; the path is the name of the server."""
OK, BUSY, NOT_HERE = 200, 503, 409
"""What they are answered with: a message was taken, the process does not read, or it is another bridge's."""
_WAITING = 16 << 20
"""Bytes that may wait for a bridge, or for the process."""


class Here:
    """This bridge, as one of those that use the process."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def take(self, frame: Frame) -> None:
        """See `Party`."""
        self._receiver.frame(frame, b"")

    def spoiled(self, id_: bytes, reason: str) -> None:
        """See `Party`."""
        self._receiver.spoiled([id_], reason, b"")

    def closed(self, reason: str) -> None:
        """See `Party`."""
        self._receiver.closed(reason)


class OwnChannel:
    """The way to a process that is here."""

    def __init__(self, process: SharedProcess, number: int) -> None:
        self._process, self._number = process, number

    def send(self, message: Outgoing) -> None:
        """See `Channel`."""
        self._process.send(self._number, bytes(message.data))

    def withdraw(self, id_: bytes) -> bool:
        """See `Channel`."""
        return False

    def negotiated(self, version: str) -> None:
        """See `Channel`."""


class Elsewhere:
    """Another bridge that uses the process here."""

    def __init__(self) -> None:
        self._lines = deque[bytes]()
        self._size = 0
        self._came = asyncio.Event()
        self._is_over = False

    def take(self, frame: Frame) -> None:
        """See `Party`."""
        if self._size > _WAITING:
            self.leave()  # it does not read
            return
        line = line_of(frame) + b"\n"
        self._size += len(line)
        self._lines.append(line)
        self._came.set()

    def spoiled(self, id_: bytes, reason: str) -> None:
        """See `Party`."""
        self.take(Frame(id=msgspec.Raw(id_), result=msgspec.Raw(b"null")))  # which is no answer there, either

    def closed(self, reason: str) -> None:
        """See `Party`."""
        self.leave()

    def leave(self) -> None:
        """It uses the process no more."""
        self._is_over = True
        self._came.set()

    async def next(self) -> bytes | None:
        """The next line; None: there is none any more."""
        while not self._lines and not self._is_over:
            self._came.clear()
            await self._came.wait()
        if self._is_over:
            return None  # what has not been sent is of a process that is over
        line = self._lines.popleft()
        self._size -= len(line)
        return line


class LinkChannel:
    """The way to a process that another bridge has."""

    def __init__(self, name: str, epoch: int, member: Member, number: int, links: Links, receiver: Receiver) -> None:
        self._name, self._epoch, self._member, self._number = name, epoch, member, number
        self._links, self._receiver = links, receiver
        self._messages = deque[Outgoing]()
        self._size = 0
        self._came = asyncio.Event()
        self.reason = ""
        """Why it ended by itself."""
        self._is_closed = self._is_stuck = False
        self._pumping: asyncio.Task[None] | None = None
        self._timer: asyncio.Handle

    def __repr__(self) -> str:
        return f"<LinkChannel {self._name!r} at {self._member.name!r}: {self.reason or 'open'}>"

    def send(self, message: Outgoing) -> None:
        """See `Channel`."""
        if self._is_closed:
            raise UpstreamGone(self._name, "the connection has ended")
        if self._size and self._size + len(message.data) > _WAITING:
            raise Overloaded(f"The bridge that runs server '{self._name}' does not read fast enough")
        self._size += len(message.data)
        self._messages.append(message)
        self._came.set()
        if self._is_stuck:
            asyncio.get_running_loop().call_soon(self._fail_waiting)  # not before its caller waits for the answer

    def withdraw(self, id_: bytes) -> bool:
        """See `Channel`."""
        return False

    def negotiated(self, version: str) -> None:
        """See `Channel`."""

    def close(self) -> None:
        """Nothing is sent any more."""
        self._is_closed = True

    async def pump(self) -> None:
        """Send messages one after the other: so they arrive in order, and each is known to have arrived or not.

        Returns at the end: what is sent after its failure was reported might be done twice.
        """
        self._pumping = asyncio.current_task()
        while not self._is_closed:
            if not self._messages:
                self._came.clear()
                await self._came.wait()
                continue
            message = self._messages.popleft()
            self._size -= len(message.data)
            await self._send(message)

    async def _send(self, message: Outgoing) -> None:
        data = bytes(message.data)
        head = Ask(SEND, self._name, b"%d" % self._epoch, [], str(self._number), len(data))
        try:
            stream = await self._links.ask(self._member.id, self._member.address, head, data)
        except NotSent as error:
            self._not_sent(message, f"the bridge {self._member.name!r} that runs it cannot be reached ({error})")
            self._end("the bridge that runs it cannot be reached")
            return
        try:
            reply = await self._answer(stream)
        except OutcomeUnknown:
            self._end("the bridge that runs it was lost")
            return
        finally:
            stream.close()
        if reply.status == NOT_HERE:
            self._not_sent(message, "it is on its way to another bridge of the fleet")
            self._end("it is on its way to another bridge of the fleet")
        elif reply.status == BUSY and message.id:
            error = Overloaded(f"Server '{self._name}' does not read its input")
            self._receiver.failed(message.id, error, sent=False)

    async def _answer(self, stream: Stream) -> Reply:
        """What the bridge says that a message was sent to. It says it at once, so requests behind are not kept back."""
        loop = asyncio.get_running_loop()

        def look() -> None:
            self._timer = loop.call_soon(fail)  # after what came while this process could not run

        def fail() -> None:
            self._is_stuck = True
            self._fail_waiting()

        self._timer = loop.call_later(CONNECT_SECONDS, look)
        try:
            return (await stream.head())[0]
        finally:
            self._timer.cancel()
            self._is_stuck = False

    def _fail_waiting(self) -> None:
        """While the other bridge does not answer, requests that it was not sent fail. Other messages are no calls."""
        if not self._is_stuck:
            return
        requests = [one for one in self._messages if one.id and one.method]
        self._messages = deque(one for one in self._messages if not (one.id and one.method))
        self._size = sum(len(one.data) for one in self._messages)
        for one in requests:
            why = f"the bridge {self._member.name!r} that runs it does not answer"
            self._not_sent(one, why, is_tried_again=False)

    def _not_sent(self, message: Outgoing, why: str, *, is_tried_again: bool = True) -> None:
        if message.id and message.method:
            error = UpstreamUnavailable(self._name, f"not sent: {why}")
            error.is_tried_again = is_tried_again
            self._receiver.failed(message.id, error, sent=False)

    async def read(self, stream: Stream) -> None:
        """Hand on what the server says, until the end."""
        rest = bytearray()
        while True:
            try:
                kind, part = await stream.next()
            except OutcomeUnknown:
                self._end("the bridge that runs it was lost")
                return
            if kind != Kind.REPLY_PART:
                self._end("its process has ended, or moves to another bridge of the fleet")
                return
            rest += part
            *lines, tail = bytes(rest).split(b"\n") if b"\n" in part else (bytes(rest),)
            if lines:
                rest = bytearray(tail)
            for line in lines:
                self._take(line)
            stream.grant(len(part))

    def _take(self, line: bytes) -> None:
        try:
            self._receiver.frame(decode_frame(line), b"")
        except (msgspec.DecodeError, RecursionError) as error:
            self._receiver.spoiled([], str(UpstreamGarbled(self._name, str(error))), b"")

    def _end(self, reason: str) -> None:
        if not self.reason and not self._is_closed:
            self.reason = reason
            self.close()
            if self._pumping is not None and self._pumping is not asyncio.current_task():
                self._pumping.cancel()  # perhaps it is about to send
            while self._messages:
                self._not_sent(self._messages.popleft(), reason)
            self._receiver.closed(reason)
