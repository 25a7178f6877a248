"""The way of a request to another bridge, as a CLIENT span of its trace. Loaded only where calls are traced.

The span is a child of what the client sent as `traceparent` in `_meta`, and takes its place there: so the spans of the
bridge that answers are children of this one. That bridge needs to know nothing of it.
"""

from msgspec import DecodeError

from mcpbridge.fleet.counts import Outcome
from mcpbridge.fleet.records import Member
from mcpbridge.pipeline.observability.tracing import Attributes, Otel, carried_in, put_carried
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import Frame, decode_text, encode_request
from mcpbridge.protocol.reading.client_messages import read_client_message

_FAILED: frozenset[Outcome] = frozenset({"left", "not_sent", "unknown"})
_LONGEST_NAME = 200
"""Characters of a method or a tool, which a client may call as it likes."""


class HopSpan:
    """The span of one request."""

    __slots__ = ("_otel", "_span", "body")

    def __init__(self, otel: Otel, span: object, body: bytes) -> None:
        self._otel, self._span = otel, span
        self.body = body
        """What the other bridge is sent."""

    def finish(self, outcome: Outcome) -> None:
        """The request is over."""
        attributes: Attributes = {"mcpbridge.fleet.outcome": outcome}
        if outcome in _FAILED:
            attributes["error.type"] = outcome
        self._otel.finish(self._span, attributes, outcome if outcome in _FAILED else "")


def begin_hop(otel: Otel, member: Member, body: bytes) -> HopSpan | None:
    """Begin the span of a request to this member. None: the body is no single request, or it is about a task."""
    found = read_client_message(body) if body else []
    frame = found[0] if len(found) == 1 else None
    if not isinstance(frame, Frame) or not frame.method or not frame.id or frame.method.startswith("tasks/"):
        return None
    try:
        params = Body(frame.params) if frame.params else Body()
        meta = params.inner("_meta")
        name, attributes = _described(frame.method, params, member)
    except (DecodeError, RecursionError):
        return None  # whoever answers says what is wrong with it
    span = otel.start(name, attributes, carried=carried_in(meta), parent=None, is_client=True)
    if carried := otel.carry(span):
        params.put("_meta", put_carried(meta, carried))
        body = encode_request(bytes(frame.id), frame.method, params.data)
    return HopSpan(otel, span, body)


def _described(method: str, params: Body, member: Member) -> tuple[str, Attributes]:
    """The name of the span, as of those of calls, and its attributes."""
    method = method[:_LONGEST_NAME]
    attributes: Attributes = {
        "mcp.method.name": method,
        "mcpbridge.fleet.member": member.name,
        "mcpbridge.fleet.member_id": member.id,
    }
    host, _, port = member.address.rpartition(":")
    attributes |= {"server.address": host.strip("[]"), "network.transport": "tcp"}
    if port.isdigit():
        attributes["server.port"] = int(port)
    if method not in ("tools/call", "prompts/get"):
        return method, attributes
    called = params.get("name") or b'""'
    name = decode_text(called)[:_LONGEST_NAME]
    attributes["gen_ai.tool.name" if method == "tools/call" else "gen_ai.prompt.name"] = name
    return f"{method} {name}", attributes
