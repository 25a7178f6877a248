"""Traces and metrics of calls for OpenTelemetry, by the semantic conventions of MCP (and of GenAI, for tools).

Two stages: the outermost makes a SERVER span of the client's request, the innermost a CLIENT span of each request to a
server. A trace that a client began continues here and at the server, by `traceparent` in `_meta`. The packages are the
extra `otel`; nothing of them is imported here, since who turns this on hands their objects in (`tracing_setup.py`).

Arguments and results are content of people: they are in no span unless the configuration says so.
"""

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Protocol

from msgspec import Raw, Struct

from mcpbridge.base.errors import UpstreamAnswered
from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.model import Call, CallHandler, Tool
from mcpbridge.pipeline.observability.call_records import TRACE, trace_id
from mcpbridge.pipeline.observability.metrics import BUCKETS, KNOWN_METHODS, OTHER, TOOL_ERROR, error_name, says_error
from mcpbridge.pipeline.stage import Stage
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.error_codes import code_of
from mcpbridge.protocol.jsonrpc import decode_text

_PARENT, _STATE = "traceparent", "tracestate"

Attributes = dict[str, str | int]


class Peer(Struct, frozen=True):
    """One server, as spans name it."""

    version: str = ""
    """The protocol revision that it speaks; empty while it is not known."""
    transport: str = ""
    """`pipe` or `tcp`."""
    address: str = ""
    port: int = 0


class Otel(Protocol):
    """What is needed of OpenTelemetry; `tracing_setup.OpenTelemetry` is made of its SDK."""

    def start(
        self, name: str, attributes: Attributes, *, carried: Mapping[str, str], parent: object, is_client: bool
    ) -> object:
        """A new span, whose parent is `parent`, else what `carried` (traceparent, tracestate) names."""
        ...

    def carry(self, span: object) -> Mapping[str, str]:
        """The headers that name this span to the next one; empty if the trace ends here."""
        ...

    def finish(self, span: object, attributes: Attributes, error: str) -> None:
        """The span ends. `error`: of which type; empty: none."""
        ...

    def measure(self, name: str, seconds: float, attributes: Attributes) -> None:
        """Put a duration into the histogram of this name."""
        ...


class Tracing(Struct, frozen=True):
    """What calls are traced with."""

    otel: Otel
    peer_of: Callable[[str], Peer]
    """A server as spans name it, by its name."""
    keeps_content: bool
    """Whether spans hold arguments and results."""


class _Traced:
    """What both kinds of spans share."""

    operation = ""
    is_client = False

    def __init__(self, tracing: Tracing) -> None:
        self._otel, self._peer_of, self._keeps_content = tracing.otel, tracing.peer_of, tracing.keeps_content

    def stage(self, tool: Tool | None, options: CallOptions) -> Stage | None:
        """See `StageFactory`."""
        return self

    async def __call__(self, call: Call, proceed: CallHandler) -> Body:
        """See `Stage`."""
        raise NotImplementedError

    async def _traced(self, call: Call, proceed: CallHandler, span: object, attributes: Attributes) -> Body:
        began = perf_counter()
        failed: BaseException | None = None
        result: Body | None = None
        try:
            result = await proceed(call)
            return result
        except BaseException as error:
            failed = error
            raise
        finally:
            # The arguments as they are now: stages may have changed them.
            more = _end(call, result, failed, keeps_content=self._keeps_content)
            more |= _request_id(call.sent_as) if self.is_client else _notes(call)
            error = str(more.get("error.type", ""))
            self._otel.finish(span, more, error)
            measured = {key: attributes[key] for key in _MEASURED if key in attributes}
            if call.method not in KNOWN_METHODS:
                measured["mcp.method.name"] = OTHER
            if error:
                measured["error.type"] = error
            self._otel.measure(self.operation, perf_counter() - began, measured)


class TraceReceived(_Traced):
    """Stage and its factory: a SERVER span of each request of a client. Requests about tasks make none."""

    operation = "mcp.server.operation.duration"

    async def __call__(self, call: Call, proceed: CallHandler) -> Body:
        """See `Stage`."""
        if call.method.startswith("tasks/"):
            return await proceed(call)
        shown = call.tool.wire if call.tool is not None else call.target
        attributes = _begin(call, shown) | {"mcp.session.id": call.caller.session.id} | _request_id(call.asked_as)
        if call.caller.version:
            attributes["mcp.protocol.version"] = call.caller.version
        if call.caller.principal:
            attributes["user.id"] = call.caller.principal
        if call.caller.address:
            attributes["client.address"] = call.caller.address
        name = _span_name(call, shown)
        call.trace = self._otel.start(name, attributes, carried=carried_in(call.meta), parent=None, is_client=False)
        if trace := trace_id(self._otel.carry(call.trace).get(_PARENT, "")):
            call.note(TRACE, trace)
        return await self._traced(call, proceed, call.trace, attributes)


