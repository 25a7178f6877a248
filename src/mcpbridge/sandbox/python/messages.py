"""The messages between a program's process and the bridge: one JSON object a frame, four bytes of length before it.

The process is not trusted: whatever cannot be read is `Garbled`, and ends it.
"""

import msgspec
from msgspec import Raw

HEADER = 4
"""Bytes of a frame's length, in network order."""
LARGEST_FRAME = 17 << 20
"""Bytes of a frame from the process."""


class Garbled(Exception):
    """A frame that makes no sense."""


class Ready(msgspec.Struct, tag_field="kind", tag="ready", frozen=True):
    """It may be given a program."""


class Unusable(msgspec.Struct, tag_field="kind", tag="broken", frozen=True):
    """It cannot run any."""

    why: str


class NameLookup(msgspec.Struct, tag_field="kind", tag="look", frozen=True):
    """The program names something that is not defined in it."""

    name: str


class ToolCallRequest(msgspec.Struct, tag_field="kind", tag="call", frozen=True):
    """The program calls a tool."""

    id: int
    name: str
    arguments: Raw
    """An object."""
    positional: int = 0
    """Arguments that came without a name, which no tool takes."""


class Printed(msgspec.Struct, tag_field="kind", tag="printed", frozen=True):
    """It has printed this. `left_out`: characters that it printed beyond what is reported, once at the end."""

    text: str
    left_out: int = 0


class SleepRequest(msgspec.Struct, tag_field="kind", tag="sleep", frozen=True):
    """The program sleeps; that is answered as a call is."""

    id: int
    seconds: float


class Waiting(msgspec.Struct, tag_field="kind", tag="waiting", frozen=True):
    """It cannot continue before a call is answered. `seen`: results that it has read so far."""

    seen: int


class Done(msgspec.Struct, tag_field="kind", tag="done", frozen=True):
    """It has ended. `shape`: what `text` is: nothing, the text itself, or JSON."""

    text: str = ""
    shape: str = ""


class Failed(msgspec.Struct, tag_field="kind", tag="failed", frozen=True):
    """It has ended with an error."""

    what: str
    """The name of the exception."""
    message: str
    trace: str = ""
    """Where, as Python reports it."""


Frame = Ready | Unusable | NameLookup | ToolCallRequest | SleepRequest | Printed | Waiting | Done | Failed

_decode = msgspec.json.Decoder(Frame).decode
_encode = msgspec.json.Encoder().encode


def read_frame(data: bytes) -> Frame:
    """What the process says.

    Raises:
        Garbled: it is none of these frames.
    """
    try:
        frame = _decode(data)
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors, and so are those of UTF-8
        raise Garbled(str(error)[:200]) from None
    if isinstance(frame, ToolCallRequest) and bytes(memoryview(frame.arguments)[:1]) != b"{":
        raise Garbled("arguments that are no object")
    return frame


def framed(frame: dict[str, object], value: bytes | Raw | None = None) -> bytes:
    """A frame for the process, ready to be written; and a second one that is a JSON value as it is, if there is one."""
    data = _encode(frame)
    head = len(data).to_bytes(HEADER, "big") + data
    return head if value is None else b"".join((head, len(value).to_bytes(HEADER, "big"), value))
