"""What a client gets instead of an answer that is too large for an event stream.

Clients bound the size of an event (SDK clients: 1 MiB) and give up the stream that brings a larger one, so that
the caller never learns what became of its call. An error in place of the answer reaches it. Pure.
"""

import msgspec

from mcpbridge.downstream.errors_to_wire import to_answer
from mcpbridge.errors import AnswerTooLarge
from mcpbridge.wire.frame import Frame, decode_batch, decode_frame

__all__ = ["Request", "fits", "fitting"]

Request = Frame | list[bytes]
"""A request, or the members of a batch as their bytes."""

_AROUND = 128
"""Bytes of an event besides its message: the names of its fields, and its id."""


def fits(message: bytes, limit: int) -> bool:
    """Whether an event with this message is within `limit` bytes; 0: any is."""
    return not limit or len(message) + _AROUND <= limit


def fitting(answer: bytes, request: Request, *, limit: int, modern: bool) -> bytes:
    """The answer to `request`; an error that says why instead of one that does not fit.

    Of a batch as few members as possible become errors, the largest first.
    """
    if fits(answer, limit):
        return answer
    if isinstance(request, Frame):
        return _refused(answer, request, limit, modern=modern)
    asked = {bytes(frame.id): frame for frame in _frames(request) if frame.method}
    members = [bytes(member) for member in decode_batch(answer)]
    for number in sorted(range(len(members)), key=lambda number: -len(members[number])):
        frame = asked.get(bytes(decode_frame(members[number]).id))
        if frame is not None:
            members[number] = _refused(members[number], frame, limit, modern=modern)
        answer = b"[%b]" % b",".join(members)
        if fits(answer, limit):
            break
    return answer


def _refused(answer: bytes, request: Frame, limit: int, *, modern: bool) -> bytes:
    return to_answer(AnswerTooLarge(len(answer), limit), bytes(request.id), request.method, modern=modern).data


def _frames(members: list[bytes]) -> list[Frame]:
    frames: list[Frame] = []
    for member in members:
        try:
            frames.append(decode_frame(member))
        except (msgspec.DecodeError, RecursionError):
            continue  # answered with an error, which is small
    return frames
