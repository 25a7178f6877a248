"""The two stages of the policy: which tools have them, and what they do with a call (issue 4)."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from mcpbridge.base.errors import ArgumentsRefused, NotPermitted
from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.context import Session
from mcpbridge.core.model import Call
from mcpbridge.pipeline.permissions.policy import Policy
from mcpbridge.pipeline.stage import chain
from mcpbridge.pipeline.stages.permission import DecideByArguments, DenyByTool
from mcpbridge.protocol.body import Body
from support.catalog.policies import AnyTool, policy_of

pytestmark = pytest.mark.anyio

TOOL = AnyTool("github", "delete_repo")


class Somebody:
    """A caller."""

    version = "2025-11-25"
    identity = None

    def __init__(self, name: str = "", principal: str = "") -> None:
        self.name, self.principal = name, principal
        self.session = Session(principal, name)


async def run(policy: Policy, call: Call, tool: AnyTool = TOOL, options: CallOptions | None = None) -> list[Call]:
    """The calls that came through both stages."""
    passed: list[Call] = []

    async def deliver(call: Call) -> Body:
        passed.append(call)
        return Body()

    how = options or CallOptions()
    stages = [
        stage
        for concern in (DenyByTool(policy), DecideByArguments(policy))
        if (stage := concern.stage(tool, how)) is not None
    ]
    await chain(stages, last=deliver)(call)
    return passed


def call_with(arguments: Mapping[str, Any] | None = None, **more: Any) -> Call:
    params = {"name": "x"} if arguments is None else {"name": "x", "arguments": arguments}
    return Call("tools/call", "github", "delete_repo", Body(json.dumps(params).encode()), tool=TOOL, **more)


def stages(policy: Policy, tool: AnyTool | None = TOOL, options: CallOptions | None = None) -> tuple[bool, bool]:
    """Whether there is a guard, and a permit."""
    how = options or CallOptions()
    return DenyByTool(policy).stage(tool, how) is not None, DecideByArguments(policy).stage(tool, how) is not None


async def test_a_stage_is_there_only_where_it_can_do_something() -> None:
    """What is not used costs nothing."""
    assert stages(policy_of()) == (False, False)
    assert stages(policy_of({"permission": "deny"}), tool=None) == (False, False)
    assert stages(policy_of({"permission": "deny", "servers": "other"})) == (False, False)
    assert stages(policy_of({"permission": "deny"})) == (True, False)
    assert stages(policy_of({"permission": "deny", "clients": "x"})) == (True, False)
    assert stages(policy_of({"permission": "deny", "when": "args.x == 1"})) == (False, True)
    assert stages(policy_of({"permission": "require_approval"})) == (False, True)
    assert stages(policy_of({"permission": "allow", "when": "args.x == 1"})) == (False, False)
    assert stages(policy_of({"permission": "allow", "when": "args.x == 1"}, {"permission": "deny"})) == (False, True)
    assert stages(policy_of(calls={"permission": "deny"}), options=CallOptions("deny")) == (True, False)


async def test_a_refusal_names_tool_and_reason_but_no_arguments() -> None:
    policy = policy_of({"permission": "deny", "when": "args.token == 'secret'", "reason": "ask the owner"})
    call = call_with({"token": "secret"})
    with pytest.raises(NotPermitted) as caught:
        await run(policy, call)
    assert caught.value.full_message().startswith(
        "github/delete_repo is denied by the policy: ask the owner. Nothing was sent"
    )
    assert "secret" not in caught.value.full_message()
    assert call.facts == {"permission": "deny"}


async def test_what_is_denied_whatever_the_arguments_are_ends_at_the_guard() -> None:
    policy = policy_of({"permission": "deny", "clients": "bad"})
    guard = DenyByTool(policy).stage(TOOL, CallOptions())
    assert guard is not None
    with pytest.raises(NotPermitted, match="denied by the policy"):
        await run(policy, call_with(caller=Somebody("bad")))
    assert len(await run(policy, call_with(caller=Somebody("good")))) == 1


async def test_a_call_that_needs_a_person_says_why() -> None:
    policy = policy_of(
        {"permission": "require_approval", "when": "args.force", "reason": "it cannot be undone"},
        {"permission": "require_approval", "when": "has(args.soft)"},
        {"permission": "allow"},
    )
    [call] = await run(policy, call_with({"force": True}))
    assert call.approval == "it cannot be undone"
    assert call.facts == {"permission": "require_approval", "rule": "rule 1 of `permissions`"}
    [call] = await run(policy, call_with({"force": False, "soft": 1}))
    assert call.approval == "the policy asks for it"
    [call] = await run(policy, call_with({"force": False}))
    assert call.approval == ""
    [call] = await run(policy, call_with())
    assert call.approval.startswith("it cannot be undone: the condition of rule 1 of `permissions` cannot be evaluated")


async def test_arguments_may_be_missing_or_null() -> None:
    policy = policy_of({"permission": "deny", "when": "has(args.x)"})
    assert len(await run(policy, call_with())) == 1
    null = call_with()
    null.params.put("arguments", None)
    assert len(await run(policy, null)) == 1


async def test_a_later_round_of_a_call_can_still_be_denied() -> None:
    policy = policy_of({"permission": "deny", "when": "args.x == 1"})
    with pytest.raises(NotPermitted):
        await run(policy, call_with({"x": 1}, continues=True))


async def test_conditions_see_the_context_of_the_call() -> None:
    policy = policy_of(
        {"permission": "deny", "when": "context.tenant == 'acme' && context.metadata.level == 3"},
        {"permission": "deny", "when": "context.user == 'ann' && context.session != '' && context.run == 'r1'"},
    )
    said = {"mcpbridge/context": {"tenant": "acme", "metadata": {"level": 3}}}
    with pytest.raises(NotPermitted):
        await run(policy, call_with({}, meta=Body(json.dumps(said).encode())))
    meta = Body(b'{"mcpbridge/run":"r1"}')
    with pytest.raises(NotPermitted):
        await run(policy, call_with({}, meta=meta, caller=Somebody("", "ann")))
    assert len(await run(policy, call_with({}, caller=Somebody("", "ann")))) == 1


DOUBLE = b'{"name":"x","arguments":{"path":"/etc","path":"/tmp"}}'


@pytest.mark.parametrize(
    "rules",
    [
        [{"permission": "deny", "when": "args.path == '/etc'"}],
        [{"permission": "allow", "when": "args.path == '/tmp'"}, {"permission": "deny"}],
        [{"permission": "require_approval"}],
    ],
)
async def test_where_arguments_decide_none_may_be_named_twice(rules: list[dict[str, Any]]) -> None:
    """The policy sees the last of the two; the server may take the first."""
    call = Call("tools/call", "github", "delete_repo", Body(DOUBLE), tool=TOOL)
    with pytest.raises(ArgumentsRefused, match=r"github/delete_repo was not called.*`path` is named twice"):
        await run(policy_of(*rules), call)


async def test_where_they_do_not_decide_they_stay_as_they_are() -> None:
    policy = policy_of(
        {"permission": "deny", "when": "client.name == 'bad'"}, {"permission": "deny", "clients": "evil"}
    )
    call = Call("tools/call", "github", "delete_repo", Body(DOUBLE), tool=TOOL)
    [passed] = await run(policy, call)
    assert bytes(passed.params.data) == DOUBLE


# -- tools that say themselves when a person must agree


@pytest.mark.parametrize("is_later", [False, True])
@pytest.mark.parametrize(
    ("rules", "reason", "approval"),
    [
        ([], "it pushes", "it pushes"),
        ([], "", ""),
        ([{"permission": "allow", "tools": "github/*"}], "it pushes", ""),
        ([{"permission": "require_approval", "tools": "github/*", "reason": "rule"}], "it pushes", "rule"),
        ([{"permission": "require_approval", "tools": "github/*"}], "", "the policy asks for it"),
        ([{"permission": "allow", "tools": "files/*"}], "it pushes", "it pushes"),
    ],
)
async def test_a_tool_may_ask_for_a_person_unless_a_rule_allows_the_call(
    rules: list[dict[str, Any]], reason: str, approval: str, is_later: bool
) -> None:
    """A command that changes something, say: what it is asked with decides, at once or after a look elsewhere."""
    asked, passed = list[Call](), list[Call]()

    def asks(call: Call) -> Any:
        asked.append(call)

        async def later() -> str:
            return reason

        return later() if is_later else reason

    async def deliver(call: Call) -> Body:
        passed.append(call)
        return Body()

    stage = DecideByArguments(policy_of(*rules), lambda tool: asks).stage(TOOL, CallOptions())
    assert stage is not None
    call = call_with({"a": 1})
    await stage(call, deliver)
    assert passed == [call]
    assert call.approval == approval
    rule = "the tool itself asks for it" if approval == "it pushes" else "rule 1 of `permissions`"
    assert (call.facts or {}) == ({"permission": "require_approval", "rule": rule} if approval else {})
    is_decided = bool(rules) and rules[0]["tools"] == "github/*"
    assert asked == ([] if is_decided else [call])


async def test_what_a_rule_denies_the_tool_is_not_asked_about() -> None:
    policy = policy_of({"permission": "deny", "when": "args.a == 1"})
    stage = DecideByArguments(policy, lambda tool: lambda call: pytest.fail("it is denied")).stage(TOOL, CallOptions())
    assert stage is not None
    with pytest.raises(NotPermitted):
        await stage(call_with({"a": 1}), lambda call: pytest.fail("it is denied"))
