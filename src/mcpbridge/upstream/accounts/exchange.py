"""Token exchange: the token that a user presented to the bridge is traded for one of the server (RFC 8693).

The presented token goes to the authorization server of the configuration and nowhere else: never to the MCP server,
which would be token passthrough. What comes back is kept in memory, for one user at one server, until it ends.

Where the token comes from is a `SubjectTokens`. A bridge that only checks tokens (a resource server) knows access
tokens; an ID token, which `id-jag` needs, is known only to a bridge that signs people in itself.
"""

import asyncio
import base64
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

import httpx2
import msgspec

from mcpbridge.base.errors import SignInNeeded, UpstreamUnavailable
from mcpbridge.base.log import get_logger
from mcpbridge.protocol.http.tls_and_proxy import Network
from mcpbridge.upstream.auth.challenge import Challenge, join_scopes
from mcpbridge.upstream.auth.http import OAuthHttp, SignInRefused, open_oauth_http
from mcpbridge.upstream.auth.settings import RENEW_EARLY, AuthSettings

log = get_logger("mcpbridge.auth")

_GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - the name of a kind of tokens
_KINDS_OF_TOKENS = (ACCESS_TOKEN, "urn:ietf:params:oauth:token-type:jwt", "")
_UNKNOWN_LIFE = 300.0
"""Seconds for which a token is used whose end was not said."""
_MOST = 10_000
"""Users whose presented tokens are kept."""
_SHOWN = 200


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
        """One of this user that has not ended; None: there is none, as of holders of `http.tokens`."""
        ...


class PresentedTokens:
    """The `SubjectTokens` of a resource server: the access token of each user's latest request, in memory alone."""

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

    def forget(self, principal: str) -> None:
        """This user's are of no use any more."""
        self._tokens.pop(principal, None)


