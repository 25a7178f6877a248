"""The response to one POST: one JSON document if the answer is all there is to say, else an event stream.

Most calls answer at once and send nothing before. For them nothing runs here but the call itself, in the task that
the HTTP server started. Only when a call has taken some milliseconds does a second task begin to watch whether the
client is still there. Only a message before the answer, or a long silence, opens a stream. JSON costs less, and it
has no size limit: SDK clients refuse an event over 1 MiB, but no JSON body (`event_streams.py`).

`decode_body` reads what a POST holds: one JSON-RPC message, or a batch. It is pure.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Struct

from mcpbridge.downstream.client import Answer, Notify
from mcpbridge.downstream.elicitation.request_state import bridge_of
from mcpbridge.downstream.http.event_streams import Request, Stream, deliver, failed, fitting
from mcpbridge.downstream.http.exchange import NO_HEADERS, Exchange, Headers, Refused
from mcpbridge.downstream.http.token_lifetime import is_open_by
from mcpbridge.protocol.batches import Batch
from mcpbridge.protocol.error_codes import INTERNAL_ERROR, PARSE_ERROR
from mcpbridge.protocol.jsonrpc import Frame, decode_array, one_line
from mcpbridge.protocol.meta import PROTOCOL_VERSION
from mcpbridge.protocol.reading.client_messages import read_client_message
from mcpbridge.protocol.reading.escaped_names import with_plain_names
from mcpbridge.protocol.reading.repair import BOM, replace_lone_surrogates
from mcpbridge.protocol.reading.unreadable import Spoiled

_PATIENCE = 0.02
"""Seconds before a call is worth a task that watches for its client's leaving."""

_REPEATABLE = frozenset(
    {
        *("initialize", "server/discover", "ping", "logging/setLevel", "completion/complete"),
        *("tools/list", "prompts/list", "prompts/get", "resources/list", "resources/templates/list", "resources/read"),
        *("resources/subscribe", "resources/unsubscribe", "tasks/get", "tasks/list", "tasks/result"),
    }
)
"""Methods that may be asked twice."""
_UNKNOWN = (
    "outcome unknown: this was ended before its answer was there ({reason}); "
    "check whether the action took effect before you repeat it"
)


class OpenReplies:
    """The replies that are under way, so that they can be ended from outside."""

    def __init__(self) -> None:
        self._replies: dict[Reply, object] = {}
        self._unwatched: dict[Reply, float] = {}
        """Those that began a moment ago, the oldest first, with the time. One timer for all: most end before it."""
        self._is_timed = False
        self._emptied = asyncio.Event()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {len(self._replies)} under way>"

    def add(self, reply: "Reply", owner: object) -> None:
        """A reply begins; `owner` is what it can be found by."""
        loop = asyncio.get_running_loop()
        self._replies[reply] = owner
        self._unwatched[reply] = loop.time()
        if not self._is_timed:
            self._is_timed = True
            loop.call_later(_PATIENCE, self._watch, loop)

    def discard(self, reply: "Reply") -> None:
        """A reply is over."""
        del self._replies[reply]
        self._unwatched.pop(reply, None)
        if not self._replies:
            self._emptied.set()

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        latest = loop.time() - _PATIENCE
        for reply in [reply for reply, since in self._unwatched.items() if since <= latest]:
            del self._unwatched[reply]
            reply.watch_client()
        self._is_timed = bool(self._unwatched)
        if self._is_timed:
            loop.call_later(_PATIENCE, self._watch, loop)

    def withdraw(self, reason: Refused, which: Callable[["Reply", object], bool], *, is_repeated: bool = False) -> None:
        """End those for which `which(reply, owner)` is true. `is_repeated`: see `Reply.withdraw`."""
        for reply, owner in list(self._replies.items()):
            if which(reply, owner):
                reply.withdraw(reason, is_repeated=is_repeated)

    async def until_none(self) -> None:
        """Return when no reply is under way."""
        while self._replies:
            self._emptied.clear()
            await self._emptied.wait()


