"""Since when the access tokens of somebody count no more, whatever their provider still says of them.

A provider signs a token once and knows nothing of this bridge. So whoever is put out here (`mcpbridge users revoke`) is
written down, with the time: tokens that were issued by then are refused until none of them can be valid any more.
Tokens that the bridge issues itself end with their grants (`app/sign_in/grants.py`) and are not looked at here.
"""

import time
from collections.abc import Callable

import msgspec

from mcpbridge.base.errors import BridgeError
from mcpbridge.core.identity import Identity
from mcpbridge.downstream.auth.provider_http import ProviderDown
from mcpbridge.downstream.auth.signed_tokens import LONGEST_LIFE
from mcpbridge.storage.store import Store

_KIND, _HANDLE = "token-revoked", "all"
_ROOM = 8 << 20
"""Bytes: some ten thousand people."""


class Revocations:
    """Who was put out, and when. They are in the store, so other bridges with the same store know them as well."""

    def __init__(self, store: Store, now: Callable[[], float] = time.time) -> None:
        """`now`: seconds since 1970."""
        self._store, self._now = store, now
        store.bound(_KIND, _ROOM)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} in {self._store!r}>"

    async def revoke(self, principal: str) -> None:
        """Refuse all tokens of this principal that were issued until now."""
        at = msgspec.json.encode(self._now())
        await self._store.put(_KIND, at, principal=principal, expires_in=LONGEST_LIFE, handle=_HANDLE)

    async def refuses(self, identity: Identity) -> bool:
        """Whether the token that says this was revoked. One that does not say when it was issued counts as older.

        Raises:
            ProviderDown: that cannot be read now, so nobody is let in.
        """
        try:
            body = await self._store.get(_KIND, _HANDLE, principal=identity.principal)
        except BridgeError as error:
            raise ProviderDown(f"the store cannot be read: {error}") from error
        if body is None:
            return False
        issued: object = identity.claims.get("iat")
        return not isinstance(issued, int) or issued <= msgspec.json.decode(body, type=float)
