"""The token of one user at one server that is got without a page; what `exchange` and `id-jag` have in common.

It is kept in memory, until it ends. One caller at a time asks for another one: calls that come meanwhile wait for it.
"""

import asyncio
import base64
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2
import msgspec

from mcpbridge.base.errors import UpstreamUnavailable
from mcpbridge.base.log import get_logger
from mcpbridge.protocol.http.tls_and_proxy import Network
from mcpbridge.upstream.auth.challenge import Challenge, join_scopes
from mcpbridge.upstream.auth.http import OAuthHttp, SignInRefused, open_oauth_http
from mcpbridge.upstream.auth.settings import RENEW_EARLY, AuthSettings

log = get_logger("mcpbridge.auth")

_UNKNOWN_LIFE = 300.0
"""Seconds for which a token is used whose end was not said."""
_SHOWN = 200


class NewToken(msgspec.Struct, frozen=True):
    """What an authorization server gave."""

    token: str
    expires_in: float | None = None
    """Seconds; None: it does not say."""
    until: float | None = None
    """Seconds since 1970 from which on it must not be used, whatever its own end; None: nothing limits it."""


class UserToken(ABC):
    """The token of one user at one server; an `Authorizer` (`protocol/http/bearer_auth`)."""

    def __init__(
        self,
        name: str,
        url: str,
        principal: str,
        settings: AuthSettings,
        network: Network,
        learn: Callable[[str, Iterable[str]], None],
    ) -> None:
        """`learn`: gets secrets, to mask them."""
        self.name, self.principal = name, principal
        self._url, self._settings, self._network, self._learn = url, settings, network, learn
        self._token, self._renew_at, self._scope = "", 0.0, " ".join(settings.scopes)
        self._lock = asyncio.Lock()
        self.exchanges = 0
        """How often a token was new."""

    waits_for = ""

    @property
    def ready(self) -> str | None:
        """See `Authorizer`."""
        return self._token if self._token and time.time() < self._renew_at else None

    async def token(self) -> str:
        """See `Authorizer`."""
        return self.ready or await self._another("", None)

    async def refused(self, used: str, status: int, challenge: str) -> bool:
        """See `Authorizer`. A wider scope is asked for where the server says that it takes one."""
        asked = Challenge.parse(challenge)
        if status == 403:
            wider = join_scopes(self._scope, asked.scope)
            if asked.error != "insufficient_scope" or wider == self._scope:
                return False
            self._scope = wider
        return await self._another(used, asked) != used

    def accepted(self) -> None:  # noqa: B027 - nothing follows from it
        """See `Authorizer`."""

    @abstractmethod
    async def _request(self, asked: Challenge | None) -> NewToken | None:
        """Another token. `asked`: what the server said when it refused; None: it was not asked yet.

        None: it is not known yet where from; the server is to refuse first.
        """

    async def _another(self, used: str, asked: Challenge | None) -> str:
        async with self._lock:
            if self._token and self._token != used and time.time() < self._renew_at:
                return self._token  # another call was quicker
            self._token = ""
            new = await self._request(asked)
            if new is None:
                return ""
            life = new.expires_in if new.expires_in is not None and new.expires_in > 0 else _UNKNOWN_LIFE
            self._renew_at = time.time() + life - min(RENEW_EARLY, life / 2)
            if new.until is not None:
                self._renew_at = min(self._renew_at, new.until)
            self._learn(self.name, [new.token])
            self._token = new.token
            self.exchanges += 1
            return new.token

    async def revoke(self) -> bool:
        """Have the authorization server take the token back (RFC 7009). False: there was none, or it did not."""
        async with self._lock:
            token, self._token = self._token, ""
            if not token:
                return False
            form = {"token": token, "token_type_hint": "access_token"}
            try:
                async with open_oauth_http(self.name, self._url, self._settings.issuer, self._network) as http:
                    endpoint = await self._revocation_endpoint(http)
                    status = (await self._post(http, endpoint, form))[0] if endpoint else 404
            except (SignInRefused, UpstreamUnavailable) as error:
                log.warning("token not revoked", upstream=self.name, reason=str(error))
                return False
            return status == 200

    @abstractmethod
    async def _revocation_endpoint(self, http: OAuthHttp) -> str:
        """Where its authorization server takes tokens back; empty: nowhere, as far as it is known."""

    # -- what both ways need

    def _usable(self, answer: dict[str, Any], what: str) -> str:
        """The access token in an answer (RFC 6749, 5.1)."""
        token, form = answer.get("access_token"), answer.get("token_type", "Bearer")
        if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token or " " in token:
            raise UpstreamUnavailable(self.name, f"{what} brought none that can be used")
        if not isinstance(form, str) or form.lower() != "bearer":
            raise UpstreamUnavailable(self.name, f"{what} brought one of another kind")
        return token

    async def _post(self, http: OAuthHttp, endpoint: str, form: dict[str, str]) -> tuple[int, dict[str, Any] | None]:
        """Send a form with the credentials of the bridge; the status and the answer, None where that is no object."""
        headers = self._credentials(form)
        response = await http.send(httpx2.Request("POST", endpoint, data=form, headers=headers))
        return response.status_code, object_in(response)

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

    async def _metadata(self, http: OAuthHttp, issuer: str) -> dict[str, Any]:
        """What an authorization server says of itself (RFC 8414, or OpenID Connect Discovery); its endpoint at least.

        Raises:
            SignInRefused: there is none, or it is of another one.
        """
        parts = urlsplit(issuer)
        origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
        for where in (
            f"{origin}/.well-known/oauth-authorization-server{path}",
            f"{origin}{path}/.well-known/openid-configuration",
        ):
            document = object_in(await http.send(httpx2.Request("GET", where)))
            if document is None or not isinstance(document.get("token_endpoint"), str):
                continue
            if document.get("issuer") != issuer:
                raise SignInRefused(self.name, f"the metadata of {issuer} is of another issuer")
            return document
        raise SignInRefused(self.name, f"no metadata of the authorization server {issuer}")


def error_in(status: int, answer: dict[str, Any] | None) -> str:
    """What an authorization server says that is wrong, to be shown."""
    error = str((answer or {}).get("error") or f"HTTP {status}")
    return "".join(c for c in error if c.isprintable())[:_SHOWN]


def object_in(response: httpx2.Response) -> dict[str, Any] | None:
    """The JSON object of an answer; None: it is none."""
    try:
        found: object = msgspec.json.decode(response.content)
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None  # pyright: ignore[reportUnknownVariableType] - JSON has text keys


def endpoint_in(metadata: Mapping[str, Any], name: str) -> str:
    """An endpoint of an authorization server; empty: its metadata names none."""
    found: object = metadata.get(name)
    return found if isinstance(found, str) else ""