class ReplyOptions(Struct, frozen=True):
    """How a kind of client is replied to. A legacy session and a modern request differ in these points only."""

    underway: OpenReplies
    keep_alive: float
    """Seconds of silence after which a stream opens, or carries a comment."""
    open_stream: Callable[[], Stream]
    close_stream: Callable[[Stream], None]
    """Called once for each opened stream, when its last event is in it."""
    status_of: Callable[[int], int] = lambda _: 200
    """The HTTP status for an error code, where the answer is the whole response."""
    outlived: Callable[[], None] | None = None
    """Called when the client has left and its call continues. None: its leaving cancels the call."""
    unheard: Callable[[Request], None] | None = None
    """Called with the request after that, if its answer cannot be fetched later either."""
    opened: Callable[[Stream, Request], None] | None = None
    """Called with each stream whose first event is in it, so that it can be resumed, and the request."""
    answered: Callable[[Stream, Request, bytes], Awaitable[None]] | None = None
    """Called with the answer after that, which is put into the stream when this returns."""
    primes: bool = False
    """A stream begins with an event that holds an id and no data."""
    max_event: int = 0
    """Bytes of the largest event; 0: any."""
    modern: bool = False
    is_subscription: bool = False
    """The request stays open to carry events: none may be lost, so a client that reads too slowly is cut off."""


