"""A transport that records what crosses the connection to one upstream, and changes nothing.

Each request of the bridge is recorded with everything that came of it. A notification belongs to the request that it
names, or on whose stream it came. One that names none belongs to the only call that runs, or to the last one that ran.
While several calls run nobody can know which, so it becomes an entry of its own (`told`).
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec
from msgspec import Raw

from mcpbridge.base.errors import BridgeError, UpstreamError, UpstreamGarbled, UpstreamGone
from mcpbridge.engine.cassettes.file import CassetteFile
from mcpbridge.engine.cassettes.format import LISTS, OPENING, Entry, Step
from mcpbridge.engine.cassettes.plain_form import NOT_KEPT, as_failure, of_request, of_step, token_of
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.canonical_json import canonical
from mcpbridge.protocol.jsonrpc import Frame, decode_frame
from mcpbridge.protocol.meta import cancelled_id, progress_token, subscription_id
from mcpbridge.protocol.transport import Channel, Outgoing, Receiver, Transport, TransportKind


class Lists:
    """What a server was heard to offer, over its connections."""

    def __init__(self) -> None:
        self.changes: dict[str, int] = {}
        """By kind, how often a changed list was told of."""
        self.last: dict[bytes, tuple[int, bytes]] = {}
        """By request, what was listed last, and how many changes had been told of by then."""


@dataclass(eq=False)
class _Open:
    """A request under way."""

    method: str
    params: Raw
    number: int
    changes: int
    token: bytes = b""
    steps: list[Step] = field(default_factory=list[Step])
    asked: dict[bytes, int] = field(default_factory=dict[bytes, int])
    """By the server's id, which of the steps waits for its answer."""

    @property
    def is_call(self) -> bool:
        """A program may have made it: the server answers it, rather than the bridge looking after the server."""
        return self.method not in OPENING and self.method not in LISTS


