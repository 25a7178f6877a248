"""The Transport protocol: how frames reach one upstream and come back.

A transport knows bytes and frames, nothing of MCP sessions beyond what its own headers need. What
arrives goes to the `Receiver` it was given; what leaves goes through the `Channel` it hands out.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol, runtime_checkable

from msgspec import Struct

from mcpbridge.base.errors import BridgeError
from mcpbridge.protocol.jsonrpc import Frame

TransportKind = Literal["stdio", "streamable-http", "sse", "websocket"]
"""The names of the transports, as the configuration writes them."""


class Outgoing(Struct, frozen=True):
    """A message to send. `data` is the whole JSON-RPC message on one line, without the line end.

    The rest repeats what is in it, for transports that route by it (HTTP headers, one stream a request).
    """

    data: bytes
    method: str = ""
    """Empty for an answer to the peer's own request."""
    id: bytes = b""
    """The raw id of a request; empty for a notification."""
    name: str = ""
    """What the modern era mirrors as `Mcp-Name`: the tool or prompt name, or the resource URI."""
    headers: tuple[tuple[str, str], ...] = ()
    """Further HTTP headers of this message alone, such as `Mcp-Param-*`."""


class Receiver(Protocol):
    """Who gets what a transport receives. All methods are called on the event loop and return at once."""

    @property
    def has_unasked(self) -> bool:
        """Something came that answers no request, since `pause_after` was last called."""
        ...

    def frame(self, frame: Frame, via: bytes) -> None:
        """One message. `via` is the id of the request on whose own stream it came (HTTP), else empty."""
        ...

    def spoiled(self, ids: list[bytes], reason: str, via: bytes) -> None:
        """A message that cannot be read. `ids` are the raw request ids found in it, most likely first."""
        ...

    def failed(self, id_: bytes, error: BridgeError, *, sent: bool) -> None:
        """The request `id_` gets no answer. `sent` is False when the peer cannot have seen it."""
        ...

    def pause_after(self, seconds: float) -> float:
        """To be asked after each chunk with `has_unasked`, which took so many seconds to decode and handle.

        Returns the seconds for which nothing more of this server is to be read.
        """
        ...

    def closed(self, reason: str) -> None:
        """The channel ended by itself, not by us. Called once; nothing follows."""
        ...


class Channel(Protocol):
    """An open way to the peer."""

    def send(self, message: Outgoing) -> None:
        """Take one message out at once, without waiting.

        Raises:
            Overloaded: the peer does not read and the buffer is full; nothing of it was taken.
            UpstreamGone: the channel has ended.
        """
        ...

    def withdraw(self, id_: bytes) -> bool:
        """Stop waiting for the answer to `id_`. True when that by itself asks the peer to cancel (modern HTTP)."""
        ...

    def negotiated(self, version: str) -> None:
        """The session agreed on this protocol version; from now on headers and eras follow it."""
        ...


@runtime_checkable
class FencedChannel(Protocol):
    """A channel that asks in the moment of each write whether it still may."""

    def fence(self, may_write: Callable[[], bool]) -> None:
        """After a no, nothing that was taken and not yet written leaves any more."""
        ...


class Transport(Protocol):
    """Opens channels to one upstream."""

    @property
    def kind(self) -> TransportKind:
        """Which one it is; for one that finds out, which one it is now."""
        ...

    def connect(self, receiver: Receiver) -> AbstractAsyncContextManager[Channel]:
        """Open a channel; leaving the context ends it, waits for its end and leaves no process behind."""
        ...

    def last_words(self) -> str:
        """The last thing the peer said beside the protocol (a line of stderr), for error messages; or empty."""
        ...
