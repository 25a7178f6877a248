"""Enterprise-managed authorization, the client's side: a user who signed in at the bridge signs in nowhere else.

The identity provider gives an assertion about the user for the authorization server of one upstream (ID-JAG, by RFC
8693), and that authorization server gives an access token for it (RFC 7523). An assertion is used once. ID tokens stay
with whoever signs people in (`IdentityAssertions`): here they are never seen.

Which authorization server that is, says `auth.issuer`; without it the server itself, in its refusal (RFC 9728). What
the server says is believed once: when it names another one later, nobody is signed in there. The secret of the bridge
goes there only after the identity provider has given an assertion for it, so a server alone cannot have it sent away.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol, cast
from urllib.parse import urlsplit

import httpx2

from mcpbridge.base.errors import SignInNeeded, UpstreamUnavailable
from mcpbridge.base.log import get_logger
from mcpbridge.protocol.http.tls_and_proxy import Network
from mcpbridge.upstream.accounts.user_token import NewToken, UserToken, endpoint_in, error_in, object_in
from mcpbridge.upstream.auth.challenge import Challenge
from mcpbridge.upstream.auth.http import OAuthHttp, SignInRefused, open_oauth_http
from mcpbridge.upstream.auth.settings import AuthSettings

log = get_logger("mcpbridge.auth")

_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_LONGEST_METADATA = 2048
"""Characters of the address of a server's metadata."""


class NoAssertion(Exception):
    """The identity provider gives no assertion. `reason`: for people and logs, nothing secret in it."""

    def __init__(self, reason: str, *, is_passing: bool = False) -> None:
        """`is_passing`: the provider cannot be asked now; otherwise the user has to sign in again, or may not."""
        super().__init__(reason)
        self.reason, self.is_passing = reason, is_passing


class IdentityAssertions(Protocol):
    """Holds the ID tokens of people who signed in, and has the identity provider vouch for them."""

    async def assertion(self, principal: str, audience: str, resource: str, scope: str) -> str:
        """An assertion (ID-JAG) about this user for the authorization server `audience`. A new one each time.

        Raises:
            NoAssertion: there is none.
        """
        ...


class AuthorizationServerOfUpstream:
    """The authorization server of one upstream, the same for all users."""

    def __init__(self) -> None:
        self.issuer = ""
        """Empty: not known yet."""
        self.metadata: dict[str, Any] = {}


