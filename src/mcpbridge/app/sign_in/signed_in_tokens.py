"""The access tokens of people who signed in here, as the front checks them."""

import time
from collections.abc import Callable

from mcpbridge.app.sign_in.grants import ACCESS, Grants
from mcpbridge.core.identity import Identity
from mcpbridge.downstream.auth.access_tokens import CheckedToken
from mcpbridge.downstream.auth.resources import canonical

_REMEMBERED = 60.0
"""Seconds for which an answer counts."""


class SignedInTokens:
    """See `OwnTokens`."""

    prefix = ACCESS.encode()

    def __init__(self, grants: Grants, now: Callable[[], float] = time.time) -> None:
        self._grants, self._now = grants, now

    async def check(self, token: bytes) -> CheckedToken | None:
        """What a token stands for; None: nothing, any more."""
        found = await self._grants.access(token.decode("ascii", "replace"))
        if found is None:
            return None
        grant, person = found.grant, found.grant.person
        identity = Identity(
            person.principal,
            person.issuer,
            person.subject,
            person.claims,
            scopes=frozenset(found.scopes),
            client_id=grant.client_id,
            name=person.name,
            expires_at=found.until,
        )
        audiences = frozenset({canonical(grant.resource)})
        return CheckedToken(identity, audiences, is_for_bridge=False, until=min(found.until, self._now() + _REMEMBERED))
