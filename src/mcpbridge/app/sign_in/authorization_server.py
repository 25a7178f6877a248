"""The authorization server: what its endpoints decide, without the pages and the HTTP around it.

A sign-in goes like this. The client sends the person to `/oauth/authorize`. The person agrees on our page, is sent on
to the identity provider, comes back to `/oauth/callback`, and is sent back to the client with a code. The client
exchanges the code for tokens of the bridge at `/oauth/token`.

Against a confused deputy (MCP, security best practices): the provider knows one client, the bridge, and may ask nobody
again. So our own page asks each time, naming the client and where the person is sent back to, before the provider is
involved; and whoever comes back must be the browser that agreed.
"""

import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlencode, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from mcpbridge.app.sign_in.assertions import Assertions
from mcpbridge.app.sign_in.clients import Clients, OAuthClient
from mcpbridge.app.sign_in.errors import OAuthRefused, ProviderRefused
from mcpbridge.app.sign_in.grants import Grants, Person, Replayed, Request, Tokens, digest_of
from mcpbridge.app.sign_in.identity_provider import IdentityProvider, challenge_of
from mcpbridge.app.sign_in.parameters import basic_credentials, single_values
from mcpbridge.app.sign_in.provider_tokens import ProviderTokenStore
from mcpbridge.app.sign_in.rates import network_of
from mcpbridge.app.sign_in.redirect_uris import is_loopback
from mcpbridge.base.errors import BridgeError, StoreFailed
from mcpbridge.base.log import get_logger
from mcpbridge.downstream.auth.provider_http import ProviderDown
from mcpbridge.downstream.auth.resource_server import Caller
from mcpbridge.downstream.auth.resources import Resources, canonical
from mcpbridge.downstream.auth.sign_in_settings import SignInSettings
from mcpbridge.downstream.settings import ResourceServerSettings
from mcpbridge.storage.store import Store
from mcpbridge.upstream.accounts.identity_assertion import NoAssertion
from mcpbridge.upstream.auth.grant import SecretStore

log = get_logger("mcpbridge.auth")

PREFIX = "/oauth"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
_VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}")
_LONGEST_STATE = 4000
SIGNED_IN, SIGNED_OUT = "sign_in.began", "sign_in.ended"
"""Kinds of lines in the audit log."""


class Asked(Struct, frozen=True):
    """What the person is asked to agree to."""

    handle: str
    client: OAuthClient
    redirect_uri: str
    scopes: Sequence[str]
    resource: str


class SendBack(Exception):
    """The person is to be sent back to the client, which learns there what went wrong."""

    def __init__(self, url: str) -> None:
        super().__init__("sent back")
        self.url = url


