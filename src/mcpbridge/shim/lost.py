"""What a client is told after its daemon has ended, beside what the next one says. Pure."""

from mcpbridge.shim.messages import Id, dump

__all__ = ["ERROR_NAME", "NAME", "UNKNOWN_EFFECT", "changed", "lost_answer", "withdrawn"]

ERROR_NAME = "mcpbridge/error"
NAME = "BridgeEnded"
"""Of this error, for programs."""

UNKNOWN_EFFECT = (
    "The bridge ended during the call, and its server with it: it is not known whether the tool had its effect. "
    "Check that before you call it again."
)
_NO_EFFECT = "The bridge was restarted before it read this call, which is too large to be kept. Call it again."
_LOST = "The bridge ended before the answer was there; ask again"

_INTERNAL_ERROR = -32603
_SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"


def lost_answer(id_: Id, method: str, *, modern: bool, was_read: bool = True) -> bytes:
    """The answer to a request that gets no other. `was_read`: the daemon may have begun with it.

    A call of a tool is answered with a result, which the model reads (spec, tools, error handling).
    """
    if method != "tools/call":
        error = {"code": _INTERNAL_ERROR, "message": _LOST, "data": {ERROR_NAME: NAME}}
        return dump({"jsonrpc": "2.0", "id": id_, "error": error})
    text = UNKNOWN_EFFECT if was_read else _NO_EFFECT
    result: dict[str, object] = {"content": [{"type": "text", "text": text}], "isError": True}
    result["_meta"] = {ERROR_NAME: NAME}
    if modern:
        result["resultType"] = "complete"
    return dump({"jsonrpc": "2.0", "id": id_, "result": result})


def withdrawn(id_: Id) -> bytes:
    """To a client that is being asked something: nobody waits for the answer any more."""
    params = {"requestId": id_, "reason": "the bridge was restarted"}
    return dump({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}) + b"\n"


def changed(kind: str, stream: Id | None = None) -> bytes:
    """The list of `tools`, `prompts` or `resources` may be another one; on a listen stream or to a legacy client."""
    message: dict[str, object] = {"jsonrpc": "2.0", "method": f"notifications/{kind}/list_changed"}
    if stream is not None:
        message["params"] = {"_meta": {_SUBSCRIPTION_ID: stream}}
    return dump(message) + b"\n"
