"""Replies to plain calls, which take the express lane (`downstream/express_lane.py`): no task runs for them.

Such a reply is one JSON document in one write. As soon as there is more to do, the call continues in a task, and its
reply is a `Reply` as any other: something is said before the answer, the call takes so long that its client must hear
of it, the client leaves, the session or the bridge ends. A request on another HTTP server than our own, one that wants
a stream, and one that waits for a client that reads slowly begin as a `Reply`.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

from mcpbridge.downstream.client import Client
from mcpbridge.downstream.express_lane import ExpressCall, ExpressLane
from mcpbridge.downstream.http.exchange import DirectExchange
from mcpbridge.downstream.http.reply import Reply
from mcpbridge.protocol.jsonrpc import Frame

OwnerT = TypeVar("OwnerT")
Work = Coroutine[Any, Any, None]


class ExpressReplies(Generic[OwnerT]):
    """Those of one kind of client that are under way. One timer for all: nearly all end long before it.

    Each kind has a class of its own, which says what such a reply becomes.
    """

    def __init__(self, patience: float) -> None:
        """`patience`: seconds of silence after which a client is to hear that its call is alive."""
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._open: dict[ExpressReply[OwnerT], float] = {}
        """When each began, the oldest first."""
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {len(self._open)} under way>"

    def take(self, exchange: DirectExchange, frame: Frame, client: Client, owner: OwnerT, lane: ExpressLane) -> bool:
        """Send the call of this request, if it is plain. False: nothing was done."""
        reply = exchange.express = ExpressReply(exchange, frame, client, owner, lane, self)
        self._open[reply] = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(self._patience, self._look)
        if lane.take(client, frame, reply):
            return True
        exchange.express = None
        del self._open[reply]
        return False

    def over(self, reply: "ExpressReply[OwnerT]") -> None:
        """A reply is about to be answered."""
        del self._open[reply]

    def become(self, reply: "ExpressReply[OwnerT]") -> Reply:
        """The reply that it becomes."""
        raise NotImplementedError

    def run(self, reply: Reply, frame: Frame, owner: OwnerT, client: Client, sent: ExpressCall) -> Work:
        """Let that reply run to its end, with the call that was sent."""
        raise NotImplementedError

    def continued(self, reply: "ExpressReply[OwnerT]") -> float:
        """A reply continues in a task. Returns when it began."""
        return self._open.pop(reply)

    def continue_all(self) -> None:
        """Let all continue in tasks. No more come."""
        for reply in list(self._open):
            reply.continue_call()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        now = self._loop.time()
        for reply, since in list(self._open.items()):
            if since + self._patience > now:
                break
            reply.continue_call()
        oldest = next(iter(self._open.values()), None)
        self._timer = None if oldest is None else self._loop.call_at(oldest + self._patience, self._look)


class ExpressReply(Generic[OwnerT]):
    """The reply to one plain call; a `Channel` of the express lane."""

    __slots__ = ("_lane", "_replies", "_reply", "client", "exchange", "frame", "owner")
    answers_at_once = False
    """Of requests that a client sent without waiting, each would be answered within the answer before."""

    def __init__(
        self,
        exchange: DirectExchange,
        frame: Frame,
        client: Client,
        owner: OwnerT,
        lane: ExpressLane,
        replies: ExpressReplies[OwnerT],
    ) -> None:
        """`owner`: what it belongs to, for its kind of client."""
        self.exchange, self.frame, self.client, self.owner = exchange, frame, client, owner
        self._lane, self._replies = lane, replies
        self._reply: Reply | None = None
        """What it became."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} to {bytes(self.frame.id).decode()} continues={self._reply is not None}>"

    # As a channel of the lane

    def notify(self, message: bytes) -> bool:
        """Send a message before the answer; see `Reply.notify`."""
        if self._reply is None:
            if not self.exchange.accepts.events:
                return False
            self.continue_call()
        return self._reply is not None and self._reply.notify(message)

    def deliver(self, frame: Frame, answer: bytes) -> None:
        """Answer."""
        self._replies.over(self)
        self.exchange.express = None
        self.exchange.send_now(answer)

    def continue_in_task(self, frame: Frame, sent: ExpressCall) -> asyncio.Task[Any]:
        """Answer in a task from now on. What is said before its first step has its way already."""
        replies, exchange = self._replies, self.exchange
        began = replies.continued(self)
        exchange.express = None
        reply = self._reply = replies.become(self)
        task = exchange.run(replies.run(reply, frame, self.owner, self.client, sent))
        reply.begin(task, began)
        return task

    # As the front has it

    def continue_call(self) -> None:
        """Let the call continue in a task; nothing happens where it does already."""
        calls = self._lane.calls.get(self.client)
        sent = calls.get(bytes(self.frame.id)) if calls is not None else None
        if sent is not None and sent.channel is self:
            self._lane.continue_in_task(sent)
