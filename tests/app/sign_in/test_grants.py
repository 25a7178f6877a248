"""What the bridge has granted, where its store fails in the middle."""

import pytest

from mcpbridge.app.sign_in.grants import Grants, Person, Request
from mcpbridge.base.errors import StoreFailed
from mcpbridge.storage.memory_store import MemoryStore
from mcpbridge.storage.store import BytesLike

REQUEST = Request("c", "http://127.0.0.1:1/back", True, None, "x", (), "http://127.0.0.1:1/mcp", "x")


class Failing(MemoryStore):
    """Takes so many values and no more."""

    left = 1000

    async def put(
        self, kind: str, body: BytesLike, *, principal: str, expires_in: float, handle: str = "", label: bytes = b""
    ) -> str:
        self._count()
        return await super().put(kind, body, principal=principal, expires_in=expires_in, handle=handle, label=label)

    async def put_if_absent(
        self, kind: str, body: bytes, *, principal: str, expires_in: float, handle: str, label: bytes = b""
    ) -> bytes:
        self._count()
        return await super().put_if_absent(
            kind, body, principal=principal, expires_in=expires_in, handle=handle, label=label
        )

    def _count(self) -> None:
        if not self.left:
            raise StoreFailed("away")
        self.left -= 1


@pytest.mark.parametrize("puts", range(4))
async def test_a_renewal_that_failed_can_be_repeated_when_the_store_is_back(puts: int) -> None:
    """The client has no other refresh token: that it sends the same one again, minutes later, is no theft."""
    store, times = Failing(), [1000.0]
    grants = Grants(store, token_seconds=3600, session_seconds=7200, now=lambda: times[-1])
    tokens = await grants.exchange(await grants.make_code(REQUEST, Person("https://idp", "alice", "A", {})), "C", ())
    assert tokens is not None
    grant = await grants.refreshed(tokens.refresh, "c")
    assert grant is not None
    store.left = puts
    with pytest.raises(StoreFailed):
        await grants.renew(tokens.refresh, grant, ())
    store.left = 1000
    times.append(1300.0)
    again = await grants.refreshed(tokens.refresh, "c")
    assert again is not None
    renewed = await grants.renew(tokens.refresh, again, ())
    assert renewed is not None
    assert await grants.refreshed(renewed.refresh, "c") is not None
