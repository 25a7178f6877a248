"""What was agreed to last: the arguments of each tool's last approved call. A person sees what is new in the next one.

They are kept in the store, masked and bounded, for each principal alone; where the settings let no arguments be written
down (`call_log`, `log_content`), in memory, for as long as the bridge runs. What is too large to be kept, or was
forgotten, is known by its digest, which still shows whether a call is the same.
"""

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import cast

import anyio
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mcpbridge.base.errors import StoreFailed
from mcpbridge.base.json_values import decoded
from mcpbridge.base.log import get_logger
from mcpbridge.pipeline.approvals.request import ApprovalEvent, ApprovalRequest, Audit, one_line_of
from mcpbridge.protocol.canonical_json import canonical_digest
from mcpbridge.storage.store import Store

log = get_logger("mcpbridge.approvals")

_KIND = "approved"
KEPT_SECONDS = 30 * 24 * 3600.0
"""Seconds for which the last approved arguments of a tool are kept."""
_ROOM = 4 * 1024**2
"""Bytes of all of them in the store; those that were used least make room."""
_LARGEST = 32 * 1024
"""Bytes of arguments that are kept whole."""
_PATIENCE = 0.1
"""Seconds that keeping them may hold up the call."""
_MOST = 200
"""Differences that are listed."""
_IN_MEMORY = 200
"""Tools whose last approved call is remembered, by principal."""
_DEPTH = 40
_SHOWN, _BEFORE = 200, 30
"""Characters of a value that are shown, and of what is before the first difference of two texts."""


class Approved(Struct, frozen=True):
    """The last approved call of a tool."""

    at: float
    """Seconds since 1970."""
    by: str
    client: str
    digest: str
    """Of its arguments."""
    arguments: str = ""
    """Masked, as JSON; empty: they were too large, or may not be kept."""


class Difference(Struct, frozen=True):
    """One argument, or a part of one, that is another than last time."""

    path: str
    """A JSON pointer; empty: the arguments as a whole."""
    before: str | None
    """As JSON, shortened; None: it was not there."""
    after: str | None
    """None: it is not there any more."""


class ApprovedCalls:
    """The last approved call of each tool and principal."""

    def __init__(self, store: Store, redact: Callable[[str], str] = str) -> None:
        """`redact` masks secrets in what is kept, and in what is compared with it."""
        store.bound(_KIND, _ROOM)
        self._store, self._redact = store, redact
        self._here: OrderedDict[tuple[str, str], Approved] = OrderedDict()
        """By principal and tool, those that were approved through this bridge; the last ones."""

    async def note(self, request: ApprovalRequest, by: str) -> None:
        """Somebody agreed to this call. A store that fails costs no call its answer."""
        text = self._masked(request) if len(request.arguments_json) <= _LARGEST else ""
        digest = request.digest or canonical_digest(request.arguments_json)
        approved = Approved(time.time(), by, request.client, digest, text)
        self._remember(request, approved)
        body = msgspec.json.encode(approved if request.keeps_content else replace(approved, arguments=""))
        handle = _handle(request)
        try:
            with anyio.move_on_after(_PATIENCE):
                await self._store.put(_KIND, body, principal=request.principal, expires_in=KEPT_SECONDS, handle=handle)
        except StoreFailed as error:
            log.warning("the arguments of an approved call cannot be kept", reason=str(error))

    async def last(self, request: ApprovalRequest) -> Approved | None:
        """The last approved call of the tool that the request is about; None: none is known."""
        here = self._here.get((request.principal, request.tool))
        try:
            body = await self._store.get(_KIND, _handle(request), principal=request.principal)
            kept = msgspec.json.decode(body, type=Approved) if body is not None else None
        except (StoreFailed, msgspec.DecodeError):
            kept = None
        if here is None or kept is None:
            return here or kept
        return kept if kept.at > here.at and kept.digest != here.digest else here  # through another bridge

    def differences(self, approved: Approved, request: ApprovalRequest) -> Sequence[Difference] | None:
        """What is new in a request; None: the former arguments are not kept, and these are others."""
        if approved.digest == (request.digest or canonical_digest(request.arguments_json)):
            return ()
        if not approved.arguments or len(request.arguments_json) > _LARGEST:
            return None
        try:
            before, after = decoded(approved.arguments.encode()), decoded(self._masked(request).encode())
            return differences(before, after)
        except (msgspec.DecodeError, RecursionError):
            return None

    def _remember(self, request: ApprovalRequest, approved: Approved) -> None:
        key = request.principal, request.tool
        self._here[key] = approved
        self._here.move_to_end(key)
        if len(self._here) > _IN_MEMORY:
            self._here.popitem(last=False)

    def _masked(self, request: ApprovalRequest) -> str:
        return self._redact(request.arguments_json.decode("utf-8", "replace"))


def _handle(request: ApprovalRequest) -> str:
    return f"approved-{sha256(request.tool.encode('utf-8', 'replace')).hexdigest()}"


def differences(before: object, after: object) -> Sequence[Difference]:
    """What differs between two JSON values, part by part; of more than 200 differences the first."""
    found: list[Difference] = []
    for one in _differences("", before, after, 0):
        found.append(one)
        if len(found) == _MOST:
            break
    return found


def _differences(path: str, before: object, after: object, depth: int) -> Iterator[Difference]:
    old, new = _members(before), _members(after)
    if depth < _DEPTH and old is not None and new is not None and isinstance(before, dict) == isinstance(after, dict):
        for name in dict.fromkeys((*new, *old)):
            inner = f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
            if name in old and name in new:
                yield from _differences(inner, old[name], new[name], depth + 1)
            else:
                yield Difference(
                    inner, _line(old[name]) if name in old else None, _line(new[name]) if name in new else None
                )
    elif _encode(before) != _encode(after):
        if isinstance(before, str) and isinstance(after, str):
            before, after = _near_difference(before, after)
        yield Difference(path, _line(before), _line(after))


def _members(value: object) -> Mapping[str, object] | None:
    """The parts of a value, by name or number; None: it has none."""
    if isinstance(value, dict):
        return cast("Mapping[str, object]", value)
    if isinstance(value, list):
        return {str(at): one for at, one in enumerate(cast("list[object]", value))}
    return None


def _near_difference(before: str, after: str) -> tuple[str, str]:
    """Two texts, from a little before where they first differ: a change far down a long text must be seen."""
    same = next((at for at, (one, other) in enumerate(zip(before, after, strict=False)) if one != other), None)
    at = min(len(before), len(after)) if same is None else same
    if at <= _BEFORE:
        return before, after
    start = at - _BEFORE
    return f"…{before[start : start + _SHOWN]}", f"…{after[start : start + _SHOWN]}"


_encode = msgspec.json.Encoder(decimal_format="number").encode


def _line(value: object) -> str:
    return one_line_of(_encode(value), _SHOWN)


class RecentApprovals:
    """What became of the last requests, newest first: for who looks after they were answered, or had expired."""

    def __init__(self, write: Audit) -> None:
        """`write` records events; all of them are forwarded to it."""
        self._write = write
        self._ended: deque[tuple[float, ApprovalEvent]] = deque(maxlen=_REMEMBERED)

    def write(self, event: ApprovalEvent) -> None:
        """Take an event; see `Audit`."""
        if event.event not in ("asked", "used"):
            self._ended.appendleft((time.time(), event))
        self._write(event)

    def ended(self) -> Sequence[tuple[float, ApprovalEvent]]:
        """When, and what; since the bridge started."""
        return tuple(self._ended)


_REMEMBERED = 100
