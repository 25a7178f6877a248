"""What of a conversation is said again to the next daemon, so that the client need not notice a restart. Pure.

Remembered are the handshake, the log level, the subscriptions, the open listen streams and the requests without an
answer; and what the bridge is asking the client. `Memory` sees all that passes, and says what is forwarded to the
other side. When a connection has ended, the order is: `lose`, then on the next connection `introduction`, its answer,
and `resume`. What is said again beside the client's own requests bears ids of the proxy's, and the answers end here.
After a crash a request is sent again only if that can do no harm; see `Request.survives`.

Lists that the client was shown from a snapshot are asked for again too, and compared: if one is another by now, the
client gets the notification of that, once.
"""

from mcpbridge.app.stdio_proxy.messages import (
    Id,
    changed,
    dump,
    id_of,
    ids_of_answers,
    items,
    look,
    lost_answer,
    members,
    parse,
    withdrawn,
)
from mcpbridge.base.directories import sha256

TYPE_CHECKING = False  # that of `typing`, without the import
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


_NOTIFICATION = b'{"jsonrpc":"2.0","method":"notifications/'
_SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"
_OWN_ID = "mcpbridge-again-"
"""Begins the ids of our requests."""
_LISTS = {"tools": "toolsListChanged", "prompts": "promptsListChanged", "resources": "resourcesListChanged"}
"""Lists that may change, and what a listen stream calls them."""


class _Unconfirmed:
    """An answer of a snapshot that the daemon has not been asked for yet."""

    __slots__ = ("digest", "kind", "method", "params")

    def __init__(self, method: str, params: dict[str, object], digest: str) -> None:
        self.method, self.params, self.digest = method, params, digest
        self.kind = method.partition("/")[0]


