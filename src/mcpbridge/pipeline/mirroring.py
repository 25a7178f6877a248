"""Arguments that a modern HTTP server wants repeated in headers (`Mcp-Param-*`, MCP 2026-07-28, transports).

The last thing before a call is delivered: what is repeated are the arguments that really go out, after all stages.
"""

from collections.abc import Awaitable, Mapping

from mcpbridge.model import Call, Plan
from mcpbridge.wire.body import Body

__all__ = ["mirrored", "mirroring"]


def mirrored(marks: Mapping[tuple[str, ...], str], params: Body) -> tuple[tuple[str, str], ...]:
    """The arguments with such marks (path to header name), as headers for the upstream.

    The SDK knows the rules; the part of it that does is loaded only where a tool has such marks.
    """
    from mcpbridge.wire.sdk import mcp_param_headers

    arguments = params.inner("arguments")
    return tuple(mcp_param_headers(marks, arguments.value()).items()) if arguments is not None else ()


def mirroring(marks: Mapping[tuple[str, ...], str], deliver: Plan) -> Plan:
    """The delivery, with the headers of a tool that has such marks. Headers that a call brings stay."""

    def run(call: Call) -> Awaitable[Body]:
        if not call.headers:
            call.headers = mirrored(marks, call.params)
        return deliver(call)

    return run
