"""Who may call what: one answer for listing, searching and calling. Pure.

Rules are tried in order and the first that matches decides; if none does, the `permission` that is set for the tool,
its server or all calls. For each tool only the rules are kept that can match it, so most tools have none left and cost
nothing. Which rules are about a caller is its `Audience`, found once for each caller, not once for each tool.

Where there are roles, they decide first: what no role of a caller opens, or one of them denies, does not exist for it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec import Struct

from mcpbridge.base.units import Rate
from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.call_settings import CallDefaults, CallSettings, Permission
from mcpbridge.core.identity import Identity
from mcpbridge.core.model import ApproveBy, Caller, Tool
from mcpbridge.core.source_settings import OfferSettings
from mcpbridge.pipeline.permissions.conditions import Condition, Undecidable, condition_of
from mcpbridge.pipeline.permissions.settings import PermissionRule, ToolGlobs, globs
from mcpbridge.protocol.jsonrpc import Fields

if TYPE_CHECKING:  # few bridges have roles
    from mcpbridge.pipeline.roles.access import ToolAccess
    from mcpbridge.pipeline.roles.roles import Roles
    from mcpbridge.pipeline.roles.scopes import ToolScopes


class Outcome(Struct, frozen=True):
    """What is left of a rule for one tool: when it applies, and what it then says."""

    permission: Permission
    reason: str = ""
    rule: int | None = None
    """Its place in `permissions`, from 0; None: it is the `permission` of the tool itself."""
    names_callers: bool = False
    """It applies to the audiences that have its number."""
    condition: Condition | None = None
    """It applies where this holds."""
    problem: str = ""
    """Why its condition cannot be evaluated for this tool, whatever the call."""
    approve_by: ApproveBy | None = None
    """Who may approve; None: it does not say."""
    ask: tuple[str, ...] = ()
    """Where people are asked; empty: it does not say."""

    @property
    def is_final(self) -> bool:
        """It applies to every call that gets as far."""
        return not self.names_callers and self.condition is None


class Rule:
    """One rule."""

    def __init__(self, number: int, settings: PermissionRule) -> None:
        self.number, self.settings = number, settings
        self._tools = ToolGlobs(settings.tools) if settings.tools else None
        self._servers = globs(settings.servers) if settings.servers else None
        self._clients = globs(settings.clients) if settings.clients else None
        self._principals = globs(settings.principals) if settings.principals else None
        self._roles = globs(settings.roles) if settings.roles else None
        self._risks = frozenset(settings.risk)
        self._condition = None if settings.when is None else condition_of(settings.when)

    @property
    def names_callers(self) -> bool:
        """Whether it depends on who calls."""
        return self._clients is not None or self._principals is not None or self._roles is not None

    def is_about(self, client: str, principal: str, roles: Sequence[str] = ()) -> bool:
        """Whether this is one of its callers. `roles`: names of those that the caller has."""
        return (
            (self._clients is None or self._clients.fullmatch(client) is not None)
            and (self._principals is None or self._principals.fullmatch(principal) is not None)
            and (self._roles is None or any(map(self._roles.fullmatch, roles)))
        )

    def covers(self, tool: Tool, options: CallOptions) -> bool:
        """Whether it can match a call of this tool at all."""
        wanted = self.settings
        return (
            (not self._risks or options.risk in self._risks)
            and wanted.read_only in (None, options.effect == "read")
            and wanted.side_effects in (None, options.effect == "write")
            and wanted.destructive in (None, options.is_destructive)
            and wanted.idempotent in (None, options.is_idempotent)
            and (self._servers is None or self._servers.fullmatch(tool.server) is not None)
            and (self._tools is None or self._tools.cover(tool))
        )

    def outcome(self, condition: Condition | None, problem: str = "") -> Outcome:
        """What it says, under this much of its condition."""
        wanted = self.settings
        approve_by = wanted.approve_by.value if wanted.approve_by is not None else None
        return Outcome(
            wanted.permission,
            wanted.reason,
            self.number,
            self.names_callers,
            condition,
            problem,
            approve_by,
            tuple(wanted.ask or ()),
        )

    @property
    def condition(self) -> Condition | None:
        """What a call must be like besides."""
        return self._condition


Audience = frozenset[int]
"""The numbers of the rules that name callers and are about this one, and below zero its roles (`roles/roles.py`)."""

ANYBODY: Audience = frozenset()
"""A caller that no rule is about in particular."""

_MOST_CALLERS, _LONGEST_CALLER, _MOST_PLAIN = 1024, 256, 1024
_NO_SCOPES: frozenset[str] = frozenset()
_DECIDES = ("permission", "risk", "read_only", "destructive", "idempotent")


class Asked(Protocol):
    """One call, as conditions see it; only what a condition reads is evaluated."""

    @property
    def client(self) -> Mapping[str, object]:
        """`name` and `principal`."""
        ...

    @property
    def claims(self) -> Mapping[str, object]:
        """What the token of who calls says; empty without one. Raises Undecidable: they are too much to look at."""
        ...

    @property
    def arguments(self) -> Fields:
        """As the tool gets them, by name, unparsed. Raises msgspec.DecodeError: they cannot be read."""
        ...

    @property
    def context(self) -> Mapping[str, object]:
        """`run`, `session`, `user`, `tenant`, `metadata`."""
        ...


class Decision(msgspec.Struct, frozen=True):
    """What becomes of a call."""

    permission: Permission
    reason: str = ""
    """What the rule gives as its reason, and why its condition cannot be evaluated; may be empty."""
    rule: int | None = None
    """Its place in `permissions`, from 0; None: no rule decided."""
    by_role: bool = False
    """A role denies it, no role opens it, or a role asks for a person's agreement."""
    approve_by: ApproveBy | None = None
    """Who may approve it; None: the rule does not say."""
    ask: tuple[str, ...] = ()
    """Where people are asked; empty: the rule does not say."""


