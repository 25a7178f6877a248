"""The access tokens of people who signed in here, as the front checks them.

Where tokens are exchanged for those of other servers (`auth.as = "exchange"`), the provider's own are: nobody but this
bridge knows the bridge's, so those never leave it.
"""

import time
from collections.abc import Callable
from typing import Protocol

from msgspec.structs import replace

from mcpbridge.app.sign_in.errors import ProviderRefused
from mcpbridge.app.sign_in.grants import ACCESS, Grants
from mcpbridge.app.sign_in.provider_tokens import ProviderTokenStore
from mcpbridge.base.errors import StoreFailed
from mcpbridge.base.log import get_logger
from mcpbridge.core.identity import Identity
from mcpbridge.downstream.auth.access_tokens import CheckedToken
from mcpbridge.downstream.auth.provider_http import ProviderDown
from mcpbridge.downstream.auth.resources import canonical

log = get_logger("mcpbridge.auth")

_REMEMBERED = 60.0
"""Seconds for which an answer counts."""


class Exchanges(Protocol):
    """Who exchanges the tokens of people; see `EngineAccounts`, which does."""

    @property
    def want_tokens(self) -> bool:
        """Some server takes tokens that were exchanged."""
        ...

    def present(self, identity: Identity, token: bytes) -> None:
        """Take a token of somebody to exchange."""
        ...

    def arrived(self, principal: str) -> None:
        """Somebody came in who signed in here: the provider can vouch for them elsewhere."""
        ...


class SignedInTokens:
    """See `OwnTokens`."""

    prefix = ACCESS.encode()

    def __init__(
        self,
        grants: Grants,
        provider_tokens: ProviderTokenStore,
        exchanges: Exchanges,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._grants, self._provider_tokens, self._exchanges, self._now = grants, provider_tokens, exchanges, now

    async def check(self, token: bytes) -> CheckedToken | None:
        """What a token stands for; None: nothing, any more.

        Raises:
            ProviderDown: that cannot be read now.
        """
        try:
            found = await self._grants.access(token.decode("ascii", "replace"))
        except StoreFailed as error:
            raise ProviderDown(f"the store cannot be read: {error}") from error
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
        if self._exchanges.want_tokens:
            try:
                provider_token = await self._provider_tokens.subject_token(person)
            except (ProviderRefused, ProviderDown) as error:
                log.info("the provider's token of a person cannot be exchanged", reason=error.reason)
            else:
                self._exchanges.present(
                    replace(identity, expires_at=provider_token.until), provider_token.access.encode()
                )
        self._exchanges.arrived(person.principal)
        until = min(found.until, self._now() + _REMEMBERED)
        return CheckedToken(identity, frozenset({canonical(grant.resource)}), is_for_bridge=False, until=until)

    def present(self, identity: Identity, token: bytes) -> None:
        """A front checked this token: it is there to be exchanged, unless it is the bridge's own."""
        if not token.startswith(self.prefix):
            self._exchanges.present(identity, token)
