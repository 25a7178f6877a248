"""Whether somebody may decide about a call: asked in the moment of the decision, with the roles that they have then.

Where no rule names who approves, whoever administers the bridge may, which is decided before. Where one does
(`ApproveBy`), nobody else may: not the person at the client, and not the operator unless the rule says so. Pure.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct

from mcpbridge.core.identity import Identity
from mcpbridge.core.model import ApproveBy
from mcpbridge.pipeline.approvals.request import ApprovalRequest
from mcpbridge.pipeline.permissions.settings import globs

RolesOf = Callable[[str, Identity | None], Sequence[str]]
"""The names of the roles that a principal with this identity has now."""


class Decider(Struct, frozen=True):
    """Somebody who answers, and was authenticated."""

    principal: str
    identity: Identity | None = None
    address: str = ""
    """Where they are, as the front sees it; empty: not known."""
    is_operator: bool = False
    """Whoever has the machine: the commands, the console's one-time link, the program that the bridge runs in."""


OPERATOR = Decider("", is_operator=True)


def objection(request: ApprovalRequest, decider: Decider, roles_of: RolesOf) -> str:
    """Why somebody may not decide about a call, as a sentence; empty: they may."""
    approve_by = request.approve_by
    if approve_by is None:
        return ""
    if approve_by.four_eyes and decider.principal == request.principal:
        return "Nobody approves a call of their own: somebody else has to"
    if decider.is_operator:
        return "" if approve_by.operator else f"Only {approvers_in_words(approve_by)} may decide about this call"
    if decider.principal and _is_named(approve_by, decider, roles_of):
        return ""
    return f"Only {approvers_in_words(approve_by)} may decide about this call"


def _is_named(approve_by: ApproveBy, decider: Decider, roles_of: RolesOf) -> bool:
    if approve_by.principals and globs(approve_by.principals).fullmatch(decider.principal) is not None:
        return True
    if not approve_by.roles:
        return False
    return any(map(globs(approve_by.roles).fullmatch, roles_of(decider.principal, decider.identity)))


def approvers_in_words(approve_by: ApproveBy) -> str:
    """Who may approve, in words. Principals are not spelled out: they are nobody's business."""
    ways: list[str] = []
    if approve_by.roles:
        ways.append(f"somebody with the role {' or '.join(approve_by.roles)}")
    if approve_by.principals:
        ways.append("somebody whom the configuration names")
    if approve_by.operator:
        ways.append("the operator of the bridge")
    return " or ".join(ways)


def advice(request: ApprovalRequest, link: str) -> str:
    """What people can do about a call that gave up waiting. `link`: of the page about it; empty: there is none."""
    assert request.approve_by is not None
    who, where = approvers_in_words(request.approve_by), f"at {link}" if link else f"(id {request.id})"
    return f"{who[:1].upper()}{who[1:]} can still approve it {where}"


def waits_for(request: ApprovalRequest, link: str) -> str:
    """What a call waits for, in words for its client."""
    assert request.approve_by is not None
    where = f": {link}" if link else f" (id {request.id})"
    return f"Waiting until {approvers_in_words(request.approve_by)} approves {request.tool}{where}"