class ToolPolicy:
    """What the rules say of the calls of one tool."""

    def __init__(
        self,
        outcomes: Sequence[Outcome],
        about: Mapping[str, object],
        access: "ToolAccess | None" = None,
        scopes: frozenset[str] = frozenset(),
    ) -> None:
        """`outcomes` in order, the last one final. `about`: the variable `tool` of conditions.

        `access`: which roles matter; None: there are no roles. `scopes`: those that a token needs.
        """
        self.scopes = scopes
        self._outcomes, self._about, self.access = tuple(outcomes), about, access
        permissions = {outcome.permission for outcome in outcomes}
        self.is_open = permissions == {"allow"} and (access is None or not access.asks)
        """Every call is allowed that the roles of its caller let through."""
        self.is_hidden: bool | None = None
        """Every call is denied, so it is not listed; None where that depends on who calls."""
        if "deny" not in permissions:
            self.is_hidden = False
        elif not any(outcome.names_callers for outcome in outcomes):
            self.is_hidden = self._denies(ANYBODY)
        if access is not None and not self.is_hidden:
            self.is_hidden = None
        asks = access is not None and bool(access.asks)
        self.needs_call = asks or any(
            outcome.condition is not None or outcome.permission == "require_approval" for outcome in outcomes
        )
        """Who calls is not all that decides, or a person may have to."""
        self.judges_arguments = asks or any(
            outcome.permission == "require_approval"
            or (outcome.condition is not None and "args" in outcome.condition.reads)
            for outcome in outcomes
        )
        """The arguments decide, or a person who is shown them."""

    @property
    def only_decision(self) -> Decision | None:
        """What becomes of every call; None where that depends on who calls, or on the arguments."""
        first = self._outcomes[0]
        if self.access is not None:
            return None
        return Decision(first.permission, _reason(first, first.problem), first.rule) if first.is_final else None

    def hides(self, audience: Audience) -> bool:
        """Whether every call of this audience is denied, whatever its arguments are."""
        if self.is_hidden is not None:
            return self.is_hidden
        return (self.access is not None and self.access.forbids(audience)) or self._denies(audience)

    def is_unknown(self, audience: Audience) -> bool:
        """Whether the tool does not exist for this audience: none of its roles opens it, or one denies it."""
        return self.access is not None and self.access.forbids(audience)

    def decide(self, audience: Audience, asked: Asked) -> Decision:
        """What becomes of a call of this audience."""
        access = self.access
        if access is not None and access.forbids(audience):
            return Decision("deny", by_role=True)
        for outcome in self._outcomes:
            if outcome.names_callers and outcome.rule not in audience:
                continue
            problem = outcome.problem
            if outcome.condition is not None:
                try:
                    if not outcome.condition.holds(self._values(outcome.condition, asked)):
                        continue
                except Undecidable as error:
                    problem = str(error)
                    if outcome.permission == "allow":
                        continue
            if access is not None and outcome.permission == "allow" and access.asks_for(audience):
                return Decision("require_approval", "the role asks for it", outcome.rule, by_role=True)
            reason = _reason(outcome, problem) if problem else outcome.reason
            return Decision(outcome.permission, reason, outcome.rule, approve_by=outcome.approve_by, ask=outcome.ask)
        raise AssertionError("the last outcome is final")

    def _denies(self, audience: Audience) -> bool:
        for outcome in self._outcomes:
            if outcome.names_callers and outcome.rule not in audience:
                continue
            if outcome.permission != "deny":
                return False
            if outcome.condition is None:
                return True
        raise AssertionError("the last outcome is final")

    def _values(self, condition: Condition, asked: Asked) -> dict[str, object]:
        """The variables that the condition reads; of the arguments only those that it names are parsed."""
        reads = condition.reads
        values: dict[str, object] = {}
        if "args" in reads:
            try:
                fields = asked.arguments
                names = fields.keys() if condition.arguments is None else condition.arguments & fields.keys()
                parsed: dict[str, object] = {}
                for name in names:  # every call would enter a comprehension
                    parsed[name] = msgspec.json.decode(fields[name])
                values["args"] = parsed
            except (msgspec.DecodeError, RecursionError) as error:
                raise Undecidable("the arguments cannot be read") from error
        if "tool" in reads:
            values["tool"] = self._about
        if "client" in reads:
            values["client"] = asked.client
        if "context" in reads:
            values["context"] = asked.context
        if "claims" in reads:
            values["claims"] = asked.claims
        return values


