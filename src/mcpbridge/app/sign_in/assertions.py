"""Identity assertions of an enterprise (ID-JAG): its provider vouches for a person towards this authorization server.

Enterprise-managed authorization, after RFC 7523, 3: the signature is the provider's, `typ` is `oauth-id-jag+jwt`, `aud`
is this authorization server, `client_id` is the client that sends it, `resource` is an address of this bridge, and the
`jti` comes once. No refresh token is given: the provider is asked again each time.
"""

from collections.abc import Callable, Mapping
from typing import Any

from mcpbridge.app.sign_in.clients import OAuthClient
from mcpbridge.app.sign_in.errors import OAuthRefused
from mcpbridge.app.sign_in.grants import Grant, Grants, Person, new_grant_id
from mcpbridge.base.log import get_logger
from mcpbridge.downstream.auth.provider_http import ProviderDown
from mcpbridge.downstream.auth.provider_keys import ProviderKeys
from mcpbridge.downstream.auth.resources import canonical
from mcpbridge.downstream.auth.sign_in_settings import SignInSettings
from mcpbridge.downstream.auth.signed_tokens import (
    Expected,
    InvalidToken,
    check_times,
    display_name,
    is_signed_by,
    read_token,
)
from mcpbridge.downstream.settings import IssuerSettings, ResourceServerSettings

log = get_logger("mcpbridge.auth")

_TYPE = "oauth-id-jag+jwt"
_LONGEST_LIFE = 3600
"""Seconds; an assertion is for one exchange."""


class Assertions:
    """The assertions of all providers that are trusted."""

    def __init__(
        self,
        settings: ResourceServerSettings,
        sign_in: SignInSettings,
        server: str,
        grants: Grants,
        now: Callable[[], float],
    ) -> None:
        """`server`: the issuer that this authorization server is."""
        self._server, self._grants, self._now, self._leeway = server, grants, now, settings.leeway
        trusted = {one.issuer: one for one in settings.issuers.values()}
        own = sign_in.provider_issuer
        if sign_in.provider != "github":
            trusted.setdefault(own, IssuerSettings(issuer=own))
        self._trusted: Mapping[str, IssuerSettings] = trusted
        self._keys: dict[str, ProviderKeys] = {}

    async def grant(
        self, client: OAuthClient, assertion: str, scopes: tuple[str, ...], fits: Callable[[str], bool]
    ) -> Grant:
        """What an assertion is good for, once. `fits`: whether the resource that it names is the right one.

        Raises:
            OAuthRefused: it is not.
        """
        try:
            claims = await self._claims(assertion, client)
        except InvalidToken as invalid:
            log.warning("an identity assertion was refused", client=client.id, reason=invalid.reason)
            raise OAuthRefused("invalid_grant", f"the assertion is not valid ({invalid.reason})") from None
        except ProviderDown as down:
            log.warning("an identity assertion could not be checked", reason=down.reason)
            raise OAuthRefused("temporarily_unavailable", "the provider cannot be asked at the moment", 503) from None
        resource, issuer, subject = claims.get("resource"), claims["iss"], claims["sub"]
        if not isinstance(resource, str) or not fits(resource):
            raise OAuthRefused("invalid_target", "the assertion is for another resource")
        allowed = claims.get("scope")
        if isinstance(allowed, str):
            scopes = tuple(scope for scope in scopes if scope in allowed.split())
        if not await self._grants.is_new("assertion", f"{issuer}\n{claims['jti']}", _LONGEST_LIFE + 2 * self._leeway):
            raise OAuthRefused("invalid_grant", "the assertion was used before")
        kept = {name: value for name, value in claims.items() if name not in _NOT_KEPT}
        person = Person(issuer, subject, display_name(kept, subject), kept)
        return Grant(new_grant_id(), client.id, client.name, person, scopes, canonical(resource), self._now())

    async def close(self) -> None:
        """Ask for nothing any more."""
        for keys in self._keys.values():
            await keys.close()

    async def _claims(self, assertion: str, client: OAuthClient) -> Mapping[str, Any]:
        token = read_token(assertion.encode("ascii", "replace"))
        claims = token.claims
        spelled: object = claims.get("iss")
        issuer = self._trusted.get(spelled) if isinstance(spelled, str) else None
        if issuer is None:
            raise InvalidToken("another provider's")
        if token.typ.removeprefix("application/") != _TYPE:
            raise InvalidToken("wrong type")
        if token.alg not in issuer.algorithms:
            raise InvalidToken("an algorithm that is not accepted")
        keys = self._keys.get(issuer.issuer)
        if keys is None:
            keys = self._keys[issuer.issuer] = ProviderKeys(issuer)
        fitting = await keys.fitting(token)
        if not any(is_signed_by(token, key) for key in fitting):
            raise InvalidToken("signature does not fit")
        now = self._now()
        check_times(claims, Expected(issuer.issuer, self._leeway), now)
        if claims["exp"] > now + _LONGEST_LIFE + self._leeway:
            raise InvalidToken("lives for too long")
        audience: object = claims.get("aud")
        if audience != self._server and audience != [self._server]:
            raise InvalidToken("for another authorization server")
        if claims.get("client_id") != client.id:
            raise InvalidToken("for another client")
        for name in ("sub", "jti"):
            value: object = claims.get(name)
            if not isinstance(value, str) or not 0 < len(value) <= 255:
                raise InvalidToken(f"no {name}")
        if "cnf" in claims:
            raise InvalidToken("bound to a key, which is not supported")
        return claims


_NOT_KEPT = frozenset({"aud", "exp", "iat", "nbf", "jti", "client_id", "resource", "scope"})
