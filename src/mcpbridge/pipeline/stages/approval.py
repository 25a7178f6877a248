"""A person has to agree before some calls continue: asks whoever can be asked, and lets nothing pass without a yes.

Which calls those are is decided above (`Call.approval`). A yes that was kept (for a call that could not wait, or for
the session) lets the same call pass without a question. Silence is a no, and so is nobody to ask. While a person
thinks, no place at a server is held and no deadline of one runs.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from functools import partial
from typing import Protocol

from msgspec import Raw
from msgspec.structs import replace

from mcpbridge.base.errors import (
    RETRY_AFTER,
    ApprovalRefused,
    ApprovalUnavailable,
    CallRefused,
    StoreFailed,
    ValueTooLarge,
)
from mcpbridge.base.log import get_logger
from mcpbridge.base.units import show_seconds
from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.context import text_in
from mcpbridge.core.model import ApproveBy, Call, CallHandler, Precheck, Tool
from mcpbridge.pipeline.approvals.grants import Grants
from mcpbridge.pipeline.approvals.request import (
    ApprovalEvent,
    ApprovalRequest,
    Audit,
    NotWaited,
    Verdict,
    request_of,
    tell_asked,
)
from mcpbridge.pipeline.stage import Stage
from mcpbridge.pipeline.validation.json_text import refuse_doubles
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.meta import APPROVAL

log = get_logger("mcpbridge.approvals")

_STORE_IS_AWAY = "Nothing was sent. Try again in a few seconds; whoever runs the bridge has to look at the store."
_CHANGED = "its server changed the tool, and nobody agreed to that yet: {}"


class Approver(Protocol):
    """One way to ask a person."""

    @property
    def name(self) -> str:
        """What records call it."""
        ...

    def reaches(self, call: Call) -> bool:
        """Whether somebody can be asked this way about this call, as far as that is known."""
        ...

    def may_decide(self, request: ApprovalRequest) -> bool:
        """Whether the people who are asked this way may decide at all, where the rule names who approves."""
        ...

    async def ask(self, request: ApprovalRequest, call: Call) -> Verdict | None:
        """The person's answer, or None where nobody could be asked after all; then the next is.

        It waits for as long as it takes: the time is up when it is cancelled.

        Raises:
            StoreFailed: an answer could not be kept.
        """
        ...

    async def keep(self, request: ApprovalRequest) -> str:
        """Nobody answered in time: take an answer later, if this can. Returns what a person can do; empty: nothing.

        Raises:
            StoreFailed: an answer could not be kept.
        """
        ...


class Approval:
    """Makes the stages: asks the approvers in their order."""

    def __init__(
        self,
        approvers: Sequence[Approver],
        grants: Grants,
        *,
        seconds: float,
        policy: Callable[[], str],
        audit: Audit,
        needed: Callable[[Tool | None, CallOptions], bool] = lambda tool, options: tool is not None,
        precheck: Callable[[Tool], Precheck | None] = lambda tool: None,
        as_before: Callable[[ApprovalRequest], AbstractAsyncContextManager[ApprovalRequest]] = nullcontext,
        keeps_content: Callable[[Call, bool | None], bool] = lambda call, asked: bool(asked),
        changes_of: Callable[[Tool], str] = lambda tool: "",
        approve_by: ApproveBy | None = None,
        ways: Mapping[str, Approver] | None = None,
    ) -> None:
        """Make the stages.

        `seconds` that a person has; `policy`: the version that grants are bound to; `needed`: whether it may ever be
        that calls of a tool need somebody to agree; `precheck`: what finds out that a call of a tool cannot be done,
        so that nobody is asked about it. `as_before`: gives a request the id that the same call had when it was made
        before and nobody answered. `keeps_content`: whether the arguments of a call may be written down, given what the
        configuration says of its tool (`log_content`). `changes_of`: what the server of a tool changed of it and
        nobody agreed to, for who is asked. `approve_by`: who may approve where the rule that asks does not say. `ways`:
        `client` and `pending`, for rules that say where people are asked.
        """
        self._ways = ways or {}
        self._approve_by = approve_by
        self._as_before, self._keeps_content, self._changes_of = as_before, keeps_content, changes_of
        self._approvers, self._grants, self._seconds = approvers, grants, seconds
        self._policy, self._audit, self._needed, self._precheck = policy, audit, needed, precheck

    def stage(self, tool: Tool | None, options: CallOptions) -> Stage | None:
        """See `StageFactory`."""
        if not self._needed(tool, options):
            return None
        return _Approved(self, options.log_content, self._precheck(tool) if tool is not None else None)

    async def check_first(self, call: Call, proceed: CallHandler, asked: bool | None, precheck: Precheck) -> Body:
        """The same, unless the call cannot be done."""
        refusal = await precheck(call)
        return refusal if refusal is not None else await self.ask_first(call, proceed, asked)

    async def ask_first(self, call: Call, proceed: CallHandler, asked: bool | None) -> Body:
        """Let the call pass once a person has agreed. `asked`: as for `keeps_content`."""
        request = request_of(
            call,
            self._policy(),
            now=time.time(),
            seconds=self._seconds_of(call.approve_by or self._approve_by),
            once_seconds=self._grants.once_seconds,
            keeps_content=self._keeps_content(call, asked),
            hides_content=asked is False,
            approve_by=self._approve_by,
        )
        refuse_doubles(request.tool, request.arguments_json)  # the person is shown one of the two
        try:
            await self._agree(request, call)
        except ValueTooLarge:
            raise
        except StoreFailed as error:
            self._audit(ApprovalEvent("unavailable", request, why="the store"))
            raise _store_is_away(request) from error
        return await proceed(call)

    async def _agree(self, request: ApprovalRequest, call: Call) -> None:
        """Return once somebody has agreed, now or earlier.

        Raises:
            CallRefused: nobody has.
            StoreFailed: what people say cannot be kept, or read.
        """
        earlier = text_in(call.meta, APPROVAL)
        if earlier and (denial := await self._grants.denied(earlier, principal=request.principal)):
            call.note("approval", f"denied by {denial.by}")
            raise ApprovalRefused(f"The call of {request.tool} was not approved{denial.ending}")
        if denial := await self._grants.denied_in_session(request):
            call.note("approval", f"denied by {denial.by} for the session")
            raise ApprovalRefused(f"The call of {request.tool} was not approved, for this session{denial.ending}")
        if call.agreed == request.binding:  # in an earlier round: nobody is asked twice about one call
            return
        grant = await self._grants.use(request)
        if grant is not None:
            self._audit(ApprovalEvent("used", request, grant.by, grant.scope))
            call.note("approval", f"{grant.scope} by {grant.by}, given before")
            call.agreed = request.binding
            return
        if call.tool is not None and (changed := self._changes_of(call.tool)):
            reason = f"{request.reason}; {_CHANGED.format(changed)}" if request.reason else _CHANGED.format(changed)
            request = replace(request, reason=reason)
        async with self._as_before(request) as again:
            verdict = await self._verdict(again, call)
        await self._decided(again, verdict, call)

    async def _verdict(self, request: ApprovalRequest, call: Call) -> Verdict:
        """What a person said. What becomes of the request is written down."""
        record = partial(ApprovalEvent, request=request)
        try:
            return await self._ask(request, call)
        except asyncio.CancelledError:
            self._audit(record("cancelled"))
            raise
        except CallRefused as refused:
            if not isinstance(refused, ApprovalRefused):
                self._audit(record("unavailable"))
            raise

    async def _decided(self, request: ApprovalRequest, verdict: Verdict, call: Call) -> None:
        record = partial(ApprovalEvent, request=request)
        if not verdict.granted:
            self._audit(record("denied", by=verdict.by, why=verdict.reason, address=verdict.address))
            call.note("approval", f"denied by {verdict.by}")
            raise ApprovalRefused(f"The call of {request.tool} {verdict.outcome}")
        scope = verdict.granted
        if scope == "session":
            try:
                await self._grants.put(request, "session", verdict.by)
            except StoreFailed as error:
                log.warning("a yes for the session is for one call, since it cannot be kept", reason=str(error))
                scope = "once"
        self._audit(record("granted", by=verdict.by, scope=scope, address=verdict.address))
        call.note("approval", f"{scope} by {verdict.by}")
        call.agreed = request.binding
        if not verdict.is_noted:
            await self._grants.approved.note(request, verdict.by)

    async def _ask(self, request: ApprovalRequest, call: Call) -> Verdict:
        try:
            async with asyncio.timeout(self._seconds_of(request.approve_by)):
                for approver in self._asked(request):
                    if not approver.reaches(call) or not approver.may_decide(request):
                        continue
                    self._audit(ApprovalEvent("asked", request, approver.name))
                    verdict = await approver.ask(request, call)
                    if verdict is not None:
                        return verdict
        except TimeoutError:
            raise await self._nobody_answered(request, call) from None
        except NotWaited:
            raise await self._not_waited(request, call) from None
        why = f" ({request.reason})" if request.reason else ""
        raise ApprovalUnavailable(f"A person has to approve calls of {request.tool}{why}, and nobody can be asked")

    def _asked(self, request: ApprovalRequest) -> Sequence[Approver]:
        """Who is asked, in this order: the program that the bridge runs in, then as the rule or `approval.ask` says."""
        if not request.ask:
            return self._approvers
        ways = [self._ways["client" if place == "client" else "pending"] for place in request.ask]
        program = [one for one in self._approvers if one not in self._ways.values()]
        return [*program, *dict.fromkeys(ways)]

    def _seconds_of(self, approve_by: ApproveBy | None) -> float:
        """How long people have to answer."""
        return self._seconds if approve_by is None or approve_by.seconds is None else approve_by.seconds

    async def _nobody_answered(self, request: ApprovalRequest, call: Call) -> ApprovalRefused:
        self._audit(ApprovalEvent("expired", request))
        call.note("approval", "nobody answered")
        span = show_seconds(self._seconds_of(request.approve_by))
        return await self._keep_request(
            request, ApprovalRefused(f"Nobody answered within {span} whether {request.tool} may be called")
        )

    async def _not_waited(self, request: ApprovalRequest, call: Call) -> ApprovalRefused:
        call.note("approval", "not waited for")
        refused = ApprovalRefused(f"A person has to approve this call of {request.tool} first")
        refused = await self._keep_request(request, refused)
        tell_asked(request, call)
        return refused

    async def _keep_request(self, request: ApprovalRequest, refused: ApprovalRefused) -> ApprovalRefused:
        ways: list[str] = []
        for approver in self._asked(request):
            with suppress(StoreFailed):
                ways += filter(None, [await approver.keep(request)])
        if ways:
            refused.advice = f"Nothing was sent. {' '.join(ways)}"
            refused.facts = {APPROVAL: request.id}
        return refused


def _store_is_away(request: ApprovalRequest) -> ApprovalUnavailable:
    why = f"A person has to approve calls of {request.tool}, and what people say cannot be kept now: the store is away"
    refused = ApprovalUnavailable(why)
    refused.advice = _STORE_IS_AWAY
    refused.facts = {RETRY_AFTER: 5}
    return refused


class _Approved:
    """Stage: asks about those calls of one tool that need it."""

    __slots__ = ("_approval", "_asked", "_precheck")

    def __init__(self, approval: Approval, asked: bool | None, precheck: Precheck | None) -> None:
        self._approval, self._asked, self._precheck = approval, asked, precheck

    def __call__(self, call: Call, proceed: CallHandler) -> Awaitable[Body]:
        """No coroutine of its own where nobody is asked: every call would pay for it."""
        if not call.approval:
            return proceed(call)
        if self._precheck is None:
            return self._approval.ask_first(call, proceed, self._asked)
        return self._approval.check_first(call, proceed, self._asked, self._precheck)

    def express_begin(self, call: Call, arguments: Raw) -> bool:
        """See `pipeline/stage.py`."""
        return not call.approval
