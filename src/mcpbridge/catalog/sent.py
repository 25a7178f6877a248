"""A tool as its server sends it, under the name that clients see: what is counted of servers against each other."""

from msgspec import Raw

from mcpbridge.catalog.slim import visible
from mcpbridge.catalog.snapshot import ToolRef
from mcpbridge.results.tokens import Counter
from mcpbridge.wire.body import Body
from mcpbridge.wire.frame import encode

__all__ = ["as_sent", "tokens_sent"]


def as_sent(ref: ToolRef) -> bytes:
    """The definition, with all that the server says."""
    body = Body(Raw(ref.definition))
    body.put("name", Raw(encode(ref.wire)))
    return bytes(body.data)


def tokens_sent(ref: ToolRef, count: Counter) -> int:
    """Tokens of what clients show models of it: name, description and input schema."""
    return count(visible(as_sent(ref)))
