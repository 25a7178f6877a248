"""Of several who do what is to be done once, in whatever process that shares the store, one does it.

So with the answer of a paused call, and with going on with a run. Who has the claim renews it; it lapses soon after its
process ended, so that another can have it.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import anyio

from mcpbridge.backends.paused_record import PausedRecord
from mcpbridge.errors import AlreadyResumed, StoreFailed
from mcpbridge.storage.store import Store

__all__ = ["CLAIM", "CLAIM_SECONDS", "claimed", "in_turn"]

CLAIM = "paused-claim"
"""The kind of value that says who is answering a call."""
RUN_CLAIM = "run-claim"
"""The kind of value that says who makes what an earlier run left open."""
CLAIM_SECONDS = 60.0
"""Seconds after which a claim lapses that nobody renews."""
GIVING_BACK_SECONDS = 5.0
"""Seconds that the store gets to take a claim away; then it lapses by itself."""
LOOK_SECONDS = 0.05
"""Seconds until another look whether the claim of a run is free."""

StillWaiting = Callable[[str, str], Awaitable[object]]
"""Raises AlreadyResumed if the call of this id, of this principal, was answered."""


@asynccontextmanager
async def claimed(store: Store, record: PausedRecord, still_waiting: StillWaiting) -> AsyncGenerator[None]:
    """Nobody else answers the call meanwhile.

    Raises:
        AlreadyResumed: somebody does, or has.
    """
    async with _Claim(store, CLAIM, record.id, record.principal).held() as is_ours:
        if not is_ours:
            raise AlreadyResumed(f"Somebody else is answering the paused call {record.id} of {record.tool} right now")
        await still_waiting(record.id, record.principal)  # whoever had the claim before may have answered it
        yield


@asynccontextmanager
async def in_turn(store: Store, handle: str, principal: str) -> AsyncGenerator[None]:
    """Nobody else goes on with the run of this name meanwhile; waits for those who do."""
    while True:
        async with _Claim(store, RUN_CLAIM, handle, principal).held() as is_ours:
            if is_ours:
                yield
                return
        await asyncio.sleep(LOOK_SECONDS)


class _Claim:
    """That one does something, and nobody else."""

    def __init__(self, store: Store, kind: str, handle: str, principal: str) -> None:
        self._store, self._kind, self._handle, self._principal = store, kind, handle, principal
        self._mine = secrets.token_bytes(16)

    @asynccontextmanager
    async def held(self) -> AsyncGenerator[bool]:
        """Whether it could be had; if so, it is given back in the end."""
        if not await self._put():
            yield False
            return
        renewing = asyncio.create_task(self._renewing())
        try:
            yield True
        finally:
            renewing.cancel()
            with anyio.CancelScope(shield=True), anyio.move_on_after(GIVING_BACK_SECONDS):
                await asyncio.wait([renewing])
                await self._drop()

    async def _put(self) -> bool:
        put = self._store.put_if_absent(
            self._kind, self._mine, principal=self._principal, expires_in=CLAIM_SECONDS, handle=self._handle
        )
        putting = asyncio.ensure_future(put)
        try:
            return await asyncio.shield(putting) == self._mine
        except asyncio.CancelledError:  # it may be on its way into the store, and nobody wants it any more
            with anyio.CancelScope(shield=True), anyio.move_on_after(GIVING_BACK_SECONDS):
                await asyncio.wait([putting])
                if putting.exception() is None and putting.result() == self._mine:
                    await self._drop()
            raise

    async def _drop(self) -> None:
        await self._store.drop(self._kind, self._handle, principal=self._principal)

    async def _renewing(self) -> None:
        while True:
            await asyncio.sleep(CLAIM_SECONDS / 3)
            with suppress(StoreFailed):
                await self._store.renew(self._kind, self._handle, principal=self._principal, expires_in=CLAIM_SECONDS)
