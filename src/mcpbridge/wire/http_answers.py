"""What arrives on one HTTP answer, handed to the receiver message by message.

Each answer belongs to one request (or to none: the stream of a GET), so an answer that lost its id can still
be told whose it is, and an answer that cannot be read fails just that request.
"""

from collections.abc import Callable

import msgspec
from msgspec import Raw

from mcpbridge.wire.frame import Frame, decode_frame, one_line
from mcpbridge.wire.salvage import Batch, Item, Spoiled, Unfinished, salvage
from mcpbridge.wire.transport import Receiver

__all__ = ["Answers", "is_same_id"]

_SHOWN = 80
"""Characters that are repeated of what is no message."""


def is_same_id(answered: bytes, id_: bytes) -> bool:
    """Whether an answer to `answered` is one to the request `id_`: some servers answer `"7"` to `7`."""
    return answered == id_ or (answered == b'"%b"' % id_ and id_.isdigit())


class Answers:
    """The messages that come for one request; `via` is its id, empty when they come for none.

    `on_other` gets the raw id of each answer that came here and belongs to another request.
    """

    def __init__(
        self,
        receiver: Receiver,
        via: bytes,
        *,
        on_other: Callable[[bytes], None],
        redact: Callable[[str], str] = lambda text: text,
    ) -> None:
        self._receiver = receiver
        self._via = via
        self._on_other = on_other
        self._redact = redact
        self.is_answered = False
        """The request has its answer, or has been told that it is spoiled; nothing more needs to come."""

    def take(self, data: bytes, *, is_whole_body: bool = False) -> None:
        """One message, or a batch of them. `is_whole_body`: nothing else comes, so this must be the answer."""
        try:
            self._frame(decode_frame(one_line(data)))
        except (msgspec.DecodeError, RecursionError):
            self._salvaged(salvage(one_line(data)), data, is_whole_body)

    def take_answer(self, frame: Frame) -> None:
        """The answer to this request, whatever id it carries."""
        self._answer(frame)

    def _frame(self, frame: Frame) -> None:
        if frame.method:
            self._receiver.frame(frame, self._via)
            return
        id_ = bytes(frame.id)
        if self._via and (id_ in {b"", b"null"} or is_same_id(id_, self._via)):
            self._answer(frame)
            return
        self._receiver.frame(frame, self._via)
        self._on_other(id_)

    def _answer(self, frame: Frame) -> None:
        if bytes(frame.id) != self._via:
            # Servers leave the id out of an error that they meet early; on this stream only one request waits.
            frame = Frame(id=Raw(self._via), result=frame.result, error=frame.error)
        self.is_answered = True
        self._receiver.frame(frame, self._via)

    def _salvaged(self, found: list[Item] | Unfinished, data: bytes, is_whole_body: bool) -> None:
        items = found if isinstance(found, list) else [Spoiled([], "cut off in the middle")]
        for item in items:
            if isinstance(item, Frame):
                self._frame(item)
            elif isinstance(item, Batch):
                for member in item.members:
                    if isinstance(member, Frame):
                        self._frame(member)
                    else:
                        self._spoiled(member.ids, member.reason, is_whole_body, data)
            elif isinstance(item, Spoiled):
                self._spoiled(item.ids, item.reason, is_whole_body, data)
            else:
                shown = self._redact(item.text)[:_SHOWN]
                self._spoiled([], f"no JSON-RPC message: {shown!r}", is_whole_body, data)

    def _spoiled(self, ids: list[bytes], reason: str, is_whole_body: bool, data: bytes) -> None:
        is_named = any(is_same_id(id_, self._via) for id_ in ids)
        is_own = bool(self._via) and (is_whole_body or is_named or (not ids and b'"method"' not in data))
        if is_own:
            ids = [self._via]
            self.is_answered = True
        self._receiver.spoiled(ids, reason, self._via)
        for id_ in ids:
            if not is_own:
                self._on_other(id_)