class TraceSent(_Traced):
    """Stage and its factory: a CLIENT span of each request to a server, whose id the server gets."""

    operation = "mcp.client.operation.duration"
    is_client = True

    async def __call__(self, call: Call, proceed: CallHandler) -> Body:
        """See `Stage`."""
        if call.method.startswith("tasks/"):
            return await proceed(call)
        attributes = _begin(call, call.target) | _of_peer(self._peer_of(call.upstream))
        name, parent = _span_name(call, call.target), call.trace
        carried = {} if parent is not None else carried_in(call.meta)
        span = self._otel.start(name, attributes, carried=carried, parent=parent, is_client=True)
        if told := self._otel.carry(span):
            call.meta = put_carried(call.meta, told)
        return await self._traced(call, proceed, span, attributes)


_MEASURED = (
    "mcp.method.name",
    "gen_ai.tool.name",
    "gen_ai.operation.name",
    "mcp.protocol.version",
    "network.transport",
    "server.address",
    "server.port",
    "mcpbridge.server",
)
"""Attributes that durations are grouped by; the rest would make too many series."""


_LONGEST_METHOD = 100
"""Characters; clients may send methods of any name to a server that is shown alone."""


def _begin(call: Call, visible_name: str) -> Attributes:
    attributes: Attributes = {"mcp.method.name": call.method[:_LONGEST_METHOD], "mcpbridge.server": call.upstream}
    if call.method == "tools/call":
        attributes |= {"gen_ai.tool.name": visible_name, "gen_ai.operation.name": "execute_tool"}
    elif call.method == "prompts/get":
        attributes["gen_ai.prompt.name"] = visible_name
    elif call.method == "resources/read":
        attributes["mcp.resource.uri"] = visible_name
    return attributes


def _request_id(id_: bytes | Raw) -> Attributes:
    """The id of a JSON-RPC request, as a text: that of a string without its quotes."""
    if not id_:
        return {}
    text = _text(id_)
    return {"jsonrpc.request.id": decode_text(id_) if text.startswith('"') else text}


def _span_name(call: Call, visible_name: str) -> str:
    """Not the URI of a resource: names are what spans are grouped by."""
    return (
        f"{call.method} {visible_name}"
        if call.method in ("tools/call", "prompts/get")
        else call.method[:_LONGEST_METHOD]
    )


def _of_peer(peer: Peer) -> Attributes:
    attributes: Attributes = {}
    if peer.version:
        attributes["mcp.protocol.version"] = peer.version
    if peer.transport:
        attributes["network.transport"] = peer.transport
    if peer.address:
        attributes["server.address"] = peer.address
    if peer.port:
        attributes["server.port"] = peer.port
    return attributes


def _end(call: Call, result: Body | None, failed: BaseException | None, *, keeps_content: bool) -> Attributes:
    attributes: Attributes = {}
    if failed is not None:
        attributes["error.type"] = error_name(failed)
        if isinstance(failed, UpstreamAnswered):
            attributes["rpc.response.status_code"] = str(code_of(failed.error))
    elif result is not None and says_error(result):
        attributes["error.type"] = TOOL_ERROR
    if keeps_content and call.method == "tools/call":
        attributes["gen_ai.tool.call.arguments"] = _text(call.params.get("arguments") or b"{}")
        if result is not None:
            attributes["gen_ai.tool.call.result"] = _text(result.data)
    return attributes


def _text(data: bytes | Raw) -> str:
    return bytes(data).decode("utf-8", "replace")


def _notes(call: Call) -> Attributes:
    """What stages noted that is no content: how often it was tried, and what the cache did."""
    facts = call.facts or {}
    noted = {f"mcpbridge.{name}": facts[name] for name in ("retries", "cache") if name in facts}
    return {key: value for key, value in noted.items() if isinstance(value, str | int)}


def put_carried(meta: Body | None, carried: Mapping[str, str]) -> Body:
    """A copy of this `_meta` that names another span, as `Otel.carry` gives it."""
    changed = Body(meta.data) if meta is not None else Body()
    changed.drop(_STATE)
    for key, value in carried.items():
        changed.put(key, value)
    return changed


def carried_in(meta: Body | None) -> dict[str, str]:
    """The trace that the client says the request belongs to; what cannot be read counts as none."""
    found: dict[str, str] = {}
    try:
        for key in (_PARENT, _STATE):
            if meta is not None and key in meta:
                found[key] = meta.text(key)
    except (ValueError, RecursionError):  # msgspec.DecodeError is a ValueError
        return {}
    return found


OPERATION_BUCKETS = list(BUCKETS)
"""Seconds; bounds for both histograms, as the conventions give them."""
