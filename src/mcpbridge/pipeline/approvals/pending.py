"""The calls that wait for an answer from outside: `mcpbridge approve`, the HTTP API.

Each has a record in the store, so an answer may also come through another bridge that shares it, and up to a while
after the call gave up: then a yes becomes a grant, and the call passes when it is made again. A waiting call looks at
its record now and then; once that is gone, somebody answered elsewhere.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

import anyio
import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from mcpbridge.base.background_tasks import to_its_end
from mcpbridge.base.errors import Overloaded
from mcpbridge.base.log import get_logger
from mcpbridge.core.model import Call
from mcpbridge.pipeline.approvals.approved_calls import RecentApprovals
from mcpbridge.pipeline.approvals.grants import Grants
from mcpbridge.pipeline.approvals.request import (
    ApprovalEvent,
    ApprovalRequest,
    Audit,
    NotWaited,
    Scope,
    Verdict,
    is_reported,
    places_in_words,
    places_of,
    tell_asked,
    wrong_place,
)
from mcpbridge.pipeline.approvals.settings import ApprovalSettings
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.storage.store import Store

if TYPE_CHECKING:  # few rules name who approves
    from mcpbridge.pipeline.approvals.decider import Decider, RolesOf

log = get_logger("mcpbridge.approvals")

Report = Callable[[ApprovalRequest, str], object]
"""Reports a call that waits, and the page where it is decided; empty: there is none. Returns at once."""

K = TypeVar("K")
T = TypeVar("T")

_KIND = "approval"

LOOK = 1.0
"""Seconds between two looks at the record of a waiting call."""
TELL_EVERY = 10
"""Looks between two words to the client: many give up after a minute in which they hear nothing."""
_REMEMBERED = 1000
"""Answers that are remembered, to recognise who comes late; and as many requests that nobody waits for."""
_CLEAN_UP = 2.0
"""Seconds for taking a record away."""


class UnknownApproval(LookupError):
    """No call waits under this id, or not any more."""


class MayNotDecide(Exception):
    """The rule that asks for this call names others who approve. Its text says whom. `request`: which call."""

    def __init__(self, why: str, request: ApprovalRequest) -> None:
        super().__init__(why)
        self.request = request


class AlreadyDecided(Exception):
    """Somebody was quicker. `verdict` is what they said."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(f"already {'approved' if verdict.granted else 'denied'} by {verdict.by}")
        self.verdict = verdict


class Pending(Struct, frozen=True):
    """One request that can be answered."""

    request: ApprovalRequest
    is_waiting: bool
    """A call waits for it; else it gave up, and a yes lets the same call pass once it is made again."""
    until: float
    """Seconds since 1970, when it is forgotten."""
    is_here: bool = False
    """This bridge waits; else it may be another that shares the store."""


class _Decided(Struct, frozen=True):
    """An answer that was heard."""

    verdict: Verdict
    is_kept: bool
    """A yes is a grant already, since no call waited for it."""