class Reply:
    """One request under way. `run` it once; `withdraw` ends it early."""

    __slots__ = (
        "_answer",
        "_exchange",
        "_has_begun",
        "_is_closed",
        "_is_ending",
        "_is_resumable",
        "_left",
        "_lived",
        "_options",
        "_own_cancels",
        "_owner",
        "_pump",
        "_request",
        "_stream",
        "_task",
        "_timer",
        "_watch",
        "_withdrawal",
        "_working",
        "headers",
    )

    def __init__(self, exchange: Exchange, request: Request, options: ReplyOptions, owner: object = None) -> None:
        """`owner`: see `OpenReplies`."""
        self.headers: Headers = NO_HEADERS
        """What goes with the response, on top of the usual headers."""
        self._exchange = exchange
        self._request = request
        self._options = options
        self._owner = owner
        self._stream: Stream | None = None
        self._pump: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[object] | None = None
        self._withdrawal: Refused | None = None
        self._working = False
        self._left = False
        self._is_closed = False
        self._is_resumable = False
        self._answer: bytes | None = None
        """The answer, before it is in the stream."""
        self._has_begun = False
        self._is_ending = False
        self._own_cancels = 0
        self._lived = 0.0
        """Seconds that it lived without a task."""

    @property
    def is_subscription(self) -> bool:
        """It would never end by itself."""
        return self._options.is_subscription

    @property
    def is_outlived(self) -> bool:
        """Its client left, and the call continues or continued without it."""
        return self._left and self._options.outlived is not None

    def is_open_by(self, whose: str, client_id: str) -> bool:
        """Whether it is for this principal, by way of this OAuth client; empty: of any."""
        return is_open_by(self._exchange.principal, self._exchange.identity, whose, client_id)

    def begin(self, task: asyncio.Task[Any], since: float) -> None:
        """It lived without a task since this time of the loop, and will `run` in this one: messages have their way."""
        self._task, self._lived, self._working = task, asyncio.get_running_loop().time() - since, True
        self._options.underway.add(self, self._owner)

    async def run(self, work: Callable[[Notify], Awaitable[Answer]]) -> Answer | None:
        """Do the work and respond. Returns the answer, or None if it was withdrawn or its client's leaving ended it.

        Leaving this early, by cancellation or `withdraw`, cancels the work.
        """
        task = asyncio.current_task()
        before = task.cancelling() if task is not None else 0
        if self._task is None:
            self._task = task
            self._options.underway.add(self, self._owner)
        answer: Answer | None = None
        try:
            self._working = True
            try:
                answer = await work(self.notify)
            finally:
                self._working = False
            await self._respond(answer)
        except asyncio.CancelledError:
            if self._withdrawal is None and (not self._left or self.is_outlived):
                raise  # not ours: the server is being torn down
            self._is_ending = True
            if task is not None and self._take_back_cancels(task) > before:
                raise  # somebody else cancelled it in the same turn
            await self._respond_withdrawn()
            answer = None
        finally:
            self._is_ending = True
            # First: `stop` must not wait for a reply whose last clean-up is cancelled.
            self._options.underway.discard(self)
            if self._watch is not None:
                await self._end_tasks()
        return answer

    def notify(self, message: bytes) -> bool:
        """Send a message before the answer. False when it has no way: the client reads no streams, or it is over."""
        if not self._exchange.accepts.events or not self._working or (self._left and not self._may_come_back):
            return False
        stream = self._open_stream()
        is_on_its_way = stream.notify(message)
        self._note_first_event(stream)
        if stream.lost and self._options.is_subscription:
            self.withdraw(Refused(503, "The client reads too slowly"))
        return is_on_its_way

    def withdraw(self, reason: Refused, *, is_repeated: bool = False) -> None:
        """End the work; the response is `reason`, or the end of the stream if one is open.

        `is_repeated`: clients repeat what they get this answer for. Work that may have had effects gets another one,
        which says that the outcome is unknown; a stream ends with it.
        """
        if self._withdrawal is None and self._task is not None and not self._is_ending:
            is_cut = is_repeated and self._working and not self.is_subscription
            self._withdrawal = _unknown(reason) if is_cut and not _is_repeatable(self._request) else reason
            if self._stream is not None:
                if self._answer is not None:
                    self._stream.put(self._answer)
                elif is_cut:
                    self._stream.put(failed(self._request, str(self._withdrawal), self._withdrawal.code))
                self._stream.finish()
            self._own_cancels += 1
            self._task.cancel()

    def _take_back_cancels(self, task: asyncio.Task[object]) -> int:
        """Undo the cancellations that were ours; returns how many are left."""
        while self._own_cancels:
            self._own_cancels -= 1
            task.uncancel()
        return task.cancelling()

    async def _respond(self, answer: Answer) -> None:
        exchange, options = self._exchange, self._options
        stream = self._stream
        if stream is None:
            if self._left:
                return  # it has no id to ask for the answer with
            if answer.scopes and exchange.challenge is not None:
                self._has_begun = True
                missing = exchange.challenge(exchange.path, answer.scopes)
                await exchange.send_json(answer.data, 403, (*self.headers, *missing))
                return
            if exchange.accepts.json:
                self._has_begun = True
                status = options.status_of(answer.code) if answer.code else 200
                await exchange.send_json(answer.data, status, self.headers)
                return
            stream = self._open_stream()
        data = fitting(bytes(answer.data), self._request, limit=options.max_event, modern=options.modern)
        if self._is_resumable and options.answered is not None:
            self._answer = data
            await options.answered(stream, self._request, data)
            self._answer = None
        stream.put(data)
        await self._end_stream(stream)

    async def _respond_withdrawn(self) -> None:
        if self._stream is not None:
            await self._end_stream(self._stream)
        elif self._withdrawal is not None and not self._left and not self._has_begun:
            await self._exchange.refuse(self._withdrawal, _id_of(self._request))

    def _open_stream(self) -> Stream:
        stream = self._stream
        if stream is None:
            stream = self._stream = self._options.open_stream()
            if self._options.primes and self._working:
                stream.prime()
            self._note_first_event(stream)
            self._pump = asyncio.get_running_loop().create_task(self._write_stream(stream))
            if self._watch is None:
                self.watch_client()
        return stream

    def _note_first_event(self, stream: Stream) -> None:
        if stream.last and not self._is_resumable and self._options.opened is not None:
            self._is_resumable = True
            self._options.opened(stream, self._request)

    async def _end_stream(self, stream: Stream) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._options.close_stream(stream)
        if self._pump is not None and not self._left:
            await asyncio.wait([self._pump])

    async def _write_stream(self, stream: Stream) -> None:
        await self._exchange.start_stream(self.headers)
        await deliver(stream, 0, self._exchange.write, keep_alive=self._options.keep_alive)
        await self._exchange.end_stream()

    def watch_client(self) -> None:
        """The call takes long enough to notice when its client leaves, and to show it that we live."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
        if self._watch is None:
            self._watch = loop.create_task(self._until_client_leaves())
        accepts = self._exchange.accepts
        if accepts.events and self._stream is None:
            # A client that rather reads events, and can resume from the first one, is safer with a stream at once.
            is_wanted = accepts.prefers_events and self._options.primes
            seconds = 0 if is_wanted else max(0, self._options.keep_alive - self._lived)
            self._timer = loop.call_later(seconds, self._open_stream)

    async def _until_client_leaves(self) -> None:
        await self._exchange.until_client_leaves()
        if self._left or not (self._working or self._pump is not None):
            return
        self._left = True
        if self._timer is not None:
            self._timer.cancel()
        if self._pump is not None:
            self._pump.cancel()
        if self._options.outlived is not None:
            self._options.outlived()
            if self._options.unheard is not None and not self._may_come_back:
                self._options.unheard(self._request)
        elif self._working and self._task is not None:
            self._own_cancels += 1
            self._task.cancel()

    @property
    def _may_come_back(self) -> bool:
        """The client holds an event id of the stream: it can ask for the rest."""
        return self._stream is not None and bool(self._stream.name and self._stream.sent)

    async def _end_tasks(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        tasks = [task for task in (self._watch, self._pump) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _is_repeatable(request: Request) -> bool:
    """Whether nothing is done twice if it is asked twice."""
    return isinstance(request, Frame) and request.method in _REPEATABLE


def _unknown(reason: Refused) -> Refused:
    """What work is answered with that may have had effects; nothing says when to repeat it."""
    headers = tuple(header for header in reason.headers if header[0] != b"retry-after")
    return Refused(502, _UNKNOWN.format(reason=reason), code=INTERNAL_ERROR, headers=headers)


def _id_of(request: Request) -> bytes:
    """The id to refuse it with; a batch is refused as a whole, without one."""
    return bytes(request.id) if isinstance(request, Frame) else b""


_KEY = PROTOCOL_VERSION.split("/")[-1].encode()
"""The slash before it may be escaped."""


class Envelope(msgspec.Struct, gc=False):
    """The members of a modern request's params that its headers repeat, or that say whose it is in a fleet."""

    meta: Any = msgspec.field(name="_meta", default=None)
    name: Any = None
    uri: Any = None
    task_id: Any = msgspec.field(name="taskId", default=None)
    state: Any = msgspec.field(name="requestState", default=None)


