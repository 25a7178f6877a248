"""How requests show who they are from: headers, query and cookie by the `auth` table, and tokens that are fetched.

The table itself is in `settings.py`. A fetched token is kept until shortly before its end, or until it is refused.
"""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Iterator
from urllib.parse import quote

import msgspec
from msgspec import Struct

from mcpbridge.base.errors import UpstreamUnavailable
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.tools.http.request import Answer, Outgoing, RequestCredentials, query_text
from mcpbridge.tools.http.settings import ApiKey, BasicAuth, BearerToken, ClientCredentials

_EARLY = 30.0
"""Seconds before its end that a token is taken for too old."""
_LIFETIME = 300.0
"""Seconds that a token is used without a stated lifetime."""


class _Token(Struct):
    access_token: str
    expires_in: float | None = None


def fixed_credentials(auth: BearerToken | BasicAuth | ApiKey | None) -> RequestCredentials:
    """What is the same for every request."""
    match auth:
        case None:
            return RequestCredentials()
        case BearerToken():
            return RequestCredentials((("authorization", f"Bearer {auth.token}"),))
        case BasicAuth():
            pair = base64.b64encode(f"{auth.username}:{auth.password}".encode()).decode()
            return RequestCredentials((("authorization", f"Basic {pair}"),))
        case ApiKey() if auth.header is not None:
            return RequestCredentials(((auth.header.lower(), auth.key),))
        case ApiKey() if auth.cookie is not None:
            return RequestCredentials((("cookie", f"{auth.cookie}={auth.key}"),))
        case ApiKey():
            return RequestCredentials(query=f"{query_text(auth.query or '')}={query_text(auth.key)}")


def secrets_of(auth: BearerToken | BasicAuth | ApiKey | ClientCredentials | None) -> Iterator[str]:
    """What of the settings nobody is to see."""
    match auth:
        case BearerToken():
            yield auth.token
        case BasicAuth():
            yield from (auth.password, f"{auth.username}:{auth.password}")
        case ApiKey():
            yield auth.key
        case ClientCredentials():
            yield auth.client_secret
        case None:
            pass


class Credentials:
    """The credentials of one backend. A token is fetched when it is needed, by one request for all who wait."""

    def __init__(self, auth: BearerToken | BasicAuth | ApiKey | ClientCredentials | None) -> None:
        self._client = auth if isinstance(auth, ClientCredentials) else None
        self._fixed = fixed_credentials(None if isinstance(auth, ClientCredentials) else auth)
        self._token, self._ends = "", 0.0
        self.redactor = Redactor(secrets_of(auth))
        """Masks them, tokens too that are fetched later."""
        self._fetching = asyncio.Lock()

    @property
    def is_fetched(self) -> bool:
        """A token that the service refuses may be replaced by a newer one."""
        return self._client is not None

    async def for_request(self, upstream: str, send: Callable[[Outgoing], Awaitable[Answer]]) -> RequestCredentials:
        """What to add to a request. `upstream`: whom errors name; `send` sends those to the authorization server.

        Raises:
            UpstreamError: there is no token.
        """
        if self._client is None:
            return self._fixed
        clock = asyncio.get_running_loop().time
        async with self._fetching:
            if not self._token or clock() >= self._ends:
                token = await _fetched(upstream, self._client, send)
                lifetime = _LIFETIME if token.expires_in is None else token.expires_in
                self.redactor.learn("", [token.access_token])
                self._token, self._ends = token.access_token, clock() + max(1.0, lifetime - _EARLY)
            return RequestCredentials((("authorization", f"Bearer {self._token}"),))

    def refused(self, used: RequestCredentials) -> None:
        """The service did not take this token: the next request gets another one."""
        if used.headers == (("authorization", f"Bearer {self._token}"),):
            self._token = ""


async def _fetched(upstream: str, client: ClientCredentials, send: Callable[[Outgoing], Awaitable[Answer]]) -> _Token:
    fields = {"grant_type": "client_credentials", "scope": client.scope, "audience": client.audience}
    form = "&".join(f"{name}={query_text(value)}" for name, value in fields.items() if value)
    # RFC 6749, 2.3.1: both are encoded as in forms before they are joined.
    pair = f"{quote(client.client_id, safe='')}:{quote(client.client_secret, safe='')}"
    headers = (
        ("authorization", f"Basic {base64.b64encode(pair.encode()).decode()}"),
        ("content-type", "application/x-www-form-urlencoded"),
        ("accept", "application/json"),
    )
    answer = await send(Outgoing("POST", client.token_url, headers, form.encode()))
    if answer.status != 200:
        raise UpstreamUnavailable(upstream, f"no token from its authorization server: HTTP {answer.status}")
    try:
        token = msgspec.json.decode(answer.body, type=_Token, strict=False)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise UpstreamUnavailable(upstream, "its authorization server answers with no token") from error
    if not token.access_token or not token.access_token.isascii() or not token.access_token.isprintable():
        raise UpstreamUnavailable(upstream, "its authorization server answers with no token")
    return token
