"""Who comes in over HTTP by an access token, and what the others are answered (RFC 6750, RFC 9728; MCP, authorization).

1. A token in the query: 400 `invalid_request`; such a token is in logs of others already.
2. No token: 401, with where the metadata is and which scopes to ask for.
3. A token that lets nobody in: 401 `invalid_token`. Why is in the log, and nothing of the token is anywhere.
4. A provider that cannot be asked: 503 with `Retry-After`. Nobody is let in meanwhile whose token was not checked.
5. Rights are missing (`InsufficientScope`): 403 `insufficient_scope` with all scopes that are needed.

Entries of `http.tokens` stay beside it: they are looked up first.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from math import ceil
from typing import NamedTuple
from urllib.parse import parse_qsl

from mcpbridge.base.log import get_logger
from mcpbridge.core.identity import Identity, application_of, is_news
from mcpbridge.downstream.auth.access_tokens import AccessTokens, CheckedToken
from mcpbridge.downstream.auth.provider_http import ProviderDown
from mcpbridge.downstream.auth.resources import Resources, metadata
from mcpbridge.downstream.auth.signed_tokens import InvalidToken
from mcpbridge.downstream.http.exchange import Headers, Refused
from mcpbridge.downstream.settings import ResourceServerSettings, is_scope

log = get_logger("mcpbridge.auth")

_MOST_PEOPLE = 10_000
"""Of whom it is known what their last token said."""


class Caller(NamedTuple):
    """Who sends a request."""

    principal: str
    identity: Identity | None = None
    """None: the token is one of `http.tokens`."""
    until: float | None = None
    """Seconds since 1970, from which on the token is to be looked at again; None: it has no end."""


def _nobody(_: bytes) -> str | None:
    """Without static tokens."""
    return None


def _not_noted(_: Identity, __: bytes) -> None:
    """Nobody exchanges tokens."""


def _not_heard(_: Identity) -> None:
    """Nobody serves."""


def _nothing_open(principal: str, client_id: str) -> None:
    """Nobody serves."""


class ResourceServer:
    """Lets people in by the tokens of issuers."""

    def __init__(
        self,
        settings: ResourceServerSettings,
        *,
        path: str,
        name: str = "mcpbridge",
        make_tokens: Callable[[ResourceServerSettings], AccessTokens] = AccessTokens,
    ) -> None:
        """`path`: of the main endpoint; `name`: the bridge, as its metadata calls it."""
        assert settings.resource is not None
        self._settings, self._name = settings, name
        self._resources = Resources(settings.resource, path)
        self._latest = OrderedDict[str, Identity]()
        self.tokens = make_tokens(settings)
        self.holder: Callable[[bytes], str | None] = _nobody
        """Whose static token has this SHA-256; None: nobody's. Set by who has them."""
        self.on_checked: Callable[[Identity, bytes], object] = _not_noted
        """Gets each token that was checked and lets somebody in, with who that is. Set by who exchanges tokens."""
        self.on_identity: Callable[[Identity], object] = _not_heard
        """Gets what a checked token says of its person, unless that is known by the one before. Set by the front."""
        self.on_ended: Callable[[str, str], object] = _nothing_open
        """Ends what a principal has open by way of an OAuth client (empty: of any). Set by the front."""

        self.on_ended_here: Callable[[str, str], object] = _nothing_open
        """Gets the same of what was ended at this bridge, for others of its fleet. Set by these."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._resources.main} {self.tokens!r}>"

    @property
    def host(self) -> str:
        """The public host of the bridge, with its port where that is not the usual one."""
        return self._resources.host

    def metadata(self, path: str) -> bytes | None:
        """The document at this well-known path; None: there is none."""
        resource = self._resources.described(path)
        if resource is None:
            return None
        issuers = [issuer.issuer for issuer in self._settings.issuers.values()]
        if self._settings.sign_in is not None:
            issuers.insert(0, self._resources.origin_and_prefix)
        return metadata(resource, issuers, self._settings.scopes_supported or self._settings.scopes, self._name)

    def caller(self, path: str, query: bytes, authorization: bytes | None) -> Caller | None:
        """Who sends a request to the endpoint at this path, as far as that is known at once; None: `check` the token.

        Raises:
            Refused: 400 or 401, see above.
        """
        if query:
            self._refuse_token_in(query, path)
        token = self._token_of(authorization, path)
        digest = hashlib.sha256(token).digest()
        holder = self.holder(digest)
        if holder is not None:
            return Caller(holder)
        checked = self.tokens.remembered(digest)
        return self._caller(checked) if checked is not None and self._is_for(checked, path) else None

    async def check(self, path: str, authorization: bytes | None) -> Caller:
        """Decide about the token of a request to the endpoint at this path.

        Raises:
            Refused: 401 or 503, see above.
        """
        token = self._token_of(authorization, path)
        try:
            checked = await self.tokens.check(token)
            if not self._is_for(checked, path):
                raise InvalidToken("for another resource")
        except InvalidToken as invalid:
            log.info("a token was refused", reason=invalid.reason)
            what = "The access token expired" if invalid.is_expired else "The access token is not valid here"
            raise Refused(401, what, headers=self._challenge(path, "invalid_token", what)) from None
        except ProviderDown as down:
            log.warning("a token could not be checked", reason=down.reason)
            after = (b"retry-after", b"%d" % max(1, ceil(down.retry_after)))
            what = "The provider that issued the token cannot be asked at the moment"
            raise Refused(503, what, headers=(after,)) from None
        identity = checked.identity
        before = self._latest.get(identity.principal)
        self._latest[identity.principal] = identity
        self._latest.move_to_end(identity.principal)
        if len(self._latest) > _MOST_PEOPLE:
            self._latest.popitem(last=False)
        self.on_checked(identity, token)
        if before is None or application_of(before) != application_of(identity) or is_news(identity, before):
            self.on_identity(identity)
        return self._caller(checked)

    def latest_identity(self, principal: str) -> Identity | None:
        """What the last token said that was checked of this principal; None: none was lately."""
        return self._latest.get(principal)

    async def revoke(self, principal: str) -> None:
        """Put somebody out: no token of theirs that was issued by now lets them in, and what they have open ends."""
        if self.tokens.revocations is not None:
            await self.tokens.revocations.revoke(principal)
        self.ended(principal)

    def ended(self, principal: str, client_id: str = "") -> None:
        """Tokens of a principal are of no use any more: those of this OAuth client, or all. What is open ends."""
        self.ended_elsewhere(principal, client_id)
        self.on_ended_here(principal, client_id)

    def ended_elsewhere(self, principal: str, client_id: str = "") -> None:
        """The same was found at another bridge of the fleet, which has written it down."""
        self.tokens.forget(principal)
        self.on_ended(principal, client_id)

    async def close(self) -> None:
        """Ask no provider any more."""
        await self.tokens.close()

    def insufficient_scope(self, path: str, scopes: frozenset[str]) -> Headers:
        """The headers of a 403 that names all scopes which are needed (RFC 6750, 3.1)."""
        return self._challenge(path, "insufficient_scope", "More rights are needed", sorted(scopes))

    def _refuse_token_in(self, query: bytes, path: str) -> None:
        if any(name == b"access_token" for name, _ in parse_qsl(query, keep_blank_values=True)):
            what = "Tokens are sent in the Authorization header"
            raise Refused(400, what, headers=self._challenge(path, "invalid_request", what))

    def _token_of(self, authorization: bytes | None, path: str) -> bytes:
        scheme, _, token = (authorization or b"").strip().partition(b" ")
        if scheme.lower() != b"bearer":
            what = "This server needs a token: sign in, and send `Authorization: Bearer <token>`"
            raise Refused(401, what, headers=self._challenge(path))
        return token.strip()

    def _caller(self, checked: CheckedToken) -> Caller:
        return Caller(checked.identity.principal, checked.identity, checked.until)

    def _is_for(self, checked: CheckedToken, path: str) -> bool:
        return checked.is_for_bridge or self._resources.is_for(checked.audiences, path)

    def _challenge(self, path: str, error: str = "", description: str = "", scopes: list[str] | None = None) -> Headers:
        parts = [f'error="{error}"'] if error else []
        if description:
            parts.append(f'error_description="{description}"')
        wanted = self._settings.scopes if scopes is None else [scope for scope in scopes if is_scope(scope)]
        if wanted and error != "invalid_request":
            parts.append(f'scope="{" ".join(wanted)}"')
        parts.append(f'resource_metadata="{self._resources.metadata_url(path)}"')
        return ((b"www-authenticate", f"Bearer {', '.join(parts)}".encode()),)
