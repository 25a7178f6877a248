"""Replay a cassette: what it answers, which requests it did not know, and what of it was not used.

The transport that answers from it starts nothing and contacts nobody.

Each message of the bridge is answered in the next turn of the event loop, with everything that the recording has for
it. A request of the server waits for its answer. If that answer differs from the recorded one, replay continues with an
equal entry that has this answer, if there is one.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from mcpbridge.base.errors import UpstreamUnavailable
from mcpbridge.base.log import get_logger
from mcpbridge.engine.cassettes.format import LISTS, OPENING, Entry, Step
from mcpbridge.engine.cassettes.masking import Masker
from mcpbridge.engine.cassettes.match import Matching, another_answer, is_same_answer, nothing_of_server, unmatched
from mcpbridge.engine.cassettes.plain_form import NOT_KEPT, as_error, of_request, token_of
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.error_codes import METHOD_NOT_FOUND
from mcpbridge.protocol.jsonrpc import (
    EMPTY_OBJECT,
    Frame,
    decode_frame,
    encode,
    encode_error,
    encode_notification,
    encode_response,
)
from mcpbridge.protocol.meta import SUBSCRIPTION_ID, cancelled_id
from mcpbridge.protocol.transport import Channel, Outgoing, Receiver, TransportKind

log = get_logger("mcpbridge.cassette")


class Script:
    """One cassette while it is replayed."""

    def __init__(self, file: str, entries: Iterable[Entry], masker: Masker, *, repeat: bool) -> None:
        """`masker`: what is asked is masked as it was when it was recorded."""
        self._file, self._masker, self._repeat = file, masker, repeat
        self._matching = Matching(entries, repeat=repeat)
        self.unmatched: list[str] = []
        """What was said of requests that are not in the recording."""

    def knows(self, server: str, method: str) -> bool:
        """A request of this method was recorded."""
        return bool(self._matching.asked_like(server, method))

    def why_unavailable(self, server: str) -> str:
        """Why this server cannot be reached; empty: it can."""
        entries = self._matching.of(server)
        if not entries:
            return nothing_of_server(self._file, self._matching.servers)
        return next((entry.unavailable for entry in entries if entry.unavailable), "")

    def take(self, server: str, method: str, params: Raw, *, changes: int = 0) -> Entry | str:
        """The entry that answers a request, or what is wrong."""
        params = params if method in OPENING else self._masker.raw(params)
        entry = self._matching.take(server, method, params, changes=changes)
        if entry is not None:
            return entry
        recorded = self._matching.asked_like(server, method)
        used_up = not self._repeat and any(bytes(one.params) == bytes(params) for one in recorded)
        return self._note(unmatched(self._file, server, method, params, recorded, used_up=used_up))

    def going_on(self, entry: Entry, number: int, given: Step) -> Entry | str:
        """The entry that continues after this answer to a request of the server, or what is wrong."""
        step = entry.meanwhile[number]
        given = replace(given, answer=self._masker.raw(given.answer), refused=self._masker.raw(given.refused))
        if is_same_answer(step, given):
            return entry
        other = self._matching.other_answers(entry, number, given)
        if other is not None:
            return other
        answers = (step.answer or step.refused, given.answer or given.refused)
        return self._note(another_answer(self._file, entry.server, entry, step.ask, *answers))

    def unprompted(self, server: str, when: str) -> Sequence[Entry]:
        """What a server sent without being asked."""
        return [entry for entry in self._matching.of(server) if entry.told == when]

    def unused(self) -> list[Entry]:
        """Requests of the recording that were not made. Lists and openings do not count: the bridge decides on them."""
        return [entry for entry in self._matching.not_given() if entry.request not in {*LISTS, *OPENING}]

    def _note(self, problem: str) -> str:
        self.unmatched.append(problem)
        log.warning("request not in the cassette", file=self._file, requests=len(self.unmatched))
        return problem


class ReplayTransport:
    """Implements `Transport`."""

    def __init__(self, name: str, kind: TransportKind, script: Script) -> None:
        self._name, self._script = name, script
        self._kind: TransportKind = kind
        self._changes: dict[str, int] = {}
        """By kind, how often a changed list was told of."""

    @property
    def kind(self) -> TransportKind:
        """See `Transport`."""
        return self._kind

    def last_words(self) -> str:
        """See `Transport`."""
        return ""

    @asynccontextmanager
    async def connect(self, receiver: Receiver) -> AsyncGenerator[Channel]:
        """See `Transport`.

        Raises:
            UpstreamUnavailable: so it was in the recording, or there is nothing of this server in it.
        """
        if why := self._script.why_unavailable(self._name):
            raise UpstreamUnavailable(self._name, why)
        channel = _Replay(self._name, self._kind, self._script, receiver, self._changes)
        try:
            yield channel
        finally:
            channel.end()


class _Replay:
    """One connection. Implements `Channel`."""

    def __init__(
        self, name: str, kind: TransportKind, script: Script, receiver: Receiver, changes: dict[str, int]
    ) -> None:
        self.name, self.script, self.changes = name, script, changes
        self._receiver = receiver
        self._kind: TransportKind = kind
        self._loop = asyncio.get_running_loop()
        self._plays: dict[bytes, _Play] = {}
        self._asked: dict[bytes, _Play] = {}
        self._listens: dict[bytes, Mapping[str, Any]] = {}
        """By id, what the open listen streams want to hear."""
        self._asks = 0
        self._has_begun = self._has_called = self._is_over = False

    # -- Channel

    def send(self, message: Outgoing) -> None:
        """See `Channel`."""
        frame = decode_frame(message.data)
        if not message.method:
            self.soon(lambda: self._answered(frame))
        elif message.id:
            self.soon(lambda: self._requested(frame))
        elif message.method == "notifications/cancelled":
            self.withdraw(cancelled_id(frame.params))

    def withdraw(self, id_: bytes) -> bool:
        """See `Channel`."""
        self._listens.pop(id_, None)
        if (play := self._plays.pop(id_, None)) is not None:
            play.is_over = True
        return False

    def negotiated(self, version: str) -> None:
        """See `Channel`."""
        self._has_begun = True
        self.soon(lambda: self._tell_all("first"))

    def end(self) -> None:
        """Nothing more is said."""
        self._is_over = True

    # -- for plays

    def soon(self, do: Callable[[], None]) -> None:
        """Do this in the next turn, unless the connection has ended by then."""
        self._loop.call_soon(lambda: None if self._is_over else do())

    def say(self, message: bytes, via: bytes = b"") -> None:
        """Have a message of the server arrive. `via`: the request on whose stream it comes."""
        self._receiver.frame(decode_frame(message), via if self._kind == "streamable-http" else b"")

    def tell(self, step: Step, id_: bytes, token: Raw) -> None:
        """Have a notification arrive that belongs to the request `id_`; it names progress so, if it wants any."""
        params = Body(step.params)
        if step.tell == "notifications/progress":
            if bytes(token):
                body = Body(encode({"progressToken": token} | params.fields))
                self.say(encode_notification(step.tell, bytes(body.data)), id_)
            return
        if step.tell.endswith("/list_changed"):
            kind = step.tell.split("/")[1]
            self.changes[kind] = self.changes.get(kind, 0) + 1
        stream = b"" if step.apart else id_
        for listen in [one for one, wanted in self._listens.items() if _wants(wanted, step.tell, params)]:
            meta = params.inner("_meta") or Body()
            meta.put(SUBSCRIPTION_ID, Raw(listen))
            params.put("_meta", meta)
            stream = listen
        self.say(encode_notification(step.tell, bytes(params.data)), stream)

    def ask(self, step: Step, play: "_Play") -> None:
        """Have a request of the server arrive; `play` gets the answer, if there was one in the recording."""
        self._asks += 1
        id_ = b'"asked-%d"' % self._asks
        if step.is_answered:
            self._asked[id_] = play
        message = encode({"jsonrpc": "2.0", "id": Raw(id_), "method": step.ask, "params": step.params})
        self.say(message, b"" if step.apart else play.id)

    def finish(self, id_: bytes, entry: Entry) -> None:
        """Have the answer arrive."""
        self._plays.pop(id_, None)
        if bytes(entry.result):
            self.say(encode_response(id_, entry.result), id_)
        elif bytes(entry.error):
            self.say(b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (id_, bytes(entry.error)), id_)
        elif entry.failed is not None:
            self._receiver.failed(id_, as_error(entry.failed, self.name), sent=entry.failed.sent)

    def refuse(self, id_: bytes, method: str, why: str) -> None:
        """Answer a request with what is wrong between it and the cassette."""
        self._plays.pop(id_, None)
        if method == "tools/call":
            result = {"content": [{"type": "text", "text": why}], "isError": True}
            self.say(encode_response(id_, encode(result)), id_)
        else:
            self.say(encode_error(id_, METHOD_NOT_FOUND, why), id_)

    # -- internals

    def _requested(self, frame: Frame) -> None:
        id_, method = bytes(frame.id), frame.method
        if method == "subscriptions/listen":
            self._listen(id_, frame.params)
            return
        if method in NOT_KEPT:
            self.say(encode_response(id_, EMPTY_OBJECT), id_)
            return
        params = of_request(method, frame.params)
        if method == "server/discover" and not self.script.knows(self.name, method):
            self.say(encode_error(id_, METHOD_NOT_FOUND, "not in the recording: it began with a handshake"), id_)
            return
        changes = self.changes.get(LISTS.get(method, ""), 0)
        taken = self.script.take(self.name, method, params, changes=changes)
        if isinstance(taken, str):
            self.refuse(id_, method, taken)
        else:
            play = self._plays[id_] = _Play(self, id_, token_of(frame.params), taken)
            play.go_on()
        if not self._has_called and method not in LISTS and method not in OPENING:
            self._has_called = True
            self._tell_all("calls")

    def _answered(self, frame: Frame) -> None:
        play = self._asked.pop(bytes(frame.id), None)
        if play is not None:
            play.answered(Raw(bytes(frame.result)), Raw(bytes(frame.error)))

    def _listen(self, id_: bytes, params: Raw) -> None:
        wanted = msgspec.json.decode(params).get("notifications", {})
        self._listens[id_] = wanted
        said = {"_meta": {SUBSCRIPTION_ID: Raw(id_)}, "notifications": wanted}
        self.say(encode_notification("notifications/subscriptions/acknowledged", encode(said)), id_)

    def _tell_all(self, when: str) -> None:
        """What was told by itself."""
        for entry in self.script.unprompted(self.name, when):
            _Play(self, b"", Raw(), entry).go_on()


class _Play:
    """What comes of one request."""

    def __init__(self, replay: _Replay, id_: bytes, token: Raw, entry: Entry) -> None:
        self.id, self.is_over = id_, False
        self._replay, self._token, self._entry = replay, token, entry
        self._done = 0
        self._is_answered = False

    def go_on(self) -> None:
        """All that can come now."""
        steps = self._entry.meanwhile
        while self._done < len(steps) and not self.is_over:
            step = steps[self._done]
            if step.after:
                self._answer()
            if step.ask:
                self._replay.ask(step, self)
                if step.is_answered:
                    return
            else:
                self._replay.tell(step, self.id, self._token)
            self._done += 1
        self._answer()

    def answered(self, answer: Raw, refused: Raw) -> None:
        """The bridge has answered what the server asked."""
        if self.is_over or self._done >= len(self._entry.meanwhile):
            return
        step = self._entry.meanwhile[self._done]
        given = replace(step, answer=answer, refused=refused)
        entry = self._replay.script.going_on(self._entry, self._done, given)
        if isinstance(entry, str):
            self.is_over = True
            self._replay.refuse(self.id, self._entry.request, entry)
            return
        self._entry = entry
        self._done += 1
        self.go_on()

    def _answer(self) -> None:
        if not self._is_answered and not self.is_over and self.id:
            self._is_answered = True
            self._replay.finish(self.id, self._entry)


def _wants(wanted: Mapping[str, Any], method: str, params: Body) -> bool:
    """Whether a listen stream tells of this."""
    if method.endswith("/list_changed"):
        return bool(wanted.get(f"{method.split('/')[1]}ListChanged"))
    if method == "notifications/resources/updated":
        return params.value().get("uri") in wanted.get("resourceSubscriptions", ())
    return method.startswith("notifications/tasks") and params.value().get("taskId") in wanted.get("taskIds", ())
