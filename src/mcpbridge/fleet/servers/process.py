"""The one process of a server for a whole fleet: several bridges speak to it over one channel.

Each of them has a session of its own for all it knows. Their requests get ids that no two have in common, so that each
answer, progress and subscription finds its way back. The handshake is made once, and its answer is given to all. What
the server says to nobody in particular all get; what it asks goes to one. What a bridge subscribes to, and its log
level, are its own wishes: the server gets what all of them come to (`wanted.py`).

Nothing passes once the lease is over, in either direction, by a clock that continues while this bridge is stopped.
"""

import asyncio
from collections.abc import Sequence
from itertools import count
from time import monotonic
from typing import Protocol

import msgspec
from msgspec import Raw, Struct

from mcpbridge.base.errors import BridgeError, Overloaded, UpstreamGone
from mcpbridge.base.log import get_logger
from mcpbridge.fleet.servers.wanted import Wanted
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.error_codes import INTERNAL_ERROR
from mcpbridge.protocol.jsonrpc import (
    EMPTY_OBJECT,
    Frame,
    decode_frame,
    encode,
    encode_error,
    encode_notification,
    encode_request,
    encode_response,
)
from mcpbridge.protocol.meta import SUBSCRIPTION_ID
from mcpbridge.protocol.transport import Channel, FencedChannel, Outgoing, Transport

log = get_logger("mcpbridge.fleet")

_MOST_OPEN = 10_000
"""Requests whose answers are waited for; the oldest is forgotten, such as one that was never answered."""
_LISTEN, _CANCELLED = "subscriptions/listen", "notifications/cancelled"
_CANCEL_PARAMS = b'{"requestId":%b,"reason":"the bridge that asked has left"}'

_UNUSED_SECONDS = 10.0
"""How long a process waits for the first that uses it: whoever had it started may be gone by the time it runs."""


class Party(Protocol):
    """One bridge that uses the process."""

    def take(self, frame: Frame) -> None:
        """A message for it."""
        ...

    def spoiled(self, id_: bytes, reason: str) -> None:
        """The answer to this request cannot be read."""
        ...

    def closed(self, reason: str) -> None:
        """Nothing follows."""
        ...


class _Request(Struct, frozen=True):
    """A request that the server has not answered."""

    number: int
    """Whose it is."""
    id: bytes
    """As they know it."""
    method: str
    token: bytes
    """Of progress, as they know it; empty: they want none."""
    uri: bytes = b""
    """Where it subscribes to a resource: its URI."""

    @property
    def is_standing(self) -> bool:
        """It has no end of its own."""
        return self.method == _LISTEN