class Listening:
    """One connection. Implements `Receiver` for the transport, in front of the one that is meant."""

    def __init__(
        self,
        name: str,
        receiver: Receiver,
        transport: Transport,
        file: CassetteFile,
        lists: Lists,
    ) -> None:
        self._name, self._receiver, self._transport, self._file = name, receiver, transport, file
        self._lists = lists
        self._open: dict[bytes, _Open] = {}
        self._listens: set[bytes] = set()
        self._last = -1
        """The place of the call that was answered last, as long as no other runs; negative: there is none."""

    # -- what leaves

    def sent(self, message: Outgoing) -> None:
        """A message was taken out."""
        if not message.method:
            self._answered_them(decode_frame(message.data))
        elif message.method == "subscriptions/listen":
            self._listens.add(message.id)
        elif message.id and message.method not in NOT_KEPT:
            self._began(message)

    def not_sent(self, id_: bytes) -> None:
        """It was not, after all."""
        self._open.pop(id_, None)

    def withdrawn(self, id_: bytes) -> None:
        """Nobody waits for the answer any more."""
        if (request := self._open.pop(id_, None)) is not None:
            self._write(request, unanswered=True)

    def end(self) -> None:
        """The connection is over."""
        for id_ in list(self._open):
            self.withdrawn(id_)

    # -- Receiver

    def frame(self, frame: Frame, via: bytes) -> None:
        """See `Receiver`."""
        try:
            if not frame.method:
                self._answered(frame)
            elif frame.method != "ping":
                self._received_unprompted(frame, via)
        except (msgspec.DecodeError, RecursionError, ValueError):
            pass  # the one that is meant sees to it
        self._receiver.frame(frame, via)

    def spoiled(self, ids: list[bytes], reason: str, via: bytes) -> None:
        """See `Receiver`."""
        id_ = next((id_ for id_ in [*ids, via] if id_ in self._open), b"")
        if (request := self._open.pop(id_, None)) is not None:
            error = UpstreamGarbled(self._name, f"its answer cannot be read: {reason}")
            self._failed(request, error, sent=True)
        self._receiver.spoiled(ids, reason, via)

    def failed(self, id_: bytes, error: BridgeError, *, sent: bool) -> None:
        """See `Receiver`."""
        if (request := self._open.pop(id_, None)) is not None:
            self._failed(request, error, sent=sent)
        self._receiver.failed(id_, error, sent=sent)

    def pause_after(self, seconds: float) -> float:
        """See `Receiver`."""
        return self._receiver.pause_after(seconds)

    @property
    def has_unasked(self) -> bool:
        """See `Receiver`."""
        return self._receiver.has_unasked

    def closed(self, reason: str) -> None:
        """See `Receiver`."""
        words = self._transport.last_words()
        why = f"{reason}: {words}" if words and words not in reason else reason
        for id_ in list(self._open):
            error = UpstreamGone(self._name, f"the connection ended during the call: {why}")
            self._failed(self._open.pop(id_), error, sent=True)
        self._receiver.closed(reason)

    # -- internals

    def _began(self, message: Outgoing) -> None:
        params = decode_frame(message.data).params
        kind = LISTS.get(message.method, "")
        request = _Open(
            message.method,
            of_request(message.method, params),
            self._file.next_number(),
            self._lists.changes.get(kind, 0),
            bytes(token_of(params)),
        )
        if request.is_call:
            self._last = -1
        self._open[message.id] = request

    def _answered(self, frame: Frame) -> None:
        id_ = bytes(frame.id)
        key = id_ if id_ in self._open else id_.strip(b'"')
        request = self._open.pop(key, None)
        if request is None:
            return
        if (error := bytes(frame.error)) and error != b"null":
            self._write(request, error=Raw(error))
        else:
            self._write(request, result=Raw(bytes(frame.result) or b"{}"))

    def _failed(self, request: _Open, error: BridgeError, *, sent: bool) -> None:
        self._write(request, failed=as_failure(error, sent=sent))

    def _received_unprompted(self, frame: Frame, via: bytes) -> None:
        """The server notifies or asks without being asked."""
        if frame.method in ("notifications/cancelled", "notifications/subscriptions/acknowledged"):
            for request in self._open.values():
                request.asked.pop(cancelled_id(frame.params), None)
            return
        if frame.method.endswith("/list_changed"):
            kind = frame.method.split("/")[1]
            self._lists.changes[kind] = self._lists.changes.get(kind, 0) + 1
        is_ask, is_over_http = bool(bytes(frame.id)), self._transport.kind == "streamable-http"
        about = self._about(frame, via)
        step = Step(
            tell="" if is_ask else frame.method,
            ask=frame.method if is_ask else "",
            params=of_step(frame.params),
            apart=is_over_http and via not in self._open,
            # Which of two streams is read first is chance.
            after=about is None or (is_over_http and via in self._listens),
        )
        if about is not None:
            self._note(about, step, bytes(frame.id))
        elif self._last >= 0 and not any(request.is_call for request in self._open.values()):
            self._file.amend(self._last, step)
        elif frame.method != "notifications/progress":
            told = "calls" if any(request.is_call for request in self._open.values()) else "first"
            self._file.add(Entry(self._name, told=told, meanwhile=(msgspec.structs.replace(step, after=False),)))

    def _note(self, about: _Open, step: Step, id_: bytes) -> None:
        about.steps.append(step)
        if step.ask:
            about.asked[id_] = len(about.steps) - 1
        self._file.mint(Entry(self._name, about.method, about.params), bytes(step.params))

    def _about(self, frame: Frame, via: bytes) -> _Open | None:
        """The request that a message of the server is written down with; None: that cannot be told."""
        if via in self._open:
            return self._open[via]
        if frame.method == "notifications/progress":
            token = progress_token(frame.params)
            return next((one for one in self._open.values() if one.token and one.token == token), None)
        if (id_ := subscription_id(frame.params)) in self._open and id_ not in self._listens:
            return self._open[id_]
        calls = [request for request in self._open.values() if request.is_call]
        return calls[-1] if len(calls) == 1 or (calls and bytes(frame.id)) else None

    def _answered_them(self, frame: Frame) -> None:
        """The bridge answers what the server asked."""
        id_ = bytes(frame.id)
        for request in self._open.values():
            at = request.asked.pop(id_, None)
            if at is not None:
                step = request.steps[at]
                answer, refused = Raw(bytes(frame.result)), Raw(bytes(frame.error))
                request.steps[at] = msgspec.structs.replace(step, answer=answer, refused=refused)

    def _listed(self, request: _Open, result: Raw) -> None:
        """A list that is another without a word of the server changed by what was called since: it is as if told.

        If there was a word while it was asked for, it is the list of after that.
        """
        kind, key = LISTS[request.method], request.method.encode() + canonical(request.params)
        changes, before = self._lists.last.get(key, (0, b""))
        now, told = _offered(result), self._lists.changes.get(kind, 0)
        is_another = before and before != now and changes == request.changes
        if is_another and told > changes:
            request.changes = told
        elif is_another:
            step = Step(f"notifications/{kind}/list_changed", apart=True, after=True)
            calls = [one for one in self._open.values() if one.is_call]
            if len(calls) == 1:
                calls[0].steps.append(step)
            elif not calls and self._last >= 0:
                self._file.amend(self._last, step)
            if calls or self._last >= 0:
                request.changes = self._lists.changes[kind] = changes + 1
        self._lists.last[key] = request.changes, now

    def _write(self, request: _Open, **outcome: object) -> None:
        result = outcome.get("result")
        if request.method in LISTS and isinstance(result, Raw):
            self._listed(request, result)
        entry = Entry(
            self._name, request.method, request.params, changes=request.changes, meanwhile=tuple(request.steps)
        )
        place = self._file.add(msgspec.structs.replace(entry, **outcome), request.number)
        if request.is_call:
            self._last = place


def _offered(result: Raw) -> bytes:
    """What a list says of what is offered."""
    body = Body(result)
    for name in ("_meta", "ttlMs", "cacheScope", "resultType"):
        body.drop(name)
    return canonical(bytes(body.data))


class RecordingTransport:
    """A transport that is listened to. Implements `Transport`."""

    def __init__(self, name: str, inner: Transport, file: CassetteFile) -> None:
        self._name, self._inner, self._file = name, inner, file
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
        listening = Listening(self._name, receiver, self._inner, self._file, self._lists)
        is_open = False
        try:
            async with self._inner.connect(listening) as channel:
                is_open = True
                yield _Heard(channel, listening)
        except UpstreamError as error:
            if not is_open:
                self._file.add(Entry(self._name, unavailable=error.what))
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
