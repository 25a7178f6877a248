"""The records of requests that can be answered, in the store. Of all who answer, who takes the record is heard.

So a record must never come back once it was taken: it is written once for each time that a call waits, and written anew
only by whoever has just removed it. In a fleet the records are those of all bridges: while their server is away every
method fails, since a copy in the memory of one bridge could be taken as well.
"""

import time
from collections.abc import Container

import anyio
import msgspec
from msgspec import Struct

from mcpbridge.base.errors import StoreFailed
from mcpbridge.base.log import get_logger
from mcpbridge.pipeline.approvals.request import ApprovalRequest
from mcpbridge.storage.store import Entry, Store

log = get_logger("mcpbridge.approvals")

_KIND = "approval"
_CLEAN_UP = 2.0
"""Seconds for taking a record away."""


class Pending(Struct, frozen=True):
    """One request that can be answered."""

    request: ApprovalRequest
    is_waiting: bool
    """A call waits for it; else it gave up, and a yes lets the same call pass once it is made again."""
    until: float
    """Seconds since 1970, when it is forgotten."""
    is_here: bool = False
    """This bridge waits; else it may be another that shares the store."""


class RequestRecords:
    """The records in one store. Every method may raise `StoreFailed`, unless it says otherwise."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def write(self, request: ApprovalRequest, *, lifetime: float) -> None:
        """Let the request be answered. `lifetime`: seconds that it lives after its call gave up."""
        seconds = max(0.0, request.expires - time.time()) + lifetime
        body = msgspec.json.encode(request)
        await self._store.put(_KIND, body, principal=request.principal, expires_in=seconds, handle=request.id)

    async def is_there(self, request: ApprovalRequest) -> bool:
        """Nobody has answered it."""
        return await self._store.get(_KIND, request.id, principal=request.principal) is not None

    async def take_own(self, request: ApprovalRequest) -> bool:
        """Take the record of a request that is known here; False: somebody was quicker."""
        return await self._store.take(_KIND, request.id, principal=request.principal) is not None

    async def take(self, id_: str) -> Pending | None:
        """Take the record with this id; None: there is none, or somebody was quicker."""
        for entry in await self._named(id_):
            body = await self._store.take(_KIND, id_, principal=entry.principal)
            if body is not None:
                return _of_record(body, entry.expires)
        return None

    async def remove(self, request: ApprovalRequest) -> bool:
        """Nobody shall answer it any more. Whether it is certain that nobody has, which it is not if this fails.

        Never raises, also where the call is cancelled; it takes two seconds at most.
        """
        is_removed = False
        with anyio.CancelScope(shield=True), anyio.move_on_after(_CLEAN_UP):
            try:
                is_removed = await self._store.drop(_KIND, request.id, principal=request.principal)
            except StoreFailed as error:
                log.warning("a request for approval cannot be taken back", id=request.id, reason=str(error))
        return is_removed

    async def find(self, id_: str) -> Pending | None:
        """The request with this id."""
        for entry in await self._named(id_):
            body = await self._store.get(_KIND, id_, principal=entry.principal)
            return _of_record(body, entry.expires) if body is not None else None
        return None

    async def all_but(self, ids: Container[str]) -> list[Pending]:
        """All other requests, also of other bridges that share the store."""
        found: list[Pending] = []
        for entry in await self._store.entries(_KIND, principal=None):
            if entry.handle in ids:
                continue
            body = await self._store.get(_KIND, entry.handle, principal=entry.principal)
            pending = _of_record(body, entry.expires) if body is not None else None
            if pending is not None:
                found.append(pending)
        return found

    async def count(self, principal: str) -> int:
        """How many requests of a principal can be answered."""
        return len(await self._store.entries(_KIND, principal=principal))

    async def make_room(self, principal: str, *, most: int, lifetime: float) -> None:
        """Forget the oldest requests of a principal whose calls gave up, so that with one more there are `most`."""
        entries = await self._store.entries(_KIND, principal=principal)
        late = [entry for entry in entries if entry.expires <= time.time() + lifetime]
        for entry in late[: max(0, len(late) + 1 - most)]:
            await self._store.drop(_KIND, entry.handle, principal=principal)

    async def unanswered(self, request: ApprovalRequest, earlier: str) -> ApprovalRequest | None:
        """The request of an equal call that nobody answered; None: there is none, or it has expired.

        `earlier`: the id under which this bridge knows it. Of a call that does not wait any bridge may have been asked.
        """
        ids = [earlier]
        if request.lasts:
            ids += [entry.handle for entry in await self._store.entries(_KIND, principal=request.principal)]
        for id_ in filter(None, ids):
            body = await self._store.get(_KIND, id_, principal=request.principal)
            before = _of_record(body, 0.0) if body is not None else None
            if before is None or before.request.is_unique or (request.lasts and before.is_waiting):
                continue
            if same(before.request) == same(request):
                return before.request
        return None

    async def _named(self, id_: str) -> list[Entry]:
        """Those with this id, of whichever principal."""
        return [entry for entry in await self._store.entries(_KIND, principal=None) if entry.handle == id_]


def same(request: ApprovalRequest) -> tuple[str, str, str]:
    """What equal calls have in common: principal, client and what a yes is bound to."""
    return request.principal, request.client, request.binding


_decode_request = msgspec.json.Decoder(ApprovalRequest).decode


def _of_record(body: bytes, until: float) -> Pending | None:
    """None: it is of another release."""
    try:
        request = _decode_request(body)
    except (msgspec.DecodeError, RecursionError):
        log.warning("a stored approval request cannot be read")
        return None
    return Pending(request, is_waiting=request.expires > time.time(), until=until)
