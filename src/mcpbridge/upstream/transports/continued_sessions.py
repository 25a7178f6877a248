"""Sessions with legacy servers over HTTP that outlive the bridge that opened them.

In a fleet of bridges a session at a server that is one client's alone is written down. When another bridge has that
client, it continues the server's session: the handshake is answered from what was written down, and the server sees
none. If the server does not know the session any more, a new one begins.
"""

from collections.abc import Callable
from hashlib import sha256
from typing import Protocol

from msgspec import Struct

from mcpbridge.base.errors import BridgeError, SessionExpired
from mcpbridge.protocol.jsonrpc import Frame, decode_frame, encode_response
from mcpbridge.protocol.transport import Outgoing, Receiver
from mcpbridge.upstream.transports.http_requests import PostMaker


class KeptSession(Struct, frozen=True):
    """What another bridge needs to continue one."""

    id: str
    """`Mcp-Session-Id`: whoever has it is the client."""
    opened_with: bytes
    """Digest of the message that opened it: what the client can be asked is among that."""
    result: bytes
    """The server's answer to that."""


class SessionKeeper(Protocol):
    """Where one client's session at one server is written down. Nothing here fails: it is done as well as may be."""

    async def load(self) -> KeptSession | None:
        """The one that was written down last; None: there is none, or it cannot be read now."""
        ...

    def keep(self, session: KeptSession) -> None:
        """Write it down, soon."""
        ...

    def forget(self, id_: str) -> None:
        """This one is over."""
        ...

    @property
    def is_handed_on(self) -> bool:
        """Another bridge continues it: it is not over where it ends here."""
        ...


class Continued:
    """The receiver of one channel: continues the session that was kept, and keeps the one that begins."""

    def __init__(self, keeper: SessionKeeper, receiver: Receiver, former: KeptSession | None) -> None:
        self._keeper, self._receiver, self._former = keeper, receiver, former
        self._requests: PostMaker | None = None
        self._opening: tuple[bytes, bytes] | None = None
        """Id and digest of the `initialize` that the server has."""
        self.spoiled, self.pause_after = receiver.spoiled, receiver.pause_after

    def begin_with(self, requests: PostMaker) -> Callable[[Outgoing], bool]:
        """What sees each `initialize` first: True if it has answered that in the server's place."""
        self._requests = requests
        return self._begins

    @property
    def has_unasked(self) -> bool:
        """See `Receiver`."""
        return self._receiver.has_unasked

    def _begins(self, message: Outgoing) -> bool:
        assert self._requests is not None
        digest, former = _digest(message.data), self._former
        self._former = None  # once: whoever begins anew on this channel wants another session
        if former is not None and former.opened_with == digest:
            self._requests.keep_session(former.id)
            self._receiver.frame(decode_frame(encode_response(message.id, former.result)), message.id)
            return True
        self._opening = message.id, digest
        return False

    def frame(self, frame: Frame, via: bytes) -> None:
        """See `Receiver`."""
        if self._opening is not None and via == self._opening[0] and bytes(frame.id) == via:
            (_, digest), self._opening = self._opening, None
            if frame.result and (session := self._session):
                self._keeper.keep(KeptSession(session, digest, bytes(frame.result)))
        self._receiver.frame(frame, via)

    def failed(self, id_: bytes, error: BridgeError, *, sent: bool) -> None:
        """See `Receiver`."""
        if isinstance(error, SessionExpired):
            self._forget()
        self._receiver.failed(id_, error, sent=sent)

    def closed(self, reason: str) -> None:
        """See `Receiver`."""
        self._forget()
        self._receiver.closed(reason)

    def end(self) -> None:
        """The channel is about to end, and the server's session with it, if no other bridge continues that."""
        if not self._keeper.is_handed_on:
            self._forget()
        elif self._requests is not None:
            self._requests.forget()

    @property
    def _session(self) -> str:
        requests = self._requests
        return "" if requests is None or requests.is_modern else requests.session.decode("ascii")

    def _forget(self) -> None:
        if session := self._session:
            self._keeper.forget(session)


def _digest(initialize: bytes) -> bytes:
    """Of all but its id."""
    frame = decode_frame(initialize)
    return sha256(bytes(frame.params)).digest()
