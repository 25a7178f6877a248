"""Take what a call uses from the quotas of its caller, and give back what it did not use.

There are two stages. `TakeQuota` comes where limits and rates are looked at: it takes a call, and the tokens that are
expected, or refuses. `SettleQuota` is around all that shortens results: it counts the tokens that the client gets, and
says so in `_meta` when a quota is nearly used up. A call that the bridge refuses, or cannot send, uses nothing. One
that is tried again is one call, and so is one that somebody was asked about in between. What a task has brought counts
when its client gets it, as tokens: the call that made the task had none of it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import tzinfo

from msgspec import Struct

from mcpbridge.base.errors import CallRefused, LimitUnavailable, StoreFailed, UpstreamUnavailable
from mcpbridge.base.log import get_logger
from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.model import Call, CallHandler, Tool
from mcpbridge.pipeline.input_required import needs_driving
from mcpbridge.pipeline.permissions.policy import Policy
from mcpbridge.pipeline.roles.quotas import (
    NEARLY,
    QUOTA,
    Quota,
    QuotaSpent,
    iso_moment,
    parse_quota,
    resets_at,
    zone_of,
)
from mcpbridge.pipeline.roles.roles import Role, Roles
from mcpbridge.pipeline.stage import Stage
from mcpbridge.protocol.body import Body
from mcpbridge.results.token_count import estimated_tokens
from mcpbridge.storage.quotas import Full, QuotaLedger, Taken, Wanted

log = get_logger("mcpbridge.policy")

_OF_TASKS = frozenset({"tasks/get", "tasks/result"})
"""What brings the result of a call that was counted when it was made."""
_COUNTED = frozenset({"tools/call", "prompts/get", "resources/read"}) | _OF_TASKS


class RoleQuotas(Struct, frozen=True):
    """The quotas of one role."""

    role: Role
    quotas: Sequence[Quota]
    of_team: bool
    zone: tzinfo

    def subject(self, principal: str) -> str:
        """Under what somebody's use is counted."""
        return team_subject(self.role.name) if self.of_team else user_subject(self.role.name, principal)


def team_subject(role: str) -> str:
    """All who have a role, as one."""
    return f"team {role}"


def user_subject(role: str, principal: str) -> str:
    """One of those who have a role."""
    return f"user {role} {principal}"


def quotas_of(roles: Roles | None) -> list[RoleQuotas]:
    """The roles with quotas."""
    return [
        RoleQuotas(
            role,
            [parse_quota(text) for text in role.settings.quota],
            role.settings.quota_of == "team",
            zone_of(role.settings.quota_zone),
        )
        for role in (roles.all if roles is not None else ())
        if role.settings.quota
    ]


