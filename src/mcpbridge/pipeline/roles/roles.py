"""Who has which role, and what the roles of somebody open: one answer for everything that lists or calls. Pure.

A caller's roles are part of its `Audience`: a set of whole numbers, of which those below zero are about roles. Two
people with the same roles have the same audience, so lists are kept per set of roles, not per person.

    -1        it is kept to its roles: what none of them opens, there is not for it
    -2 - 2n   role n opens what it opens
    -3 - 2n   what role n denies is denied

Everybody who is authenticated is kept to their roles. The local user is not, unless a role has the empty principal.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from mcpbridge.base.units import Rate
from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.identity import Identity
from mcpbridge.core.model import Tool
from mcpbridge.pipeline.permissions.conditions import Condition, Undecidable, condition_of
from mcpbridge.pipeline.permissions.settings import globs
from mcpbridge.pipeline.roles.access import KEPT, Opening, ToolAccess
from mcpbridge.pipeline.roles.break_glass import BreakGlass
from mcpbridge.pipeline.roles.claims import LONGEST, Unreadable, email_of, for_conditions, groups_of
from mcpbridge.pipeline.roles.settings import RoleSettings

_MOST_CALLERS = 1024


class Role:
    """One role: whom it is for, and what it opens."""

    def __init__(self, number: int, settings: RoleSettings) -> None:
        self.settings, self.name = settings, settings.name
        self.opens_mark, self.denies_mark = -2 - 2 * number, -3 - 2 * number
        """What stands in the audience of those who have it; see above."""
        self.opening = Opening(settings)
        self._secrets = globs(settings.secrets) if settings.secrets else None
        self.is_for_local = "" in settings.principals
        self._principals = globs(glob for glob in settings.principals if glob) if settings.principals else None
        self._selectors: list[Callable[[Identity, str], bool | None]] = []
        for selector, texts in (
            (_by_groups, settings.groups),
            (_by_email, [glob.lower() for glob in settings.emails]),
            (_by_scope, settings.scopes),
            (_by_client, settings.clients),
            (_by_issuer, settings.issuers),
        ):
            if texts:
                self._selectors.append(_bound(selector, globs(texts).fullmatch))
        if settings.when is not None:
            self._selectors.append(_bound(_by_condition, condition_of(settings.when)))

    def opens_secrets(self, server: str) -> bool:
        """Whether secrets of this server may be used by those with this role."""
        if self.settings.secrets is None:
            return True
        return self._secrets is not None and self._secrets.fullmatch(server) is not None

    def is_for(self, principal: str, identity: Identity | None, groups_claim: str = "groups") -> bool | None:
        """Whether this caller is one of those whom it is for; None: these claims do not say."""
        if not principal:
            return self.is_for_local and not self._selectors
        if self._principals is not None and (len(principal) > LONGEST or self._principals.fullmatch(principal) is None):
            return False
        if identity is None:  # what the token of somebody of an issuer says is not known; a service account has none
            return True if not self._selectors else None if "#" in principal else False
        answer: bool | None = True
        for selector in self._selectors:
            one = selector(identity, groups_claim)
            if one is False:
                return False
            answer = None if one is None else answer
        return answer

    @property
    def by_claims(self) -> bool:
        """Whether it is only for those whose token says something of them."""
        return bool(self._selectors)


class Roles:
    """All roles."""

    def __init__(
        self,
        settings: Sequence[RoleSettings],
        *,
        touches_machine: Callable[[Tool], bool] = lambda tool: False,
        groups_claims: Mapping[str, str] | None = None,
        break_glass: BreakGlass | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`touches_machine`: whether a tool of the bridge's own works on its machine.

        `groups_claims`: by issuer, the claim that names groups. `break_glass`: who has taken a role for a time.
        """
        self.all = [Role(number, role) for number, role in enumerate(settings)]
        self._touches_machine, self._groups_claims = touches_machine, dict(groups_claims or {})
        self._clock = clock
        self.break_glass = break_glass or BreakGlass()
        """Who has taken a role for a time."""
        self._keeps_local = any(role.is_for_local for role in self.all)
        self._known: dict[int | str, tuple[Identity | None, frozenset[int]]] = {}

    def of(self, principal: str, identity: Identity | None) -> frozenset[int]:
        """What is in the audience of this caller for its roles; nothing: it is not kept to any."""
        if not principal and identity is None and not self._keeps_local:
            return _NOT_KEPT
        key = principal if identity is None else id(identity)
        known = self._known.get(key)
        if known is None or known[0] is not identity:
            known = identity, self._marks_of(principal, identity)
            if len(self._known) >= _MOST_CALLERS:
                self._known.clear()
            if len(principal) <= LONGEST:
                self._known[key] = known
        return self._with_grants(known[1], principal, identity) if self.break_glass.grants else known[1]

    def _marks_of(self, principal: str, identity: Identity | None) -> frozenset[int]:
        marks = {KEPT}
        for role in self.all:
            if role.settings.break_glass:
                continue
            has_it = self.has(role, principal, identity)
            if has_it:
                marks.add(role.opens_mark)
            if has_it is not False:
                marks.add(role.denies_mark)
        return frozenset(marks)

    def has(self, role: Role, principal: str, identity: Identity | None) -> bool | None:
        """Whether a role is for this caller; see `Role.is_for`."""
        claim = self._groups_claims.get(identity.issuer, "groups") if identity is not None else "groups"
        return role.is_for(principal, identity, claim)

    def _with_grants(self, marks: frozenset[int], principal: str, identity: Identity | None) -> frozenset[int]:
        """With the roles that this caller has taken for a time, if they are for it."""
        granted = self.break_glass.active_roles(principal, self._clock())
        for role in self.all if granted else ():
            if role.settings.break_glass and role.name in granted and self.has(role, principal, identity) is True:
                marks |= {role.opens_mark, role.denies_mark}
        return marks

    # -- what is opened

    def access(self, tool: Tool, options: CallOptions) -> ToolAccess:
        """Which roles matter for calls of this tool."""
        on_machine = self._touches_machine(tool)
        opening = [role for role in self.all if role.opening.opens_tool(tool, options, touches_host=on_machine)]
        return ToolAccess(
            frozenset(role.opens_mark for role in opening),
            frozenset(role.denies_mark for role in self.all if role.opening.denies_tool(tool)),
            frozenset(role.opens_mark for role in opening if role.opening.asks_about(tool)),
        )

    def sees_prompt(self, audience: frozenset[int], server: str, names: Iterable[str]) -> bool:
        """Whether there is a prompt of this server, which goes by these names, for this audience."""
        names = list(names)
        return self._sees(
            audience, lambda one: one.opens_prompt(server, names), lambda one: one.denies_prompt(server, names)
        )

    def sees_resource(self, audience: frozenset[int], server: str, uri: str) -> bool:
        """Whether there is a resource or template of this server for this audience, as the server spells it."""
        return self._sees(
            audience, lambda one: one.opens_resource(server, uri), lambda one: one.denies_resource(server, uri)
        )

    def may_see(self, audience: frozenset[int], server: str) -> bool:
        """Whether there may be anything of this server for this audience."""
        return self._sees(audience, lambda one: one.mentions(server), lambda one: one.denies_server(server))

    def restriction_of(self, principal: str, identity: Identity | None) -> Callable[[str], bool] | None:
        """Which servers there may be anything of for this caller; None: it is not kept to roles."""
        audience = self.of(principal, identity)
        return partial(self.may_see, audience) if KEPT in audience else None

    def _sees(
        self, audience: frozenset[int], opens: Callable[[Opening], bool], denies: Callable[[Opening], bool]
    ) -> bool:
        if KEPT not in audience:
            return True
        is_open = False
        for role in self.all:
            if role.denies_mark in audience and denies(role.opening):
                return False
            is_open = is_open or (role.opens_mark in audience and opens(role.opening))
        return is_open

    # -- what else depends on them

    def held(self, audience: frozenset[int]) -> list[Role]:
        """The roles of this audience, in the order of the configuration."""
        return [role for role in self.all if role.opens_mark in audience]

    def lets_in(self, audience: frozenset[int]) -> bool:
        """Whether this audience has a role, or needs none."""
        return KEPT not in audience or any(role.opens_mark in audience for role in self.all)

    def denying(self, audience: frozenset[int]) -> list[Role]:
        """The roles whose `deny` counts for this audience."""
        return [role for role in self.all if role.denies_mark in audience]

    def profile(self, audience: frozenset[int]) -> str:
        """The profile of the first role that has one; empty: none has."""
        return next((role.settings.profile for role in self.held(audience) if role.settings.profile), "")

    def secrets(self, audience: frozenset[int]) -> Callable[[str], bool] | None:
        """Of which servers this audience may use secrets that it does not see; None: of all."""
        if KEPT not in audience:
            return None
        held = self.held(audience)
        if any(role.settings.secrets is None for role in held):
            return None
        return lambda server: any(role.opens_secrets(server) for role in held)

    def rate_limit(self, audience: frozenset[int]) -> Rate | None:
        """The most generous rate of its roles; None: none has one."""
        rates = [role.settings.rate_limit for role in self.held(audience) if role.settings.rate_limit is not None]
        return max(rates, key=lambda rate: rate.times / rate.seconds, default=None)

    def max_calls(self, audience: frozenset[int]) -> int | None:
        """The most calls of a conversation that one of its roles gives, 0 for any number; None: none says anything."""
        given = [role.settings.max_calls for role in self.held(audience) if role.settings.max_calls is not None]
        return None if not given else 0 if 0 in given else max(given)


