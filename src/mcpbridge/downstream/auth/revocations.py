"""Since when the access tokens of somebody count no more, whatever their provider still says of them.

A provider signs a token once and knows nothing of this bridge. So whoever is put out here (`mcpbridge users revoke`) is
written down, with the time: tokens that were issued by then are refused until none of them can be valid any more.
Tokens that the bridge issues itself end with their grants (`app/sign_in/grants.py`) and are not looked at here.

While the store cannot be read, tokens are refused that were not checked lately. What cannot be written down holds at
this bridge, which writes it as soon as it can.
"""

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import msgspec

from mcpbridge.base.errors import BridgeError
from mcpbridge.core.identity import Identity
from mcpbridge.downstream.auth.provider_http import ProviderDown
from mcpbridge.downstream.auth.put_out import PutOut
from mcpbridge.downstream.auth.signed_tokens import LONGEST_LIFE
from mcpbridge.storage.store import Store

_KIND, _HANDLE = "token-revoked", "all"
_ROOM = 8 << 20
"""Bytes: some ten thousand people."""


class Revocations:
    """Who was put out, and when. They are in the store, so other bridges with the same store know them as well."""

    def __init__(self, store: Store, now: Callable[[], float] = time.time) -> None:
        """`store`: its methods fail while it cannot be read (`LazyStore.shared`). `now`: seconds since 1970."""
        self._store = store
        self.put_out = PutOut(self._write, now)
        """Who was put out here, and is not written down."""
        store.bound(_KIND, _ROOM)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} in {self._store!r}>"

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """What the store did not take is written later, until the end."""
        async with self.put_out.running():
            yield

    async def revoke(self, principal: str) -> None:
        """Refuse all tokens of this principal that were issued until now.

        Raises:
            StoreFailed: it cannot be written down, and this does not run, so that nobody would do it later.
        """
        await self.put_out.add(principal)

    async def refuses(self, identity: Identity) -> bool:
        """Whether the token that says this was revoked. One that does not say when it was issued counts as older.

        Raises:
            ProviderDown: that cannot be read now, so nobody is let in.
        """
        issued: object = identity.claims.get("iat")
        until = self.put_out.since(identity.principal)
        if until is not None and _is_from(issued, until):
            return True
        try:
            written = await self._written(identity.principal)
        except BridgeError as error:
            raise ProviderDown(f"the store cannot be read: {error}") from error
        return written is not None and _is_from(issued, written)

    async def _written(self, principal: str) -> float | None:
        body = await self._store.get(_KIND, _HANDLE, principal=principal)
        return None if body is None else msgspec.json.decode(body, type=float)

    async def _write(self, principal: str, at: float) -> None:
        written = await self._written(principal)
        if written is None or written < at:  # else another bridge put the same person out later
            body = msgspec.json.encode(at)
            await self._store.put(_KIND, body, principal=principal, expires_in=LONGEST_LIFE, handle=_HANDLE)


def _is_from(issued: object, until: float) -> bool:
    return not isinstance(issued, int) or issued <= until
