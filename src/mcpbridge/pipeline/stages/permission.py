"""Let a call pass, refuse it, or have a person asked, as the policy says.

There are two stages. `DenyByTool` ends a call that is denied whatever its arguments are. `DecideByArguments` is for
tools that have rules with conditions on the arguments. A tool whose calls are all allowed has neither.
"""

from collections.abc import Awaitable, Callable, Mapping

from mcpbridge.base.errors import NotPermitted
from mcpbridge.base.log import get_logger
from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.model import Asks, Call, CallHandler, Tool
from mcpbridge.pipeline.permissions.policy import Decision, Policy
from mcpbridge.pipeline.stage import Stage
from mcpbridge.pipeline.validation.json_text import refuse_doubles
from mcpbridge.protocol.body import Body

log = get_logger("mcpbridge.policy")


TOOL_ASKS = "the tool itself asks for it"


class DenyByTool:
    """Makes the stages: refuses calls that no arguments make permissible."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def stage(self, tool: Tool | None, options: CallOptions) -> Stage | None:
        """For tools that are denied to somebody."""
        if tool is None or not self._policy.may_hide:
            return None
        policy, audience_of = self._policy.for_tool(tool, options), self._policy.audience
        if policy.is_hidden is False:
            return None

        def guard(call: Call, proceed: CallHandler) -> Awaitable[Body]:
            caller = call.caller
            audience = audience_of(caller.name, caller.principal)
            if policy.hides(audience):
                raise _refused(call, tool, policy.decide(audience, _Asked(call)))
            return proceed(call)

        return guard


class DecideByArguments:
    """Makes the stages: decides about each call by its arguments; says in `Call.approval` where a person must agree."""

    def __init__(self, policy: Policy, asks: Callable[[Tool], Asks | None] = lambda tool: None) -> None:
        """`asks`: what decides for each call of a tool whether a person must agree, where their arguments decide."""
        self._policy, self._asks = policy, asks

    def stage(self, tool: Tool | None, options: CallOptions) -> Stage | None:
        """For tools of which the arguments decide, or a person."""
        if tool is None:
            return None
        policy, audience_of = self._policy.for_tool(tool, options), self._policy.audience
        asks = self._asks(tool)
        if policy.is_hidden or (asks is None and (policy.is_open or not policy.needs_call)):
            return None
        judges_arguments, of_policy = policy.judges_arguments, self._policy

        def permit(call: Call, proceed: CallHandler) -> Awaitable[Body]:
            if judges_arguments:
                refuse_doubles(tool.id, call.params.get("arguments"))
            caller = call.caller
            decision = policy.decide(audience_of(caller.name, caller.principal), _Asked(call))
            if decision.permission == "deny":
                raise _refused(call, tool, decision)
            if decision.permission == "require_approval":
                call.approval = decision.reason or "the policy asks for it"
                call.note("rule", of_policy.words_of(tool, decision))
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

        return permit


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
        return policy.words_of(tool, of_tool.decide(audience_of(caller.name, caller.principal), _Asked(call)))

    return rule_of


class _Asked:
    """A call, for conditions."""

    __slots__ = ("_call",)

    def __init__(self, call: Call) -> None:
        self._call = call

    @property
    def client(self) -> Mapping[str, object]:
        caller = self._call.caller
        return {"name": caller.name, "principal": caller.principal}

    @property
    def arguments(self) -> Body:
        return self._call.params.inner("arguments") or Body()

    @property
    def context(self) -> Mapping[str, object]:
        around = self._call.context
        return {
            "run": around.run,
            "session": around.session.id,
            "user": around.user,
            "tenant": around.tenant,
            "metadata": dict(around.metadata),
        }


def _refused(call: Call, tool: Tool, decision: Decision) -> NotPermitted:
    caller = call.caller
    rule = None if decision.rule is None else decision.rule + 1
    log.info("call denied", tool=tool.id, client=caller.name[:100], principal=caller.principal, rule=rule)
    call.note("permission", decision.permission)
    return NotPermitted(f"{tool.id} is denied by the policy{f': {decision.reason}' if decision.reason else ''}")
