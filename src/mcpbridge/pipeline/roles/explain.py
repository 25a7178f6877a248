"""Says why somebody may call a tool, or may not: which roles they have, and which role and rule decided. Pure."""

from collections.abc import Mapping
from typing import Any, cast

from mcpbridge.core.identity import Identity, principal_of
from mcpbridge.core.model import Tool
from mcpbridge.pipeline.permissions.conditions import Undecidable
from mcpbridge.pipeline.permissions.policy import Policy
from mcpbridge.pipeline.roles.access import KEPT
from mcpbridge.pipeline.roles.claims import Unreadable, for_conditions
from mcpbridge.protocol.jsonrpc import decode_fields, encode


def identity_from(user: str, claims: Mapping[str, Any]) -> Identity:
    """The identity that a token with these claims would give. `user`: `ISSUER#SUBJECT`, or a subject alone."""
    issuer, _, subject = user.rpartition("#")
    issuer, subject = str(claims.get("iss") or issuer), str(claims.get("sub") or subject)
    given: object = claims.get("scope", claims.get("scp", ""))
    scopes = given.split() if isinstance(given, str) else [str(one) for one in cast("list[object]", given)]
    client = str(claims.get("client_id") or claims.get("azp") or "")
    principal = principal_of(issuer, subject) if issuer else subject
    return Identity(principal, issuer, subject, claims, frozenset(scopes), client)


def explain(
    policy: Policy,
    tool: Tool,
    principal: str,
    identity: Identity | None,
    arguments: Mapping[str, Any],
    client: str = "",
) -> dict[str, Any]:
    """What becomes of a call with these arguments, and why.

    `decision`: `allow`, `require_approval`, `deny` by a rule, `unknown` where roles forbid it, `insufficient_scope`.
    """
    audience, roles = policy.audience(client, principal, identity), policy.roles
    of_tool = policy.of(tool)
    access = of_tool.access
    decision = of_tool.decide(audience, _Asked(client, principal, identity, arguments))
    held = roles.held(audience) if roles is not None else []
    opened = [role.name for role in held if access is not None and role.opens_mark in access.opens]
    denying = roles.denying(audience) if roles is not None else []
    denied = [role.name for role in denying if access is not None and role.denies_mark in access.denies]
    missing = sorted(of_tool.scopes - identity.scopes) if identity is not None else []
    answer: dict[str, Any] = {
        "tool": tool.id,
        "user": principal,
        "decision": decision.permission,
        "rule": policy.words_of(tool, decision),
        "reason": decision.reason,
        "roles": [role.name for role in held],
        "opened_by": opened,
        "denied_by": denied,
        "scopes": sorted(of_tool.scopes),
        "missing_scopes": missing,
        "would_open": [],
    }
    if of_tool.is_unknown(audience):
        others = roles.all if roles is not None else []
        would = [role.name for role in others if access is not None and role.opens_mark in access.opens]
        return answer | {"decision": "unknown", "rule": _why_unknown(denied), "would_open": [] if denied else would}
    if missing and decision.permission != "deny":
        return answer | {"decision": "insufficient_scope", "rule": "`auth.tool_scopes`"}
    if opened and decision.rule is None and KEPT in audience and not decision.by_role:
        answer["rule"] = f"role `{opened[0]}` opens it; {answer['rule']} decides about calls"
    return answer


def _why_unknown(denied: list[str]) -> str:
    return f"role `{denied[0]}` denies it" if denied else "no role of this user opens it"


class _Asked:
    """A call that nobody makes, for conditions."""

    def __init__(self, client: str, principal: str, identity: Identity | None, arguments: Mapping[str, Any]) -> None:
        self.client: Mapping[str, object] = {"name": client, "principal": principal}
        self.arguments = decode_fields(encode(dict(arguments)))
        self.context: Mapping[str, object] = {
            "run": "",
            "session": "",
            "user": principal,
            "tenant": "",
            "metadata": dict[str, object](),
        }
        self._identity = identity

    @property
    def claims(self) -> Mapping[str, object]:
        try:
            return for_conditions(self._identity) if self._identity is not None else {}
        except Unreadable as error:
            raise Undecidable(str(error)) from error
