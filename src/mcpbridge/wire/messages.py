"""One message that came whole, for channels that keep messages apart by themselves (WebSocket, server-sent events).

The same rules as on a line of stdio: what can be repaired is, and of what cannot the ids are found. But there is no
noise: text that is no message stands where a message was meant to be, so it is told as a spoiled one.
"""

import msgspec

from mcpbridge.wire.frame import Frame, decode_frame, one_line
from mcpbridge.wire.salvage import Batch, Noise, Spoiled, Unfinished, clean_utf8, find_ids, salvage

__all__ = ["read_message"]

_SHOWN = 80
"""Characters that are repeated of what is no message."""


def read_message(data: bytes) -> list[Frame | Spoiled]:
    """The messages in `data`: one; the members of a batch in order; none in blanks."""
    line = one_line(data)
    try:
        frame = decode_frame(line)
    except (msgspec.DecodeError, RecursionError):
        return _rescued(line)
    if not line.isascii():
        clean = clean_utf8(line)
        if clean is not line:
            frame = decode_frame(clean)
    return [frame]


def _rescued(line: bytes) -> list[Frame | Spoiled]:
    saved = salvage(line)
    if isinstance(saved, Unfinished):
        return [Spoiled(find_ids(line), "cut off in the middle")]
    found: list[Frame | Spoiled] = []
    for item in saved:
        if isinstance(item, Batch):
            found += item.members
        elif isinstance(item, Noise):
            found.append(Spoiled([], f"no JSON-RPC message: {item.text[:_SHOWN]!r}"))
        else:
            found.append(item)
    return found
