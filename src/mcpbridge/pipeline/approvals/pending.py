"""The calls that wait for an answer from outside: `mcpbridge approve`, the HTTP API.

Each has a record in the store, so an answer may also come through another bridge that shares it, and up to a while
after the call gave up: then a yes becomes a grant, and the call passes when it is made again. A waiting call looks at
its record now and then; once that is gone, somebody answered elsewhere.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from msgspec import Raw, Struct
from msgspec.structs import replace

from mcpbridge.base.background_tasks import to_its_end
from mcpbridge.base.errors import Overloaded, StoreFailed
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
from mcpbridge.pipeline.approvals.request_records import Pending, RequestRecords, same
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

LOOK = 1.0
"""Seconds between two looks at the record of a waiting call."""
TELL_EVERY = 10
"""Looks between two words to the client: many give up after a minute in which they hear nothing."""
_REMEMBERED = 1000
"""Answers that are remembered, to recognise who comes late; and as many requests that nobody waits for."""


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
        """`store`: the records of all bridges that share them; see `RequestRecords`."""
        self._settings, self._grants, self._audit = settings, grants, audit
        self._records = RequestRecords(store)
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
        self._given_up: dict[str, bool] = {}
        """By id of those that waited and gave up: whether it is certain that nobody had answered."""
        self._cannot_read = False
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
            StoreFailed: nobody can be asked now.
        """
        if self._has_ended:
            return Verdict("", self.name, "was not answered: the bridge is stopping")
        principal = request.principal
        if request.lasts:
            if request.asked == 1 and await self._records.count(principal) >= self._settings.max_pending:
                raise self._too_many()
            raise NotWaited
        if self._count[principal] >= self._settings.max_pending:
            raise self._too_many()
        answer: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._count[principal] += 1
        try:
            await to_its_end(self._begin(request, answer))  # else nobody knew whether the record is there
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
                _put(self._given_up, request.id, await self._records.remove(request))

    @asynccontextmanager
    async def as_before(self, request: ApprovalRequest) -> AsyncGenerator[ApprovalRequest]:
        """The request under the id that it had when nobody answered it, so that it is one for those who answer.

        Two equal calls that wait at a time are two requests: a yes is for one of them. Of a call that does not wait
        the request is found as well where another bridge that shares the store was asked, as a command's own is.
        """
        earlier = self._refused.get(same(request), "")
        before = None if request.is_unique else await self._records.unanswered(request, earlier)
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
        may_be_answered = self._given_up.pop(request.id, None)
        if may_be_answered is None:  # it did not wait here: nobody could answer it, unless it was kept before
            may_be_answered = request.asked == 1 or await self._records.remove(request)
        if not may_be_answered:  # another bridge took it, or nobody knows
            return await self._answered_elsewhere(request)
        if not request.lasts:
            most, lifetime = self._settings.max_pending, self._settings.grant_lifetime
            await self._records.make_room(request.principal, most=most, lifetime=lifetime)
        _put(self._refused, same(request), request.id)
        await self._record(request)
        meanwhile = self._decided.get(request.id)
        if meanwhile is not None:  # in these moments; what was recorded must not be answered again
            await self._records.remove(request)
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
        """All that can be answered, oldest first. While the store is away, those that wait here."""
        found = [
            Pending(request, is_waiting=True, until=request.expires, is_here=True)
            for request, answer in self._waiting.values()
            if not answer.done()
        ]
        try:
            found += await self._records.all_but(self._waiting)
            self._cannot_read = False
        except StoreFailed as error:
            if not self._cannot_read:
                log.warning("calls that wait for approval at other bridges are not known", reason=str(error))
            self._cannot_read = True
        return sorted(found, key=lambda pending: pending.request.at)

    async def find(self, id_: str) -> Pending | None:
        """The request with this id, if it can be answered.

        Raises:
            StoreFailed: no call waits here as this one, and others are not known now.
        """
        waiting = self._waiting.get(id_)
        if waiting is not None and not waiting[1].done():
            return Pending(waiting[0], is_waiting=True, until=waiting[0].expires, is_here=True)
        return await self._records.find(id_)

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
            StoreFailed: the answer cannot be kept. The request can still be answered, or its call gets no yes.
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
        pending = await (self._records.take(id_) if waiting is None else self._take_here(waiting[0]))
        if pending is None:
            raise self._nothing(id_)
        try:
            if in_session:
                await self._grants.deny_in_session(pending.request, by, verdict.reason)
        finally:  # what cannot be kept for the session is a no to this call all the same
            is_heard = waiting is not None and id_ in self._waiting and not waiting[1].done()
            if is_heard and waiting is not None:
                self._remember(id_, _Decided(verdict, is_kept=False))
                waiting[1].set_result(verdict)
        if is_heard:
            if granted is not None:  # here, since the call need not wait for it
                await self.approved.note(pending.request, by)
            return pending
        self._remember(id_, _Decided(verdict, is_kept=True))
        if waiting is not None:
            await self._records.remove(pending.request)  # it gave up meanwhile, and may have been recorded anew
        try:
            if granted is not None:
                await self._grants.put(pending.request, granted, by)
            elif pending.request.lasts:
                await self._grants.deny(pending.request, by, verdict.reason)
        except BaseException:  # the store failed, or the loop ends
            self._decided.pop(id_, None)
            # A yes may have been kept all the same, and the call that waits at another bridge may have used it by now.
            is_unused = granted is None or await self._grants.take_back(pending.request, granted)
            if is_unused or not pending.is_waiting:
                await self._record(pending.request)  # it can be answered again
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
            try:
                if await self._records.is_there(request):
                    continue
                grant = await self._grants.use(request)  # given by another bridge; one for an equal call is as good
            except StoreFailed:  # nobody can answer now either
                continue
            if grant is not None:
                return Verdict(grant.scope, grant.by)
            if was_gone:
                return Verdict("", "another bridge")
            was_gone = True  # a yes is kept after the record is taken: look once more

    def _too_many(self) -> Overloaded:
        return Overloaded(f"{self._settings.max_pending} calls wait for approval already; no more are accepted")

    async def _begin(self, request: ApprovalRequest, answer: asyncio.Future[Verdict]) -> None:
        """Let the request be answered, here and elsewhere."""
        # Asked again, it is answered in this moment where its record is gone: it must not come back.
        if request.asked == 1 or await self._records.remove(request):
            await self._record(request)
        self._waiting[request.id] = request, answer  # only now: whoever answers takes the record

    async def _record(self, request: ApprovalRequest) -> None:
        await self._records.write(request, lifetime=request.lasts or self._settings.grant_lifetime)

    async def _answered_elsewhere(self, request: ApprovalRequest) -> str:
        """What came of a request whose record is gone: a yes is kept a moment after it was taken."""
        for seconds in (0.0, LOOK):
            await asyncio.sleep(seconds)
            if await self._grants.has(request):
                return "It was approved in the last moment: the same call passes now."
        return ""

    async def _keep_verdict(self, request: ApprovalRequest, decided: _Decided) -> str:
        verdict = decided.verdict
        if not verdict.granted:
            return ""
        if not decided.is_kept:
            await self._grants.put(request, verdict.granted, verdict.by)
        return f"It was approved by {verdict.by} in the last moment: the same call passes now."

    async def _take_here(self, request: ApprovalRequest) -> Pending | None:
        if not await self._records.take_own(request):
            return None
        return Pending(request, is_waiting=True, until=request.expires, is_here=True)

    def _remember(self, id_: str, decided: _Decided) -> None:
        _put(self._decided, id_, decided)


def _put(values: dict[K, T], id_: K, value: T) -> None:
    values[id_] = value
    if len(values) > _REMEMBERED:
        del values[next(iter(values))]


def _tell(call: Call, text: str, looks: int) -> None:
    """Let the client hear what its call waits for, where it listens."""
    # Progress must increase, and the server's own may begin at 0 and comes after this.
    progress = {"progress": (looks - 1_000_000) / 1e9, "message": text}
    call.update("notifications/progress", Raw(encode(progress)))
    if not looks:
        call.update("notifications/message", Raw(encode({"level": "warning", "logger": "approval", "data": text})))
