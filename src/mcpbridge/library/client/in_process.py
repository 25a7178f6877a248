"""An `mcp.Client` of a bridge in the same process: a transport without a socket or another process.

Behind it is the same conversation as behind standard input and output, in both eras. Each message is written as JSON
once and read once; nothing else is in between.
"""

import asyncio
import math
from types import TracebackType

from anyio import BrokenResourceError, ClosedResourceError, create_memory_object_stream
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from mcpbridge.downstream.client import Client
from mcpbridge.downstream.conversation import READ_LIMIT, Conversation
from mcpbridge.downstream.services import Core
from mcpbridge.protocol.jsonrpc import decode_frame


class InProcess:
    """A transport: `mcp.Client(InProcess(bridge.server))`. One client at a time, on the event loop of the bridge."""

    def __init__(self, core: Core, *, user: str = "", view: str = "", profile: str = "", project: str = "") -> None:
        """`user`: whose requests these are, as the holder of a token is one over HTTP; empty: the local user's.

        `view`: the one server that is shown, by its own names; empty: all. `profile`: of `[profiles]`.
        `project`: URI of the directory that the client works in; empty: none is known.
        """
        self._core = core
        self._user, self._view, self._profile, self._project = user, view, profile, project
        self._conversation: Conversation | None = None
        self._inbox: _Inbox | None = None

    async def __aenter__(self) -> tuple["_Inbox", "_Outbox"]:
        if self._conversation is not None:
            raise RuntimeError("this connection is open already; each client takes one of its own")
        client = Client(
            principal=self._user,
            view=self._view,
            profile_name=self._profile,
            started_in=self._project,
            front="program",
        )
        self._inbox = inbox = _Inbox()
        self._conversation = Conversation(self._core, client, send=inbox.take, pending=lambda: inbox.pending)
        return inbox, _Outbox(self._conversation, inbox)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Cut the connection: what the client still asks is cancelled, and it hears that nothing more comes."""
        if self._conversation is not None:
            self._conversation.close()
        if self._inbox is not None:
            self._inbox.end()
        self._conversation = self._inbox = None


class _Inbox(ObjectReceiveStream[SessionMessage | Exception]):
    """What the bridge said and the client has not read yet."""

    def __init__(self) -> None:
        self._give, self._messages = create_memory_object_stream[bytes](math.inf)
        self.pending = 0
        """Bytes that wait here."""
        self._drained = asyncio.Event()

    def take(self, message: bytes) -> bool:
        """Keep a message for the client; False: it reads no more."""
        try:
            self._give.send_nowait(message)
        except (ClosedResourceError, BrokenResourceError):
            return False
        self.pending += len(message)
        return True

    async def receive(self) -> SessionMessage | Exception:
        """The next message; an error in its place if the SDK's models do not take it."""
        message = await self._messages.receive()
        self.pending -= len(message)
        if self.pending <= READ_LIMIT:
            self._drained.set()
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(message, by_name=False))
        except ValueError as error:
            return error

    def end(self) -> None:
        """Nothing more comes than what waits here."""
        self._give.close()
        self._drained.set()

    async def has_room(self) -> None:
        """Return once the client has read enough of it."""
        while self.pending > READ_LIMIT:
            self._drained.clear()
            await self._drained.wait()

    async def aclose(self) -> None:
        """Nothing is read any more."""
        self.end()
        self._messages.close()
        self.pending = 0


class _Outbox(ObjectSendStream[SessionMessage]):
    """What the client says."""

    def __init__(self, conversation: Conversation, inbox: _Inbox) -> None:
        self._conversation, self._inbox = conversation, inbox
        self._is_open = True

    async def send(self, item: SessionMessage) -> None:
        """Hand a message over. One who leaves too much unread waits, as on a pipe."""
        await self._inbox.has_room()
        if not self._is_open:
            raise ClosedResourceError
        message = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        self._conversation.take([decode_frame(message)])

    async def aclose(self) -> None:
        """Nothing more comes."""
        if self._is_open:
            self._is_open = False
            self._conversation.input_ended()
