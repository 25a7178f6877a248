"""The requests of a client that have no answer yet, and what becomes of them when the daemon ends. Pure."""

from mcpbridge.shim.lost import lost_answer
from mcpbridge.shim.messages import Id, members

TYPE_CHECKING = False  # that of `typing`, without the import
if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LISTEN", "MOST_KEPT", "Request", "Requests"]

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
