"""Listing, searching and calling never disagree, whatever the rules are (issue 4); property tests."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.catalog.refresh import Audiences
from mcpbridge.core.call_options import Hints
from mcpbridge.upstream.settings import ServerSettings
from support.catalog.definitions import tools as offer
from support.catalog.policies import AnyTool, hides, permission, policy_of
from support.catalog.snapshots import build_snapshot

CLIENTS, PRINCIPALS, SERVERS = ["", "cursor", "claude-code"], ["", "ann", "bob"], ["files", "github"]
PERMISSIONS = ["allow", "require_approval", "deny"]
CONDITIONS = [
    "args.x > 1",
    "has(args.x) && args.x > 1",
    "args.x",
    "tool.destructive",
    "client.name == 'cursor'",
    "client.principal == 'ann' && args.x == 1",
    "args.list.exists(i, i == 1)",
    "context.tenant == 'acme'",
    "false",
]


def some(values: list[str]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(values), max_size=2)


def rules(**fixed: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    optional: dict[str, st.SearchStrategy[Any]] = {
        "tools": some(["*", "delete_*", "files/*", "*/get_*", "github/delete_repo"]),
        "servers": some(["files", "git*"]),
        "risk": some(["low", "medium", "high"]),
        "read_only": st.booleans(),
        "side_effects": st.booleans(),
        "destructive": st.booleans(),
        "idempotent": st.booleans(),
        "clients": some(["cursor", "claude-*", "*"]),
        "principals": some(["ann", "b*", ""]),
        "when": st.sampled_from(CONDITIONS),
    }
    required = {"permission": st.sampled_from(PERMISSIONS), **fixed}
    return st.fixed_dictionaries(required, optional={key: optional[key] for key in optional.keys() - fixed.keys()})


tools = st.builds(
    AnyTool,
    st.sampled_from(SERVERS),
    st.sampled_from(["get_x", "delete_repo", "createIssue", "frobnicate", "files/get_y"]),
    st.builds(Hints, *[st.sampled_from([None, True, False])] * 3),
)
servers: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        name: st.fixed_dictionaries({"trusted": st.booleans()}, optional={"permission": st.sampled_from(PERMISSIONS)})
        for name in SERVERS
    }
)
arguments = st.dictionaries(
    st.sampled_from(["x", "list"]), st.sampled_from([0, 1, 2, True, "1", None, [], [1], {"a": 1}]), max_size=2
)
callers = st.fixed_dictionaries({"client": st.sampled_from(CLIENTS), "principal": st.sampled_from(PRINCIPALS)})


@given(st.lists(rules(), max_size=5), servers, tools, callers, st.lists(arguments, min_size=1, max_size=5))
def test_what_is_hidden_is_denied_and_what_can_be_called_is_seen(
    given_rules: list[dict[str, Any]],
    given_servers: dict[str, Any],
    tool: AnyTool,
    caller: dict[str, str],
    calls: list[dict[str, Any]],
) -> None:
    policy = policy_of(*given_rules, servers=given_servers)
    outcomes = {permission(policy, tool, call, **caller, tenant="acme") for call in calls}
    known = policy.of(tool)
    if hides(policy, tool, **caller):
        assert outcomes == {"deny"}
        assert policy.may_hide
        assert known.is_hidden is not False, "the guard stands before it"
    if known.is_open:
        assert outcomes == {"allow"}
    if not known.needs_call:
        assert outcomes == ({"deny"} if hides(policy, tool, **caller) else {"allow"}), "the guard alone decides"


@given(st.lists(rules(when=st.none()), max_size=5), servers, tools, callers, arguments)
def test_without_conditions_exactly_what_is_denied_is_hidden(
    given_rules: list[dict[str, Any]],
    given_servers: dict[str, Any],
    tool: AnyTool,
    caller: dict[str, str],
    call: dict[str, Any],
) -> None:
    policy = policy_of(*given_rules, servers=given_servers)
    assert hides(policy, tool, **caller) == (permission(policy, tool, call, **caller) == "deny")


@given(st.lists(rules(), max_size=4), servers, tools, callers, arguments, st.sampled_from(PERMISSIONS))
def test_the_first_match_decides(
    given_rules: list[dict[str, Any]],
    given_servers: dict[str, Any],
    tool: AnyTool,
    caller: dict[str, str],
    call: dict[str, Any],
    first: str,
) -> None:
    """A rule for everything in front of all others is the only one that counts."""
    policy = policy_of({"permission": first}, *given_rules, servers=given_servers)
    assert permission(policy, tool, call, **caller) == first
    assert hides(policy, tool, **caller) == (first == "deny")


@given(
    st.lists(rules(), max_size=4),
    rules(clients=st.just(["somebody-else"])),
    st.integers(0, 4),
    servers,
    st.lists(tools, min_size=1, max_size=4),
    callers,
    arguments,
)
def test_a_rule_for_another_client_changes_nothing_for_this_one(
    given_rules: list[dict[str, Any]],
    other: dict[str, Any],
    place: int,
    given_servers: dict[str, Any],
    given_tools: list[AnyTool],
    caller: dict[str, str],
    call: dict[str, Any],
) -> None:
    before = policy_of(*given_rules, servers=given_servers)
    after = policy_of(*given_rules[:place], other, *given_rules[place:], servers=given_servers)
    for tool in given_tools:
        assert hides(before, tool, **caller) == hides(after, tool, **caller)
        asked = {**caller, "tenant": "acme"}
        assert permission(before, tool, call, **asked) == permission(after, tool, call, **asked)


@given(st.lists(rules(), max_size=4), servers, callers)
def test_a_catalog_lists_what_the_policy_does_not_hide(
    given_rules: list[dict[str, Any]], given_servers: dict[str, Any], caller: dict[str, str]
) -> None:
    """Listing and searching read the same snapshot; names in it mean the same for everybody."""
    policy = policy_of(*given_rules, servers=given_servers)
    settings = {
        name: ServerSettings.model_validate({"command": "x", **server}) for name, server in given_servers.items()
    }
    whole = build_snapshot([offer(name, "get_x", "delete_repo", "frobnicate") for name in SERVERS], settings)
    view = Audiences(policy).look("", policy.audience(caller["client"], caller["principal"]), whole)
    seen = {ref.id for ref in view.tools.values()}
    for ref in whole.tools.values():
        assert view.tool(ref.id) is ref
        tool = AnyTool(ref.server, ref.name)
        assert (ref.id in seen) is not hides(policy, tool, **caller)
