"""What a client is answered while its daemon starts: the first requests, from a snapshot; all others wait.

To the proxy's memory the snapshot is a daemon before the one that starts: the handshake that it answered is said again
to that one, and the lists that it showed are compared with those of that one (`replay.py`). So the client need not
notice who answered. Nothing is answered before the snapshot has the answer to what opens the conversation:
`initialize`, or the first request with the envelope of a modern revision (MCP 2026-07-28, `_meta`).
"""

from mcpbridge.app.stdio_proxy.messages import Id, dump, id_of, members, parse
from mcpbridge.app.stdio_proxy.replay import Memory
from mcpbridge.app.stdio_proxy.snapshot import Snapshot, file_name, kind_of, open_snapshot

TYPE_CHECKING = False  # that of `typing`, without the import
if TYPE_CHECKING:
    from collections.abc import Mapping


LISTS = frozenset({"tools/list", "prompts/list", "resources/list", "resources/templates/list"})
_VERSION = "io.modelcontextprotocol/protocolVersion"
_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
_INFO = "io.modelcontextprotocol/clientInfo"
_WITHOUT_EFFECT = frozenset(
    {"progressToken", "traceparent", "tracestate", "baggage", "io.modelcontextprotocol/logLevel"}
)
"""Members of `_meta` on which no answer depends that a snapshot has."""


class Snapshots:
    """The snapshots for one `mcpbridge serve`."""

    def __init__(
        self,
        folder: str,
        key: str,
        environ: "Mapping[str, str]",
        *,
        is_found: bool,
        server: str = "",
        profile: str = "",
    ) -> None:
        """`key`: of the daemon. `is_found`: nobody named the configuration, and a person trusts it."""
        self._folder, self._key, self._environ, self._is_found = folder, key, environ, is_found
        self._server, self._profile = server, profile
        self._open: dict[str, Snapshot | None] = {}

    def of(self, version: object, capabilities: object, info: object, *, modern: bool) -> Snapshot | None:
        """The snapshot for a client that declares this; None: there is none that counts."""
        if not isinstance(version, str):
            return None
        declared = members(capabilities), members(info)
        kind = kind_of(version, *declared, modern=modern, server=self._server, profile=self._profile)
        if kind not in self._open:
            self._open[kind] = self._opened(kind)
        return self._open[kind]

    def close(self) -> None:
        """Let go of all files."""
        for snapshot in self._open.values():
            if snapshot is not None:
                snapshot.close()
        self._open.clear()

    def _opened(self, kind: str) -> Snapshot | None:
        snapshot = open_snapshot(self._folder, file_name(self._key, kind))
        if snapshot is None or snapshot.holds(self._environ, is_found=self._is_found):
            return snapshot
        snapshot.close()
        return None


class EarlyAnswers:
    """One client, until its daemon has greeted."""

    def __init__(self, snapshots: Snapshots, memory: Memory) -> None:
        self._snapshots, self._memory = snapshots, memory
        self._session: Snapshot | None = None
        """Of the legacy session, once that is open."""
        self._has_answered = False
        self.waiting = 0
        """Bytes of the lines that wait."""

    @property
    def is_open(self) -> bool:
        """The client has been answered something."""
        return self._has_answered

    def take(self, line: bytes, later: list[bytes]) -> bytes:
        """Look at a line of the client; returns what to send to it now. What waits is put at the end of `later`.

        A request in `later` that is cancelled is taken out again.
        """
        message = members(parse(line))
        method, id_ = message.get("method"), id_of(message)
        if not isinstance(method, str) or message.get("jsonrpc") != "2.0":
            return self._wait(line, later)
        if id_ is None:
            return self._notified(method, members(message.get("params")), line, later)
        answer = self._answer(method, members(message.get("params")), id_, line)
        return answer or self._wait(line, later)

    def close(self) -> None:
        """The daemon has taken over, or there is nothing to answer with."""
        self._snapshots.close()

    # -- inside

    def _wait(self, line: bytes, later: list[bytes]) -> bytes:
        later.append(line)
        self.waiting += len(line)
        return b""

    def _notified(self, method: str, params: dict[str, object], line: bytes, later: list[bytes]) -> bytes:
        if method == "notifications/initialized" and self._session is not None:
            self._memory.from_client(line, 0)  # which says it to the daemon after the handshake
            return b""
        if method == "notifications/cancelled" and (cancelled := id_of(params, "requestId")) is not None:
            for place, waiting in enumerate(later):
                asked = members(parse(waiting))
                if "method" in asked and id_of(asked) == cancelled and asked["method"] != "initialize":
                    del later[place]
                    return b""
            if not later:
                return b""  # it is answered
        return self._wait(line, later)

    def _answer(self, method: str, params: dict[str, object], id_: Id, line: bytes) -> bytes:
        """The answer as a line; empty: there is none."""
        meta = members(params.get("_meta"))
        if _VERSION in meta or _CAPABILITIES in meta:
            return self._answer_modern(method, params, meta, id_, line)
        if method == "initialize":
            self._session = None
            if (
                params.keys() - {"protocolVersion", "capabilities", "clientInfo", "_meta"}
                or meta.keys() - _WITHOUT_EFFECT
            ):
                return b""
            found = self._snapshots.of(
                params.get("protocolVersion"), params.get("capabilities"), params.get("clientInfo"), modern=False
            )
            answer = self._from(found, method, {}, id_, line)
            self._session = found if answer else None
            return answer
        if self._session is None:
            return b""
        if method == "ping":
            return dump({"jsonrpc": "2.0", "id": id_, "result": {}}) + b"\n"
        if method not in LISTS or not _asks_for_a_page(params) or meta.keys() - _WITHOUT_EFFECT:
            return b""
        return self._from(self._session, method, _cursor_in(params), id_, line)

    def _answer_modern(
        self, method: str, params: dict[str, object], meta: dict[str, object], id_: Id, line: bytes
    ) -> bytes:
        is_list = method in LISTS and _asks_for_a_page(params)
        if not is_list and (method != "server/discover" or params.keys() != {"_meta"}):
            return b""
        if meta.keys() - {_VERSION, _CAPABILITIES, _INFO} - _WITHOUT_EFFECT or not isinstance(
            meta.get(_CAPABILITIES), dict
        ):
            return b""
        found = self._snapshots.of(meta.get(_VERSION), meta.get(_CAPABILITIES), meta.get(_INFO), modern=True)
        own = {"_meta": {name: meta[name] for name in (_VERSION, _CAPABILITIES, _INFO) if name in meta}}
        return self._from(found, method, {**_cursor_in(params), **own}, id_, line)

    def _from(self, snapshot: Snapshot | None, method: str, params: dict[str, object], id_: Id, line: bytes) -> bytes:
        found = None if snapshot is None else snapshot.find(method, str(params.get("cursor", "")))
        if snapshot is None or found is None:
            return b""
        if not self._has_answered:
            self._has_answered = True
            snapshot.note_use()
        result, digest = found
        answer = b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (dump(id_), result)
        self._memory.from_client(line, 0)
        self._memory.from_daemon(answer)
        if method != "initialize":
            self._memory.confirm_later(method, params, digest)
        return answer


def _cursor_in(params: dict[str, object]) -> dict[str, object]:
    """The cursor of a request for a page, if it has one."""
    return {"cursor": params["cursor"]} if params.get("cursor") else {}


def _asks_for_a_page(params: dict[str, object]) -> bool:
    return not params.keys() - {"cursor", "_meta"} and isinstance(params.get("cursor", ""), str)
