"""What `find_tools` would say to a client, for commands."""

from collections.abc import Mapping
from typing import Any

from mcpbridge.bridge import Bridge
from mcpbridge.model import BRIDGE, Call, Caller
from mcpbridge.wire.body import Body
from mcpbridge.wire.frame import encode

__all__ = ["found_text"]

_NAME = "find_tools"


async def found_text(bridge: Bridge, client: Caller, arguments: Mapping[str, Any]) -> str:
    """The text of its answer. Nothing is logged or counted of it as a call."""
    call = Call("tools/call", BRIDGE, _NAME, Body(encode({"name": _NAME, "arguments": arguments})))
    call.caller = client
    result = await bridge.routing.builtins[_NAME].run(call)
    return result.value()["content"][0]["text"]
