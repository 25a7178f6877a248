"""Which rule decides about a call, and who sees a tool (issue 4)."""

from typing import Any

import pytest

from mcpbridge.core.call_options import Hints
from support.catalog.policies import AnyTool, decide, hides, permission, policy_of

CREATE = AnyTool("github", "create_issue")
DELETE = AnyTool("github", "delete_repo")
READ = AnyTool("files", "read_file")


def test_without_rules_everything_is_allowed_and_nothing_is_looked_at() -> None:
    policy = policy_of()
    assert policy.of(DELETE).is_open
    assert not policy.may_hide
    assert not policy.names_callers


def test_the_first_rule_that_matches_decides() -> None:
    policy = policy_of(
        {"tools": "github/delete_*", "permission": "deny", "reason": "not here"},
        {"servers": "github", "permission": "require_approval"},
        {"tools": "github/*", "permission": "deny"},
    )
    assert decide(policy, DELETE).reason == "not here"
    assert permission(policy, DELETE) == "deny"
    assert permission(policy, CREATE) == "require_approval"
    assert decide(policy, CREATE).rule == 1
    assert permission(policy, READ) == "allow"


def test_without_a_matching_rule_the_setting_of_tool_server_or_all_calls_counts() -> None:
    policy = policy_of(
        {"tools": "files/read_*", "permission": "allow"},
        servers={"github": {"permission": "deny", "tool": {"create_issue": {"permission": "require_approval"}}}},
        calls={"permission": "require_approval"},
    )
    assert permission(policy, DELETE) == "deny"
    assert hides(policy, DELETE)
    assert permission(policy, CREATE) == "require_approval"
    assert permission(policy, READ) == "allow"
    assert permission(policy, AnyTool("files", "write_file")) == "require_approval"


@pytest.mark.parametrize(
    ("globs", "tool", "matches"),
    [
        (["delete_*"], DELETE, True),
        (["github/delete_*"], DELETE, True),
        (["git*/*repo"], DELETE, True),
        (["*/delete_*"], DELETE, True),
        (["files/*"], DELETE, False),
        (["DELETE_*"], DELETE, False),
        (["read_file", "delete_*"], DELETE, True),
        (["files/*"], AnyTool("evil", "files/read"), False),
        (["evil/files/*"], AnyTool("evil", "files/read"), True),
        (["*/read"], AnyTool("evil", "files/read"), False),
        (["remove"], AnyTool("github", "delete_repo", shown="remove"), True),
        (["github/delete_repo"], AnyTool("github", "delete_repo", shown="remove"), True),
    ],
)
def test_tools_are_named_by_globs(globs: list[str], tool: AnyTool, matches: bool) -> None:
    policy = policy_of({"tools": globs, "permission": "deny"})
    assert hides(policy, tool) is matches


@pytest.mark.parametrize(
    ("selector", "hints", "is_trusted", "matches"),
    [
        ({"read_only": True}, Hints(read_only=True), True, True),
        ({"read_only": True}, Hints(read_only=True), False, False),
        ({"read_only": False}, Hints(), False, True),
        ({"side_effects": True}, Hints(read_only=False), False, True),
        ({"side_effects": True}, Hints(), False, False),
        ({"side_effects": False}, Hints(), False, True),
        ({"destructive": True}, Hints(destructive=True), False, True),
        ({"destructive": False}, Hints(destructive=True), True, False),
        ({"idempotent": True}, Hints(idempotent=True), True, True),
        ({"idempotent": True}, Hints(idempotent=True), False, False),
        ({"risk": "high"}, Hints(destructive=True), False, True),
        ({"risk": ["low", "medium"]}, Hints(destructive=True), False, False),
        ({"risk": "low"}, Hints(read_only=True), True, True),
        ({"risk": "low", "servers": "other"}, Hints(read_only=True), True, False),
    ],
)
def test_tools_are_told_apart_by_what_they_do(
    selector: dict[str, Any], hints: Hints, is_trusted: bool, matches: bool
) -> None:
    policy = policy_of({**selector, "permission": "deny"}, servers={"x": {"trusted": is_trusted}})
    assert hides(policy, AnyTool("x", "frobnicate", hints)) is matches


