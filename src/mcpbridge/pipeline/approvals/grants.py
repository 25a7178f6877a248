"""Approvals that are kept: for one later call, or for the same call throughout a session.

A grant is found by what it is for (`binding_of`), so a call with other arguments, of a tool whose definition changed,
of somebody else or under another policy finds none. Of several callers exactly one gets a grant for one call. Every
step of an approval is written to the call log, whether or not calls are.
"""

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct

from mcpbridge.base.log import get_logger
from mcpbridge.pipeline.approvals.approved_calls import ApprovedCalls
from mcpbridge.pipeline.approvals.request import ApprovalEvent, ApprovalRequest, Audit, Scope
from mcpbridge.storage.call_log.log import CallLog
from mcpbridge.storage.store import Store

_KIND = "grant"


class Grant(Struct, frozen=True):
    """A yes that was kept."""

    request: str
    """Id of the request that it was given to."""
    by: str
    scope: Scope


class Denial(Struct, frozen=True):
    """A no that was kept."""

    by: str
    reason: str = ""
    """What the person gave as the reason."""

    @property
    def ending(self) -> str:
        """The reason as the end of a sentence."""
        return f": {self.reason}" if self.reason else ""


class Grants:
    """The kept yeses, in the store. Where that fails, so does every method: a yes in one bridge's memory is no yes."""

    def __init__(
        self,
        store: Store,
        *,
        once_seconds: float,
        session_seconds: float,
        redact: Callable[[str], str] = str,
    ) -> None:
        """How long a yes holds: for one call, and for a session. `redact` masks what is kept of approved calls."""
        self._store = store
        self.approved = ApprovedCalls(store, redact)
        """The last approved call of each tool."""
        self.configure(once_seconds=once_seconds, session_seconds=session_seconds)

    def configure(self, *, once_seconds: float, session_seconds: float) -> None:
        """How long a yes holds that is given from now on."""
        self._once_seconds, self._session_seconds = once_seconds, session_seconds

    @property
    def once_seconds(self) -> float:
        """How long a yes for one call holds."""
        return self._once_seconds

    async def put(self, request: ApprovalRequest, scope: Scope, by: str) -> None:
        """Keep a yes."""
        seconds = (request.lasts or self._once_seconds) if scope == "once" else self._session_seconds
        body = msgspec.json.encode(Grant(request.id, by, scope))
        handle = _handle(request, scope)
        await self._store.put(_KIND, body, principal=request.principal, expires_in=seconds, handle=handle)

    async def take_back(self, request: ApprovalRequest, scope: Scope) -> bool:
        """Undo a `put` that failed and may have kept the yes all the same. Whether it did, and nobody has used it."""
        return await self._store.drop(_KIND, _handle(request, scope), principal=request.principal)

    async def use(self, request: ApprovalRequest) -> Grant | None:
        """The yes that lets this call pass; one for a single call is used up by that. None: somebody must be asked."""
        store, principal = self._store, request.principal
        body = await store.get(_KIND, _handle(request, "session"), principal=principal)
        if body is not None:
            return msgspec.json.decode(body, type=Grant)
        beginning = _beginning(request)
        for entry in await store.entries(_KIND, principal=principal):
            if entry.handle.startswith(beginning):
                body = await store.take(_KIND, entry.handle, principal=principal)
                if body is not None:  # another call may have been quicker
                    return msgspec.json.decode(body, type=Grant)
        return None

    async def has(self, request: ApprovalRequest) -> bool:
        """Whether there is a yes that lets this call pass. It is not used up."""
        store, principal = self._store, request.principal
        if await store.entry(_KIND, _handle(request, "session"), principal=principal) is not None:
            return True
        beginning = _beginning(request)
        return any(one.handle.startswith(beginning) for one in await store.entries(_KIND, principal=principal))

    async def deny(self, request: ApprovalRequest, by: str, reason: str = "") -> None:
        """Keep a no for the call that the request is of, which is made again by whoever waited for no answer."""
        seconds, handle = request.lasts or self._once_seconds, _denied(request.id)
        body = msgspec.json.encode(Denial(by, reason))
        await self._store.put(_KIND, body, principal=request.principal, expires_in=seconds, handle=handle)

    async def deny_in_session(self, request: ApprovalRequest, by: str, reason: str = "") -> None:
        """Keep a no for this call, and the same one as often as it comes in this session."""
        handle, body = _denied_in_session(request), msgspec.json.encode(Denial(by, reason))
        await self._store.put(_KIND, body, principal=request.principal, expires_in=self._session_seconds, handle=handle)

    async def denied_in_session(self, request: ApprovalRequest) -> Denial | None:
        """The no to the same call for the whole session; None: nobody said it."""
        return _denial(await self._store.get(_KIND, _denied_in_session(request), principal=request.principal))

    async def denied(self, id_: str, *, principal: str) -> Denial | None:
        """The no to the request with this id; None: nobody said it."""
        return _denial(await self._store.get(_KIND, _denied(id_), principal=principal))


def _denial(body: bytes | None) -> Denial | None:
    if body is None:
        return None
    try:
        return msgspec.json.decode(body, type=Denial)
    except msgspec.DecodeError:  # of a former release, which kept who said it alone
        return Denial(body.decode("utf-8", "replace"))


def _denied(id_: str) -> str:
    return f"denied-{id_}"


def _denied_in_session(request: ApprovalRequest) -> str:
    return f"denied-{request.binding}-{request.session}"


def _beginning(request: ApprovalRequest) -> str:
    return f"once-{request.binding}-"


def _handle(request: ApprovalRequest, scope: Scope) -> str:
    """A grant for one call has a name of its own: two people may each have agreed to one of two equal calls."""
    if scope == "once":
        return _beginning(request) + request.id
    return f"session-{request.binding}-{request.session}"


log = get_logger("mcpbridge")


def recording(audit: CallLog, note: Callable[[str, Mapping[str, object]], object] = lambda kind, facts: None) -> Audit:
    """Writes what became of an approval into the log, and into `audit`; `note` gets the same for the audit log."""

    def write(event: ApprovalEvent) -> None:
        request = event.request
        log.info(
            "approval", step=event.event, id=request.id, tool=request.tool, by=event.by, principal=request.principal
        )
        facts: dict[str, object] = {
            "tool": request.tool,
            "client": request.client,
            "principal": request.principal,
            "session": request.session,
            "arguments": request.arguments_json,
            "who": event.by,
            "detail": event.scope or event.why or request.reason,
            "approval": request.id,
        }
        if event.address:
            facts["address"] = event.address
        if request.approve_by is not None:
            facts["approve_by"] = msgspec.to_builtins(request.approve_by)
        audit.append_event(event.event, facts)
        note(f"approval.{event.event}", {**facts, "rule": request.rule})

    return write