class PendingApprovals:
    """Approver: the request waits until somebody answers it. Also who is asked about it from outside."""

    name = "pending"

    def __init__(
        self,
        settings: ApprovalSettings,
        store: Store,
        grants: Grants,
        audit: Audit,
        recent: RecentApprovals | None = None,
    ) -> None:
        self._settings, self._store, self._grants, self._audit = settings, store, grants, audit
        self.recent = recent or RecentApprovals(audit)
        """What became of the last requests."""
        self.approved = grants.approved
        """The last approved call of each tool."""
        self._waiting: dict[str, tuple[ApprovalRequest, asyncio.Future[Verdict]]] = {}
        self._count: Counter[str] = Counter()
        self._decided: dict[str, _Decided] = {}
        self._let_go: dict[str, ApprovalRequest] = {}
        self._refused: dict[tuple[str, str, str], str] = {}
        """By principal, client and binding: the id of the last call that nobody answered."""
        self._asked_again: set[str] = set()
        """Ids of those that are asked for again now."""
        self._has_ended = False
        self.roles_of: RolesOf = lambda principal, identity: ()
        """Which roles somebody has now."""
        self.link_to: Callable[[str], str] = lambda id_: ""
        """The address of the page about the request with this id; empty: there is none. Set by who serves pages."""
        self.reports: Report | None = None
        """Where calls are reported that wait for other people; None: nowhere."""

    def configure(self, settings: ApprovalSettings, roles_of: "RolesOf | None" = None) -> None:
        """Other settings for requests that come from now on. `roles_of`: which roles those have who decide."""
        self._settings = settings
        self.roles_of = roles_of or self.roles_of

    # -- Approver

    def reaches(self, call: Call) -> bool:
        """Everybody who may answer can. See `Approver`."""
        return True

    def may_decide(self, request: ApprovalRequest) -> bool:
        """Whoever the rule names can answer; who does is checked in that moment. See `Approver`."""
        return True

    async def ask(self, request: ApprovalRequest, call: Call) -> Verdict | None:
        """Wait for an answer. See `Approver`.

        Raises:
            Overloaded: too many calls of this principal wait already.
            NotWaited: the call does not wait.
        """
        if self._has_ended:
            return Verdict("", self.name, "was not answered: the bridge is stopping")
        principal = request.principal
        if request.lasts:
            others = await self._store.entries(_KIND, principal=principal) if request.asked == 1 else ()
            if len(others) >= self._settings.max_pending:
                raise self._too_many()
            raise NotWaited
        if self._count[principal] >= self._settings.max_pending:
            raise self._too_many()
        answer: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._count[principal] += 1
        try:
            await self._record(request)
            self._waiting[request.id] = request, answer  # only now: whoever answers takes the record
            if self._has_ended:
                self.end()
            tell_asked(request, call)
            self._report(request)
            return await self._answer(request, answer, call)
        finally:
            self._waiting.pop(request.id, None)
            self._count[principal] -= 1
            if not self._count[principal]:
                del self._count[principal]
            if request.id not in self._decided:  # else whoever decided took the record away
                await self._drop(request)

    @asynccontextmanager
    async def as_before(self, request: ApprovalRequest) -> AsyncGenerator[ApprovalRequest]:
        """The request under the id that it had when nobody answered it, so that it is one for those who answer.

        Two equal calls that wait at a time are two requests: a yes is for one of them. Of a call that does not wait
        the request is found as well where another bridge that shares the store was asked, as a command's own is.
        """
        before = None if request.is_unique else await self._unanswered(request)
        id_ = before.id if before is not None else ""
        if before is None or id_ in self._waiting or id_ in self._asked_again:
            yield request
            return
        self._asked_again.add(id_)
        try:
            yield replace(request, id=id_, asked=before.asked + 1)
        finally:
            self._asked_again.discard(id_)

    async def keep(self, request: ApprovalRequest) -> str:
        """Let the request be answered for a while longer. See `Approver`."""
        if self._has_ended:
            return ""
        meanwhile = self._decided.get(request.id)
        if meanwhile is not None:  # in the moment in which the call gave up
            return await self._keep_verdict(request, meanwhile)
        if request.lasts:
            _put(self._let_go, request.id, request)
            self._report(request)
        entries = await self._store.entries(_KIND, principal=request.principal) if not request.lasts else ()
        late = [entry for entry in entries if entry.expires <= time.time() + self._settings.grant_lifetime]
        for entry in late[: max(0, len(late) + 1 - self._settings.max_pending)]:  # the oldest make room
            await self._store.drop(_KIND, entry.handle, principal=request.principal)
        _put(self._refused, _same(request), request.id)
        await self._record(request)
        meanwhile = self._decided.get(request.id)
        if meanwhile is not None:  # in these moments; what was recorded must not be answered again
            await self._drop(request)
            return await self._keep_verdict(request, meanwhile)
        return f"{self._advice(request)}; after that, the same call passes once."

    def let_go(self, id_: str) -> ApprovalRequest | None:
        """The request of a call that did not wait for its answer, and learned so from this bridge a moment ago.

        A server may say as well that a call of its waits for somebody; that is not believed.
        """
        return self._let_go.get(id_)

    def end(self) -> None:
        """The bridge stops: who waits gets a no."""
        self._has_ended = True
        for _, answer in self._waiting.values():
            if not answer.done():
                answer.set_result(Verdict("", self.name, "was not answered: the bridge is stopping"))

    # -- for who administers the bridge

    async def pending(self) -> list[Pending]:
        """All that can be answered, oldest first."""
        found = [
            Pending(request, is_waiting=True, until=request.expires, is_here=True)
            for request, answer in self._waiting.values()
            if not answer.done()
        ]
        for entry in await self._store.entries(_KIND, principal=None):
            if entry.handle not in self._waiting:
                body = await self._store.get(_KIND, entry.handle, principal=entry.principal)
                pending = _of_record(body, entry.expires) if body is not None else None
                if pending is not None:
                    found.append(pending)
        return sorted(found, key=lambda pending: pending.request.at)

    async def find(self, id_: str) -> Pending | None:
        """The request with this id, if it can be answered."""
        waiting = self._waiting.get(id_)
        if waiting is not None and not waiting[1].done():
            return Pending(waiting[0], is_waiting=True, until=waiting[0].expires, is_here=True)
        for entry in await self._store.entries(_KIND, principal=None):
            if entry.handle == id_:
                body = await self._store.get(_KIND, id_, principal=entry.principal)
                return _of_record(body, entry.expires) if body is not None else None
        return None

    def objection(self, request: ApprovalRequest, decider: "Decider") -> str:
        """Why somebody may not decide about a request, with the roles that they have now; empty: they may."""
        if request.approve_by is None:
            return ""
        from mcpbridge.pipeline.approvals.decider import objection  # few rules name who approves

        return objection(request, decider, self.roles_of)

    async def decide(
        self,
        id_: str,
        granted: Scope | None,
        by: str,
        *,
        in_session: bool = False,
        decider: "Decider | None" = None,
        reason: str = "",
    ) -> Pending:
        """Answer a request; `granted` None is a no, `in_session` also to the same call in this session.

        `decider`: who answers; None: the operator of the bridge. `reason`: why not, for whoever calls. Returns what was
        answered.

        Of all who answer, at whichever bridge that shares the store, one is heard: who takes the record. Cancelling
        waits until the answer is given, or proves to come too late.

        Raises:
            UnknownApproval: there is none, or not any more.
            AlreadyDecided: somebody answered it before.
            MayNotDecide: it is for others to answer.
            StoreFailed: the yes cannot be kept; the request can still be answered.
        """
        verdict = Verdict(
            granted or "",
            by,
            is_noted=granted is not None,
            reason=reason if granted is None else "",
            address=decider.address if decider is not None else "",
        )
        in_session = in_session and granted is None
        return await to_its_end(self._decide(id_, verdict, granted, decider, in_session=in_session))

    async def _decide(
        self, id_: str, verdict: Verdict, granted: Scope | None, decider: "Decider | None", *, in_session: bool
    ) -> Pending:
        by = verdict.by
        if id_ in self._decided:
            raise AlreadyDecided(self._decided[id_].verdict)
        await self._check(id_, granted, decider, by)
        waiting = self._waiting.get(id_)
        pending = await (self._take(id_) if waiting is None else self._take_here(waiting[0]))
        if pending is None:
            raise self._nothing(id_)
        if in_session:
            await self._grants.deny_in_session(pending.request, by, verdict.reason)
        if waiting is not None and id_ in self._waiting and not waiting[1].done():
            self._remember(id_, _Decided(verdict, is_kept=False))
            waiting[1].set_result(verdict)
            if granted is not None:  # here, since the call need not wait for it
                await self.approved.note(pending.request, by)
            return pending
        self._remember(id_, _Decided(verdict, is_kept=True))
        if waiting is not None:
            await self._drop(pending.request)  # it gave up meanwhile, and may have been recorded anew
        try:
            if granted is not None:
                await self._grants.put(pending.request, granted, by)
            elif pending.request.lasts:
                await self._grants.deny(pending.request, by, verdict.reason)
        except BaseException:  # the store failed, or the loop ends: it can be answered again
            self._decided.pop(id_, None)
            await self._record(pending.request)
            raise
        if granted is not None:
            await self.approved.note(pending.request, by)
        event = "granted" if granted else "denied"
        self._audit(
            ApprovalEvent(event, pending.request, by, granted or "", why=verdict.reason, address=verdict.address)
        )
        return pending

    # -- parts

    def _nothing(self, id_: str) -> AlreadyDecided | UnknownApproval:
        """Why there is nothing to answer."""
        return AlreadyDecided(self._decided[id_].verdict) if id_ in self._decided else UnknownApproval(id_)

    async def _check(self, id_: str, granted: Scope | None, decider: "Decider | None", by: str) -> None:
        """Look whether it is for this person to answer. What is not there now may be later, and nobody has looked."""
        pending = await self.find(id_)
        if pending is None:  # such as in the moment in which a call gives up, before it is kept
            raise self._nothing(id_)
        if why := wrong_place(pending.request, by):
            raise MayNotDecide(why, pending.request)
        if pending.request.approve_by is None:
            return
        from mcpbridge.pipeline.approvals.decider import OPERATOR

        why = self.objection(pending.request, decider or OPERATOR)
        if not why and granted == "session":
            why = "A call that other people approve is approved for once only"
        if why:
            log.info("an answer to a call was refused", id=id_, principal=decider.principal if decider else "operator")
            raise MayNotDecide(why, pending.request)

    def _report(self, request: ApprovalRequest) -> None:
        if self.reports is not None and is_reported(request):
            self.reports(request, self.link_to(request.id))

    def _advice(self, request: ApprovalRequest) -> str:
        """What people can do about a call that gave up waiting."""
        if request.approve_by is None and "cli" not in places_of(request):
            return f"A person can still approve it ({request.id}) {places_in_words(request)}"
        if request.approve_by is None:
            return f"A person can still run `mcpbridge approve {request.id}`"
        from mcpbridge.pipeline.approvals.decider import advice

        return advice(request, self.link_to(request.id))

    def _waits_for(self, request: ApprovalRequest) -> str:
        """What a call waits for, in words for its client."""
        if request.approve_by is None and "cli" not in places_of(request):
            return f"Waiting for approval of {request.tool} {places_in_words(request)}"
        if request.approve_by is None:
            return f"Waiting for approval of {request.tool}: run `mcpbridge approve {request.id}`"
        from mcpbridge.pipeline.approvals.decider import waits_for

        return waits_for(request, self.link_to(request.id))

    async def _unanswered(self, request: ApprovalRequest) -> ApprovalRequest | None:
        """The request of an equal call that nobody answered; None: there is none, or it has expired."""
        ids = [self._refused.get(_same(request), "")]
        if request.lasts:
            ids += [entry.handle for entry in await self._store.entries(_KIND, principal=request.principal)]
        for id_ in filter(None, ids):
            body = await self._store.get(_KIND, id_, principal=request.principal)
            before = _of_record(body, 0.0) if body is not None else None
            if before is None or before.request.is_unique or (request.lasts and before.is_waiting):
                continue
            if _same(before.request) == _same(request):
                return before.request
        return None

    async def _answer(self, request: ApprovalRequest, answer: asyncio.Future[Verdict], call: Call) -> Verdict:
        looks = 0
        was_gone = False
        while True:
            if looks % TELL_EVERY == 0:
                _tell(call, self._waits_for(request), looks)
            await asyncio.wait([answer], timeout=LOOK)
            if answer.done():
                return answer.result()
            looks += 1
            if await self._store.get(_KIND, request.id, principal=request.principal) is not None:
                continue
            grant = await self._grants.use(request)  # given by another bridge; one for an equal call is as good
            if grant is not None:
                return Verdict(grant.scope, grant.by)
            if was_gone:
                return Verdict("", "another bridge")
            was_gone = True  # a yes is kept after the record is taken: look once more

    def _too_many(self) -> Overloaded:
        return Overloaded(f"{self._settings.max_pending} calls wait for approval already; no more are accepted")

    async def _record(self, request: ApprovalRequest) -> None:
        lasts = request.lasts or self._settings.grant_lifetime
        seconds = max(0.0, request.expires - time.time()) + lasts
        body = msgspec.json.encode(request)
        await self._store.put(_KIND, body, principal=request.principal, expires_in=seconds, handle=request.id)

    async def _drop(self, request: ApprovalRequest) -> None:
        with anyio.CancelScope(shield=True), anyio.move_on_after(_CLEAN_UP):
            await self._store.drop(_KIND, request.id, principal=request.principal)

    async def _keep_verdict(self, request: ApprovalRequest, decided: _Decided) -> str:
        verdict = decided.verdict
        if not verdict.granted:
            return ""
        if not decided.is_kept:
            await self._grants.put(request, verdict.granted, verdict.by)
        return f"It was approved by {verdict.by} in the last moment: the same call passes now."

    async def _take_here(self, request: ApprovalRequest) -> Pending | None:
        body = await self._store.take(_KIND, request.id, principal=request.principal)
        return None if body is None else Pending(request, is_waiting=True, until=request.expires, is_here=True)

    async def _take(self, id_: str) -> Pending | None:
        for entry in await self._store.entries(_KIND, principal=None):
            if entry.handle == id_:
                body = await self._store.take(_KIND, id_, principal=entry.principal)
                if body is not None:
                    return _of_record(body, entry.expires)
        return None

    def _remember(self, id_: str, decided: _Decided) -> None:
        _put(self._decided, id_, decided)


def _same(request: ApprovalRequest) -> tuple[str, str, str]:
    return request.principal, request.client, request.binding


def _put(values: dict[K, T], id_: K, value: T) -> None:
    values[id_] = value
    if len(values) > _REMEMBERED:
        del values[next(iter(values))]


_decode_request = msgspec.json.Decoder(ApprovalRequest).decode


def _of_record(body: bytes, until: float) -> Pending | None:
    """None: it is of another release."""
    try:
        request = _decode_request(body)
    except (msgspec.DecodeError, RecursionError):
        log.warning("a stored approval request cannot be read")
        return None
    return Pending(request, is_waiting=request.expires > time.time(), until=until)


def _tell(call: Call, text: str, looks: int) -> None:
    """Let the client hear what its call waits for, where it listens."""
    # Progress must increase, and the server's own may begin at 0 and comes after this.
    progress = {"progress": (looks - 1_000_000) / 1e9, "message": text}
    call.update("notifications/progress", Raw(encode(progress)))
    if not looks:
        call.update("notifications/message", Raw(encode({"level": "warning", "logger": "approval", "data": text})))
