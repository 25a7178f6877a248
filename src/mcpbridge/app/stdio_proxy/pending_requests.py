"""What the shim has to know of a message: its id and its method. Pure.

What the client says is parsed; it is small, and clients write it in every order. What the bridge says is only looked at
from its first bytes: it may be large, and `wire/frame.py` writes the id first.

What a client is told after its daemon has ended, beside what the next one says. Pure.

The requests of a client that have no answer yet, and what becomes of them when the daemon ends. Pure.
"""

import json
import re

TYPE_CHECKING = False  # that of `typing`, without the import
if TYPE_CHECKING:
    from collections.abc import Iterator


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
    """A value as one line of JSON, as `wire/frame.py` writes it."""
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


LISTEN = "subscriptions/listen"

MOST_KEPT = 64 << 20
"""Bytes of requests that are kept, to be sent again."""

_ALWAYS = frozenset({"initialize", LISTEN})
_SAFE = frozenset(
    {
        "server/discover",
        "ping",
        "tools/list",
        "prompts/list",
        "prompts/get",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "resources/subscribe",
        "resources/unsubscribe",
        "completion/complete",
        "logging/setLevel",
        "tasks/get",
        "tasks/list",
        "tasks/result",
    }
)
"""Methods that may be asked twice. Not often: the daemon may have ended because of what was asked."""

_LISTS = {"tools": "toolsListChanged", "prompts": "promptsListChanged", "resources": "resourcesListChanged"}
_ENVELOPE = ("io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientCapabilities")


class Request:
    """One of them."""

    __slots__ = ("batch", "id", "is_acknowledged", "is_modern", "line", "lists", "method", "place", "tries", "uri")

    def __init__(self, id_: Id, method: str, params: dict[str, object], line: bytes, place: int, batch: int) -> None:
        """`line` is what the client wrote; `batch` tells what arrived as one array, 0 is none."""
        self.id, self.method, self.batch = id_, method, batch
        self.line: bytes | None = line
        """None: it was too large to be kept."""
        self.place = place
        """Bytes that were sent on the connection before it."""
        self.tries = 0
        """How often it was sent again after a crash."""
        meta = members(params.get("_meta"))
        self.is_modern = any(key in meta for key in _ENVELOPE)
        uri = params.get("uri")
        self.uri = uri if isinstance(uri, str) else ""
        wanted = members(params.get("notifications")) if method == LISTEN else {}
        self.lists = tuple(kind for kind, name in _LISTS.items() if wanted.get(name) is True)
        """Of a listen stream: which lists it wants to hear of."""
        self.is_acknowledged = False
        """Of a listen stream: the client has heard that it is open."""

    def survives(self) -> bool:
        """Whether it may be sent again although the daemon may have begun with it. Counts how often it was."""
        if self.line is None or (self.method not in _ALWAYS and (self.method not in _SAFE or self.tries)):
            return False
        self.tries += 1
        return True


class Requests:
    """All of them, in their order."""

    def __init__(self, most_kept: int = MOST_KEPT) -> None:
        self._most_kept = most_kept
        self._kept = 0
        self._by_id: dict[Id, Request] = {}

    def __iter__(self) -> "Iterator[Request]":
        return iter(self._by_id.values())

    def has(self, method: str, uri: str = "") -> bool:
        """Whether there is one with this method (and URI)."""
        return any(one.method == method and (not uri or one.uri == uri) for one in self)

    def get(self, id_: Id) -> Request | None:
        """The one with this id."""
        return self._by_id.get(id_)

    def add(self, request: Request) -> None:
        """The client has asked. One that had the same id is forgotten: the answers could not be told apart."""
        self.take(request.id)
        size = len(request.line or b"")
        if self._kept + size > self._most_kept:
            request.line = None
        else:
            self._kept += size
        self._by_id[request.id] = request

    def take(self, id_: Id) -> Request | None:
        """It is answered, or the client does not want the answer any more."""
        request = self._by_id.pop(id_, None)
        if request is not None:
            self._kept -= len(request.line or b"")
        return request

    def lose(self, taken: int | None, *, for_good: bool = False) -> list[bytes]:
        """The connection ended: what to tell the client. Those that are left may be sent again.

        `taken`: bytes that the daemon may have read; None: it has read none that is left here. `for_good`: there is no
        other connection, so none is left; listen streams just end.
        """
        lost: dict[object, list[bytes]] = {}
        for one in list(self):
            was_read = taken is not None and one.place < taken
            if for_good and one.method == LISTEN:
                continue
            if not for_good and (one.survives() if was_read else one.line is not None):
                continue
            self.take(one.id)
            answer = lost_answer(one.id, one.method, modern=one.is_modern, was_read=was_read)
            lost.setdefault(one.batch or ("alone", one.id), []).append(answer)
        return [_joined(answers, is_batch=isinstance(group, int)) for group, answers in lost.items()]

    def again(self, place: int) -> list[tuple[Request, bytes]]:
        """What to send to the next daemon, from this place of the connection on: a first request, and its line."""
        lines: list[tuple[Request, bytes]] = []
        waiting = [one for one in self if one.line is not None]
        while waiting:
            first = waiting[0]
            group = [one for one in waiting if one is first or (one.batch and one.batch == first.batch)]
            waiting = [one for one in waiting if one not in group]
            line = _joined([one.line or b"" for one in group], is_batch=bool(first.batch))
            for one in group:
                one.place = place
            place += len(line)
            lines.append((first, line))
        return lines


def _joined(messages: list[bytes], *, is_batch: bool) -> bytes:
    messages = [message.rstrip(b"\n") for message in messages]
    return (b"[%b]" % b",".join(messages) if is_batch else messages[0]) + b"\n"
