"""The `Mcp-Param-*` headers of a call: arguments that its tool marks with `x-mcp-header` (MCP 2026-07-28, transports).

The SDK knows their rules; the part of it that does is loaded only where a tool has such marks.
"""

from collections.abc import Mapping

from mcpbridge.errors import BadRequest
from mcpbridge.wire.body import Body

__all__ = ["check_param_headers"]


def check_param_headers(definition: bytes, params: Body, headers: Mapping[str, str]) -> None:
    """Compare what a client sent with its arguments, by the tool's definition.

    Raises:
        BadRequest: they say different things.
    """
    from mcpbridge.wire.sdk import validate_mcp_param_headers

    arguments = params.inner("arguments") or Body()
    schema = Body(definition).inner("inputSchema") or Body()
    broken = validate_mcp_param_headers(schema.value(), arguments.value(), headers)
    if broken is not None:
        code, message, data = broken
        raise BadRequest(code, message, data)
