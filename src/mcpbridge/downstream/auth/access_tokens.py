"""Decides about access tokens, and remembers what was decided: a token is checked once, not with every request.

What is remembered is found by the SHA-256 of the token, so no token is kept. It counts until the token ends, and at
most for `_REMEMBERED` (an introspection: `introspection.cache`), so that a key that a provider withdrew ends what it
signed. A refusal is remembered only where asking again would cost the provider something, and only for a moment.
"""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from msgspec import Struct

from mcpbridge.base.log import get_logger
from mcpbridge.core.identity import Identity
from mcpbridge.downstream.auth.introspection import Introspection
from mcpbridge.downstream.auth.provider_keys import ProviderKeys
from mcpbridge.downstream.auth.resources import canonical
from mcpbridge.downstream.auth.revocations import Revocations
from mcpbridge.downstream.auth.signed_tokens import (
    LONGEST_TOKEN,
    Expected,
    InvalidToken,
    audiences_of,
    check_times,
    check_type,
    identity_from,
    is_jose,
    is_signed_by,
    read_token,
)
from mcpbridge.downstream.settings import IssuerSettings, ResourceServerSettings
from mcpbridge.pipeline.roles.claims import Unreadable, groups_of

log = get_logger("mcpbridge.auth")

_REMEMBERED = 60.0
"""Seconds."""
_MOST = 10_000
"""Tokens that are remembered."""
_REFUSED, _MOST_REFUSED = 5.0, 1000
"""Seconds, and how many, that a provider said no to."""
_TOKEN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/=")
"""RFC 6750, 2.1."""


class CheckedToken(Struct, frozen=True):
    """A token that was checked."""

    identity: Identity
    audiences: frozenset[str]
    """In canonical form."""
    is_for_bridge: bool
    """The configuration accepts one of its audiences for the whole bridge."""
    until: float
    """Seconds since 1970, from which on it is to be checked anew."""


class Issuer:
    """One issuer, and what is known of it."""

    def __init__(self, settings: IssuerSettings, leeway: float, clock: Callable[[], float]) -> None:
        self.settings = settings
        self.expected = Expected(settings.issuer, leeway, settings.require_at_jwt)
        self.audiences = frozenset(map(canonical, settings.audience))
        self.keys = ProviderKeys(settings, clock)


class OwnTokens(Protocol):
    """The tokens that the bridge itself gives to people who signed in here."""

    @property
    def prefix(self) -> bytes:
        """What each begins with."""
        ...

    async def check(self, token: bytes) -> CheckedToken | None:
        """What a token stands for; None: nothing, any more.

        Raises:
            ProviderDown: that cannot be found out now.
        """
        ...


