"""Who may do what in a running bridge: explanations, and roles that are taken for a time."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from mcpbridge.base.errors import ConfigError, UnknownName
from mcpbridge.engine.audit_trail import ROLE_TAKEN
from mcpbridge.library.bridge import Bridge
from mcpbridge.pipeline.roles.break_glass import LONGEST_REASON, RoleGrant
from mcpbridge.pipeline.roles.explain import explain, identity_from


def explain_access(
    bridge: Bridge, user: str, tool: str, *, claims: Mapping[str, Any] | None = None, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Whether this user may call the tool of this name with these arguments, and what decides.

    `user`: a name in `http.tokens`, `ISSUER#SUBJECT`, or nothing for the local user. `claims`: what a token says.

    Raises:
        UnknownName: the bridge has no such tool.
    """
    identity = identity_from(user, claims) if claims is not None else None
    ref = bridge.catalog.flush().tool(tool)
    principal = identity.principal if identity is not None else user
    return explain(bridge.policy, ref, principal, identity, arguments)


def take_role(bridge: Bridge, user: str, role: str, reason: str, seconds: float, by: str) -> RoleGrant:
    """Give somebody a role of `break_glass` from now on, for so long at most. It counts only if the role is for them.

    Raises:
        ConfigError: there is no such role, there is no reason, or it is for too long.
        UnknownName: there is no role of this name that can be taken.
    """
    roles = bridge.policy.roles
    found = next((one for one in roles.all if one.name == role), None) if roles is not None else None
    if roles is None or found is None or not found.settings.break_glass:
        raise UnknownName("role with `break_glass`", role)
    longest = found.settings.break_glass_time
    if not reason.strip() or len(reason) > LONGEST_REASON:
        raise ConfigError(f"a reason of up to {LONGEST_REASON} characters is needed", key="--reason")
    if not 0 < seconds <= longest:
        raise ConfigError(f"the role can be taken for up to {longest:g} s", key="--for")
    now = time.time()
    grant = RoleGrant(user, role, reason.strip(), now, now + seconds, by)
    roles.break_glass.take(grant, now)
    bridge.trail.note(
        ROLE_TAKEN, {"principal": user, "role": role, "reason": grant.reason, "seconds": seconds, "by": by}
    )
    bridge.server.roles_changed(user)
    asyncio.get_running_loop().call_later(seconds + 1, bridge.server.roles_changed, user)
    return grant