class Quotas:
    """What both stages share: the quotas of each caller, and what calls under way have taken."""

    def __init__(self, policy: Policy, store: QuotaLedger, clock: Callable[[], float] = time.time) -> None:
        self._roles = policy.roles
        self._all = {one.role.opens_mark: one for one in quotas_of(policy.roles)}
        self._store, self._clock = store, clock
        self._charges: dict[Call, list[Taken]] = {}
        self._by_counted: dict[tuple[str, str], tuple[RoleQuotas, Quota]] = {
            (one.role.name, quota.counted): (one, quota) for one in self._all.values() for quota in one.quotas
        }

    @property
    def are_any(self) -> bool:
        """Some role has one."""
        return bool(self._all)

    async def take(self, call: Call) -> None:
        """Take what a call is expected to use.

        Raises:
            QuotaSpent: no role of its caller with a quota has room.
            LimitUnavailable: bridges count together, and cannot now.
        """
        groups, now = self._wanted(call), self._clock()
        if not any(groups):
            return
        is_checked = not call.continues and all(groups)  # a role that counts no tokens lets everybody have theirs
        try:
            taken = await self._store.take(groups, now, is_checked=is_checked)
        except StoreFailed as error:
            if self._store.is_shared:
                raise LimitUnavailable("The quota of this user cannot be counted now") from error
            # A broken disk must not stop everybody; `mcpbridge doctor` and the log say so.
            log.warning("quotas cannot be counted", error=str(error))
            return
        if taken and isinstance(taken[0], Full):
            raise self._spent([one for one in taken if isinstance(one, Full)], now)
        self._charges[call] = [one for one in taken if isinstance(one, Taken)]

    def settle(self, call: Call, result: Body | None, *, is_sent: bool) -> Body | None:
        """A call is over. Without a result it failed; not `is_sent`: no server saw it. Returns what its client gets."""
        taken = self._charges.pop(call, None)
        if not taken:
            return result
        tokens = 0
        if call.within is None:  # what a program gets is no token of a model; its own result is
            size = _size_of(call, result) if result is not None else 0
            tokens = estimated_tokens(len(call.params.get("arguments") or b"")) + estimated_tokens(size)
        amounts = [
            0 if not is_sent else tokens if one.wanted.counted.startswith("tokens") else one.amount for one in taken
        ]
        self._store.settle(taken, amounts)
        if result is None or needs_driving(result):
            return result
        pairs = zip(taken, amounts, strict=True)
        return self._with_hint(result, [(one, one.used - one.amount + amount) for one, amount in pairs])

    def _wanted(self, call: Call) -> list[list[Wanted]]:
        caller, now = call.caller, self._clock()
        if self._roles is None:
            return []
        audience = self._roles.of(caller.principal, caller.identity)
        expected = estimated_tokens(len(call.params.get("arguments") or b"")) + 1
        groups: list[list[Wanted]] = []
        for mark, one in self._all.items():
            if mark not in audience:
                continue
            subject = one.subject(caller.principal)
            groups.append(
                [
                    Wanted(
                        subject,
                        quota.counted,
                        slot := quota.slot(now, one.zone),
                        quota.first(now, one.zone),
                        quota.counts_until(slot, one.zone),
                        quota.limit,
                        (0 if call.continues else 1) if quota.unit == "calls" else expected,
                        1,
                    )
                    for quota in one.quotas
                    if quota.unit == "tokens" or call.method not in _OF_TASKS
                ]
            )
        return groups

    def _of(self, wanted: Wanted) -> tuple[RoleQuotas, Quota]:
        return self._by_counted[wanted.subject.split(" ", 2)[1], wanted.counted]

    def _spent(self, full: Sequence[Full], now: float) -> QuotaSpent:
        """The error: of the role that has room again first, the quota that takes longest."""
        by_role: dict[str, tuple[float, Full]] = {}
        for one in full:
            of, quota = self._of(one.wanted)
            at = resets_at(quota, one.slots, one.wanted.at_least, now, of.zone)
            before = by_role.get(of.role.name)
            if before is None or at > before[0]:
                by_role[of.role.name] = at, one
        at, one = min(by_role.values(), key=lambda found: found[0])
        of, quota = self._of(one.wanted)
        whose = f"The quota of the team '{of.role.name}'" if of.of_team else f"Your quota of the role '{of.role.name}'"
        used = sum(amount for _, amount in one.slots)
        log.info("quota is used up", role=of.role.name, quota=str(quota), used=used)
        return QuotaSpent(whose, quota, used, at, now)

    def _with_hint(self, result: Body, used: Sequence[tuple[Taken, int]]) -> Body:
        """The result, which says which quota is nearly used up: of several the one of which least is left."""
        share, one, now_used = max(
            ((amount / one.wanted.limit, one, amount) for one, amount in used), key=lambda found: found[0]
        )
        if share < NEARLY or not result.is_object:
            return result
        _, quota = self._of(one.wanted)
        said: Mapping[str, object] = {
            "quota": str(quota),
            "used": now_used,
            "limit": quota.limit,
            "resets": iso_moment(one.wanted.expires),
        }
        told = result.copy()  # others may hold the same result, such as a cache
        meta = told.inner("_meta") or Body()
        meta.put(QUOTA, said)
        told.put("_meta", meta)
        return told


def _size_of(call: Call, result: Body) -> int:
    """Bytes that count: of a look at a task, those of its result, if there is one by now."""
    return len(result.get("result") or b"") if call.method == "tasks/get" else len(result.data)


class TakeQuota:
    """Makes the stage that takes, or refuses."""

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas

    def stage(self, tool: Tool | None, options: CallOptions) -> Stage | None:
        """One for everything that counts."""
        return self._run

    async def _run(self, call: Call, proceed: CallHandler) -> Body:
        if call.method in _COUNTED:
            await self._quotas.take(call)
        return await proceed(call)


def _is_sent(call: Call, error: BaseException) -> bool:
    """Whether a server may have seen a call that failed: what is refused later, such as by a hook, was made."""
    if isinstance(error, CallRefused):
        return call.upstream_seconds > 0
    return not isinstance(error, UpstreamUnavailable)


class SettleQuota:
    """Makes the stage that settles."""

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas

    def stage(self, tool: Tool | None, options: CallOptions) -> Stage | None:
        """One for everything that counts."""
        return self._run

    async def _run(self, call: Call, proceed: CallHandler) -> Body:
        try:
            result = await proceed(call)
        except BaseException as error:
            self._quotas.settle(call, None, is_sent=_is_sent(call, error))
            raise
        return self._quotas.settle(call, result, is_sent=True) or result