class AccessTokens:
    """All tokens of all issuers."""

    def __init__(
        self,
        settings: ResourceServerSettings,
        *,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`now`: seconds since 1970; `clock` counts seconds."""
        self._now = now
        issuers = [Issuer(one, settings.leeway, clock) for one in settings.issuers.values()]
        self.issuers = {one.settings.issuer: one for one in issuers}
        """By their names in tokens."""
        self.own: OwnTokens | None = None
        """Set where the bridge signs people in itself."""
        self.revocations: Revocations | None = None
        """Whose tokens were revoked here, whatever their provider says. Set by who has a store."""
        self.generation = 0
        """Another one whenever what was decided before may be wrong: whoever remembers a decision asks again."""
        self._asked = next((one for one in issuers if one.settings.introspection is not None), None)
        self._introspection: Introspection | None = None
        self._known = OrderedDict[bytes, CheckedToken]()
        self._refused = OrderedDict[bytes, float]()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self.issuers)} issuers remembered={len(self._known)}>"

    def remembered(self, digest: bytes) -> CheckedToken | None:
        """What was decided about the token with this SHA-256; None: it is to be checked (anew)."""
        checked = self._known.get(digest)
        if checked is None:
            return None
        if checked.until <= self._now():
            del self._known[digest]
            return None
        return checked

    async def check(self, token: bytes) -> CheckedToken:
        """Decide about a token. Cancelling is safe: questions to a provider continue for others.

        Raises:
            InvalidToken: it lets nobody in.
            ProviderDown: its provider cannot be asked.
        """
        digest = hashlib.sha256(token).digest()
        if (known := self.remembered(digest)) is not None:
            return known
        if not token or len(token) > LONGEST_TOKEN or not _TOKEN.issuperset(token):
            raise InvalidToken("malformed")
        while True:
            generation = self.generation
            checked = await self._decide(token, digest)
            if generation == self.generation:
                break  # else somebody was put out meanwhile, perhaps this very person
        if checked.until > self._now():
            self._known[digest] = checked
            self._known.move_to_end(digest)
            if len(self._known) > _MOST:
                self._known.popitem(last=False)
        return checked

    async def _decide(self, token: bytes, digest: bytes) -> CheckedToken:
        if self.own is not None and token.startswith(self.own.prefix):
            found = await self.own.check(token)
            if found is None:
                raise InvalidToken("unknown or ended")
            return found
        if is_jose(token):
            checked = await self._check_signed(token)
        elif self._asked is not None and self._asked.settings.introspection is not None:
            checked = await self._check_opaque(token, digest, self._asked)
        else:
            raise InvalidToken("malformed")
        if self.revocations is not None and await self.revocations.refuses(checked.identity):
            raise InvalidToken("revoked here")
        return checked

    def forget(self, principal: str) -> None:
        """Check the tokens of this person or program anew."""
        self.generation += 1
        for digest in [digest for digest, one in self._known.items() if one.identity.principal == principal]:
            del self._known[digest]

    async def close(self) -> None:
        """Ask no provider any more."""
        for issuer in self.issuers.values():
            await issuer.keys.close()
        if self._introspection is not None:
            await self._introspection.close()

    async def _check_signed(self, token: bytes) -> CheckedToken:
        signed = read_token(token)
        spelled: object = signed.claims.get("iss")
        issuer = self.issuers.get(spelled) if isinstance(spelled, str) else None
        if issuer is None:
            raise InvalidToken("another issuer's")
        if signed.alg not in issuer.settings.algorithms:
            raise InvalidToken("an algorithm that is not accepted")
        keys = await issuer.keys.fitting(signed)
        if not any(is_signed_by(signed, key) for key in keys[:8]):
            raise InvalidToken("no key of its issuer has signed it")
        check_type(signed, issuer.expected)
        return self._checked(signed.claims, issuer, _REMEMBERED)

    async def _check_opaque(self, token: bytes, digest: bytes, issuer: Issuer) -> CheckedToken:
        own = issuer.settings.introspection
        assert own is not None
        if self._refused.get(digest, 0.0) > self._now():
            raise InvalidToken("not active")
        if self._introspection is None:
            self._introspection = Introspection(issuer.settings.issuer, own)
        claims = dict(await self._introspection.ask(token, digest))
        try:
            if claims.pop("active", None) is not True:
                raise InvalidToken("not active")
            if str(claims.get("token_type", "bearer")).lower() not in ("bearer", "access_token"):
                raise InvalidToken("no bearer token")
            claims.setdefault("iss", issuer.settings.issuer)
            if "sub" not in claims and "username" not in claims and "client_id" in claims:
                claims["sub"] = claims["client_id"]  # a program's own token, as RFC 9068, 2.2, names it
            return self._checked(claims, issuer, own.cache, needs_end=False)
        except InvalidToken:
            self._refused[digest] = self._now() + _REFUSED
            self._refused.move_to_end(digest)
            if len(self._refused) > _MOST_REFUSED:
                self._refused.popitem(last=False)
            raise

    def _checked(
        self, claims: Mapping[str, Any], issuer: Issuer, seconds: float, *, needs_end: bool = True
    ) -> CheckedToken:
        now, expected = self._now(), issuer.expected
        check_times(claims, expected, now, needs_end=needs_end)  # first: what follows reads them as numbers
        identity = identity_from(claims, expected)
        try:
            groups_of(identity, issuer.settings.groups_claim)
        except Unreadable as why:
            what = "the groups in a token cannot be read: roles by groups open nothing for it, and deny what they deny"
            log.warning(what, issuer=expected.issuer, reason=str(why))
        audiences = audiences_of(claims)
        until = now + seconds
        if identity.expires_at is not None:
            until = min(until, identity.expires_at)
        return CheckedToken(identity, audiences, not audiences.isdisjoint(issuer.audiences), until)
