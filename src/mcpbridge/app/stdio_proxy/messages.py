"""The messages of a conversation, as far as the proxy reads and writes them. Pure.

What the client says is parsed; it is small, and clients write it in every order. What the bridge says is only looked at
from its first bytes: it may be large, and `protocol/jsonrpc.py` writes the id first.

Here too: what a client gets after its daemon has ended. What is sent again to the next daemon is decided in
`replay.py`.
"""

import json
import re

Id = str | int | float
"""Of a request. `1` and `"1"` are different ones, in Python too."""

Kind = str
"""`result` or `error` of an answer, `method` of a request."""

_HEAD = re.compile(rb'\{"jsonrpc":"2\.0","id":("(?:[^"\\]|\\.)*"|[-+.0-9eE]+),"(result|error|method)":')


def parse(text: bytes) -> object:
    """The value; None if it is no JSON, or none that Python reads."""
    try:
        return json.loads(text.decode(errors="replace").removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return None


def members(value: object) -> dict[str, object]:
    """The members of an object; none if it is something else."""
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType] - parsed by us


def items(value: object) -> list[object]:
    """The items of an array; none if it is something else."""
    return value if isinstance(value, list) else []  # pyright: ignore[reportUnknownVariableType] - as above


def dump(value: object) -> bytes:
    """A value as one line of JSON, as `protocol/jsonrpc.py` writes it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")


def id_of(message: dict[str, object], name: str = "id") -> Id | None:
    """The id in a member; None if there is none, or it is none."""
    found = message.get(name)
    return found if isinstance(found, Id) and not isinstance(found, bool) else None


def look(line: bytes) -> tuple[Id, Kind] | None:
    """The id of an answer or a request of the bridge, and which it is. None: it is a notification, or none of ours."""
    found = _HEAD.match(line)
    if found is None:
        return None
    raw = found[1]
    id_ = int(raw) if len(raw) < 1000 and raw.isdigit() else parse(raw)
    return (id_, found[2].decode()) if isinstance(id_, Id) else None


def ids_of_answers(line: bytes) -> list[Id]:
    """Whose answers are in a batch."""
    return [id_ for one in map(members, items(parse(line))) if "method" not in one and (id_ := id_of(one)) is not None]


ERROR_NAME = "mcpbridge/error"
NAME = "BridgeEnded"
"""Of this error, for programs."""

UNKNOWN_EFFECT = (
    "The bridge ended during the call, and its server with it: it is not known whether the tool had its effect. "
    "Check that before you call it again."
)
_NO_EFFECT = "The bridge restarted before it read this call, and the call is too large to be kept. Call again."
_LOST = "The bridge ended before the answer was there; ask again"

_INTERNAL_ERROR = -32603
_SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"


def failed_start(line: bytes, reason: str) -> bytes:
    """The answers to the requests in a line that waited for a bridge which cannot start; empty: it has none."""
    message = parse(line)
    asked = [one for one in map(members, items(message) or [message]) if "method" in one]
    error = {"code": _INTERNAL_ERROR, "message": reason}
    answers = [{"jsonrpc": "2.0", "id": id_, "error": error} for one in asked if (id_ := id_of(one)) is not None]
    return b"".join(dump(answer) + b"\n" for answer in answers)


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
