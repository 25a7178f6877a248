"""Of several who answer a paused call, in whatever process that shares the store, one goes on with it.

Who has the claim renews it; it lapses soon after its process ended, so that such a call can be answered again.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import anyio

from mcpbridge.backends.paused_record import PausedRecord
from mcpbridge.errors import AlreadyResumed, StoreFailed
from mcpbridge.storage.store import Store

__all__ = ["CLAIM", "CLAIM_SECONDS", "claimed"]

CLAIM = "paused-claim"
"""The kind of value that says who is answering a call."""
CLAIM_SECONDS = 60.0
"""Seconds after which a claim lapses that nobody renews."""
GIVING_BACK_SECONDS = 5.0
"""Seconds that the store gets to take a claim away; then it lapses by itself."""

StillWaiting = Callable[[str, str], Awaitable[object]]
"""Raises AlreadyResumed if the call of this id, of this principal, was answered."""


@asynccontextmanager
async def claimed(store: Store, record: PausedRecord, still_waiting: StillWaiting) -> AsyncGenerator[None]:
    """Nobody else answers the call meanwhile.

    Raises:
        AlreadyResumed: somebody does, or has.
    """
    principal, mine = record.principal, secrets.token_bytes(16)
    holder = await store.put_if_absent(CLAIM, mine, principal=principal, expires_in=CLAIM_SECONDS, handle=record.id)
    if holder != mine:
        raise AlreadyResumed(f"Somebody else is answering the paused call {record.id} of {record.tool} right now")
    renewing = asyncio.create_task(_renewing(store, record))
    try:
        await still_waiting(record.id, principal)  # whoever had the claim before may have answered it
        yield
    finally:
        renewing.cancel()
        with anyio.CancelScope(shield=True), anyio.move_on_after(GIVING_BACK_SECONDS):
            await asyncio.wait([renewing])
            await store.drop(CLAIM, record.id, principal=principal)


async def _renewing(store: Store, record: PausedRecord) -> None:
    while True:
        await asyncio.sleep(CLAIM_SECONDS / 3)
        with suppress(StoreFailed):
            await store.renew(CLAIM, record.id, principal=record.principal, expires_in=CLAIM_SECONDS)