class Memory:
    """Of one client, for as long as it is there."""

    def __init__(self) -> None:
        self.requests = Requests()
        self._initialize: dict[str, object] = {}
        """The client's request."""
        self._introduced: bytes = b""
        """The answer that it got."""
        self._initialized: bytes = b""
        """Its notification that it is ready."""
        self._level: dict[str, object] | None = None
        """The params that set the log level last."""
        self._subscriptions: dict[str, dict[str, object]] = {}
        """Params by URI."""
        self._questions: set[Id] = set()
        """Requests of the bridge to the client."""
        self._withdrawn: set[Id] = set()
        """Those of daemons that have ended; an answer to them is for nobody."""
        self._listings: str | None = None
        """See `greeted`; empty: not known."""
        self._batches = self._repeated = 0
        self._ours: dict[Id, str] = {}
        """Methods of the requests that are ours, by id."""
        self._reopened: set[Id] = set()
        """Listen streams that the client knows to be open already."""
        self._unconfirmed: list[_Unconfirmed] = []
        self._confirming: dict[Id, _Unconfirmed] = {}
        """By the id of our request."""
        self.outdated: set[str] = set()
        """Kinds of lists of which the client knows another one, and has not heard that yet."""
        self.is_refused = False
        """A daemon did not take the handshake that its predecessor took."""
        self.refusal = ""
        """What it said to that."""

    # -- what passes

    def from_client(self, line: bytes, place: int) -> bool:
        """Look at a line of the client; says whether it is to be passed on. `place`: see `Request.place`."""
        message = parse(line)
        batch = items(message)
        if not batch:
            return self._take(members(message), line, place, 0)
        self._batches += 1
        for one in map(members, batch):
            self._take(one, dump(one), place, self._batches)
        return True

    def from_daemon(self, line: bytes) -> bool:
        """Look at a line of the daemon; says whether it is to be passed on."""
        found = look(line)
        if found is not None:
            id_, kind = found
            if kind != "method":
                return self._answered(id_, line, is_error=kind == "error")
            self._questions.add(id_)
            self._withdrawn.discard(id_)  # asked anew: from now on that is what an answer is to
        elif line.startswith(_NOTIFICATION):
            return self._note_notification(line)
        elif line.startswith(b"["):
            for id_ in ids_of_answers(line):
                self._answered(id_, b"", is_error=False)
        return True

    def greeted(self, listings: str) -> list[bytes]:
        """There is a daemon with this digest of its lists. Returns what to send to the client if they may differ."""
        before, self._listings = self._listings, listings
        if before is None or (listings and listings == before):
            return []
        self._unconfirmed.clear()
        return self._news(_LISTS)

    def confirm_later(self, method: str, params: dict[str, object], digest: str) -> None:
        """The client was answered this by a snapshot: ask the daemon for it too. `digest`: of the result."""
        self._unconfirmed.append(_Unconfirmed(method, params, digest))

    def notices(self) -> list[bytes]:
        """What the client is to hear now of lists that are other ones than a snapshot showed it."""
        lines: list[bytes] = []
        for kind in sorted(self.outdated):
            if news := self._news((kind,)):
                self.outdated.discard(kind)
                lines += news
        return lines

    # -- what is said again

    @property
    def wants_answers(self) -> bool:
        """The client waits for something. Open listen streams do not count: they wait for nothing in particular."""
        return any(one.method != LISTEN for one in self.requests)

    @property
    def is_introducing(self) -> bool:
        """The answer to `introduction` has not come yet."""
        return "initialize" in self._ours.values()

    def lose(self, read_bytes: int | None, *, for_good: bool = False) -> list[bytes]:
        """The connection ended; returns what to send to the client. The parameters are those of `Requests.lose`."""
        self._ours.clear()
        self._confirming.clear()
        self._reopened.clear()
        self._withdrawn |= self._questions
        withdrawals = [withdrawn(id_) for id_ in self._questions]
        self._questions.clear()
        return withdrawals + self.requests.lose(read_bytes, for_good=for_good)

    def introduction(self) -> bytes:
        """The handshake as the first thing to say, before which nothing else may be said; empty if there was none."""
        if not self._introduced or self.requests.has("initialize"):
            return b""
        return self._own("initialize", self._initialize)

    def resume(self, place: int) -> list[bytes]:
        """What to say then, in order, from this place of the connection on."""
        lines: list[bytes] = []
        is_new = self.requests.has("initialize")
        if self._initialized and not is_new:
            lines.append(self._initialized)
        if self._level is not None and not self.requests.has("logging/setLevel"):
            lines.append(self._own("logging/setLevel", {"params": self._level}))
        for uri, params in self._subscriptions.items():
            if not self.requests.has("resources/subscribe", uri):
                lines.append(self._own("resources/subscribe", {"params": params}))
        for one in self._unconfirmed:
            lines.append(self._own(one.method, {"params": one.params}))
            self._confirming[f"{_OWN_ID}{self._repeated}"] = one
        for request, line in self.requests.again(place + sum(map(len, lines))):
            lines.append(line)
            if request.method == "initialize" and self._initialized:
                lines.append(self._initialized)
            if request.is_acknowledged:
                self._reopened.add(request.id)
        return lines

    # -- inside

    def _take(self, message: dict[str, object], line: bytes, place: int, batch: int) -> bool:
        method, id_ = message.get("method"), id_of(message)
        if not isinstance(method, str):
            if id_ in self._withdrawn:
                self._withdrawn.discard(id_)
                return False
            self._questions.discard(id_ if id_ is not None else "")
            return True
        params = members(message.get("params"))
        if id_ is not None:
            self.requests.add(Request(id_, method, params, line, place, batch))
            self._remember(method, params, message)
        elif method == "notifications/initialized":
            self._initialized = line
        elif method == "notifications/cancelled" and (cancelled := id_of(params, "requestId")) is not None:
            self.requests.take(cancelled)
        return True

    def _remember(self, method: str, params: dict[str, object], message: dict[str, object]) -> None:
        uri = params.get("uri")
        if method == "initialize":
            self._initialize, self._introduced, self._initialized = message, b"", b""
        elif method == "logging/setLevel":
            self._level = params
        elif method == "resources/subscribe" and isinstance(uri, str):
            self._subscriptions[uri] = params
        elif method == "resources/unsubscribe" and isinstance(uri, str):
            self._subscriptions.pop(uri, None)
        elif self._unconfirmed or self.outdated:
            kind, _, rest = method.partition("/")
            if rest.endswith("list") and not params.get("cursor"):
                self._forget_lists(kind, method)  # it gets the list as it is now

    def _answered(self, id_: Id, line: bytes, *, is_error: bool) -> bool:
        if id_ in self._ours:
            if is_error and self._ours[id_] == "initialize":
                self.is_refused = True
                self.refusal = str(members(members(parse(line)).get("error")).get("message", ""))
            del self._ours[id_]
            if (confirmed := self._confirming.pop(id_, None)) is not None:
                self._compare(confirmed, dump(id_), line, is_error=is_error)
            return False
        request = self.requests.take(id_)
        if request is not None and request.method == "initialize" and not is_error:
            self._introduced = line
        elif request is not None and request.method == "resources/subscribe" and is_error:
            self._subscriptions.pop(request.uri, None)
        return True

    def _note_notification(self, line: bytes) -> bool:
        kind = line[len(_NOTIFICATION) : len(_NOTIFICATION) + 40].partition(b'"')[0]
        if kind.endswith(b"/list_changed"):
            self._listings = ""  # the client knows other lists than those of the greeting
            self._forget_lists(kind.partition(b"/")[0].decode())
        elif kind == b"cancelled":
            id_ = id_of(members(members(parse(line)).get("params")), "requestId")
            self._questions.discard(id_ if id_ is not None else "")
        elif kind == b"subscriptions/acknowledged":
            id_ = id_of(members(members(members(parse(line)).get("params")).get("_meta")), _SUBSCRIPTION_ID)
            if id_ in self._reopened:
                self._reopened.discard(id_)
                return False
            if id_ is not None and (stream := self.requests.get(id_)) is not None:
                stream.is_acknowledged = True
        return True

    def _own(self, method: str, message: dict[str, object]) -> bytes:
        """The message as a request of ours."""
        self._repeated += 1
        id_ = f"{_OWN_ID}{self._repeated}"
        self._ours[id_] = method
        return dump({"jsonrpc": "2.0", "id": id_, "method": method, "params": message.get("params")}) + b"\n"

    def _compare(self, confirmed: _Unconfirmed, id_: bytes, line: bytes, *, is_error: bool) -> None:
        """The daemon has answered what a snapshot had answered."""
        if confirmed not in self._unconfirmed:
            return  # the client knows of a change already
        result = line.rstrip(b"\n")[len(b'{"jsonrpc":"2.0","id":,"result":') + len(id_) : -1]
        if not is_error and sha256(result).hexdigest() == confirmed.digest:
            self._unconfirmed.remove(confirmed)
        elif confirmed.kind in _LISTS:
            self._forget_lists(confirmed.kind)
            self.outdated.add(confirmed.kind)
        else:
            self._unconfirmed.remove(confirmed)  # nothing notifies of the rest

    def _forget_lists(self, kind: str, method: str = "") -> None:
        """What a snapshot showed of this kind does not count any more. `method`: only of this one."""
        if not method or kind != "resources":  # which are two lists with one notification
            self.outdated.discard(kind)
        self._unconfirmed = [one for one in self._unconfirmed if one.kind != kind or method not in ("", one.method)]

    def _news(self, kinds: "Collection[str]") -> list[bytes]:
        """That these lists may have changed, to whoever is to be notified of such."""
        told: list[bytes] = []
        if self._initialized and self._introduced:
            result = members(members(parse(self._introduced)).get("result"))
            declared = members(result.get("capabilities"))
            told += [changed(kind) for kind in kinds if members(declared.get(kind)).get("listChanged") is True]
        for one in self.requests:
            if one.is_acknowledged:
                told += [changed(kind, one.id) for kind in one.lists if kind in kinds]
        return told


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
_ENVELOPE = ("io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientCapabilities")