class SharedProcess:
    """The process, as the bridge has it that owns its lease. Implements `Receiver`."""

    has_unasked = False

    def __init__(self, name: str, epoch: int, transport: Transport, valid_until: float) -> None:
        """`valid_until`: when the lease is over if it is not renewed, on the monotonic clock."""
        self.name, self.epoch, self.valid_until = name, epoch, valid_until
        self.reason = ""
        """Why it is over; empty: it is not."""
        self._transport = transport
        self._channel: Channel | None = None
        self._started, self._over = asyncio.Event(), asyncio.Event()
        self._parties = dict[int, Party]()
        self._numbers, self._ids = count(1), count(1)
        self._open = dict[bytes, _Request]()
        """By the id that the server knows."""
        self._wanted = Wanted()
        self._asked = dict[bytes, int]()
        """Whom the server's own requests went to."""
        self._handshake: Frame | None = None
        self._handshake_id = b""
        self._waiting = list[tuple[int, bytes]]()
        """Who waits for the answer to the handshake, and under which id."""
        self._is_initialized = False

    def __repr__(self) -> str:
        state = self.reason or f"{len(self._parties)} bridges, {len(self._open)} requests"
        return f"<SharedProcess {self.name!r} {self.epoch}: {state}>"

    # -- its life

    async def run(self) -> None:
        """Start it, and return once it has ended: for whatever reason, or since the lease is over."""
        unused: asyncio.TimerHandle | None = None
        try:
            async with self._transport.connect(self) as self._channel:
                if isinstance(self._channel, FencedChannel):
                    # What is sent is written a turn later: this bridge may have been stopped meanwhile, for so long
                    # that another one has the server.
                    self._channel.fence(lambda: self.is_valid)
                self._started.set()
                unused = asyncio.get_running_loop().call_later(_UNUSED_SECONDS, self._end_if_unused)
                while not self.reason:
                    try:
                        async with asyncio.timeout_at(self._loop_time_of(self.valid_until)):
                            await self._over.wait()
                    except TimeoutError:
                        self._look_at_lease()
        except BridgeError as error:
            self.end(str(error))
        finally:
            if unused is not None:
                unused.cancel()
            self.end("it is being stopped")
            self._started.set()

    async def started(self) -> None:
        """Return when it runs.

        Raises:
            UpstreamGone: it does not.
        """
        await self._started.wait()
        self._refuse_if_over()

    def end(self, reason: str) -> None:
        """Nothing passes any more, and the process is ended."""
        if self.reason:
            return
        self.reason = reason
        self._over.set()
        parties, self._parties = self._parties, {}
        for party in parties.values():
            party.closed(reason)

    @property
    def is_valid(self) -> bool:
        """Whether something may pass."""
        self._look_at_lease()
        return not self.reason

    @property
    def is_idle(self) -> bool:
        """No request waits for its answer, but for those that last as long as their bridges use the process."""
        return all(one.is_standing for one in self._open.values())

    def _look_at_lease(self) -> None:
        if not self.reason and monotonic() >= self.valid_until:
            self.end("its bridge could not keep its lease")

    def _refuse_if_over(self) -> None:
        if not self.is_valid:
            raise UpstreamGone(self.name, self.reason)

    @staticmethod
    def _loop_time_of(at: float) -> float:
        return asyncio.get_running_loop().time() + at - monotonic()

    # -- who uses it

    def attach(self, party: Party) -> int:
        """One more; its number."""
        number = next(self._numbers)
        self._parties[number] = party
        return number

    def detach(self, number: int) -> None:
        """It uses the process no more: its requests are cancelled. After the last one it ends."""
        if self._parties.pop(number, None) is None:
            return
        self._end_if_unused()
        left = [(id_, one) for id_, one in self._open.items() if one.number == number]
        for id_, _ in left:
            del self._open[id_]
        asked = [id_ for id_, whose in self._asked.items() if whose == number]
        for id_ in asked:
            del self._asked[id_]
        due = [
            Outgoing(encode_notification(_CANCELLED, _CANCEL_PARAMS % id_), _CANCELLED)
            for id_, one in left
            if one.method != "initialize"  # which must not be cancelled, and is of all
        ]
        due += [Outgoing(encode_error(id_, INTERNAL_ERROR, "who was asked has left")) for id_ in asked]
        for method, params in self._wanted.left(number):
            id_ = b"%d" % next(self._ids)  # of nobody's request: the answer concerns nobody
            due.append(Outgoing(encode_request(id_, method, params), method, id_))
        if self._channel is None or self.reason:
            return
        for message in due:
            try:
                self._channel.send(message)
            except (UpstreamGone, Overloaded):  # it does not read, and nobody waits for what it would say
                if message.method == "logging/setLevel":
                    self._wanted.level_refused()

    def _end_if_unused(self) -> None:
        if not self._parties:
            self.end("no bridge uses it")

    def party(self, number: int) -> Party | None:
        """Who has this number."""
        return self._parties.get(number)

    # -- to the process

    def send(self, number: int, data: bytes) -> None:
        """A message of this one.

        Raises:
            UpstreamGone: the process is gone, or the lease; nothing was sent.
            Overloaded: it does not read.
        """
        self._refuse_if_over()
        assert self._channel is not None, "it has started"
        frame = decode_frame(data)
        if not frame.method:
            if self._asked.get(bytes(frame.id)) == number:
                del self._asked[bytes(frame.id)]
                self._channel.send(Outgoing(data))
        elif frame.id:
            self._request(self._channel, number, frame)
        elif frame.method == _CANCELLED:
            self._cancel(self._channel, number, frame)
        elif frame.method != "notifications/initialized" or not self._is_initialized:
            self._is_initialized = self._is_initialized or frame.method == "notifications/initialized"
            self._channel.send(Outgoing(data, frame.method))

    def _request(self, channel: Channel, number: int, frame: Frame) -> None:
        if frame.method == "initialize":
            if self._handshake is not None:
                self._deliver(number, _answer(bytes(frame.id), self._handshake))
                return
            self._waiting.append((number, bytes(frame.id)))
            if self._handshake_id:
                return
        id_, params, token, uri = b"%d" % next(self._ids), frame.params, b"", b""
        if frame.method == "initialize":
            self._handshake_id = id_
        elif frame.method == "resources/subscribe":
            self._wanted.subscribed(number, uri := _text(params, "uri"))
        elif frame.method == "resources/unsubscribe" and self._wanted.unsubscribed(number, _text(params, "uri")):
            self._deliver(number, Frame(id=frame.id, result=Raw(EMPTY_OBJECT)))
            return
        elif frame.method == "logging/setLevel":
            level = self._wanted.level_of_all(number, _text(params, "level"))
            if not level:
                self._deliver(number, Frame(id=frame.id, result=Raw(EMPTY_OBJECT)))
                return
            body = Body(params)
            body.put("level", Raw(level))
            params = Raw(body.data)
        if b'"progressToken"' in bytes(params):
            params, token = _with_token(params, id_)
        self._open[id_] = _Request(number, bytes(frame.id), frame.method, token, uri)
        if len(self._open) > _MOST_OPEN:
            oldest = next((one for one, request in self._open.items() if not request.is_standing), id_)
            del self._open[oldest]
        try:
            channel.send(Outgoing(encode_request(id_, frame.method, params), frame.method, id_))
        except BridgeError:  # nothing was sent, so no answer will come
            if (unsent := self._open.pop(id_, None)) is not None:
                self._refused(unsent)
            if id_ == self._handshake_id:
                self._handshake_id = b""
                self._waiting.remove((number, bytes(frame.id)))
            raise

    def _cancel(self, channel: Channel, number: int, frame: Frame) -> None:
        body = Body(frame.params)
        wanted = bytes(body.get("requestId") or b"")
        found = next((id_ for id_, one in self._open.items() if (one.number, one.id) == (number, wanted)), None)
        if found is not None:
            if uri := self._open.pop(found).uri:  # whoever asked takes it for refused
                self._wanted.unsubscribed(number, uri)
            body.put("requestId", Raw(found))
            channel.send(Outgoing(encode_notification(frame.method, body.data), frame.method))

    # -- from the process; see `Receiver`

    def frame(self, frame: Frame, via: bytes) -> None:
        """See `Receiver`."""
        if not self.is_valid:
            return
        if not frame.method:
            self._answered(frame)
        elif frame.id:
            for number, party in self._parties.items():  # the first of them
                self._asked[bytes(frame.id)] = number
                party.take(frame)
                break
        else:
            self._notified(frame)

    def _answered(self, frame: Frame) -> None:
        id_ = bytes(frame.id)
        if id_ == self._handshake_id:
            self._open.pop(id_, None)
            waiting, self._waiting = self._waiting, []
            self._handshake_id = b""
            if frame.result:
                self._handshake = frame
            for number, own in waiting:
                self._deliver(number, _answer(own, frame))
            return
        if (found := self._open.pop(id_, None)) is not None:
            if frame.error:
                self._refused(found)
            self._deliver(found.number, _answer(found.id, frame))

    def _refused(self, request: _Request) -> None:
        if request.method == "logging/setLevel":
            self._wanted.level_refused()
        elif request.uri:
            self._wanted.unsubscribed(request.number, request.uri)

    def _notified(self, frame: Frame) -> None:
        if frame.params:
            try:
                body = Body(frame.params)
                if frame.method == _CANCELLED:
                    self._withdrawn(bytes(body.get("requestId") or b""), body)
                    return
                id_ = bytes(body.get("progressToken") or b"") if frame.method == "notifications/progress" else b""
                if id_:
                    self._about(id_, frame, body, is_progress=True)
                    return
                meta = body.inner("_meta")
                if meta is not None and (id_ := bytes(meta.get(SUBSCRIPTION_ID) or b"")):
                    self._about(id_, frame, body, is_progress=False)
                    return
            except (msgspec.DecodeError, RecursionError):
                pass
        for number in self._concerned(frame):
            self._deliver(number, frame)

    def _concerned(self, frame: Frame) -> Sequence[int]:
        """Who hears what is about no request: everybody, but a log message may be of one bridge's call.

        A bridge that has one call under way takes it for the message of that call, and its client reads it.
        """
        if frame.method != "notifications/message":
            return list(self._parties)
        callers = {one.number for one in self._open.values() if not one.is_standing}
        return list(callers) if len(callers) == 1 else [one for one in self._parties if one not in callers]

    def _withdrawn(self, id_: bytes, body: Body) -> None:
        """The server ends a listen stream, or takes back a request of its own."""
        found = self._open.get(id_)
        number = self._asked.pop(id_, None)
        if found is not None and found.is_standing:
            del self._open[id_]
            number = found.number
            body.put("requestId", Raw(found.id))
        if number is not None:
            self._deliver(number, Frame(method=_CANCELLED, params=Raw(body.data)))

    def _about(self, id_: bytes, frame: Frame, body: Body, *, is_progress: bool) -> None:
        """A notification about one request."""
        found = self._open.get(id_)
        if found is None:
            return
        if is_progress:
            body.put("progressToken", Raw(found.token))
        elif (meta := body.inner("_meta")) is not None:
            meta.put(SUBSCRIPTION_ID, Raw(found.id))
            body.put("_meta", meta)
        self._deliver(found.number, Frame(method=frame.method, params=Raw(body.data), jsonrpc=frame.jsonrpc))

    def _deliver(self, number: int, frame: Frame) -> None:
        if (party := self._parties.get(number)) is not None:
            party.take(frame)

    def spoiled(self, ids: list[bytes], reason: str, via: bytes) -> None:
        """See `Receiver`."""
        for id_ in ids:
            found = self._open.pop(id_, None)
            if found is not None and (party := self._parties.get(found.number)) is not None:
                party.spoiled(found.id, reason)
                return

    def failed(self, id_: bytes, error: BridgeError, *, sent: bool) -> None:
        """See `Receiver`. Programs do not fail single requests."""

    def pause_after(self, seconds: float) -> float:
        """See `Receiver`."""
        return 0.0

    def closed(self, reason: str) -> None:
        """See `Receiver`."""
        self.end(reason)


def line_of(frame: Frame) -> bytes:
    """A message as one line of JSON."""
    if not frame.method:
        if frame.result:
            return encode_response(frame.id, bytes(frame.result))
        return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (bytes(frame.id) or b"null", bytes(frame.error) or b"null")
    if frame.id:
        return encode_request(bytes(frame.id), frame.method, bytes(frame.params))
    return encode_notification(frame.method, bytes(frame.params))


def _answer(id_: bytes, frame: Frame) -> Frame:
    return Frame(id=Raw(id_), result=frame.result, error=frame.error, jsonrpc=frame.jsonrpc)


def _text(params: Raw, name: str) -> bytes:
    """A text of the params, as JSON always in the same form; empty: there is none."""
    try:
        found = Body(params).text(name)
    except (msgspec.DecodeError, KeyError):
        return b""
    return encode(found)


def _with_token(params: Raw, id_: bytes) -> tuple[Raw, bytes]:
    """The params, whose progress token is this id now, and what it was; nothing if there was none."""
    body = Body(params)
    meta = body.inner("_meta")
    if meta is None or (token := meta.get("progressToken")) is None:
        return params, b""
    meta.put("progressToken", Raw(id_))
    body.put("_meta", meta)
    return Raw(body.data), bytes(token)
