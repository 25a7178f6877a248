"""JSON-RPC batches: how one is decoded, how many members it may have, and how its answers are encoded.

One revision has them: `BATCHING` in `protocol/revisions.py` (MCP 2025-03-26, Base Protocol, Messages). The answers to
the requests of a batch leave together, in the order of the requests; notifications have none. The members are answered
in `downstream/conversation.py` and `downstream/http/legacy.py`.
"""

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from mcpbridge.protocol.jsonrpc import DEPTH_LIMIT_TEXT, Frame, decode_array, decode_arriving_frame
from mcpbridge.protocol.reading.escaped_names import with_plain_names
from mcpbridge.protocol.reading.unreadable import Noise, Spoiled, clean_utf8, find_ids, noise_of

MAX_MEMBERS = 100
"""Members of one batch over HTTP; a larger one is refused."""


class Batch(Struct, frozen=True):
    """A JSON-RPC batch (revision 2025-03-26 only), its members in order."""

    members: list[Frame | Spoiled]


def decode_batch(line: bytes) -> Batch | Spoiled | Noise:
    """Decode a line that begins as an array does. A member that cannot be read spoils no other."""
    try:
        members = decode_array(with_plain_names(clean_utf8(line)))
    except RecursionError:
        return Spoiled(find_ids(line), DEPTH_LIMIT_TEXT)
    except msgspec.DecodeError as error:
        return Spoiled(find_ids(line), str(error)) if b'"jsonrpc"' in line else noise_of(line)
    return Batch([decode_member(bytes(member)) for member in members])


def decode_member(data: bytes) -> Frame | Spoiled:
    """Decode one message of several that came together."""
    try:
        return decode_arriving_frame(data)
    except (msgspec.DecodeError, RecursionError) as error:
        return Spoiled(find_ids(data), f"not a JSON-RPC message: {error}")


def encode_batch(messages: Iterable[bytes]) -> bytes:
    """Encode messages, or the answers to a batch, as one array."""
    return b"[%b]" % b",".join(messages)
