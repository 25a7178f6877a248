"""The identity provider's own tokens of everybody who signed in: encrypted, renewed, and there to be exchanged.

A gateway that keeps only tokens of its own can exchange them for nothing: no other authorization server knows them. So
the provider's are kept, one set for each person, and renewed by one request at a time.
"""

from collections.abc import Callable

import msgspec

from mcpbridge.app.sign_in.errors import ProviderRefused
from mcpbridge.app.sign_in.grants import Person
from mcpbridge.app.sign_in.identity_provider import IdentityProvider, ProviderTokens, SignedIn
from mcpbridge.downstream.auth.signed_tokens import InvalidToken, read_token
from mcpbridge.upstream.auth.grant import SecretStore

_LOCK_SECONDS = 60.0
_RECENTLY = 60.0
"""Seconds for which the provider is not asked again whether somebody may still sign in."""
_EARLY = 60.0
"""Seconds before its end at which a token is renewed."""


class ProviderTokenStore:
    """The tokens of all people of one bridge."""

    def __init__(self, secrets: SecretStore, provider: IdentityProvider, now: Callable[[], float]) -> None:
        self._secrets, self._provider, self._now = secrets, provider, now
        self._asked_at: dict[str, tuple[float, Person]] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._provider.issuer}>"

    async def keep(self, signed_in: SignedIn) -> None:
        """Keep what the provider gave for somebody who has just signed in."""
        await self._secrets.save(_key(signed_in.person.principal), msgspec.json.encode(signed_in.tokens))
        self._note(signed_in.person)

    async def renewed(self, person: Person, until: float) -> Person:
        """The person as the provider knows them now.

        `until`: seconds since 1970, up to which a sign-in counts whose provider gave nothing to ask it again with.

        Raises:
            ProviderRefused: they have to sign in again, or may no more.
            ProviderDown: it cannot be asked.
        """
        principal = person.principal
        async with self._secrets.lock(_key(principal), _LOCK_SECONDS):
            asked_at, known = self._asked_at.get(principal, (float("-inf"), person))
            if self._now() < asked_at + _RECENTLY:
                return known
            tokens = await self._load(principal)
            if tokens is None:
                raise ProviderRefused("nothing of the provider's is kept for this person")
            if not tokens.refresh and self._provider.needs_refresh_tokens and self._now() > until:
                raise ProviderRefused("the sign-in is too old, and the provider gives no way to ask about it")
            signed_in = await self._provider.renew(person, tokens)
            await self.keep(signed_in)
            return signed_in.person

    async def subject_token(self, person: Person) -> ProviderTokens:
        """The provider's tokens for this person, still valid: what a token exchange starts from (RFC 8693).

        Raises:
            ProviderRefused: there are none any more; they have to sign in again.
            ProviderDown: it cannot be asked for others.
        """
        principal = person.principal
        async with self._secrets.lock(_key(principal), _LOCK_SECONDS):
            tokens = await self._load(principal)
            if tokens is None:
                raise ProviderRefused("nothing of the provider's is kept for this person")
            if tokens.refresh and tokens.until is not None and tokens.until < self._now() + _EARLY:
                signed_in = await self._provider.renew(person, tokens)
                await self.keep(signed_in)
                tokens = signed_in.tokens
        if tokens.until is not None and tokens.until <= self._now():
            raise ProviderRefused("the provider's token has ended, and the provider gives no other: sign in again")
        return tokens

    async def id_token(self, person: Person) -> str:
        """The provider's ID token for this person, still valid: what an identity assertion starts from (ID-JAG).

        Raises:
            ProviderRefused: there is none any more; they have to sign in again.
            ProviderDown: it cannot be asked for another one.
        """
        principal = person.principal
        async with self._secrets.lock(_key(principal), _LOCK_SECONDS):
            tokens = await self._load(principal)
            if tokens is None:
                raise ProviderRefused("nothing of the provider's is kept for this person")
            if tokens.refresh and self._ends_soon(tokens.id_token):
                signed_in = await self._provider.renew(person, tokens)
                await self.keep(signed_in)
                tokens = signed_in.tokens
        if self._ends_soon(tokens.id_token, early=0.0):
            raise ProviderRefused("the ID token has ended, and the provider gives no other: sign in again")
        return tokens.id_token

    def _ends_soon(self, id_token: str, early: float = _EARLY) -> bool:
        """Whether an ID token, which was checked when it came, ends within so many seconds, or is none."""
        try:
            until: object = read_token(id_token.encode("ascii", "replace")).claims.get("exp")
        except InvalidToken:
            return True
        return not isinstance(until, int | float) or until < self._now() + early

    async def forget(self, principal: str) -> None:
        """Keep nothing of this person any more; a renewal that is under way ends first."""
        async with self._secrets.lock(_key(principal), _LOCK_SECONDS):
            self._asked_at.pop(principal, None)
            await self._secrets.drop(_key(principal))

    async def _load(self, principal: str) -> ProviderTokens | None:
        body = await self._secrets.load(_key(principal))
        return None if body is None else msgspec.json.decode(body, type=ProviderTokens)

    def _note(self, person: Person) -> None:
        self._asked_at[person.principal] = self._now(), person
        if len(self._asked_at) > _MOST_NOTED:
            del self._asked_at[next(iter(self._asked_at))]


_MOST_NOTED = 10_000


def _key(principal: str) -> str:
    return f"identity-provider/{principal}"
