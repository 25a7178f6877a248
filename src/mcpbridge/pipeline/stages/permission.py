"""Let a call pass, refuse it, or have a person asked, as the policy says.

There are two stages. `DenyByTool` ends a call that is denied whatever its arguments are. `DecideByArguments` is for
tools that have rules with conditions on the arguments. A tool whose calls are all allowed has neither.
"""

from collections.abc import Awaitable, Callable, Mapping

from msgspec import Raw, Struct

from mcpbridge.base.errors import BridgeError, CallRefused, InsufficientScope, NotPermitted, UnknownName
from mcpbridge.base.log import get_logger
from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.model import Asks, Call, Caller, CallHandler, Tool
from mcpbridge.pipeline.permissions.conditions import Undecidable
from mcpbridge.pipeline.permissions.policy import ANYBODY, Decision, Policy, ToolPolicy
from mcpbridge.pipeline.stage import Stage
from mcpbridge.pipeline.validation.json_text import refuse_doubles
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import OBJECT_START, Fields, decode_fields, first_byte

log = get_logger("mcpbridge.policy")


TOOL_ASKS = "the tool itself asks for it"


class DenyByTool:
    """Makes the stages: refuses calls that no arguments make permissible."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def stage(self, tool: Tool | None, options: CallOptions) -> Stage | None:
        """For tools that are denied to somebody, or need scopes."""
        if tool is None or not (self._policy.may_hide or self._policy.scopes is not None):
            return None
        policy = self._policy.for_tool(tool, options)
        return None if policy.is_hidden is False and not policy.scopes else _Denied(tool, policy, self._policy)


class _Denied:
    """Stage: refuses calls of one tool by who makes them."""

    __slots__ = ("_all", "_policy", "_tool")

    def __init__(self, tool: Tool, policy: ToolPolicy, all_: Policy) -> None:
        self._tool, self._policy, self._all = tool, policy, all_

    def __call__(self, call: Call, proceed: CallHandler) -> Awaitable[Body]:
        """No coroutine of its own: every call would pay for it."""
        caller = call.caller
        audience = self._all.audience(caller.name, caller.principal, caller.identity)
        if call.sent is None and self._policy.hides(audience):
            raise _refused(call, self._tool, self._policy.decide(audience, _Asked(call)))
        if call.sent is None and (scopes := self._policy.scopes) and self._lacks(scopes, caller):
            log.info("call needs scopes", tool=self._tool.id, principal=caller.principal, scopes=sorted(scopes))
            call.note("permission", "deny")
            raise InsufficientScope(scopes)
        return proceed(call)

    def _lacks(self, scopes: frozenset[str], caller: Caller) -> bool:
        return caller.identity is not None and not scopes <= caller.identity.scopes

    def express_begin(self, call: Call, arguments: Raw) -> bool:
        """See `pipeline/stage.py`."""
        caller = call.caller
        if self._policy.scopes and self._lacks(self._policy.scopes, caller):
            return False
        return not self._policy.hides(self._all.audience(caller.name, caller.principal, caller.identity))


class DecideByArguments:
    """Makes the stages: decides about each call by its arguments; says in `Call.approval` where a person must agree."""

    def __init__(self, policy: Policy, asks: Callable[[Tool], Asks | None] = lambda tool: None) -> None:
        """`asks`: what decides for each call of a tool whether a person must agree, where their arguments decide."""
        self._policy, self._asks = policy, asks

    def stage(self, tool: Tool | None, options: CallOptions) -> Stage | None:
        """For tools of which the arguments decide, or a person."""
        if tool is None:
            return None
        policy, asks = self._policy.for_tool(tool, options), self._asks(tool)
        if policy.is_hidden or (asks is None and (policy.is_open or not policy.needs_call)):
            return None
        return _Decided(tool, policy, self._policy, asks)


class _Decided:
    """Stage: decides about the calls of one tool."""

    __slots__ = ("_all", "_asks", "_judges_arguments", "_policy", "_tool")

    def __init__(self, tool: Tool, policy: ToolPolicy, all_: Policy, asks: Asks | None) -> None:
        self._tool, self._policy, self._all, self._asks = tool, policy, all_, asks
        self._judges_arguments = policy.judges_arguments

    def __call__(self, call: Call, proceed: CallHandler) -> Awaitable[Body]:
        """No coroutine of its own where nobody has to look at it first."""
        if call.sent is not None:  # it was permitted before it was sent
            return proceed(call)
        decision, asks = self._decision(call), self._asks
        if decision.permission == "deny":
            raise _refused(call, self._tool, decision)
        if decision.permission == "require_approval":
            call.approval, call.approve_by = decision.reason or "the policy asks for it", decision.approve_by
            call.ask = decision.ask
            call.note("rule", self._all.words_of(self._tool, decision))
        elif asks is not None and decision.rule is None:  # a rule that allows it is somebody's word
            reason = asks(call)
            if not isinstance(reason, str):
                return _permit_later(call, reason, proceed)
            call.approval = reason
            if reason:
                call.note("rule", TOOL_ASKS)
        if call.approval:
            call.note("permission", "require_approval")
        return proceed(call)

    def express_begin(self, call: Call, arguments: Raw) -> bool:
        """See `pipeline/stage.py`: only what may be without a further question."""
        try:
            decision = self._decision(call)
        except BridgeError:  # said, and counted, where it is decided again
            return False
        return decision.permission == "allow" and (self._asks is None or decision.rule is not None)

    def _decision(self, call: Call) -> Decision:
        if self._judges_arguments:
            refuse_doubles(self._tool.id, call.params.fields.get("arguments"))
        if not self._all.names_callers:
            return self._policy.decide(ANYBODY, _Asked(call))
        caller = call.caller
        return self._policy.decide(self._all.audience(caller.name, caller.principal, caller.identity), _Asked(call))


async def _permit_later(call: Call, reason: Awaitable[str], proceed: CallHandler) -> Body:
    call.approval = await reason
    if call.approval:
        call.note("rule", TOOL_ASKS)
        call.note("permission", "require_approval")
    return await proceed(call)


def deciding_rule(policy: Policy, tool: Tool, options: CallOptions) -> Callable[[Call], str]:
    """What says which setting decides about calls of a tool, in words. Asked of a call that has ended.

    Where neither callers nor arguments matter, that is known beforehand.
    """
    of_tool, audience_of = policy.for_tool(tool, options), policy.audience
    fixed = of_tool.only_decision
    if fixed is not None:
        words = policy.words_of(tool, fixed)
        return lambda call: words

    def rule_of(call: Call) -> str:
        caller = call.caller
        audience = audience_of(caller.name, caller.principal, caller.identity)
        return policy.words_of(tool, of_tool.decide(audience, _Asked(call)))

    return rule_of


def opening_role(policy: Policy, tool: Tool, options: CallOptions) -> Callable[[Call], str]:
    """What says which role of the caller opens a tool: the first that does; empty if none has to, or none does."""
    access, roles, audience_of = policy.for_tool(tool, options).access, policy.roles, policy.audience
    if roles is None or access is None:
        return lambda call: ""
    opening = [(role.opens_mark, role.name) for role in roles.all if role.opens_mark in access.opens]

    def role_of(call: Call) -> str:
        caller = call.caller
        audience = audience_of(caller.name, caller.principal, caller.identity)
        return next((name for mark, name in opening if mark in audience), "")

    return role_of


def judge_again(policy: Policy, call: Call, begun: Call) -> None:
    """Decide once more about a call that waited, by who continues it now and by the rules of now.

    `call`: the request that continues it; `begun`: the call, with the arguments that the tool gets.

    Raises:
        CallRefused: it may not continue.
    """
    tool, caller = begun.tool, call.caller
    if tool is None:
        return
    of_tool = policy.of(tool)
    if caller.identity is not None and not of_tool.scopes <= caller.identity.scopes:
        call.note("permission", "deny")
        raise InsufficientScope(of_tool.scopes)
    audience = policy.audience(caller.name, caller.principal, caller.identity)
    decision = of_tool.decide(audience, _Asked(call, begun))
    if decision.permission == "deny":
        raise _refused(call, tool, decision)
    if decision.permission == "require_approval" and not begun.approval:
        raise NotPermitted(f"a person has to agree to this call of {tool.id} by now: call it again")


class _Asked(Struct, eq=False):
    """A call, for conditions."""

    call: Call
    begun: Call | None = None
    """Whose arguments count, if it is another one that this one continues."""

    @property
    def client(self) -> Mapping[str, object]:
        caller = self.call.caller
        return {"name": caller.name, "principal": caller.principal}

    @property
    def claims(self) -> Mapping[str, object]:
        identity = self.call.caller.identity
        if identity is None:
            return {}
        from mcpbridge.pipeline.roles.claims import Unreadable, for_conditions

        try:
            return for_conditions(identity)
        except Unreadable as error:
            raise Undecidable(str(error)) from error

    @property
    def arguments(self) -> Fields:
        raw = (self.begun or self.call).params.fields.get("arguments")
        return decode_fields(raw) if raw is not None and first_byte(raw) == OBJECT_START else {}

    @property
    def context(self) -> Mapping[str, object]:
        around = self.call.context
        return {
            "run": around.run,
            "session": around.session.id,
            "user": around.user,
            "tenant": around.tenant,
            "metadata": dict(around.metadata),
        }


def _refused(call: Call, tool: Tool, decision: Decision) -> CallRefused:
    """What the client gets. A tool that its roles forbid does not exist for it."""
    caller = call.caller
    rule = None if decision.rule is None else decision.rule + 1
    log.info("call denied", tool=tool.id, client=caller.name[:100], principal=caller.principal, rule=rule)
    call.note("permission", decision.permission)
    if decision.by_role:
        return UnknownName("tool", tool.wire)
    return NotPermitted(f"{tool.id} is denied by the policy{f': {decision.reason}' if decision.reason else ''}")