class AuthorizationServer:
    """The authorization server of one bridge."""

    def __init__(
        self,
        settings: ResourceServerSettings,
        sign_in: SignInSettings,
        store: Store,
        kept_secrets: SecretStore,
        *,
        path: str,
        on_end: Callable[[str, str], object] = lambda principal, client_id: None,
        on_gone: Callable[[str], Awaitable[object]] | None = None,
        note: Callable[[str, Mapping[str, object]], object] = lambda kind, facts: None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`path`: of the main endpoint. `on_end`: tokens of a principal work no more, those of this client or all.

        `store`: see `Grants`.
        `on_gone`: a principal is signed in with no program any more. `note` writes the audit trail.
        """
        assert settings.resource is not None
        self._settings, self._sign_in, self._on_end, self._note = settings, sign_in, on_end, note
        self._on_gone = on_gone
        self._resources = Resources(settings.resource, path)
        self.issuer = self._resources.origin_and_prefix
        self.clients = Clients(sign_in, store)
        self.grants = Grants(
            store,
            token_seconds=sign_in.token_lifetime,
            session_seconds=sign_in.session_lifetime,
            now=now,
        )
        self.grants.out.on_written = lambda principal: self._on_end(principal, "")
        self.provider = IdentityProvider(sign_in, f"{self.issuer}{PREFIX}/callback", now=now)
        self.provider_tokens = ProviderTokenStore(kept_secrets, self.provider, now)
        self._assertions = Assertions(settings, sign_in, self.issuer, self.grants, now)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.issuer} provider={self.provider.issuer}>"

    @property
    def token_seconds(self) -> float:
        """Seconds after which the provider is asked again whether a person still may."""
        return self._sign_in.token_lifetime

    @property
    def is_https(self) -> bool:
        """People reach it over TLS."""
        return self.issuer.startswith("https://")

    def metadata(self) -> dict[str, Any]:
        """The document about it (RFC 8414)."""
        grants = ["authorization_code", "refresh_token"]
        methods = ["none", "client_secret_basic", "client_secret_post"]
        document: dict[str, Any] = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}{PREFIX}/authorize",
            "token_endpoint": f"{self.issuer}{PREFIX}/token",
            "revocation_endpoint": f"{self.issuer}{PREFIX}/revoke",
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported": grants,
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": methods,
            "revocation_endpoint_auth_methods_supported": methods,
            "authorization_response_iss_parameter_supported": True,
            "client_id_metadata_document_supported": self._sign_in.documents,
        }
        if self._sign_in.registration:
            document["registration_endpoint"] = f"{self.issuer}{PREFIX}/register"
        if scopes := self._offered:
            document["scopes_supported"] = scopes
        if any(client.assertions for client in self._sign_in.clients.values()):
            grants.append(JWT_BEARER)
            document["authorization_grant_profiles_supported"] = ["urn:ietf:params:oauth:grant-profile:id-jag"]
        return document

    # -- a person signs in

    async def begin(self, parameters: Mapping[str, Sequence[str]], browser: str, network: str = "") -> Asked:
        """A client sends somebody. `browser`: the cookie of the browser; `network`: where it is (`network_of`).

        Raises:
            OAuthRefused: the client or the address to send people back to is not known: nobody is sent anywhere. Or
                too many begin.
            SendBack: the client asked for what is not to be had.
        """
        given = single_values(parameters, repeated=("resource",))
        client = await self._client(given.get("client_id"), network)
        redirect_uri = client.redirect_uri(given.get("redirect_uri"))
        state = given.get("state")
        if state is not None and len(state) > _LONGEST_STATE:
            raise OAuthRefused("invalid_request", "state is too long")
        try:
            if given.get("response_type") != "code":
                raise OAuthRefused("unsupported_response_type", "response_type must be `code`")
            challenge = given.get("code_challenge", "")
            if not _CHALLENGE.fullmatch(challenge) or given.get("code_challenge_method") != "S256":
                raise OAuthRefused("invalid_request", "PKCE is needed: code_challenge with code_challenge_method=S256")
            resource = self._resource(parameters.get("resource", ()))
            scopes = self._scopes(given.get("scope"))
        except OAuthRefused as refused:
            if not client.is_known and not is_loopback(urlsplit(redirect_uri)):
                raise  # anybody can register an address: nobody is sent there without having agreed
            raise SendBack(self._back(redirect_uri, state, error=refused.error, why=refused.description)) from None
        request = Request(
            client.id,
            redirect_uri,
            "redirect_uri" in given,
            state,
            challenge,
            scopes,
            resource,
            digest_of(browser),
        )
        return Asked(await self.grants.begin(request, network), client, redirect_uri, scopes, resource)

    async def agree(self, handle: str, browser: str) -> str:
        """The person agrees. Returns the page of the provider that comes next.

        Raises:
            OAuthRefused: this sign-in is not known, too old, or another browser's.
            ProviderDown: the provider cannot be asked.
        """
        request = await self._request_of(await self.grants.request(handle), browser)
        nonce, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(48)
        state = await self.grants.begin(replace(request, nonce=nonce, verifier=verifier))
        page = await self.provider.page(state, nonce, verifier)  # first: the provider may be down
        if await self.grants.take_request(handle) is None:
            raise OAuthRefused("invalid_request", _GONE)
        return page

    async def deny(self, handle: str, browser: str) -> str:
        """The person does not agree. Returns where the person goes next.

        Raises:
            OAuthRefused: as `agree`.
        """
        request = await self._request_of(await self.grants.request(handle), browser)
        await self.grants.take_request(handle)
        return self._back(request.redirect_uri, request.state, error="access_denied", why="the person said no")

    async def come_back(self, parameters: Mapping[str, Sequence[str]], browser: str) -> str:
        """The person comes back from the provider. Returns where the person goes next.

        Raises:
            OAuthRefused: this sign-in is not known, too old, or another browser's: nobody is sent anywhere.
        """
        given = single_values(parameters)
        found = await self.grants.take_request(given.get("state", ""))
        request = await self._request_of(found, browser)
        if not request.nonce:
            raise OAuthRefused("invalid_request", _GONE)
        code, error = given.get("code"), given.get("error")
        try:
            if error is not None or not code:
                log.info("somebody did not sign in at the provider", error=(error or "no code")[:60])
                raise ProviderRefused("the sign-in at the provider was not completed")
            signed_in = await self.provider.finish(code, request.nonce, request.verifier, given.get("iss"))
        except ProviderRefused as refused:
            return self._back(request.redirect_uri, request.state, error="access_denied", why=refused.reason)
        except ProviderDown as down:
            log.warning("the identity provider cannot be asked", reason=down.reason)
            why = "the identity provider cannot be asked at the moment"
            return self._back(request.redirect_uri, request.state, error="temporarily_unavailable", why=why)
        made = await self.grants.make_code(request, signed_in.person)  # first: from now on the tokens are needed
        await self.provider_tokens.keep(signed_in)
        log.info("signed in", who=signed_in.person.name, client=request.client_id)
        return self._back(request.redirect_uri, request.state, code=made)

    # -- a client gets tokens

    async def token(
        self, parameters: Mapping[str, Sequence[str]], authorization: str, address: str = ""
    ) -> dict[str, Any]:
        """The answer of the token endpoint. `address`: where the client is.

        Raises:
            OAuthRefused: see RFC 6749, 5.2.
        """
        given = single_values(parameters, repeated=("resource",))
        client = await self._authenticated(given, authorization, network_of(address))
        match given.get("grant_type"):
            case "authorization_code":
                tokens, person = await self._for_code(client, given, parameters.get("resource", ()))
                self._note_sign_in(person, client, address, "by the provider")
            case "refresh_token":
                tokens = await self._for_refresh_token(client, given, parameters.get("resource", ()))
            case "urn:ietf:params:oauth:grant-type:jwt-bearer" if client.may_assert:
                scopes = self._scopes(given.get("scope"))
                fits = partial(self._is_wanted, parameters.get("resource", ()))
                grant = await self._assertions.grant(client, given.get("assertion", ""), scopes, fits)
                tokens = await self.grants.grant_without_renewal(grant)
                self._note_sign_in(grant.person, client, address, "by an identity assertion")
            case "urn:ietf:params:oauth:grant-type:jwt-bearer":
                raise OAuthRefused("unauthorized_client", "this client may not exchange assertions")
            case _:
                raise OAuthRefused("unsupported_grant_type", "grant_type is authorization_code or refresh_token")
        answer: dict[str, Any] = {
            "access_token": tokens.access,
            "token_type": "Bearer",
            "expires_in": int(tokens.seconds),
            "scope": " ".join(tokens.scopes),
        }
        if tokens.refresh:
            answer["refresh_token"] = tokens.refresh
        return answer

    async def revoke(self, parameters: Mapping[str, Sequence[str]], authorization: str, network: str = "") -> None:
        """End the grant of a token (RFC 7009). An unknown token is none that works: that is no error.

        Raises:
            OAuthRefused: the client is not who it says.
            StoreFailed: it cannot be ended now.
        """
        given = single_values(parameters)
        client = await self._authenticated(given, authorization, network)
        ended = await self.grants.end_by_token(given.get("token", ""), client.id)
        if ended is not None:
            log.info("a client ended its sign-in", client=client.id)
            await self._ended(ended[1], client, "its program ended it")

    def note_page_sign_in(self, caller: Caller, address: str) -> None:
        """Somebody signed in to pages of the bridge, in a browser at this address."""
        name = caller.identity.name if caller.identity is not None else ""
        self._note(SIGNED_IN, {"principal": caller.principal, "user": name, "address": address, "detail": "to pages"})

    async def people(self) -> dict[str, int]:
        """Everybody who is signed in: programs by principal."""
        return await self.grants.people()

    async def end_all(self, principal: str) -> int:
        """End everything of one person; returns how many grants that were."""
        ended = await self.grants.put_out(principal)
        try:
            await self.provider_tokens.forget(principal)
        except (BridgeError, OSError) as error:  # `forget_the_gone` tries again
            log.warning("the provider's tokens of a person are not forgotten", reason=str(error))
        self._on_end(principal, "")
        return ended

    async def forget_the_gone(self) -> None:
        """Keep no tokens of the provider's for those whose last sign-in has ended by itself."""
        for principal in await self.provider_tokens.people():
            await self._forget_if_gone(principal)

    async def assertion(self, principal: str, audience: str, resource: str, scope: str) -> str:
        """See `IdentityAssertions` (`upstream/accounts/identity_assertion.py`)."""
        try:
            grants = await self.grants.grants_of(principal)
        except StoreFailed:
            raise NoAssertion("the store of the bridge cannot be read", is_passing=True) from None
        if not grants:
            raise NoAssertion("you are not signed in at the bridge")
        try:
            id_token = await self.provider_tokens.id_token(grants[-1].person)
            return await self.provider.assertion(id_token, audience, resource, scope)
        except ProviderRefused as refused:
            raise NoAssertion(refused.reason) from None
        except ProviderDown as down:
            raise NoAssertion(down.reason, is_passing=True) from None

    async def close(self) -> None:
        """Ask nobody any more."""
        await self.clients.close()
        await self.provider.close()
        await self._assertions.close()

    def _note_sign_in(self, person: Person, client: OAuthClient, address: str, how: str) -> None:
        facts = {"principal": person.principal, "user": person.name, "client": client.name, "oauth_client": client.id}
        self._note(SIGNED_IN, {**facts, "address": address, "detail": how})

    async def _forget_if_gone(self, principal: str) -> None:
        try:
            is_gone = await self.provider_tokens.forget(principal, unless=self.grants.is_signed_in)
        except (BridgeError, OSError) as error:
            log.warning("the provider's tokens of a person are not forgotten", reason=str(error))
            return  # `forget_the_gone` tries again
        if is_gone and self._on_gone is not None:
            await self._on_gone(principal)

    async def _ended(self, principal: str, client: OAuthClient, why: str) -> None:
        """A sign-in has ended before its time."""
        facts = {"principal": principal, "client": client.name, "oauth_client": client.id, "detail": why}
        self._note(SIGNED_OUT, facts)
        self._on_end(principal, client.id)
        await self._forget_if_gone(principal)

    async def _for_code(
        self, client: OAuthClient, given: Mapping[str, str], resources: Sequence[str]
    ) -> tuple[Tokens, Person]:
        spelled = given.get("code", "")
        try:
            code = await self.grants.code(spelled)
        except Replayed as replayed:
            log.warning("a code came a second time; its sign-in was ended", client=client.id)
            await self._ended(replayed.principal, client, "its code came a second time")
            raise OAuthRefused("invalid_grant", _NO_GRANT) from None
        if code is None or code.request.client_id != client.id:
            raise OAuthRefused("invalid_grant", _NO_GRANT)
        request, verifier = code.request, given.get("code_verifier", "")
        if not _VERIFIER.fullmatch(verifier) or challenge_of(verifier) != request.challenge:
            raise OAuthRefused("invalid_grant", "code_verifier does not fit the code_challenge")
        named = given.get("redirect_uri")
        if named != request.redirect_uri and (named is not None or request.is_redirect_explicit):
            raise OAuthRefused("invalid_grant", "redirect_uri is not the one that the code was asked for with")
        self._check_resource(resources, request.resource)
        tokens = await self.grants.exchange(spelled, client.name, request.scopes)
        if tokens is None:
            raise OAuthRefused("invalid_grant", _NO_GRANT)
        await self.clients.signed_in_with(client)
        return tokens, code.person

    async def _for_refresh_token(
        self, client: OAuthClient, given: Mapping[str, str], resources: Sequence[str]
    ) -> Tokens:
        spelled = given.get("refresh_token", "")
        try:
            grant = await self.grants.refreshed(spelled, client.id)
        except Replayed as replayed:
            log.warning("a refresh token came a second time; its sign-in was ended", client=client.id)
            await self._ended(replayed.principal, client, "its refresh token came a second time")
            raise OAuthRefused("invalid_grant", _NO_GRANT) from None
        if grant is None:
            raise OAuthRefused("invalid_grant", _NO_GRANT)
        self._check_resource(resources, grant.resource)
        scopes = grant.scopes
        if "scope" in given:
            scopes = tuple(dict.fromkeys(given["scope"].split()))
            if not set(scopes) <= set(grant.scopes):
                raise OAuthRefused("invalid_scope", "the sign-in does not have all of these scopes")
        try:
            person = await self.provider_tokens.renewed(grant.person, grant.began + self._sign_in.session_lifetime)
        except ProviderRefused as refused:
            log.info("a sign-in was ended", who=grant.person.name, reason=refused.reason)
            await self.grants.end(grant.id, grant.person.principal)
            await self._ended(grant.person.principal, client, refused.reason)
            raise OAuthRefused("invalid_grant", "sign in again: " + refused.reason) from None
        except ProviderDown as down:
            log.warning("the identity provider cannot be asked", reason=down.reason)
            why = "the identity provider cannot be asked at the moment"
            raise OAuthRefused("temporarily_unavailable", why, 503) from None
        tokens = await self.grants.renew(spelled, replace(grant, person=person), scopes)
        if tokens is None:
            raise OAuthRefused("invalid_grant", _NO_GRANT)
        return tokens

    # -- what is asked for

    @property
    def _offered(self) -> list[str]:
        return list(dict.fromkeys([*self._settings.scopes, *self._settings.scopes_supported]))

    def _scopes(self, wanted: str | None) -> tuple[str, ...]:
        """What is granted of the scopes that are asked for: those that mean something here."""
        if not wanted:
            return tuple(self._settings.scopes)
        offered = self._offered
        return tuple(dict.fromkeys(scope for scope in wanted.split() if scope in offered))

    def _is_ours(self, resource: str) -> bool:
        address = canonical(resource)
        if address == self._resources.main:
            return True
        base = self._resources.base.rstrip("/")
        return address.startswith(f"{base}/") and self._resources.is_endpoint(urlsplit(address[len(base) :]).path)

    def _is_wanted(self, named: Sequence[str], resource: str) -> bool:
        """Whether `resource` is of this bridge, and what the request asks for, if it names one (RFC 8707)."""
        return self._is_ours(resource) and all(canonical(one) == canonical(resource) for one in named)

    def _resource(self, named: Sequence[str]) -> str:
        """The resource that tokens are asked for (RFC 8707); clients of old revisions name none."""
        if len(named) > 1:
            raise OAuthRefused("invalid_target", "one resource at a time")
        if not named:
            return self._resources.main
        if not self._is_ours(named[0]):
            raise OAuthRefused("invalid_target", "resource is not an address of this bridge")
        return canonical(named[0])

    def _check_resource(self, named: Sequence[str], granted: str) -> None:
        if named and self._resource(named) != granted:
            raise OAuthRefused("invalid_target", "resource is not the one that the sign-in was for")

    async def _client(self, id_: str | None, network: str) -> OAuthClient:
        client = await self.clients.find(id_, network) if id_ else None
        if client is None:
            raise OAuthRefused("invalid_client", "this client is not known here; it can register again", 401)
        return client

    async def _authenticated(self, given: Mapping[str, str], authorization: str, network: str) -> OAuthClient:
        """The client of a request to the token endpoint, whose secret was checked (RFC 6749, 2.3)."""
        id_, secret = given.get("client_id"), given.get("client_secret")
        if authorization:
            named, basic = basic_credentials(authorization)
            if secret is not None or id_ not in (None, named):
                raise OAuthRefused("invalid_request", "the client is named in two ways")
            id_, secret = named, basic
        client = await self._client(id_, network)
        client.check_secret(secret)
        return client

    async def _request_of(self, request: Request | None, browser: str) -> Request:
        if request is None or not browser or not secrets.compare_digest(request.browser, digest_of(browser)):
            raise OAuthRefused("invalid_request", _GONE)
        return request

    def _back(self, redirect_uri: str, state: str | None, *, code: str = "", error: str = "", why: str = "") -> str:
        answer = {"code": code} if code else {"error": error, "error_description": why}
        if state is not None:
            answer["state"] = state
        answer["iss"] = self.issuer
        joint = "&" if urlsplit(redirect_uri).query else "?"
        return f"{redirect_uri}{joint}{urlencode(answer)}"


_GONE = "this sign-in is not known here, is too old, or was begun in another browser; begin again in your program"
_NO_GRANT = "the code or token is unknown, used, or too old"
