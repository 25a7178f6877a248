"""The sign-in itself: discovery, registration, authorization code with PKCE, refresh, client credentials.

Loading this module loads the SDK's client: do so when there is a sign-in.
"""

import logging
import time
import warnings
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider
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
from pydantic import AnyUrl, ValidationError

from mcpbridge.base.errors import UpstreamUnavailable
from mcpbridge.upstream.auth.grant import Grant
from mcpbridge.upstream.auth.http import SignInRefused, check_page
from mcpbridge.upstream.auth.oauth_steps import Run, SignIn
from mcpbridge.upstream.auth.redirect_server import Answer

logging.getLogger("mcp.client.auth").setLevel(logging.CRITICAL + 1)  # its tracebacks can hold tokens; ours tell enough


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
        application_type="native" if urlsplit(redirect_uri).scheme == "http" else "web",
    )
    account = _AccountStorage(client=_client_of(sign_in, redirect_uri))
    run: Run

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
        storage=account,
        redirect_handler=redirect,
        callback_handler=callback,
        client_metadata_url=None if settings.client_id else settings.client_metadata_url,
    )
    run = Run(sign_in, provider, is_registered_by_hand=settings.client_id is not None, wants_pkce=True)
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
        warnings.simplefilter("ignore")  # without a configured issuer the first one counts, which `Run` holds on to
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
                _AccountStorage(),
                client_id=settings.client_id,
                assertion_provider=signing.create_assertion_provider(),
                issuer=issuer,
            )
        else:
            assert settings.client_secret is not None
            method = settings.token_endpoint_auth_method
            provider = ClientCredentialsOAuthProvider(
                sign_in.url,
                _AccountStorage(),
                client_id=settings.client_id,
                client_secret=settings.client_secret,
                token_endpoint_auth_method="client_secret_post"
                if method == "client_secret_post"
                else "client_secret_basic",
                issuer=issuer,
            )
    return await Run(sign_in, provider, is_registered_by_hand=True, wants_pkce=False).through()


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
    account = _AccountStorage(client=client, tokens=OAuthToken(access_token="-", refresh_token=before.refresh_token))  # noqa: S106 - no token
    metadata = OAuthClientMetadata(redirect_uris=None)
    provider = OAuthClientProvider(server_url=sign_in.url, client_metadata=metadata, storage=account)
    context = provider.context
    context.token_expiry_time = 1.0  # in 1970: what makes the SDK begin with a refresh
    try:
        context.oauth_metadata = OAuthMetadata.model_validate(before.authorization_server)
        if before.protected_resource:
            context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(before.protected_resource)
    except ValidationError:
        return None
    context.auth_server_url = before.issuer
    run = Run(sign_in, provider, is_registered_by_hand=True, wants_pkce=False)
    return await run.refreshed(before)


async def revoke(sign_in: SignIn) -> bool:
    """Ask the authorization server to take the tokens of `sign_in.before` back. False when it did not, or cannot."""
    before = sign_in.before
    client = _client_of(sign_in, "")
    endpoint = before.authorization_server.get("revocation_endpoint") if before else None
    if before is None or client is None or not isinstance(endpoint, str):
        return False
    context = OAuthContext(sign_in.url, OAuthClientMetadata(redirect_uris=None), _AccountStorage(), None, None)
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


class _AccountStorage:
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
    if redirect_uri and client.scope and not set(sign_in.scope.split()) <= set(client.scope.split()):
        return None  # registered for fewer rights, and authorization servers may hold it to them
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