class AssertedToken(UserToken):
    """The token of one user at one server, for an assertion of the identity provider."""

    def __init__(
        self,
        name: str,
        url: str,
        principal: str,
        settings: AuthSettings,
        network: Network,
        learn: Callable[[str, Iterable[str]], None],
        assertions: Callable[[], IdentityAssertions | None],
        server: AuthorizationServerOfUpstream,
    ) -> None:
        """`assertions` None: nobody signs in at the bridge. `server`: shared by the users of this upstream."""
        super().__init__(name, url, principal, settings, network, learn)
        self._assertions, self._server = assertions, server

    async def _revocation_endpoint(self, http: OAuthHttp) -> str:
        return endpoint_in(self._server.metadata, "revocation_endpoint")

    async def _request(self, asked: Challenge | None) -> NewToken | None:
        assertions = self._assertions()
        if assertions is None or not self.principal:
            raise nothing_to_assert(self.name)
        settings, server = self._settings, self._server
        async with open_oauth_http(self.name, self._url, settings.issuer, self._network) as http:
            if not settings.issuer and not await self._discover(http, asked):
                return None
            if not server.metadata:
                issuer = settings.issuer or server.issuer
                metadata = await self._metadata(http, issuer)
                grants: object = metadata.get("grant_types_supported")
                if isinstance(grants, list) and _GRANT not in cast("list[object]", grants):
                    raise SignInRefused(self.name, f"its authorization server {issuer} takes no identity assertions")
                server.issuer, server.metadata = issuer, metadata
            audience = settings.audience or server.issuer
            assertion = await self._assertion(assertions, audience)
            form = {"grant_type": _GRANT, "assertion": assertion, "resource": self._url}
            if self._scope:
                form["scope"] = self._scope
            status, answer = await self._post(http, str(server.metadata["token_endpoint"]), form)
        return self._new_token(status, answer, assertion)

    async def _assertion(self, assertions: IdentityAssertions, audience: str) -> str:
        try:
            assertion = await assertions.assertion(self.principal, audience, self._url, self._scope)
        except NoAssertion as none:
            log.info("no identity assertion", upstream=self.name, reason=none.reason)
            if none.is_passing:
                raise UpstreamUnavailable(self.name, f"nobody vouches for you there now: {none.reason}") from None
            raise SignInNeeded(
                self.name, f"your sign-in at the bridge is not good for it: {none.reason}", page=""
            ) from None
        self._learn(self.name, [assertion])
        return assertion

    def _new_token(self, status: int, answer: dict[str, Any] | None, assertion: str) -> NewToken:
        if status != 200 or answer is None:
            text = error_in(status, answer)
            log.info("identity assertion not taken", upstream=self.name, reason=text)
            where = self._server.issuer
            self._server.metadata = {}  # read anew the next time: the server may have moved
            raise UpstreamUnavailable(self.name, f"{where} gives no token for the word of your provider: {text}")
        token = self._usable(answer, "signing in with the word of your provider")
        if token == assertion:
            raise SignInRefused(self.name, "its authorization server gave back the very assertion")
        seconds = answer.get("expires_in")
        return NewToken(token, float(seconds) if isinstance(seconds, int | float) else None)

    async def _discover(self, http: OAuthHttp, asked: Challenge | None) -> bool:
        """Learn from the server which authorization server is its own. False: it has not refused anybody yet.

        Raises:
            SignInRefused: it says nothing that can be used, or another one than before.
        """
        server = self._server
        if asked is None and server.issuer:
            return True
        document: dict[str, Any] | None = None
        for where in _places(self._url, asked.resource_metadata if asked is not None else ""):
            document = object_in(await http.send(httpx2.Request("GET", where)))
            if document is not None and "authorization_servers" in document:
                break
        else:
            if asked is None:
                return False
            raise SignInRefused(self.name, "it does not say which authorization server is its own; set `auth.issuer`")
        resource, named = document.get("resource"), document["authorization_servers"]
        if not isinstance(resource, str) or not _covers(resource, self._url):
            raise SignInRefused(self.name, "its metadata is of another resource")
        issuers = cast("list[object]", named) if isinstance(named, list) else []
        if not issuers or not isinstance(issuers[0], str):
            raise SignInRefused(self.name, "it names no authorization server; set `auth.issuer`")
        if server.issuer and server.issuer not in issuers:
            raise SignInRefused(
                self.name,
                f"it names another authorization server than before: {issuers[0][:200]} instead of {server.issuer}; "
                "if that is right, set `auth.issuer` of this server",
            )
        server.issuer = server.issuer or issuers[0]
        return True


def nothing_to_assert(server: str) -> SignInNeeded:
    """The user did not sign in at the bridge, so nobody can vouch for them."""
    why = "it takes people who signed in at the bridge with their account of the identity provider, and you did not"
    return SignInNeeded(server, why, page="")


def _places(url: str, named: str) -> list[str]:
    """Where the metadata of a server may be (RFC 9728, 3.1 and 5.1)."""
    if named:
        return [named] if len(named) <= _LONGEST_METADATA else []
    parts = urlsplit(url)
    known = f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource"
    return list(dict.fromkeys([f"{known}{parts.path.rstrip('/')}", known]))


def _covers(resource: str, url: str) -> bool:
    """Whether a resource is the server, or what the server is below of."""
    one, other = urlsplit(resource), urlsplit(url)
    is_same_place = (one.scheme, one.netloc.lower()) == (other.scheme, other.netloc.lower())
    path = one.path.rstrip("/")
    return is_same_place and (other.path.rstrip("/") == path or other.path.startswith(f"{path}/"))