class ExchangedToken:
    """The token of one user at one server; an `Authorizer` (`protocol/http/bearer_auth`).

    One exchange at a time: calls that come meanwhile wait for it.
    """

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
        self.name, self.principal = name, principal
        self._url, self._settings, self._network, self._tokens, self._learn = url, settings, network, tokens, learn
        self._token, self._renew_at, self._scope = "", 0.0, " ".join(settings.scopes)
        self._lock = asyncio.Lock()
        self.exchanges = 0
        """How often a token was exchanged."""

    waits_for = ""

    @property
    def ready(self) -> str | None:
        """See `Authorizer`."""
        return self._token if self._token and time.time() < self._renew_at else None

    async def token(self) -> str:
        """See `Authorizer`."""
        return self.ready or await self._another("")

    async def refused(self, used: str, status: int, challenge: str) -> bool:
        """See `Authorizer`. A wider scope is asked for where the server says that it takes one."""
        asked = Challenge.parse(challenge)
        if status == 403:
            wider = join_scopes(self._scope, asked.scope)
            if asked.error != "insufficient_scope" or wider == self._scope:
                return False
            self._scope = wider
        return await self._another(used) != used

    def accepted(self) -> None:
        """See `Authorizer`."""

    async def _another(self, used: str) -> str:
        async with self._lock:
            if self._token and self._token != used and time.time() < self._renew_at:
                return self._token  # another call was quicker
            subject = self._tokens.of(self.principal)
            if subject is None or not self._knows_issuer:
                raise nothing_to_exchange(self.name)
            self._token = ""
            answer = await self._exchange(subject)
            token = str(answer.get("access_token") or "")
            self._check(answer, token, subject)
            seconds = answer.get("expires_in")
            life = float(seconds) if isinstance(seconds, int | float) and seconds > 0 else _UNKNOWN_LIFE
            self._renew_at = time.time() + life - min(RENEW_EARLY, life / 2)
            if subject.expires_at is not None:  # who may not come in any more does not go on upstream either
                self._renew_at = min(self._renew_at, subject.expires_at)
            self._learn(self.name, [token])
            self._token = token
            self.exchanges += 1
            return token

    @property
    def _knows_issuer(self) -> bool:
        """Whether the provider that exchanges is the one that issued the user's token: nobody else is to see it.

        Where the settings name an endpoint alone, it must be of the same host.
        """
        issuer, settings = self.principal.partition("#")[0], self._settings
        if settings.issuer is not None:
            return settings.issuer == issuer
        return urlsplit(settings.token_endpoint or "").netloc == urlsplit(issuer).netloc

    def _check(self, answer: dict[str, Any], token: str, subject: SubjectToken) -> None:
        kind, form = answer.get("issued_token_type", ""), answer.get("token_type", "Bearer")
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise UpstreamUnavailable(self.name, "exchanging the token of the user brought none that can be used")
        if kind not in _KINDS_OF_TOKENS or not isinstance(form, str) or form.lower() != "bearer":
            raise UpstreamUnavailable(self.name, "exchanging the token of the user brought one of another kind")
        if token == subject.token:
            raise SignInRefused(self.name, "the exchange gave back the very token of the user, which is not passed on")

    async def _exchange(self, subject: SubjectToken) -> dict[str, Any]:
        settings = self._settings
        people_named = settings.token_endpoint or settings.issuer
        async with open_oauth_http(self.name, self._url, people_named, self._network) as http:
            endpoint = settings.token_endpoint or await self._endpoint(http)
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
            request = httpx2.Request("POST", endpoint, data=form, headers=self._credentials(form))
            response = await http.send(request)
        answer = _object(response)
        if response.status_code == 200 and answer is not None:
            return answer
        error = str((answer or {}).get("error") or f"HTTP {response.status_code}")
        text = "".join(c for c in error if c.isprintable())[:_SHOWN]
        log.info("token not exchanged", upstream=self.name, reason=text)
        if response.status_code < 500 and text in ("invalid_grant", "invalid_request", "access_denied"):
            raise SignInNeeded(self.name, f"your sign-in at the bridge is not good for it: {text}", page="")
        where = urlsplit(endpoint)
        raise UpstreamUnavailable(self.name, f"{where.scheme}://{where.netloc} does not exchange the token: {text}")

    def _credentials(self, form: dict[str, str]) -> dict[str, str]:
        """The headers that say which client the bridge is; what goes into the body instead is put there."""
        settings = self._settings
        assert settings.client_id is not None  # checked with the settings
        method = settings.token_endpoint_auth_method or ("client_secret_basic" if settings.client_secret else "none")
        if method == "client_secret_basic":
            pair = f"{quote(settings.client_id, safe='')}:{quote(settings.client_secret or '', safe='')}"
            return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
        form["client_id"] = settings.client_id
        if method == "client_secret_post":
            form["client_secret"] = settings.client_secret or ""
        return {}

    async def _endpoint(self, http: OAuthHttp) -> str:
        """The token endpoint, by the metadata of the issuer (RFC 8414, or OpenID Connect Discovery)."""
        issuer = self._settings.issuer or ""
        parts = urlsplit(issuer)
        origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
        for where in (
            f"{origin}/.well-known/oauth-authorization-server{path}",
            f"{origin}{path}/.well-known/openid-configuration",
        ):
            document = _object(await http.send(httpx2.Request("GET", where)))
            if document is None or "token_endpoint" not in document:
                continue
            if document.get("issuer") != issuer:
                raise SignInRefused(self.name, f"the metadata of {issuer} is of another issuer")
            return str(document["token_endpoint"])
        raise SignInRefused(self.name, f"no metadata of the authorization server {issuer}")


def nothing_to_exchange(server: str) -> SignInNeeded:
    """The user presented no token that a provider issued."""
    why = "it takes the token of your identity provider, and this client came with none: sign in at the bridge"
    return SignInNeeded(server, why, page="")


def _object(response: httpx2.Response) -> dict[str, Any] | None:
    try:
        found: object = msgspec.json.decode(response.content)
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None  # pyright: ignore[reportUnknownVariableType] - JSON has text keys
