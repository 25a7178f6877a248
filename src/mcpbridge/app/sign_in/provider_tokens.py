"""The identity provider's own tokens of everybody who signed in: encrypted, renewed, and there to be exchanged.

A gateway that keeps only tokens of its own can exchange them for nothing: no other authorization server knows them. So
the provider's are kept, one set for each person, and renewed by one request at a time.
"""

import hashlib
from collections.abc import Awaitable, Callable

import msgspec
from msgspec.structs import replace

from mcpbridge.app.sign_in.errors import ProviderRefused
from mcpbridge.app.sign_in.grants import Person
from mcpbridge.app.sign_in.identity_provider import IdentityProvider, ProviderTokens, SignedIn
from mcpbridge.base.log import get_logger
from mcpbridge.downstream.auth.signed_tokens import InvalidToken, read_token
from mcpbridge.upstream.auth.grant import SecretStore

log = get_logger("mcpbridge.auth")

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
        principal, tokens = signed_in.person.principal, signed_in.tokens
        async with self._secrets.lock(_key(principal), _LOCK_SECONDS):
            before = await self._load(principal)
            if before is not None:
                older = (*before.replaced, *([before.refresh] if before.refresh != tokens.refresh else []))
                tokens = replace(tokens, replaced=tuple(token for token in older if token)[-_MOST_REPLACED:])
            await self._save(replace(signed_in, tokens=tokens))
            await self._list(principal, is_there=True)

    async def people(self) -> list[str]:
        """The principals of whom something is kept."""
        found: list[str] = []
        for digit in "0123456789abcdef":
            found += await self._listed(f"{_PEOPLE}{digit}")
        return found

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
            await self._save(signed_in)
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
                await self._save(signed_in)
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
                await self._save(signed_in)
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

    async def forget(self, principal: str, unless: Callable[[str], Awaitable[bool]] | None = None) -> bool:
        """Keep nothing of this person any more, and have the provider revoke it, if it can be asked.

        A renewal that is under way ends first. `unless`: says then that the tokens are needed. False: nothing was done.
        """
        async with self._secrets.lock(_key(principal), _LOCK_SECONDS):
            if unless is not None and await unless(principal):
                return False
            self._asked_at.pop(principal, None)
            tokens = await self._load(principal)
            await self._secrets.drop(_key(principal))
            await self._list(principal, is_there=False)
        if tokens is not None:
            taken = await self._provider.revoke(tokens)
            log.info("the provider's tokens of a person are forgotten", revoked=taken)
        return True

    async def _save(self, signed_in: SignedIn) -> None:
        await self._secrets.save(_key(signed_in.person.principal), msgspec.json.encode(signed_in.tokens))
        self._note(signed_in.person)

    async def _list(self, principal: str, *, is_there: bool) -> None:
        """Note that something is kept of a person, or nothing any more: the names of secrets do not say whose."""
        key = f"{_PEOPLE}{hashlib.sha256(principal.encode()).hexdigest()[0]}"
        async with self._secrets.lock(key, _LOCK_SECONDS):
            known = await self._listed(key)
            if (principal in known) != is_there:
                known = [*known, principal] if is_there else [one for one in known if one != principal]
                await self._secrets.save(key, msgspec.json.encode(known))

    async def _listed(self, key: str) -> list[str]:
        body = await self._secrets.load(key)
        return [] if body is None else msgspec.json.decode(body, type=list[str])

    async def _load(self, principal: str) -> ProviderTokens | None:
        body = await self._secrets.load(_key(principal))
        return None if body is None else msgspec.json.decode(body, type=ProviderTokens)

    def _note(self, person: Person) -> None:
        self._asked_at[person.principal] = self._now(), person
        if len(self._asked_at) > _MOST_NOTED:
            del self._asked_at[next(iter(self._asked_at))]


_MOST_NOTED = 10_000
_MOST_REPLACED = 20
"""Refresh tokens of earlier sign-ins that are kept to be revoked."""
_PEOPLE = "identity-provider-people/"
"""Under which it is kept who there is, in sixteen parts: a secret is no larger than a megabyte."""


def _key(principal: str) -> str:
    return f"identity-provider/{principal}"
