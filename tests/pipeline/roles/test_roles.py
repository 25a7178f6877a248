"""Who has a role: selectors over claims, which may be hostile (issue 23)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.identity import Identity
from mcpbridge.pipeline.roles.access import KEPT
from mcpbridge.pipeline.roles.break_glass import BreakGlass, RoleGrant
from mcpbridge.pipeline.roles.roles import Roles
from mcpbridge.pipeline.roles.settings import RoleSettings
from support.catalog.policies import AnyTool
from support.people import ISSUER, person

TOOL = AnyTool("github", "create_issue")


def roles_of(*roles: dict[str, Any], **more: Any) -> Roles:
    """Roles, each of which opens everything if it says nothing else."""
    named = [{"name": f"r{number}", **role} for number, role in enumerate(roles)]
    opened = [role if role.keys() & {"tools", "servers", "deny"} else {**role, "tools": "*"} for role in named]
    return Roles([RoleSettings.model_validate(role) for role in opened], **more)


def has(role: dict[str, Any], who: Identity | None, principal: str = "") -> bool:
    """Whether the role opens what it opens for this person."""
    roles = roles_of(role)
    return bool(roles.held(roles.of(who.principal if who is not None else principal, who)))


def denies(role: dict[str, Any], who: Identity) -> bool:
    """Whether what the role denies is denied to this person, if all is open to them."""
    roles = roles_of({"principals": "*"}, {"deny": "github/*", **role})
    return roles.access(TOOL, CallOptions()).forbids(roles.of(who.principal, who))


@pytest.mark.parametrize(
    ("role", "who", "expected"),
    [
        ({"groups": "eng-*"}, person("a", groups=["x", "eng-1"]), True),
        ({"groups": "eng-*"}, person("a", groups=["ENG-1"]), False),
        ({"groups": "eng-*"}, person("a", groups="eng-1"), True),
        ({"groups": "eng-*"}, person("a"), False),
        ({"groups": ["a", "b"]}, person("a", groups=["b"]), True),
        ({"emails": "*@example.com"}, person("a", email="A@EXAMPLE.com", email_verified=True), True),
        ({"emails": "*@example.com"}, person("a", email="a@example.com", email_verified="true"), True),
        ({"emails": "*@example.com"}, person("a", email="a@example.com"), False),
        ({"emails": "*@example.com"}, person("a", email="a@example.com", email_verified="false"), False),
        ({"emails": "*@example.com"}, person("a", email="a@example.com", email_verified=1), False),
        ({"emails": "*@example.com"}, person("a", email="a@example.com.evil.org", email_verified=True), False),
        ({"emails": "*@example.com"}, person("a", email="a@evil.org\n@example.com", email_verified=True), False),
        ({"emails": "*@example.com"}, person("a", email=["a@example.com"], email_verified=True), False),
        ({"scopes": "tools:*"}, person("a", scopes=("openid", "tools:read")), True),
        ({"scopes": "tools"}, person("a", scopes=("tools:read",)), False),
        ({"clients": "cli-*"}, person("a", client_id="cli-1"), True),
        ({"clients": "*"}, person("a"), False),
        ({"issuers": ISSUER}, person("a"), True),
        ({"issuers": "https://*.evil.org"}, person("a"), False),
        ({"principals": f"{ISSUER}#a"}, person("a"), True),
        ({"principals": f"{ISSUER}#a"}, person("b"), False),
        ({"principals": "*"}, person("b"), True),
        ({"when": 'claims.department == "R&D"'}, person("a", department="R&D"), True),
        ({"when": 'claims.department == "R&D"'}, person("a", department="HR"), False),
        ({"when": 'claims.department == "R&D"'}, person("a"), False),
        ({"when": "claims.level > 3"}, person("a", level="4"), False),
        ({"groups": "eng", "when": "claims.level > 3"}, person("a", groups=["eng"], level=4), True),
        ({"groups": "eng", "emails": "*"}, person("a", groups=["eng"]), False),
    ],
)
def test_selectors_match(role: dict[str, Any], who: Identity, expected: bool) -> None:
    assert has(role, who) is expected


@pytest.mark.parametrize("principal", ["ci", "deploy"])
def test_a_token_of_the_configuration_has_the_roles_that_name_it(principal: str) -> None:
    assert has({"principals": "ci"}, None, principal) is (principal == "ci")
    assert has({"principals": "*"}, None, principal)
    assert not has({"principals": "*", "groups": "*"}, None, principal), "it has no claims"
    assert not has({"when": "true"}, None, principal)


def test_the_local_user_is_kept_only_by_a_role_that_has_the_empty_principal() -> None:
    assert roles_of({"principals": "*"}).of("", None) == frozenset()
    roles = roles_of({"principals": ["", "ci"]})
    assert roles.held(roles.of("", None))
    assert KEPT in roles.of("", None)
    assert roles.held(roles.of("ci", None))
    assert not roles.held(roles.of("cd", None))


HOSTILE: list[dict[str, Any]] = [
    {"groups": {"eng": 1}},
    {"groups": ["eng", 1]},
    {"groups": ["eng", ["eng"]]},
    {"groups": ["g" * 5000]},
    {"groups": [f"g{number}" for number in range(5000)]},
    {"groups": 7},
    {"hasgroups": True},
    {"_claim_names": {"groups": "src1"}},
]


@pytest.mark.parametrize("claims", HOSTILE, ids=range(len(HOSTILE)))
def test_groups_that_cannot_be_read_open_nothing_and_deny(claims: dict[str, Any]) -> None:
    assert not has({"groups": "eng"}, person("a", **claims))
    assert denies({"groups": "contractors"}, person("a", **claims))


def test_a_deny_role_whose_condition_cannot_be_evaluated_counts() -> None:
    assert denies({"when": "claims.contractor"}, person("a"))
    assert denies({"when": "claims.contractor"}, person("a", contractor=True))
    assert not denies({"when": "claims.contractor"}, person("a", contractor=False))
    assert not denies({"when": "has(claims.contractor) && claims.contractor"}, person("a"))
    assert denies({"emails": "*@contractor.com"}, person("a", email="x@contractor.com")), (
        "who says that it is not theirs"
    )


@pytest.mark.parametrize("depth", [40, 900, 100_000])
def test_claims_that_are_nested_deeply_are_not_looked_at(depth: int) -> None:
    nested: Any = 1
    for _ in range(depth):
        nested = [nested] if depth % 2 else {"a": nested}
    assert not has({"when": "claims.x != 2"}, person("a", x=nested, y=1))
    assert not has({"when": "claims.y == 1"}, person("a", x=nested, y=1))
    _unnest(nested)


def _unnest(nested: Any) -> None:
    """Take it apart: the interpreter would do that by recursion."""
    while nested != 1:
        nested = nested.pop("a" if "a" in nested else 0)


def test_claims_that_are_many_are_not_looked_at() -> None:
    assert not has({"when": "claims.y == 1"}, person("a", y=1, x=list(range(20_000))))
    assert not has({"when": "claims.y == 1"}, person("a", y=1, x="x" * 2_000_000))
    assert has({"when": "claims.y == 1"}, person("a", y=1, x=list(range(2_000))))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(
    st.dictionaries(
        st.sampled_from(["groups", "email", "email_verified", "_claim_names", "hasgroups", "x", "a.b"]), json_values
    )
)
def test_no_claims_crash_a_selector(claims: dict[str, Any]) -> None:
    who = person("a", **claims)
    for role in (
        {"groups": "*"},
        {"emails": "*"},
        {"when": "claims.x == 1"},
        {"when": "claims.groups.exists(g, g == 'eng')"},
    ):
        has(role, who)
        denies(role, who)


def test_roles_add_up_and_deny_wins() -> None:
    roles = roles_of(
        {"groups": "readers", "tools": "github/get_*"},
        {"groups": "writers", "tools": "github/create_*"},
        {"groups": "interns", "deny": "github/create_*"},
    )

    def may(tool: str, *groups: str) -> bool:
        who = person("a", groups=list(groups))
        return not roles.access(AnyTool("github", tool), CallOptions()).forbids(roles.of(who.principal, who))

    assert may("get_x", "readers")
    assert not may("create_x", "readers")
    assert may("create_x", "readers", "writers")
    assert not may("create_x", "readers", "writers", "interns")
    assert not may("get_x")


def test_groups_stand_in_the_claim_that_the_issuer_names() -> None:
    roles = roles_of({"groups": "admin"}, groups_claims={ISSUER: "realm_access.roles"})
    who = person("a", realm_access={"roles": ["admin"]}, groups=["none"])
    assert roles.held(roles.of(who.principal, who))
    other = person("b", groups=["admin"], realm_access=["admin"])
    assert not roles.held(roles.of(other.principal, other))


@pytest.mark.parametrize(
    ("claim", "claims"),
    [
        ("groups", {"_claim_names": {"groups": "src1"}, "_claim_sources": {"src1": {"endpoint": "https://x"}}}),
        ("groups", {"groups": ["sales"], "_claim_names": {"groups": "src1"}}),
        ("groups", {"hasgroups": True}),
        ("roles", {"_claim_names": {"roles": "src1"}}),
        ("realm_access.roles", {"_claim_names": {"realm_access": "src1"}}),
        ("realm_access.roles", {"realm_access": ["interns"]}),
        ("realm_access.roles", {"realm_access": {"roles": {"interns": 1}}}),
    ],
)
def test_groups_that_are_left_out_of_a_token_are_no_fewer_denials(claim: str, claims: dict[str, Any]) -> None:
    """Entra leaves long lists out: what groups would open stays closed, and what they would deny is denied."""
    roles = roles_of(
        {"groups": "eng", "tools": "*"},
        {"principals": "*", "tools": "github/*"},
        {"groups": "interns", "deny": "github/delete_*"},
        groups_claims={ISSUER: claim},
    )
    who = person("a", **claims)

    def may(tool: str) -> bool:
        return not roles.access(AnyTool(*tool.split("/")), CallOptions()).forbids(roles.of(who.principal, who))

    assert (may("github/get_x"), may("github/delete_x"), may("mail/send")) == (True, False, False)


def test_of_whom_no_claims_are_known_what_claims_would_deny_is_denied() -> None:
    """Somebody of an issuer has claims, even where nobody has seen them yet; a service account has none."""
    roles = roles_of({"principals": "*", "tools": "github/*"}, {"groups": "interns", "deny": "github/delete_*"})

    def may(principal: str, tool: str) -> bool:
        return not roles.access(AnyTool("github", tool), CallOptions()).forbids(roles.of(principal, None))

    assert may(f"{ISSUER}#ann", "get_x")
    assert not may(f"{ISSUER}#ann", "delete_x")
    assert may("ci", "delete_x")


@pytest.mark.parametrize("claims", [{"hasgroups": True}, {"_claim_names": {"groups": "src1"}}])
def test_groups_that_are_left_out_do_not_matter_where_another_claim_names_them(claims: dict[str, Any]) -> None:
    roles = roles_of({"groups": "admin"}, groups_claims={ISSUER: "roles"})
    who = person("a", roles=["admin"], **claims)
    assert roles.held(roles.of(who.principal, who))


def test_resources_are_judged_in_every_spelling() -> None:
    roles = roles_of(
        {"principals": "*", "tools": "*", "resources": ["fs/file:///open/*", "all/*"], "deny": ["all/file:///closed/*"]}
    )
    mine = roles.of("ci", None)
    assert roles.sees_resource(mine, "fs", "file:///open/a")
    for uri in ("file:///closed/a", "file:///open/../closed/a", "file:///open/%2e%2e/closed/a", "file:///open/%252e"):
        assert not roles.sees_resource(mine, "fs", uri), uri
    assert roles.sees_resource(mine, "all", "file:///open/a")
    for uri in ("file:///closed/a", "file:///%63losed/a", "file:///x/../closed/a"):
        assert not roles.sees_resource(mine, "all", uri), uri


def test_a_role_is_taken_for_a_time_by_those_whom_it_is_for() -> None:
    now = [1000.0]
    glass = BreakGlass()
    roles = roles_of({"groups": "oncall", "break_glass": True}, break_glass=glass, clock=lambda: now[0])
    ann, eve = person("ann", groups=["oncall"]), person("eve")
    assert not roles.held(roles.of(ann.principal, ann))
    for who in (ann, eve):
        glass.take(RoleGrant(who.principal, "r0", "the site is down", now[0], now[0] + 60), now[0])
    assert roles.held(roles.of(ann.principal, ann))
    assert not roles.held(roles.of(eve.principal, eve)), "it is not for her"
    assert [one.reason for one in glass.now(now[0])] == ["the site is down"] * 2
    now[0] += 61
    assert not roles.held(roles.of(ann.principal, ann))
    assert list(glass.now(now[0])) == []


def test_callers_are_remembered_by_their_token_not_by_their_name() -> None:
    roles = roles_of({"groups": "eng"})
    first, second = person("a", groups=["eng"]), person("a", groups=[])
    assert roles.held(roles.of(first.principal, first))
    assert not roles.held(roles.of(second.principal, second))
    assert not roles.held(roles.of(first.principal, None))
    for number in range(3000):
        roles.of(f"p{number}", None)


def test_limits_of_several_roles_are_the_most_generous() -> None:
    roles = roles_of(
        {"groups": "a", "rate_limit": "10/min", "max_calls": 5},
        {"groups": "b", "rate_limit": "1/s", "max_calls": 9},
        {"groups": "c", "max_calls": 0},
    )

    def limits(*groups: str) -> tuple[str, int | None]:
        who = person("x", groups=list(groups))
        audience = roles.of(who.principal, who)
        return str(roles.rate_limit(audience)), roles.max_calls(audience)

    assert limits("a") == ("10/min", 5)
    assert limits("a", "b") == ("1/s", 9)
    assert limits("a", "c") == ("10/min", 0)
    assert limits() == ("None", None)
