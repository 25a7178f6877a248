"""One run of the steps that the SDK's providers know, apart from any request to the server.

Each address can be checked before it is visited, and nothing waits on the SDK's lock. On top of what the SDK checks:
PKCE must be announced (MCP 2025-11-25, authorization), the issuer is compared as it is written, credentials registered
by hand stay with one issuer, and a server that describes itself is not asked at guessed addresses.
"""

from dataclasses import dataclass
from typing import Any, cast

import httpx2
import msgspec
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.exceptions import OAuthRegistrationError
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import OAuthMetadata
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic import ValidationError

from mcpbridge.base.errors import UpstreamUnavailable
from mcpbridge.upstream.auth.challenge import Challenge, join_scopes
from mcpbridge.upstream.auth.grant import Grant
from mcpbridge.upstream.auth.http import OAuthHttp, SignInRefused
from mcpbridge.upstream.auth.settings import AuthSettings

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


class Run:
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
                request = await steps.asend(self._read_issuer(answer))
        except OAuthRegistrationError as error:
            hint = "it may need `auth.client_id`, or `headers.Authorization`, of this server in the configuration"
            raise UpstreamUnavailable(self._name, f"signing in failed: {_described(error)} ({hint})") from None
        except (OAuthFlowError, ValidationError, ValueError) as error:
            raise UpstreamUnavailable(self._name, f"signing in failed: {_described(error)}") from None
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
            raise UpstreamUnavailable(self._name, f"renewing the sign-in failed: {_described(error)}") from None
        finally:
            await steps.aclose()
        if self._provider.context.current_tokens is None:
            return None
        renewed = self._grant(asked=before.asked)
        return msgspec.structs.replace(
            renewed,
            issuer=before.issuer,
            scope=renewed.scope or before.scope,
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
        issuer = self._named or str(metadata.issuer)
        if self._advertised and issuer not in self._advertised:
            raise SignInRefused(self._name, f"its authorization server {self._advertised[0]} names itself {issuer}")
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

    def _read_issuer(self, answer: httpx2.Response) -> httpx2.Response:
        """Keep how a metadata document writes the issuer: the SDK compares a parsed form of it.

        Returns the answer, with the configured issuer in front where a server names several: the SDK takes the first.
        """
        if answer.request.method != "GET" or answer.status_code != 200:
            return answer
        try:
            answered = _decode_issuers(answer.content)
        except (msgspec.DecodeError, RecursionError):
            return answer
        self._named = answered.issuer or self._named
        if not answered.authorization_servers:
            return answer
        wanted = self._sign_in.settings.issuer
        self._advertised = [wanted] if wanted in answered.authorization_servers else answered.authorization_servers[:1]
        document = {**msgspec.json.decode(answer.content), "authorization_servers": self._advertised}
        return httpx2.Response(200, content=msgspec.json.encode(document), request=answer.request)

    def _grant(self, *, asked: str) -> Grant:
        context = self._provider.context
        tokens = context.current_tokens
        if tokens is None or not tokens.access_token.isascii() or not tokens.access_token.isprintable():
            raise UpstreamUnavailable(self._name, "signing in brought no token that can be used")
        expires_at = context.token_expiry_time if tokens.expires_in is not None else None
        return Grant(
            issuer=(self._named or str(context.oauth_metadata.issuer)) if context.oauth_metadata else "",
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


def _dumped(model: Any) -> dict[str, Any]:
    return {} if model is None else cast("dict[str, Any]", model.model_dump(mode="json", exclude_none=True))


def _described(error: Exception) -> str:
    """What went wrong, on one line. pydantic repeats what it was given, which may be a token: that is left out."""
    if isinstance(error, ValidationError) or isinstance(error.__context__, ValidationError):
        return "an answer of the authorization server has the wrong shape"
    text = " ".join("".join(c if c.isprintable() else " " for c in str(error)).split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
