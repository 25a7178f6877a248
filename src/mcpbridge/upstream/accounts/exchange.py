"""Token exchange: the token that a user presented to the bridge is traded for one of the server.

By RFC 8693, or at Microsoft Entra by its on-behalf-of flow.

The presented token goes to the authorization server of the configuration and nowhere else: never to the MCP server,
which would be token passthrough. What comes back is kept in memory until it ends, for one user at one server by way
of one OAuth client with certain scopes.

Where the token comes from is a `SubjectTokens`. A bridge that only checks tokens (a resource server) knows access
tokens; ID tokens, which `id-jag` needs, never leave `app/sign_in`: see `identity_assertion`.
"""

import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec

from mcpbridge.base.errors import SignInNeeded, UpstreamUnavailable
from mcpbridge.base.log import get_logger
from mcpbridge.core.identity import without_rights
from mcpbridge.protocol.http.tls_and_proxy import Network
from mcpbridge.upstream.accounts.user_token import NewToken, UserToken, endpoint_in, error_in
from mcpbridge.upstream.auth.challenge import Challenge
from mcpbridge.upstream.auth.http import OAuthHttp, SignInRefused, open_oauth_http
from mcpbridge.upstream.auth.settings import AuthSettings

log = get_logger("mcpbridge.auth")

_JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - the name of a kind of tokens
_KINDS_OF_TOKENS = (ACCESS_TOKEN, "urn:ietf:params:oauth:token-type:jwt", "")
_MOST = 10_000
"""Users whose presented tokens are kept."""


class SubjectToken(msgspec.Struct, frozen=True):
    """A token that says who a user is, as RFC 8693 calls it."""

    token: str
    kind: str = ACCESS_TOKEN
    """Its token type identifier."""
    expires_at: float | None = None
    """Seconds since 1970; None: not known."""


class SubjectTokens(Protocol):
    """Knows the tokens that users presented."""

    def of(self, principal: str, kind: str = ACCESS_TOKEN) -> SubjectToken | None:
        """One of this user (`with_rights`) that has not ended; None: there is none, as of holders of `http.tokens`."""
        ...


class PresentedTokens:
    """The `SubjectTokens` of a resource server, in memory alone: the latest access token of each user.

    Users are those of `with_rights`: a client with few scopes gets nothing for the token of one with more.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._tokens: dict[str, SubjectToken] = {}

    def __repr__(self) -> str:
        return f"<PresentedTokens of {len(self._tokens)} users>"

    def present(self, principal: str, token: str, expires_at: float | None) -> None:
        """A front checked this token of this user."""
        self._tokens.pop(principal, None)
        self._tokens[principal] = SubjectToken(token, ACCESS_TOKEN, expires_at)
        while len(self._tokens) > _MOST:
            del self._tokens[next(iter(self._tokens))]

    def of(self, principal: str, kind: str = ACCESS_TOKEN) -> SubjectToken | None:
        """See `SubjectTokens`."""
        found = self._tokens.get(principal)
        if found is None or found.kind != kind:
            return None
        if found.expires_at is not None and found.expires_at <= self._clock():
            del self._tokens[principal]
            return None
        return found

    def principals(self) -> list[str]:
        """Who has one that has not ended, the latest first."""
        return [principal for principal in reversed(list(self._tokens)) if self.of(principal) is not None]

    def is_of(self, principal: str) -> bool:
        """Whether this principal has one that has not ended, whatever its rights."""
        return any(without_rights(user) == principal for user in self.principals())

    def forget(self, principal: str) -> None:
        """All tokens of this principal are of no use any more."""
        for user in [user for user in self._tokens if without_rights(user) == principal]:
            del self._tokens[user]


class ExchangedToken(UserToken):
    """The token of one user at one server, for the token that the user presented."""

    def __init__(
        self,
        name: str,
        url: str,
        principal: str,
        settings: AuthSettings,
        network: Network,
        tokens: SubjectTokens,
        learn: Callable[[str, Iterable[str]], None],
    ) -> None:
        """`learn`: gets secrets, to mask them."""
        super().__init__(name, url, principal, settings, network, learn)
        self._tokens = tokens

    async def _revocation_endpoint(self, http: OAuthHttp) -> str:
        issuer = self._settings.issuer  # without it the settings name an endpoint alone: nobody says where else
        return endpoint_in(await self._metadata(http, issuer), "revocation_endpoint") if issuer else ""

    async def _request(self, asked: Challenge | None) -> NewToken:
        subject = self._tokens.of(self.principal)
        if subject is None or not self._knows_issuer:
            raise nothing_to_exchange(self.name)
        answer = await self._exchange(subject)
        token = self._usable(answer, "exchanging the token of the user")
        if answer.get("issued_token_type", "") not in _KINDS_OF_TOKENS:
            raise UpstreamUnavailable(self.name, "exchanging the token of the user brought one of another kind")
        if token == subject.token:
            raise SignInRefused(self.name, "the exchange gave back the very token of the user, which is not passed on")
        seconds = answer.get("expires_in")
        # Who may not come in any more does not go on upstream either.
        return NewToken(token, float(seconds) if isinstance(seconds, int | float) else None, subject.expires_at)

    @property
    def _knows_issuer(self) -> bool:
        """Whether the provider that exchanges is the one that issued the user's token: nobody else is to see it.

        Where the settings name an endpoint alone, it must be of the same host.
        """
        issuer, settings = self.principal.partition("#")[0], self._settings
        if settings.issuer is not None:
            return settings.issuer == issuer
        return urlsplit(settings.token_endpoint or "").netloc == urlsplit(issuer).netloc

    async def _exchange(self, subject: SubjectToken) -> dict[str, Any]:
        settings = self._settings
        people_named = settings.token_endpoint or settings.issuer
        async with open_oauth_http(self.name, self._url, people_named, self._network) as http:
            endpoint = settings.token_endpoint
            if endpoint is None:
                endpoint = str((await self._metadata(http, settings.issuer or ""))["token_endpoint"])
            status, answer = await self._post(http, endpoint, self._form(subject))
        if status == 200 and answer is not None:
            return answer
        text = error_in(status, answer)
        log.info("token not exchanged", upstream=self.name, reason=text)
        if status < 500 and text in ("invalid_grant", "invalid_request", "access_denied"):
            raise SignInNeeded(self.name, f"your sign-in at the bridge is not good for it: {text}", page="")
        where = urlsplit(endpoint)
        raise UpstreamUnavailable(self.name, f"{where.scheme}://{where.netloc} does not exchange the token: {text}")

    def _form(self, subject: SubjectToken) -> dict[str, str]:
        settings = self._settings
        if settings.is_on_behalf_of:
            return {
                "grant_type": _JWT_BEARER,
                "assertion": subject.token,
                "requested_token_use": "on_behalf_of",
                "scope": self._scope,
            }
        form = {
            "grant_type": _GRANT,
            "subject_token": subject.token,
            "subject_token_type": subject.kind,
            "requested_token_type": ACCESS_TOKEN,
            "resource": self._url,
        }
        if settings.audience:
            form["audience"] = settings.audience
        if self._scope:
            form["scope"] = self._scope
        return form


def nothing_to_exchange(server: str) -> SignInNeeded:
    """The user presented no token that a provider issued."""
    why = "it takes the token of your identity provider, and this client came with none: sign in at the bridge"
    return SignInNeeded(server, why, page="")
