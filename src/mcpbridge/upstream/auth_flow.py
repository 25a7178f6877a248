"""The sign-in itself: discovery, registration, authorization code with PKCE, refresh, client credentials.

The SDK's providers know the steps; they are run here apart from any request to the server, one step at a time, so that
each address can be checked before it is visited and nothing waits on the SDK's lock. On top of what the SDK checks:
PKCE must be announced (spec 2025-11-25, authorization), credentials registered by hand stay with one issuer, and a
server that describes itself is not asked at guessed addresses.

Loading this module loads the SDK's client: do so when there is a sign-in.
"""

import logging
import time
import warnings
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

import httpx2
import msgspec
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.exceptions import OAuthRegistrationError
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic import AnyUrl, ValidationError

from mcpbridge.errors import UpstreamUnavailable
from mcpbridge.upstream.auth_challenge import Challenge, join_scopes
from mcpbridge.upstream.auth_grant import Grant
from mcpbridge.upstream.auth_http import OAuthHttp, SignInRefused, check_page
from mcpbridge.upstream.auth_redirect import Answer
from mcpbridge.upstream.auth_settings import AuthSettings

__all__ = ["SignIn", "refresh", "revoke", "sign_in_alone", "sign_in_with_person"]

logging.getLogger("mcp.client.auth").setLevel(logging.CRITICAL + 1)  # its tracebacks can hold tokens; ours tell enough

_SHOWN = 200
"""Characters of what an authorization server says that are repeated."""


@dataclass(frozen=True, slots=True)
class SignIn:
    """What a sign-in is about."""

    name: str
    """The server, as people call it."""
    url: str
    settings: AuthSettings
    http: OAuthHttp
    challenge: Challenge
    """What the server said when it refused."""
    scope: str = ""
    """What to ask for; empty: what the server's metadata says."""
    before: Grant | None = None
    """What the last sign-in brought."""


async def sign_in_with_person(
    sign_in: SignIn,
    redirect_uri: str,
    visit: Callable[[str], Awaitable[None]],
    answer: Callable[[], Awaitable[Answer]],
) -> Grant:
    """Authorization code with PKCE. `visit` gets the page to open, then `answer` waits for what comes back.

    Raises:
        SignInRefused: not safe, or not what the server announced.
        UpstreamUnavailable: it failed; says at what.
    """
    settings = sign_in.settings
    metadata = OAuthClientMetadata(
        client_name="mcpbridge",
        redirect_uris=[AnyUrl(redirect_uri)],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
    )
    kept = _Kept(client=_client_of(sign_in, redirect_uri))
    run: _Run

    async def redirect(page: str) -> None:
        run.check()
        check_page(sign_in.name, page)
        await visit(page)

    async def callback() -> AuthorizationCodeResult:
        got = await answer()
        return AuthorizationCodeResult(code=got.code, state=got.state, iss=got.issuer)

    provider = OAuthClientProvider(
        server_url=sign_in.url,
        client_metadata=metadata,
        storage=kept,
        redirect_handler=redirect,
        callback_handler=callback,
        client_metadata_url=None if settings.client_id else settings.client_metadata_url,
    )
    run = _Run(sign_in, provider, is_registered_by_hand=settings.client_id is not None, wants_pkce=True)
    return await run.through()


