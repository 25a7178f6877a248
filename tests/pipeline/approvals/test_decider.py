"""Who may decide about a call whose rule names who approves."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace
from pydantic import ValidationError

from mcpbridge.config.schema import Settings
from mcpbridge.core.identity import Identity
from mcpbridge.core.model import ApproveBy
from mcpbridge.pipeline.approvals.decider import OPERATOR, Decider, approvers_in_words, objection
from mcpbridge.pipeline.approvals.request import ApprovalRequest, binding_of

REQUEST = ApprovalRequest("id", "up", "up/echo", b"{}", "", "ann", "", "", 0.0, 1.0, "")


def may(approve_by: ApproveBy | None, decider: Decider, *, by: str = "ann", roles: Sequence[str] = ()) -> bool:
    return not objection(replace(REQUEST, approve_by=approve_by, principal=by), decider, lambda who, what: roles)


LEADS = ApproveBy(roles=("lead*",))


@pytest.mark.parametrize(
    ("approve_by", "decider", "by", "roles", "expected"),
    [
        (None, Decider("ann"), "ann", [], True),
        (None, OPERATOR, "ann", [], True),
        (LEADS, Decider("bob"), "ann", ["leads"], True),
        (LEADS, Decider("bob"), "ann", ["staff"], False),
        (LEADS, Decider("bob"), "ann", [], False),
        (LEADS, Decider("ann"), "ann", ["leads"], False),
        (replace(LEADS, four_eyes=False), Decider("ann"), "ann", ["leads"], True),
        (LEADS, OPERATOR, "ann", ["leads"], False),
        (replace(LEADS, operator=True), OPERATOR, "ann", [], True),
        (replace(LEADS, operator=True), OPERATOR, "", [], False),
        (replace(LEADS, operator=True, four_eyes=False), OPERATOR, "", [], True),
        (ApproveBy(principals=("b*",)), Decider("bob"), "ann", [], True),
        (ApproveBy(principals=("b*",)), Decider("carol"), "ann", [], False),
        (ApproveBy(principals=("*",)), Decider(""), "ann", [], False),
        (ApproveBy(principals=("",)), Decider(""), "ann", [], False),
        (ApproveBy(roles=("*",)), Decider(""), "ann", ["leads"], False),
        (ApproveBy(), Decider("bob"), "ann", ["leads"], False),
    ],
)
def test_who_may_decide(
    approve_by: ApproveBy | None, decider: Decider, by: str, roles: Sequence[str], expected: bool
) -> None:
    assert may(approve_by, decider, by=by, roles=roles) is expected


def test_the_roles_are_those_of_whoever_decides() -> None:
    asked: list[tuple[str, Identity | None]] = []
    identity = Identity("bob", "https://login.example.com", "bob", {})

    def roles_of(principal: str, who: Identity | None) -> list[str]:
        asked.append((principal, who))
        return ["leads"]

    assert objection(replace(REQUEST, approve_by=LEADS), Decider("bob", identity), roles_of) == ""
    assert asked == [("bob", identity)]


def test_in_words_nobody_is_named() -> None:
    everybody = ApproveBy(("leads", "chiefs"), ("https://login.example.com#carol",), operator=True)
    assert approvers_in_words(everybody) == (
        "somebody with the role leads or chiefs or somebody whom the configuration names or the operator of the bridge"
    )


def test_a_yes_under_one_rule_is_none_under_another() -> None:
    def bound(tenant: str, approve_by: ApproveBy | None) -> str:
        return binding_of("ann", "up/echo", b"{}", "d", "v", tenant, approve_by)

    found = {bound(tenant, one) for tenant in ("", "t") for one in (None, LEADS, replace(LEADS, four_eyes=False))}
    assert len(found) == 6


RULE = {"permission": "require_approval"}
LEAD = {"name": "leads", "groups": "leads", "servers": "*"}


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"permissions": [{**RULE, "approve_by": {}}]}, "nobody may approve"),
        ({"permissions": [{"permission": "allow", "approve_by": {"principals": "x"}}]}, "needs `permission"),
        ({"permissions": [{**RULE, "approve_by": {"roles": "leeds"}}], "roles": [LEAD]}, "known: leads"),
        ({"permissions": [{**RULE, "approve_by": {"roles": "leads"}}]}, "known: none"),
        ({"approval": {"approve_by": {"roles": "x*"}}, "roles": [LEAD]}, "`approval.approve_by.roles`"),
        ({"approval": {"ask": ["client"], "approve_by": {"principals": "x"}}}, 'needs "pending"'),
        ({"approval": {"ask": []}, "permissions": [{**RULE, "approve_by": {"principals": "x"}}]}, 'needs "pending"'),
        ({"permissions": [{**RULE, "ask": "page"}]}, "needs `approve_by`"),
        ({"permissions": [{**RULE, "ask": "client", "approve_by": {"principals": "x"}}]}, "the client is not asked"),
        ({"permissions": [{"permission": "deny", "ask": "cli"}]}, "`ask` needs"),
        ({"permissions": [{**RULE, "ask": []}]}, "at least 1 item"),
    ],
)
def test_a_rule_whose_approvers_cannot_be_asked_is_refused(sections: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Settings.model_validate(sections)
    assert words in str(refused.value)


def test_a_single_role_may_be_written_without_a_list() -> None:
    rule = {**RULE, "approve_by": {"roles": "leads", "principals": "robot"}}
    [found] = Settings.model_validate({"permissions": [rule], "roles": [LEAD]}).permissions
    assert found.approve_by is not None
    assert found.approve_by.value == ApproveBy(("leads",), ("robot",))