_decode_envelope = msgspec.json.Decoder(Envelope).decode


class _Filter(msgspec.Struct, gc=False):
    task_ids: list[str] = msgspec.field(name="taskIds", default_factory=list[str])


class _Listened(msgspec.Struct, gc=False):
    notifications: _Filter


_decode_listened = msgspec.json.Decoder(_Listened).decode
LISTEN = "subscriptions/listen"
ABOUT_TASKS = frozenset({"tasks/get", "tasks/update", "tasks/cancel", "tasks/result"})
"""Methods about one task. Modern requests name it in the header `Mcp-Name` as well; the SDK looks at that only for
methods of the core protocol."""


def bridge_named(frame: Frame) -> str:
    """The bridge of the fleet that has what the request is about, as it says; empty: any bridge can answer.

    A listen stream that names tasks of several bridges is one of them: it says which tasks it reports.
    """
    if frame.method == LISTEN:
        return next((bridge for task in _tasks_listened_to(frame) if (bridge := bridge_of(task))), "")
    envelope = envelope_of(frame)
    about = envelope.task_id if frame.method in ABOUT_TASKS else envelope.state
    return bridge_of(about) if isinstance(about, str) else ""


def _tasks_listened_to(frame: Frame) -> list[str]:
    try:
        return _decode_listened(frame.params).notifications.task_ids if frame.params else []
    except (msgspec.DecodeError, RecursionError):
        return []


def decode_body(body: bytes) -> Frame | list[bytes]:
    """One valid message, or the members of a batch as their bytes, of which nobody knows whether they are valid.

    Raises:
        Refused: 400 with the JSON-RPC code for what is wrong.
    """
    items = read_client_message(body)
    if not items:
        raise Refused(400, "The body is empty", code=PARSE_ERROR)
    match items[0]:
        case Frame() as frame:
            return frame
        case Batch():
            text = with_plain_names(replace_lone_surrogates(one_line(body).strip().removeprefix(BOM)))
            return [bytes(member) for member in decode_array(text)]
        case Spoiled() as spoiled:
            # Here an answer finds its request without an id: one that was read out of broken JSON may be wrong.
            id_ = spoiled.ids[0] if spoiled.ids and spoiled.code != PARSE_ERROR else b""
            raise Refused(400, f"This is no valid message: {spoiled.reason}", code=spoiled.code, id_=id_)
        case _:
            raise Refused(400, "The body is not JSON", code=PARSE_ERROR)


def declares_modern(body: bytes, frame: Frame) -> bool:
    """Whether the request carries the envelope of the modern era. The first look costs a scan for the key only."""
    return _KEY in body and PROTOCOL_VERSION in _mapping(envelope_of(frame).meta)


def envelope_of(frame: Frame) -> Envelope:
    """The mirrored part of the params; empty when the params are no object."""
    try:
        return _decode_envelope(frame.params) if frame.params else Envelope()
    except (msgspec.DecodeError, RecursionError):
        return Envelope()


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType] - keys are JSON's
