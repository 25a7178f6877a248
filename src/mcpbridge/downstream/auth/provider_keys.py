"""The keys of one issuer: fetched when a token first needs them, kept, and fetched anew as they get old.

1. Younger than `_FRESH`: they are used.
2. Older: they are used, and fetched anew meanwhile.
3. Older than `_LONGEST` since the provider could not be asked: nobody knows whether they still hold, so nobody is let
   in by them (`ProviderDown`).

A token whose key is not among them may be signed with a new one, so they are fetched anew, by one request for all who
wait, and at most once in `_AGAIN`.
"""

import asyncio
import time
from collections.abc import Callable

from mcpbridge.base.log import get_logger
from mcpbridge.downstream.auth.provider_http import ProviderDown, ask, discover, is_of
from mcpbridge.downstream.auth.signed_tokens import Key, SignedToken, fitting, read_keys
from mcpbridge.downstream.settings import IssuerSettings

log = get_logger("mcpbridge.auth")

_FRESH = 300.0
_LONGEST = 3600.0
_AGAIN = 10.0
"""Seconds, all three."""


class ProviderKeys:
    """The keys of one issuer."""

    def __init__(self, settings: IssuerSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._clock = settings, clock
        self._keys: list[Key] = []
        self._fetched_at: float | None = None
        self._tried_at: float | None = None
        self._failure = ""
        """Why the latest try failed; empty: it did not."""
        self._fetching: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._settings.issuer} keys={len(self._keys)} failure={self._failure!r}>"

    @property
    def is_fetching(self) -> bool:
        """Whether the provider is being asked."""
        return self._fetching is not None

    async def fitting(self, token: SignedToken) -> list[Key]:
        """The keys that may have signed this token. Cancelling is safe: a fetch continues for others.

        Raises:
            ProviderDown: they are not known, or have not been for too long.
        """
        age = self._age()
        if age is None or age > _LONGEST:
            await self._fetch()
        elif age > _FRESH and self._may_try():
            self._begin()
        found = fitting(self._keys, token)
        if not found:
            if self._may_try():
                await self._fetch()
                found = fitting(self._keys, token)
            elif self._failure:
                raise ProviderDown(self._failure, self._wait())
        return found

    def know(self, keys: list[Key]) -> None:
        """These are its keys, as fetched now."""
        self._keys, self._failure, self._fetched_at = keys, "", self._clock()

    async def close(self) -> None:
        """Ask for nothing any more."""
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait([self._fetching])

    def _age(self) -> float | None:
        return None if self._fetched_at is None else self._clock() - self._fetched_at

    def _wait(self) -> float:
        """Seconds until the provider may be asked again."""
        return 0.0 if self._tried_at is None else max(0.0, self._tried_at + _AGAIN - self._clock())

    def _may_try(self) -> bool:
        return self._fetching is not None or self._wait() <= 0

    def _begin(self) -> asyncio.Task[None]:
        if self._fetching is None:
            self._tried_at = self._clock()
            self._fetching = asyncio.get_running_loop().create_task(self._read())
        return self._fetching

    async def _fetch(self) -> None:
        if self._may_try():
            await asyncio.shield(self._begin())
        if self._failure:
            raise ProviderDown(self._failure, max(1.0, self._wait()))

    async def _read(self) -> None:
        issuer = self._settings.issuer
        try:
            url, is_trusted = self._settings.jwks_uri, True
            if url is None:
                named: object = (await discover(issuer)).get("jwks_uri")
                if not isinstance(named, str):
                    raise ProviderDown("its metadata names no keys (`jwks_uri`)")
                url, is_trusted = named, is_of(issuer, named)
            try:
                keys = read_keys(await ask(url, is_trusted=is_trusted))
            except ValueError as error:
                raise ProviderDown(f"its keys cannot be read: {error}") from error
        except ProviderDown as down:
            self._failure = down.reason
            log.warning("keys of an issuer cannot be fetched", issuer=issuer, reason=down.reason, known=len(self._keys))
        else:
            self.know(keys)
            log.info("keys of an issuer were fetched", issuer=issuer, keys=len(keys))
        finally:
            self._fetching = None
