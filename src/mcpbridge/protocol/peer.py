"""Requests and answers over one channel: ids, who waits, progress, cancel.

The peer owns the id space of its channel: every request gets the next number, none is used twice, so
an answer can never reach the wrong caller (CVE-2026-25536 is what happens otherwise). It knows JSON-RPC and
the notifications that belong to a request; what methods mean is left to the session above, time to `deadlines`.
"""

import asyncio
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager

import msgspec
from msgspec import Raw, Struct

from mcpbridge.base.errors import (
    BridgeError,
    UpstreamAnswered,
    UpstreamError,
    UpstreamGarbled,
    UpstreamGone,
    UpstreamTimeout,
)
from mcpbridge.base.log import get_logger
from mcpbridge.protocol.body import LARGE, Body
from mcpbridge.protocol.deadlines import Deadlines, Timeouts
from mcpbridge.protocol.error_codes import INTERNAL_ERROR, METHOD_NOT_FOUND
from mcpbridge.protocol.flood_brake import FloodBrake
from mcpbridge.protocol.jsonrpc import (
    EMPTY_OBJECT,
    OBJECT_START,
    Frame,
    LargeFrame,
    encode_error,
    encode_notification,
    encode_request,
    encode_response,
    first_byte,
)
from mcpbridge.protocol.meta import cancelled_id, progress_token, subscription_id
from mcpbridge.protocol.own_keys import MARK, holds_mark, remove_own_keys
from mcpbridge.protocol.transport import Channel, Outgoing

log = get_logger("mcpbridge.peer")

Update = Callable[[str, Raw], None]
"""Gets the method and params of a notification that belongs to a request."""

ASKS_PER_SECOND = 1000
"""Requests of a server that are looked at in one second; more are a flood: pings are dropped, the rest is refused."""

STRAY_SECONDS = 1.0
"""Once an answer names no request, the only one that it can be meant for is waited for so long."""
_MOST_UNANSWERED = 4096
"""Ids of requests that are remembered because their answer may still come."""


class _Pending(Struct, eq=False):
    """A request under way."""

    method: str
    update: Update | None
    context: object
    future: asyncio.Future[Frame] | None = None
    """None: see `Sent`."""
    held: int = 0
    held_since: float = 0.0
    began: float = 0.0
    seconds: float = 0.0
    idle_ends: float = 0.0
    ends: float = 0.0