_NOT_KEPT: frozenset[int] = frozenset()

_Match = Callable[[str], object]


def _bound(selector: "Callable[..., bool | None]", what: object) -> "Callable[[Identity, str], bool | None]":
    return lambda identity, claim: selector(identity, claim, what)


def _by_groups(identity: Identity, claim: str, match: _Match) -> bool | None:
    try:
        return any(match(group) for group in groups_of(identity, claim))
    except Unreadable:
        return None


def _by_email(identity: Identity, _: str, match: _Match) -> bool | None:
    try:
        email, is_verified = email_of(identity)
    except Unreadable:
        return None
    if not email or not match(email):
        return False
    return True if is_verified else None


def _by_scope(identity: Identity, _: str, match: _Match) -> bool:
    return any(match(scope) for scope in identity.scopes if len(scope) <= LONGEST)


def _by_client(identity: Identity, _: str, match: _Match) -> bool:
    return 0 < len(identity.client_id) <= LONGEST and match(identity.client_id) is not None


def _by_issuer(identity: Identity, _: str, match: _Match) -> bool:
    return match(identity.issuer) is not None


def _by_condition(identity: Identity, _: str, condition: Condition) -> bool | None:
    try:
        return condition.holds({"claims": for_conditions(identity)} if condition.reads else {})
    except (Undecidable, Unreadable):
        return None