class Policy:
    """All rules, and what they say of each tool."""

    def __init__(
        self,
        rules: Sequence[PermissionRule],
        servers: Mapping[str, OfferSettings],
        calls: CallDefaults,
        options_of: Callable[[Tool], CallOptions],
        roles: "Roles | None" = None,
        scopes: "ToolScopes | None" = None,
    ) -> None:
        """`servers` and `calls` have a permission of their own; `options_of`: what is resolved of them for a tool.

        `roles`: None where nobody is kept to any. `scopes`: those that tokens need; None: none are.
        """
        self.scopes = scopes
        self.roles = roles
        """Who may do what; None: there are no roles."""
        self._rules = [Rule(number, rule) for number, rule in enumerate(rules)]
        self._servers, self._calls, self._options_of = servers, calls, options_of
        self._tools: dict[str, tuple[str, CallOptions, ToolPolicy]] = {}
        self._plain: dict[tuple[object, ...], ToolPolicy] = {}
        """Without conditions nothing depends on the tool but which rules cover it: most tools share one of these."""
        self._naming = [rule for rule in self._rules if rule.names_callers]
        self._audiences: dict[tuple[str, str, Audience], Audience] = {}
        levels: list[CallSettings] = [calls, *servers.values()]
        levels += [tool for server in servers.values() for tool in server.tool.values()]
        self.may_hide = roles is not None or any(rule.permission == "deny" for rule in (*rules, *levels))
        """Some tool may be denied to somebody."""
        self.names_callers = bool(self._naming) or roles is not None
        """What a client sees may depend on who it is."""

    def audience(self, client: str, principal: str, identity: Identity | None = None) -> Audience:
        """Which rules are about this caller, and its roles: `clientInfo.name`, and who was authenticated.

        `identity`: what its token says; None: it has none.
        """
        held = self.roles.of(principal, identity) if self.roles is not None else ANYBODY
        if not self._naming:
            return held
        key = client, principal, held
        audience = self._audiences.get(key)
        if audience is None:
            names = [role.name for role in self.roles.held(held)] if self.roles is not None else ()
            audience = held.union(rule.number for rule in self._naming if rule.is_about(client, principal, names))
            if len(self._audiences) >= _MOST_CALLERS:
                self._audiences.clear()
            if len(client) <= _LONGEST_CALLER:
                self._audiences[key] = audience
        return audience

    def of(self, tool: Tool) -> ToolPolicy:
        """What the rules say of this tool; worked out once for each."""
        options = self._options_of(tool)
        known = self._tools.get(tool.id)
        if known is not None and known[1] is options and known[0] == tool.name:
            return known[2]
        policy = self.for_tool(tool, options)
        self._tools[tool.id] = tool.name, options, policy
        return policy

    @property
    def rate_of(self) -> "Callable[[Caller], Rate | None] | None":
        """What rate the roles of a caller give it; None: no role gives any."""
        roles = self.roles
        if roles is None or all(role.settings.rate_limit is None for role in roles.all):
            return None
        return lambda caller: roles.rate_limit(roles.of(caller.principal, caller.identity))

    @property
    def secrets_of(self) -> "Callable[[Caller], Callable[[str], bool] | None] | None":
        """Of which servers the roles of a caller let it use secrets; None: no role says anything of that."""
        roles = self.roles
        if roles is None or all(role.settings.secrets is None for role in roles.all):
            return None
        return lambda caller: roles.secrets(roles.of(caller.principal, caller.identity))

    @property
    def max_calls_of(self) -> "Callable[[Caller], int | None] | None":
        """How many calls of a conversation the roles of a caller give it; None: no role gives any."""
        roles = self.roles
        if roles is None or all(role.settings.max_calls is None for role in roles.all):
            return None
        return lambda caller: roles.max_calls(roles.of(caller.principal, caller.identity))

    def roles_of(self, principal: str, identity: Identity | None) -> list[str]:
        """The names of the roles that somebody has now."""
        roles = self.roles
        return [] if roles is None else [role.name for role in roles.held(roles.of(principal, identity))]

    def is_unknown(self, tool: Tool, caller: Caller) -> bool:
        """Whether there is no such tool for this caller, as its roles forbid it."""
        audience = self.audience(caller.name, caller.principal, caller.identity)
        return self.roles is not None and self.of(tool).is_unknown(audience)

    def words_of(self, tool: Tool, decision: Decision) -> str:
        """Which setting has decided, in words for people."""
        if decision.by_role:
            return "the roles of the caller (`roles`)"
        if decision.rule is not None:
            return f"rule {decision.rule + 1} of `permissions`"
        server = self._servers.get(tool.server)
        own = server.tool.get(tool.name) if server is not None else None
        if own is not None and own.permission is not None:
            return "`permission` of this tool"
        return f"`permission` of {'its server' if server is not None and server.permission else '`calls`'}"

    def for_tool(self, tool: Tool, options: CallOptions) -> ToolPolicy:
        """The rules that can match this tool, up to the first that always does."""
        rules: list[int] = []
        for rule in self._rules:
            if rule.covers(tool, options):
                rules.append(rule.number)
                if rule.condition is None and not rule.names_callers:
                    break
        is_plain = all(self._rules[number].condition is None for number in rules)
        access = self.roles.access(tool, options) if self.roles is not None else None
        scopes = self.scopes.needed(tool, options) if self.scopes is not None else _NO_SCOPES
        key = (*rules, options.permission, access, scopes)
        policy = self._plain.get(key) if is_plain else None
        if policy is None:
            policy = self._put_together(rules, tool, options, access, scopes)
            if is_plain and len(self._plain) < _MOST_PLAIN:
                self._plain[key] = policy
        return policy

    def _put_together(
        self,
        rules: Sequence[int],
        tool: Tool,
        options: CallOptions,
        access: "ToolAccess | None",
        scopes: frozenset[str],
    ) -> ToolPolicy:
        about = {
            "id": tool.id,
            "name": tool.name,
            "server": tool.server,
            "risk": options.risk,
            "read_only": options.effect == "read",
            "side_effects": options.effect == "write",
            "destructive": options.is_destructive,
            "idempotent": options.is_idempotent,
        }
        outcomes: list[Outcome] = []
        for number in rules:
            outcome = _outcome(self._rules[number], about)
            if outcome is not None:
                outcomes.append(outcome)
                if outcome.is_final:
                    return ToolPolicy(outcomes, about, access, scopes)
        return ToolPolicy([*outcomes, Outcome(options.permission)], about, access, scopes)

    @cached_property
    def version(self) -> str:
        """A digest of all that decides: another one, and what was agreed to before is not agreed to any more."""
        calls = self._calls
        decides = {
            "rules": [rule.settings.model_dump() for rule in self._rules],
            "roles": [role.settings.model_dump() for role in self.roles.all] if self.roles is not None else [],
            "names": [calls.write_names, calls.destructive_names, calls.read_names],
            "calls": _deciding(calls),
            "servers": {
                name: [
                    server.trusted,
                    _deciding(server),
                    {own: [tool.rename, tool.trusted, *_deciding(tool)] for own, tool in sorted(server.tool.items())},
                ]
                for name, server in sorted(self._servers.items())
            },
        }
        return sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


def _outcome(rule: Rule, about: Mapping[str, object]) -> Outcome | None:
    """What the rule says of a tool that it covers; None: it cannot match a call of it."""
    condition = rule.condition
    if condition is None or condition.reads - {"tool"}:
        return rule.outcome(condition)
    try:
        return rule.outcome(None) if condition.holds({"tool": about} if condition.reads else {}) else None
    except Undecidable as error:
        return None if rule.settings.permission == "allow" else rule.outcome(None, str(error))


def _reason(outcome: Outcome, problem: str) -> str:
    """What a person reads of it. `problem`: why its condition cannot be evaluated."""
    if not problem:
        return outcome.reason
    number = (outcome.rule or 0) + 1
    why = (
        f"the condition of rule {number} of `permissions` cannot be evaluated ({problem}); "
        "whoever wrote it can say what counts without it: `has(args.x) && …`"
    )
    return f"{outcome.reason}: {why}" if outcome.reason else why


def _deciding(settings: CallSettings) -> list[object]:
    return [getattr(settings, key) for key in _DECIDES]