class Sent(_Pending, eq=False, kw_only=True):
    """A request under way that no task waits for: its answer is taken in the turn of the loop in which it comes.

    See `Peer.send_request`. Who makes it overrides `answered` and `failed`, and calls `over` or `wait` there.
    """

    id_: bytes = b""
    """Made by `next_id` when the params had to name it; else one is minted."""
    among: dict[bytes, _Pending] = {}
    """The requests under way of its peer."""

    def over(self) -> None:
        """Nothing is waited for any more."""
        self.among.pop(self.id_, None)

    def wait(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[Frame]:
        """From now on there is a future, which somebody waits for: `answered` and `failed` are not called any more."""
        self.future = loop.create_future()
        return self.future

    def answered(self, frame: Frame) -> None:
        """The answer is here."""
        raise NotImplementedError

    def failed(self, error: BridgeError) -> None:
        """There will be no answer."""
        raise NotImplementedError


class Peer:
    """One side of a JSON-RPC conversation. Implements `Receiver` for its transport."""

    def __init__(
        self,
        name: str,
        *,
        on_notification: Callable[[str, Raw, bytes], None],
        on_closed: Callable[[str], None],
        on_request: Callable[[Frame, bytes], bool] = lambda frame, via: False,
        on_withdrawn: Callable[[bytes], None] = lambda id_: None,
    ) -> None:
        """Whom to notify of what.

        `on_request` gets the other side's own requests besides `ping`, and the id of our request on whose stream
        each came, if known. It returns whether it will `reply`; else the answer is "method not found".
        `on_withdrawn` gets the id of one that the other side cancelled.
        """
        self._name = name
        self._on_notification, self._on_closed = on_notification, on_closed
        self._on_request, self._on_withdrawn = on_request, on_withdrawn
        self._channel: Channel | None = None
        self._loop = asyncio.get_running_loop()
        self._pending: dict[bytes, _Pending] = {}
        self._last_id, self._last_sent = 0, b""
        self._unanswered: dict[bytes, None] = {}
        """Ids of requests that nobody waits for any more, oldest first: their answers are late, not wrong."""
        self._closed = ""
        self._large: LargeFrame | None = None
        """The large answer that was returned last, until `body_of` takes it."""
        self._deadlines = Deadlines(self._pending, self._late)
        self._flood_second = self._flood_count = 0
        self.has_unasked = False
        self._brake = FloodBrake()
        self.last_heard = self._loop.time()
        """Loop time of the last message from the other side."""

    def attach(self, channel: Channel) -> None:
        """Send through this channel from now on."""
        self._channel = channel

    @property
    def in_flight(self) -> int:
        """Requests that wait for their answer."""
        return len(self._pending)

    async def request(
        self,
        method: str,
        params: bytes | Raw,
        timeouts: Timeouts,
        *,
        name: str = "",
        headers: tuple[tuple[str, str], ...] = (),
        update: Update | None = None,
        id_: bytes = b"",
        cancellable: bool = True,
        context: object = None,
        sent: Sent | None = None,
    ) -> Raw:
        """Send a request and wait for its result.

        `id_` is made by `next_id` when the params had to name it (a progress token); else one is minted.
        `context` is whatever the caller wants to find again by `context_of`, or to `hold`.
        `sent`: it was sent by `send_request`, and waited for it is from now on.
        When this task is cancelled, or time is up, the other side is asked to cancel.

        Raises:
            UpstreamAnswered: it answered with an error.
            UpstreamTimeout, UpstreamGone, UpstreamGarbled, UpstreamHttpError, UpstreamUnavailable, Overloaded
        """
        channel = self._channel
        if channel is None or (self._closed and sent is None):
            raise UpstreamGone(self._name, self._closed or "not connected")
        if sent is None:
            id_ = id_ or self.next_id()
            future: asyncio.Future[Frame] = self._loop.create_future()
            pending = _Pending(method, update, context, future)
            self._pending[id_] = pending
        else:
            id_, pending, future = sent.id_, sent, sent.future or sent.wait(self._loop)
        try:
            if sent is None:
                channel.send(Outgoing(encode_request(id_, method, params), method, id_, name, headers))
                self._last_sent = id_
                if timeouts.total > 0:
                    self._deadlines.start(pending, timeouts)
            frame = await future
        except BaseException as error:
            self._expect_no_answer(id_)
            if isinstance(error, (asyncio.CancelledError, UpstreamTimeout)):
                self._withdraw(channel, id_, cancellable)
            raise
        finally:
            self._pending.pop(id_, None)
        if frame.error and (error := bytes(frame.error)) != b"null":
            raise UpstreamAnswered(self._name, error)
        result = frame.result
        if len(result) > LARGE and isinstance(frame, LargeFrame):
            self._large = frame
        if not result or first_byte(result) != OBJECT_START:
            # Typed clients lose an answer of any other shape and wait for their own deadline.
            what = (
                "a result that is no object" if bytes(result) not in (b"", b"null") else "neither a result nor an error"
            )
            raise UpstreamGarbled(self._name, f"its answer to {method} has {what}")
        return result

    def send_request(self, sent: Sent, params: bytes | Raw, timeouts: Timeouts, name: str) -> None:
        """Send a request whose answer `sent` takes itself. Raises UpstreamGone or Overloaded: nothing was sent."""
        channel = self._channel
        if channel is None or self._closed:
            raise UpstreamGone(self._name, self._closed or "not connected")
        id_ = sent.id_
        if not id_:
            self._last_id += 1  # `next_id`, which every call would enter here
            id_ = sent.id_ = b"%d" % self._last_id
        channel.send(Outgoing(encode_request(id_, sent.method, params), sent.method, id_, name))
        self._last_sent, sent.among = id_, self._pending
        self._pending[id_] = sent
        self._deadlines.start(sent, timeouts)

    def withdraw(self, sent: Sent) -> None:
        """Nobody waits for the answer to what `send_request` sent: ask the other side to cancel it."""
        sent.over()
        self._expect_no_answer(sent.id_)
        if self._channel is not None:
            self._withdraw(self._channel, sent.id_, cancellable=True)

    @property
    def is_flooding(self) -> bool:
        """The other side sends so much that it is read with pauses."""
        return self._brake.is_on(self._loop.time())

    def body_of(self, result: Raw) -> Body:
        """A result that `request` just returned, as a body; a large one is split already.

        To be called in the same turn of the loop.
        """
        large, self._large = self._large, None
        if large is None or large.result is not result or not large.members:
            return Body(result)
        return Body.split(result, large.members, large.words)

    def next_id(self) -> bytes:
        """An id that no request of this channel has had."""
        self._last_id += 1
        return b"%d" % self._last_id

    def notify(self, method: str, params: bytes = b"") -> None:
        """Send a notification. Dropped when the channel has ended: there is nobody to notify."""
        self._send(Outgoing(encode_notification(method, params), method))

    def send_unanswered(self, method: str, params: bytes | Raw, *, name: str = "") -> None:
        """Send a request whose answer nobody waits for. Dropped when the channel has ended."""
        id_ = self.next_id()
        self._expect_no_answer(id_)
        self._send(Outgoing(encode_request(id_, method, params), method, id_, name))

    def reply(self, answer: bytes) -> None:
        """Send the answer to a request of the other side. Dropped when the channel has ended."""
        self._send(Outgoing(answer))

    def context_of(self, id_: bytes) -> object:
        """The `context` of a request under way; None when there is no such request."""
        pending = self._pending.get(id_)
        return pending.context if pending is not None else None

    def waits_for(self, context: object) -> bool:
        """A request with this `context` has been sent, and has no answer yet."""
        return any(
            pending.context is context and (pending.future is None or not pending.future.done())
            for pending in list(self._pending.values())
        )

    def held(self, contexts: Collection[object]) -> AbstractContextManager[None]:
        """Stop the clocks of the requests with one of these `contexts`: the other side waits for us, not we for it."""
        ids = {id(context) for context in contexts}
        return self._deadlines.held(pending for pending in self._pending.values() if id(pending.context) in ids)

    def end(self, reason: str) -> None:
        """Fail everything that waits; nothing can be sent any more."""
        if not self._closed:
            self._closed = reason
            self._deadlines.end()
            for pending in list(self._pending.values()):
                _fail(pending, UpstreamGone(self._name, f"the connection ended during the call: {reason}"))

    # -- Receiver

    def frame(self, frame: Frame, via: bytes) -> None:
        """Take a message to whom it concerns. Whatever is wrong with it ends here: others follow behind it."""
        self.last_heard = self._loop.time()
        try:
            # `find`, since `in` begins with an exception; and most messages have one of the three.
            result, params, error = frame.result, frame.params, frame.error
            if (
                (result and (bytes(result).find(MARK) >= 0 if len(result) < LARGE else _large_holds_mark(frame)))
                or (params and bytes(params).find(MARK) >= 0)
                or (error and bytes(error).find(MARK) >= 0)
            ):
                self._remove_own_keys(frame)
            if not frame.method:
                pending = self._pending.get(bytes(frame.id))
                if isinstance(pending, Sent) and result and pending.future is None:  # else as `_answered` decides
                    pending.answered(frame)
                else:
                    self._answered(frame)
            elif frame.id:
                self.has_unasked = True
                self._asked(frame, via)
            else:
                self.has_unasked = True
                self._notified(frame.method, frame.params, via)
        except Exception:  # such as a payload nested so deeply that only the envelope could be read
            log.warning("message could not be handled", upstream=self._name, method=frame.method[:100], exc_info=True)

    def spoiled(self, ids: list[bytes], reason: str, via: bytes) -> None:
        """Fail the call whose answer this was, as far as that is known."""
        self.last_heard = self._loop.time()
        self.has_unasked = True
        id_ = next((id_ for id_ in ids if self._key(id_) in self._pending), via if via in self._pending else b"")
        if not id_ and len(self._pending) == 1:
            (id_,) = self._pending  # nobody else can be meant
        log.warning("invalid message", upstream=self._name, reason=reason, found=bool(id_))
        if id_:
            _fail(self._pending[self._key(id_)], UpstreamGarbled(self._name, f"its answer cannot be read: {reason}"))

    def pause_after(self, seconds: float) -> float:
        """Say how long to leave unread what else the other side sends."""
        self.has_unasked = False
        pause = self._brake.took(self._loop.time(), seconds)
        if pause and self._brake.pauses == 1:
            log.warning("server sends more than can be handled; reading it with pauses", upstream=self._name)
        return pause

    def failed(self, id_: bytes, error: BridgeError, *, sent: bool) -> None:
        """Fail one call."""
        pending = self._pending.get(id_)
        if pending is not None:
            _fail(pending, error)

    def closed(self, reason: str) -> None:
        """Fail every call; the channel has ended."""
        self.end(reason)
        self._on_closed(reason)

    # -- internals

    def _remove_own_keys(self, frame: Frame) -> None:
        if isinstance(frame, LargeFrame):
            frame.members = {}  # they are of the result as it came
        try:
            remove_own_keys(frame)
        except (msgspec.MsgspecError, RecursionError):  # better no answer than one that may pass as ours
            frame.params = frame.result = frame.error = Raw()
            if not frame.method:
                frame.result = Raw(b"null")

    def _answered(self, frame: Frame) -> None:
        id_ = bytes(frame.id)
        if not (frame.jsonrpc or frame.result or frame.error):
            return  # `{}`, or a log line in JSON that happens to have an "id": noise, not an answer
        pending = self._pending.get(id_) or self._pending.get(self._key(id_))
        if pending is None and id_ in (b"", b"null") and bytes(frame.jsonrpc):
            pending = self._only_one_meant()
        if pending is None:
            self._answered_nothing(frame)
        elif (future := pending.future) is None:
            assert isinstance(pending, Sent)
            pending.answered(frame)
        elif not future.done():
            future.set_result(frame)

    def _only_one_meant(self) -> _Pending | None:
        """The request that an error with a null id is about: it could not be read (JSON-RPC 2.0, section 5).

        Known only if one request waits and nothing else was sent since.
        """
        if len(self._pending) != 1:
            return None
        ((id_, pending),) = self._pending.items()
        return pending if id_ == self._last_sent else None

    def _answered_nothing(self, frame: Frame) -> None:
        """An answer names a request that does not wait. There are three cases.

        1. Nobody waits any more for the answer to this request: it is late. 2. It has no `jsonrpc`: it may be a line
        of a log. 3. The server mixes up ids. If one request alone waits, its answer may have been this one: unless
        another comes within a moment, its caller would wait in vain.
        """
        id_ = bytes(frame.id)
        log.debug("answer to no open request", upstream=self._name, size=len(bytes(frame.result)))
        is_late = self._key(id_) in self._unanswered
        self._unanswered.pop(self._key(id_), None)
        waiting = [pending for pending in self._pending.values() if pending.ends]  # a listen stream has no deadline
        if not is_late and bytes(frame.jsonrpc) and len(waiting) == 1:
            text = id_[:40].decode("utf-8", "replace")
            what = f"it answered with the id {text}, which no request has that waits"
            self._loop.call_later(STRAY_SECONDS, _fail, waiting[0], UpstreamGarbled(self._name, what))

    def _expect_no_answer(self, id_: bytes) -> None:
        self._unanswered[id_] = None
        if len(self._unanswered) > _MOST_UNANSWERED:
            del self._unanswered[next(iter(self._unanswered))]

    @staticmethod
    def _key(id_: bytes) -> bytes:
        """Some servers answer `"7"` or `7.0` to `7`."""
        if id_[:1] == b'"' and id_[1:-1].isdigit():
            return id_[1:-1]
        whole, point, fraction = id_.partition(b".")
        return whole if point and not fraction.strip(b"0") and whole.isdigit() else id_

    def _asked(self, frame: Frame, via: bytes) -> None:
        second = int(self.last_heard)
        if second != self._flood_second:
            self._flood_second, self._flood_count = second, 0
        self._flood_count += 1
        if self._flood_count > ASKS_PER_SECOND:
            if self._flood_count == ASKS_PER_SECOND + 1:
                log.warning("server floods the bridge with requests; refusing", upstream=self._name)
            if frame.method != "ping":  # it may wait for this with a call of ours
                self.reply(encode_error(frame.id, INTERNAL_ERROR, "Too many requests in one second"))
            return
        if frame.method == "ping":
            self.reply(encode_response(frame.id, EMPTY_OBJECT))
        elif not self._on_request(frame, via):
            text = f"The client did not declare what {frame.method[:100]} needs"
            self.reply(encode_error(frame.id, METHOD_NOT_FOUND, text))

    def _notified(self, method: str, params: Raw, via: bytes) -> None:
        if method == "notifications/progress":
            self._progressed(params)
        elif method == "notifications/cancelled":
            self._cancelled(params)
        elif (pending := self._pending.get(via or subscription_id(params))) is not None and _is_of(pending, method):
            assert pending.update is not None
            pending.update(method, params)
        else:
            self._on_notification(method, params, via)

    def _progressed(self, params: Raw) -> None:
        pending = self._pending.get(self._key(progress_token(params)))
        if pending is None:
            self._on_notification("notifications/progress", params, b"")
            return
        self._deadlines.moved(pending)
        if pending.update is not None:
            pending.update("notifications/progress", params)

    def _cancelled(self, params: Raw) -> None:
        """A server withdraws a request of its own, or ends a listen stream of ours (MCP 2026-07-28, stdio)."""
        id_ = cancelled_id(params)
        pending = self._pending.get(id_)
        if pending is not None and pending.method == "subscriptions/listen":
            _fail(pending, UpstreamGone(self._name, "it ended the stream"))
        else:
            self._on_withdrawn(id_)

    def _withdraw(self, channel: Channel, id_: bytes, cancellable: bool) -> None:
        is_cancelled = channel.withdraw(id_)
        if cancellable and not is_cancelled and not self._closed:
            self.notify("notifications/cancelled", b'{"requestId":%b,"reason":"the caller gave up"}' % id_)

    def _send(self, message: Outgoing) -> None:
        if self._channel is not None and not self._closed:
            self._last_sent = b""
            try:
                self._channel.send(message)
            except BridgeError as error:
                log.warning("message dropped", upstream=self._name, method=message.method, reason=str(error))

    def _late(self, pending: _Pending, seconds: float) -> None:
        _fail(pending, UpstreamTimeout(self._name, seconds))


def _is_of(pending: _Pending, method: str) -> bool:
    """A notification on the stream of a request belongs to it. Others only came that way, such as a changed list."""
    is_of_any = method == "notifications/message" or pending.method == "subscriptions/listen"
    return is_of_any and pending.update is not None


def _fail(pending: _Pending, error: BridgeError) -> None:
    future = pending.future
    if future is None:
        assert isinstance(pending, Sent)
        pending.failed(error)
    elif not future.done():
        future.set_exception(error)
        if isinstance(error, UpstreamError):
            # The waiting task may be cancelled in the same turn; then nobody reads the exception, and that is fine.
            future.exception()


def _large_holds_mark(frame: Frame) -> bool:
    if isinstance(frame, LargeFrame):
        return MARK in frame.words
    return holds_mark(frame.result) is not None