def test_clients_and_principals_are_named_by_globs() -> None:
    policy = policy_of(
        {"principals": "ann*", "permission": "allow"},
        {"clients": ["cursor", "claude-*"], "permission": "deny"},
        {"principals": "", "permission": "require_approval"},
        {"permission": "deny"},
    )
    assert policy.names_callers
    assert permission(policy, READ, principal="anna", client="cursor") == "allow"
    assert permission(policy, READ, principal="bob", client="claude-code") == "deny"
    assert permission(policy, READ, client="zed") == "require_approval"
    assert hides(policy, READ, principal="bob", client="zed")
    assert not hides(policy, READ, client="zed")


def test_clients_of_whom_the_same_rules_speak_are_one_audience() -> None:
    policy = policy_of({"clients": "a*", "permission": "deny"}, {"servers": "x", "permission": "allow"})
    assert policy.audience("a1", "") == policy.audience("a2", "ann")
    assert policy.audience("a1", "") != policy.audience("b", "")
    assert policy.audience("b" * 1000, "") == policy.audience("b", "")
    assert {policy.audience(f"b{number}", "") for number in range(3000)} == {frozenset()}


# -- conditions


def test_a_condition_that_holds_decides() -> None:
    policy = policy_of({"when": "args.amount > 100", "permission": "deny", "reason": "too much"})
    assert decide(policy, CREATE, {"amount": 101}).reason == "too much"
    assert permission(policy, CREATE, {"amount": 100}) == "allow"
    assert not hides(policy, CREATE)


@pytest.mark.parametrize("arguments", [{}, {"amount": "many"}])
@pytest.mark.parametrize("wanted", ["deny", "require_approval"])
def test_a_condition_that_cannot_be_evaluated_matches_where_it_restricts(
    wanted: str, arguments: dict[str, Any]
) -> None:
    """Fail closed, and say so."""
    policy = policy_of({"permission": "allow", "tools": "zzz"}, {"when": "args.amount > 100", "permission": wanted})
    decision = decide(policy, CREATE, arguments)
    assert decision.permission == wanted
    assert "rule 2 of `permissions` cannot be evaluated" in decision.reason
    assert "has(args.x) && …" in decision.reason
    assert "many" not in decision.reason


def test_a_condition_that_cannot_be_evaluated_allows_nothing() -> None:
    policy = policy_of({"when": "args.amount < 100", "permission": "allow"}, {"permission": "deny", "reason": "no"})
    assert permission(policy, CREATE, {"amount": 1}) == "allow"
    assert decide(policy, CREATE, {}).reason == "no"
    assert not hides(policy, CREATE), "some calls are allowed"


def test_conditions_see_tool_client_and_context() -> None:
    policy = policy_of(
        {"when": "tool.id == 'github/delete_repo' && client.name == 'a'", "permission": "deny"},
        {"when": "client.principal == 'bob'", "permission": "deny"},
        {"when": "context.tenant == 'acme' && context.metadata.level > 3", "permission": "require_approval"},
    )
    assert permission(policy, DELETE, client="a") == "deny"
    assert permission(policy, CREATE, client="a", tenant="x", metadata={}) == "allow"
    assert permission(policy, CREATE, principal="bob") == "deny"
    assert permission(policy, CREATE, tenant="acme", metadata={"level": 4}) == "require_approval"


def test_a_condition_on_the_tool_alone_is_decided_once_for_the_tool() -> None:
    policy = policy_of({"when": "tool.destructive && tool.server.startsWith('git')", "permission": "deny"})
    assert hides(policy, DELETE)
    assert policy.of(READ).is_open
    assert hides(policy_of({"when": "tool.id", "permission": "deny"}), READ), "fails closed"
    assert "neither true nor false" in decide(policy_of({"when": "tool.id", "permission": "deny"}), READ).reason
    assert policy_of({"when": "tool.id", "permission": "allow"}).of(READ).is_open
    assert hides(policy_of({"when": "true", "permission": "deny"}), READ)


def test_arguments_that_cannot_be_read_fail_closed() -> None:
    policy = policy_of({"when": "args.x == 1", "permission": "deny"})
    deep: list[Any] = []
    for _ in range(900):
        deep = [deep]
    assert permission(policy, CREATE, {"y": deep, "x": 2}) == "allow", "only what it names is read"
    assert permission(policy, CREATE, {"x": deep}) == "allow"