async def sign_in_alone(sign_in: SignIn) -> Grant:
    """Client credentials: with a secret, or an assertion signed with a private key (RFC 7523).

    Raises:
        SignInRefused, UpstreamUnavailable: as `sign_in_with_person`.
    """
    settings = sign_in.settings
    assert settings.client_id is not None
    issuer = settings.issuer or (sign_in.before.issuer if sign_in.before else None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # without a configured issuer the first one counts, which `_Run` holds on to
        provider: OAuthClientProvider
        if settings.private_key is not None:
            signing = SignedJWTParameters(
                issuer=settings.client_id,
                subject=settings.client_id,
                signing_key=settings.private_key,
                signing_algorithm=_algorithm_for(sign_in.name, settings.private_key),
            )
            provider = PrivateKeyJWTOAuthProvider(
                sign_in.url,
                _Kept(),
                client_id=settings.client_id,
                assertion_provider=signing.create_assertion_provider(),
                issuer=issuer,
            )
        else:
            assert settings.client_secret is not None
            method = settings.token_endpoint_auth_method
            provider = ClientCredentialsOAuthProvider(
                sign_in.url,
                _Kept(),
                client_id=settings.client_id,
                client_secret=settings.client_secret,
                token_endpoint_auth_method="client_secret_post"
                if method == "client_secret_post"
                else "client_secret_basic",
                issuer=issuer,
            )
    return await _Run(sign_in, provider, is_registered_by_hand=True, wants_pkce=False).through()


async def refresh(sign_in: SignIn) -> Grant | None:
    """New tokens for the refresh token of `sign_in.before`; None when the authorization server refuses it.

    Raises:
        UpstreamUnavailable: it could not be asked; the refresh token may still be good.
    """
    before = sign_in.before
    assert before is not None
    client = _client_of(sign_in, "")
    if client is None:
        return None
    client.issuer = before.issuer
    kept = _Kept(client=client, tokens=OAuthToken(access_token="-", refresh_token=before.refresh_token))  # noqa: S106
    metadata = OAuthClientMetadata(redirect_uris=None)
    provider = OAuthClientProvider(server_url=sign_in.url, client_metadata=metadata, storage=kept)
    context = provider.context
    context.token_expiry_time = 1.0  # in 1970: what makes the SDK begin with a refresh
    try:
        context.oauth_metadata = OAuthMetadata.model_validate(before.authorization_server)
        if before.protected_resource:
            context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(before.protected_resource)
    except ValidationError:
        return None
    context.auth_server_url = before.issuer
    run = _Run(sign_in, provider, is_registered_by_hand=True, wants_pkce=False)
    return await run.refreshed(before)


async def revoke(sign_in: SignIn) -> bool:
    """Ask the authorization server to take the tokens of `sign_in.before` back. False when it did not, or cannot."""
    before = sign_in.before
    client = _client_of(sign_in, "")
    endpoint = before.authorization_server.get("revocation_endpoint") if before else None
    if before is None or client is None or not isinstance(endpoint, str):
        return False
    context = OAuthContext(sign_in.url, OAuthClientMetadata(redirect_uris=None), _Kept(), None, None)
    context.client_info = client
    data, headers = context.prepare_token_auth(
        {"token": before.refresh_token or before.access_token, "client_id": client.client_id},
        {"Content-Type": "application/x-www-form-urlencoded"},
    )
    try:
        answer = await sign_in.http.send(httpx2.Request("POST", endpoint, data=data, headers=headers))
    except UpstreamUnavailable:
        return False
    return answer.status_code == 200


class _Kept:
    """The SDK's storage for one run; what is worth keeping is taken from it afterwards."""

    def __init__(self, client: OAuthClientInformationFull | None = None, tokens: OAuthToken | None = None) -> None:
        self._client, self._tokens = client, tokens

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._client = client_info


class _Run:
    """One run of a provider's steps."""

    def __init__(
        self, sign_in: SignIn, provider: OAuthClientProvider, *, is_registered_by_hand: bool, wants_pkce: bool
    ) -> None:
        self._sign_in = sign_in
        self._provider = provider
        self._is_registered_by_hand = is_registered_by_hand
        self._wants_pkce = wants_pkce
        self._advertised: list[str] = []
        self._named = ""
        """The issuer, as the documents that were read write it: there, and in the server's own metadata."""
        self._request = httpx2.Request("POST", sign_in.url, headers={"MCP-Protocol-Version": LATEST_HANDSHAKE_VERSION})

    async def through(self) -> Grant:
        """The whole sign-in, beginning at the refusal."""
        challenge = self._sign_in.challenge
        refusal = httpx2.Response(
            401, headers={"WWW-Authenticate": challenge.header(self._sign_in.scope)}, request=self._request
        )
        steps = self._provider.async_auth_flow(self._request)
        try:
            request = await anext(steps)
            assert request is self._request  # no token yet: the SDK would send it as it is
            request = await steps.asend(refusal)
            while request is not self._request:
                self.check(request)
                answer = await self._sign_in.http.send(request)
                self._read_issuer(answer)
                request = await steps.asend(answer)
        except OAuthRegistrationError as error:
            hint = "it may want `auth.client_id`, or `headers.Authorization`, of this server in the configuration"
            raise UpstreamUnavailable(self._name, f"signing in failed: {_shown(error)} ({hint})") from None
        except (OAuthFlowError, ValidationError, ValueError) as error:
            raise UpstreamUnavailable(self._name, f"signing in failed: {_shown(error)}") from None
        finally:
            await steps.aclose()
        return self._grant(asked=self._provider.context.client_metadata.scope or "")

    async def refreshed(self, before: Grant) -> Grant | None:
        """Only the refresh."""
        steps = self._provider.async_auth_flow(self._request)
        try:
            request = await anext(steps)
            if request is self._request:
                return None  # nothing to refresh with
            answer = await self._sign_in.http.send(request)
            if answer.status_code >= 500 or answer.status_code in (408, 429):
                where = request.url.copy_with(query=None)
                raise UpstreamUnavailable(self._name, f"{where} answers HTTP {answer.status_code} to a refresh")
            await steps.asend(answer)
        except (OAuthFlowError, ValidationError, ValueError) as error:
            raise UpstreamUnavailable(self._name, f"renewing the sign-in failed: {_shown(error)}") from None
        finally:
            await steps.aclose()
        if self._provider.context.current_tokens is None:
            return None
        found = self._grant(asked=before.asked)
        return msgspec.structs.replace(
            found,
            issuer=before.issuer,
            scope=found.scope or before.scope,
            client=before.client,
            authorization_server=before.authorization_server,
            protected_resource=before.protected_resource,
        )

    def check(self, request: httpx2.Request | None = None) -> None:
        """Before anything is sent to the authorization server but questions for its metadata, and before the browser.

        Raises:
            SignInRefused: it must not be.
        """
        if request is not None and request.method != "POST":
            return
        context = self._provider.context
        metadata = context.oauth_metadata
        if metadata is None:
            if context.protected_resource_metadata is not None:
                raise SignInRefused(self._name, f"no metadata of its authorization server {context.auth_server_url}")
            if self._is_registered_by_hand:
                raise SignInRefused(self._name, "it does not say how to sign in: no OAuth metadata")
            return  # a server of 2025-03-26 without metadata: its own origin signs in, at fixed addresses
        self._check_issuer(context, metadata)
        if self._wants_pkce and "S256" not in (metadata.code_challenge_methods_supported or ()):
            what = f"its authorization server {metadata.issuer} does not announce PKCE with S256"
            raise SignInRefused(self._name, what)
        is_registration = request is not None and str(request.url) != str(metadata.token_endpoint)
        if is_registration and metadata.registration_endpoint is None:
            raise SignInRefused(
                self._name,
                f"its authorization server {metadata.issuer} does not register clients by itself; "
                "register one there by hand and set `auth.client_id` of this server",
            )

    def _check_issuer(self, context: OAuthContext, metadata: OAuthMetadata) -> None:
        issuer = str(metadata.issuer)
        if self._advertised and self._named not in self._advertised:
            raise SignInRefused(
                self._name, f"its authorization server {self._advertised[0]} names itself {self._named}"
            )
        settings, before = self._sign_in.settings, self._sign_in.before
        if settings.issuer is not None:
            if issuer != settings.issuer:
                raise SignInRefused(self._name, f"it names the authorization server {issuer}, not {settings.issuer}")
        elif self._is_registered_by_hand and before is not None and before.issuer != issuer:
            raise SignInRefused(
                self._name,
                f"it names another authorization server than before: {issuer} instead of {before.issuer}; "
                "if that is right, set `auth.issuer` of this server",
            )

    def _read_issuer(self, answer: httpx2.Response) -> None:
        """Keep how a metadata document writes the issuer: the SDK compares a parsed form of it."""
        if answer.request.method != "GET" or answer.status_code != 200:
            return
        try:
            said = _decode_issuers(answer.content)
        except (msgspec.DecodeError, RecursionError):
            return
        self._advertised = said.authorization_servers or self._advertised
        self._named = said.issuer or self._named

    def _grant(self, *, asked: str) -> Grant:
        context = self._provider.context
        tokens = context.current_tokens
        if tokens is None or not tokens.access_token.isascii() or not tokens.access_token.isprintable():
            raise UpstreamUnavailable(self._name, "signing in brought no token that can be used")
        expires_at = context.token_expiry_time if tokens.expires_in is not None else None
        return Grant(
            issuer=str(context.oauth_metadata.issuer) if context.oauth_metadata else "",
            access_token=tokens.access_token,
            refresh_token=tokens.refresh_token or "",
            expires_at=expires_at or 0.0,
            scope=tokens.scope or asked,
            asked=join_scopes(asked, tokens.scope or ""),
            client=_dumped(context.client_info),
            authorization_server=_dumped(context.oauth_metadata),
            protected_resource=_dumped(context.protected_resource_metadata),
        )

    @property
    def _name(self) -> str:
        return self._sign_in.name


class _Issuers(msgspec.Struct):
    authorization_servers: list[str] = []
    issuer: str = ""


_decode_issuers = msgspec.json.Decoder(_Issuers).decode


def _client_of(sign_in: SignIn, redirect_uri: str) -> OAuthClientInformationFull | None:
    """The client to sign in as: the configured one, or the one that was registered last; None to register one."""
    settings, before = sign_in.settings, sign_in.before
    if settings.client_id is not None:
        method = settings.token_endpoint_auth_method
        return OAuthClientInformationFull(
            client_id=settings.client_id,
            client_secret=settings.client_secret,
            redirect_uris=[AnyUrl(redirect_uri)] if redirect_uri else None,
            token_endpoint_auth_method=method or ("client_secret_basic" if settings.client_secret else "none"),
            issuer=settings.issuer,
        )
    if before is None or not before.client:
        return None
    try:
        client = OAuthClientInformationFull.model_validate(before.client)
    except ValidationError:
        return None
    expires = client.client_secret_expires_at
    if expires and expires <= time.time():
        return None
    if redirect_uri and redirect_uri not in map(str, client.redirect_uris or ()):
        return None  # registered for another address of ours
    client.issuer = client.issuer or before.issuer
    return client


def _algorithm_for(name: str, pem: str) -> str:
    """The signature algorithm that goes with a private key."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(pem.encode(), password=None)
    except (ValueError, TypeError) as error:
        raise SignInRefused(name, "`auth.private_key` is no private key in PEM form without a password") from error
    if isinstance(key, rsa.RSAPrivateKey):
        return "RS256"
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return "EdDSA"
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return {256: "ES256", 384: "ES384", 521: "ES512"}.get(key.key_size, "ES256")
    raise SignInRefused(name, "`auth.private_key` is of a kind that cannot sign: use RSA, P-256 or Ed25519")


def _dumped(model: Any) -> dict[str, Any]:
    return {} if model is None else cast("dict[str, Any]", model.model_dump(mode="json", exclude_none=True))


def _shown(error: Exception) -> str:
    """What went wrong, on one line. pydantic repeats what it was given, which may be a token: that is left out."""
    if isinstance(error, ValidationError) or isinstance(error.__context__, ValidationError):
        return "an answer of the authorization server has the wrong shape"
    text = " ".join("".join(c if c.isprintable() else " " for c in str(error)).split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
