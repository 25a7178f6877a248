"""The transport of one upstream, listened to; see `listening` for what is written down."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from mcpbridge.cassettes.entries import Entry
from mcpbridge.cassettes.listening import Listening, Lists
from mcpbridge.cassettes.tape import Tape
from mcpbridge.errors import BridgeError, UpstreamError
from mcpbridge.wire.transport import Channel, Outgoing, Receiver, Transport, TransportKind

__all__ = ["RecordingTransport"]


class RecordingTransport:
    """A transport that is listened to. Implements `Transport`."""

    def __init__(self, name: str, inner: Transport, tape: Tape) -> None:
        self._name, self._inner, self._tape = name, inner, tape
        self._lists = Lists()

    @property
    def kind(self) -> TransportKind:
        """See `Transport`."""
        return self._inner.kind

    def last_words(self) -> str:
        """See `Transport`."""
        return self._inner.last_words()

    @asynccontextmanager
    async def connect(self, receiver: Receiver) -> AsyncGenerator[Channel]:
        """See `Transport`."""
        listening = Listening(self._name, receiver, self._inner, self._tape, self._lists)
        is_open = False
        try:
            async with self._inner.connect(listening) as channel:
                is_open = True
                yield _Heard(channel, listening)
        except UpstreamError as error:
            if not is_open:
                self._tape.add(Entry(self._name, unavailable=error.what))
            raise
        finally:
            listening.end()


class _Heard:
    """The channel of the transport. Implements `Channel`."""

    def __init__(self, inner: Channel, listening: Listening) -> None:
        self._inner, self._listening = inner, listening

    def send(self, message: Outgoing) -> None:
        """See `Channel`."""
        self._listening.sent(message)
        try:
            self._inner.send(message)
        except BridgeError:
            self._listening.not_sent(message.id)
            raise

    def withdraw(self, id_: bytes) -> bool:
        """See `Channel`."""
        self._listening.withdrawn(id_)
        return self._inner.withdraw(id_)

    def negotiated(self, version: str) -> None:
        """See `Channel`."""
        self._inner.negotiated(version)