# -- what is seen


def test_a_tool_is_hidden_only_where_every_call_is_denied() -> None:
    conditional = {"when": "args.x == 1", "permission": "deny"}
    assert not hides(policy_of(conditional), READ)
    assert hides(policy_of(conditional, {"permission": "deny"}), READ)
    assert not hides(policy_of(conditional, {"permission": "require_approval"}), READ)
    assert not hides(policy_of({"when": "args.x == 1", "permission": "allow"}, {"permission": "deny"}), READ)


def test_the_version_changes_with_whatever_decides() -> None:
    versions = [
        policy_of().version,
        policy_of({"permission": "deny"}).version,
        policy_of({"permission": "deny", "when": "args.x == 1"}).version,
        policy_of({"permission": "deny"}, {"permission": "allow"}).version,
        policy_of(servers={"x": {}}).version,
        policy_of(servers={"x": {"trusted": True}}).version,
        policy_of(servers={"x": {"risk": "high"}}).version,
        policy_of(servers={"x": {"tool": {"t": {"permission": "deny"}}}}).version,
        policy_of(calls={"permission": "require_approval"}).version,
        policy_of(calls={"read_names": []}).version,
    ]
    assert len(set(versions)) == len(versions)
    assert policy_of(servers={"x": {}}).version == policy_of(servers={"x": {"call_timeout": 3, "args": ["y"]}}).version
    assert policy_of({"permission": "deny"}).version == policy_of({"permission": "deny"}).version


# -- conditions on the tool alone, which are decided once for each tool


def test_a_condition_on_the_tool_is_decided_for_each_tool_by_itself() -> None:
    """The same rules cover both, and what they come to is not the same."""
    for first, second in ((CREATE, DELETE), (DELETE, CREATE)):
        policy = policy_of({"tools": "github/*", "when": "tool.name.startsWith('delete')", "permission": "deny"})
        for tool in (first, second, first):
            assert permission(policy, tool) == ("deny" if tool is DELETE else "allow")
            assert hides(policy, tool) is (tool is DELETE)


@pytest.mark.parametrize(
    ("when", "wanted", "expected"),
    [
        ("tool.name > 1", "allow", "deny"),
        ("tool.risk + 1 > 2", "allow", "deny"),
        ("size(tool.name) / 0 > 1", "allow", "deny"),
        ("tool.name > 1", "deny", "deny"),
        ("tool.name == 'delete_repo'", "allow", "allow"),
        ("tool.name != 'delete_repo'", "allow", "deny"),
    ],
)
def test_a_condition_on_the_tool_that_cannot_be_evaluated_allows_nothing(when: str, wanted: str, expected: str) -> None:
    policy = policy_of({"when": when, "permission": wanted}, {"permission": "deny"})
    assert permission(policy, DELETE) == expected


def test_a_condition_on_the_tool_that_cannot_be_evaluated_denies_and_says_why() -> None:
    policy = policy_of({"when": "tool.name > 1", "permission": "deny", "reason": "no"})
    found = decide(policy, DELETE)
    assert found.permission == "deny"
    assert "of another type" in found.reason
    assert "rule 1" in found.reason


@pytest.mark.parametrize(
    ("rules", "judges", "needs"),
    [
        ([], False, False),
        ([{"permission": "deny", "clients": "x"}], False, False),
        ([{"permission": "require_approval", "clients": "x"}], True, True),
        ([{"permission": "deny", "when": "args.a == 1"}], True, True),
        ([{"permission": "deny", "when": "client.name == 'x'"}], False, True),
        (
            [{"permission": "deny", "when": "context.user == 'x'"}, {"permission": "deny", "when": "args.a == 1"}],
            True,
            True,
        ),
        ([{"permission": "deny", "when": "tool.risk == 'none such'"}], False, False),
    ],
)
def test_arguments_are_judged_where_a_rule_or_a_person_looks_at_them(
    rules: list[dict[str, Any]], judges: bool, needs: bool
) -> None:
    """Else a member that is named twice passes as it came: nobody decided by one of the two."""
    found = policy_of(*rules).of(DELETE)
    assert (found.judges_arguments, found.needs_call) == (judges, needs)