class Request:
    """One of them."""

    __slots__ = ("batch", "id", "is_acknowledged", "is_modern", "line", "lists", "method", "place", "tries", "uri")

    def __init__(self, id_: Id, method: str, params: dict[str, object], line: bytes, place: int, batch: int) -> None:
        """`line` is what the client wrote; `batch` numbers what arrived as one array, 0 is none."""
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
        self._kept_bytes = 0
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
        """The client has asked. One that had the same id is forgotten: the answers could not be distinguished."""
        self.take(request.id)
        size = len(request.line or b"")
        if self._kept_bytes + size > self._most_kept:
            request.line = None
        else:
            self._kept_bytes += size
        self._by_id[request.id] = request

    def take(self, id_: Id) -> Request | None:
        """It is answered, or the client does not want the answer any more."""
        request = self._by_id.pop(id_, None)
        if request is not None:
            self._kept_bytes -= len(request.line or b"")
        return request

    def lose(self, read_bytes: int | None, *, for_good: bool = False) -> list[bytes]:
        """The connection ended: what to send to the client. Those that are left may be sent again.

        `read_bytes`: bytes that the daemon may have read; None: it has read none that is left here. `for_good`: there
        is no other connection, so none is left; listen streams just end.
        """
        lost: dict[object, list[bytes]] = {}
        for one in list(self):
            was_read = read_bytes is not None and one.place < read_bytes
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
