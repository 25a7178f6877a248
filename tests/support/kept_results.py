"""Results and counts put into the store of this user, as bridges leave them there."""

import asyncio
import json
from typing import Any

from mcpbridge.results.kept_results import Card, Shelf
from mcpbridge.results.token_ledger import Ledger
from mcpbridge.storage.open_store import LazyStore
from mcpbridge.storage.settings import StoreSettings

__all__ = ["count", "keep", "result_of"]


def result_of(*texts: str, **more: Any) -> bytes:
    """A result with these texts, as a server may write it."""
    return json.dumps({"content": [{"type": "text", "text": text} for text in texts], **more}, indent=1).encode()


def keep(data: bytes, *, principal: str = "", **card: Any) -> str:
    """Keep a result; returns its handle."""

    async def keeping() -> str:
        store = LazyStore(StoreSettings())
        try:
            shelf = Shelf(store, lifetime=1000)
            handle = await shelf.handle_of(data, principal=principal)
            await shelf.keep(data, Card(handle=handle, **{"tool": "files/read", **card}), principal=principal)
        finally:
            await store.close()
        return handle

    return asyncio.run(keeping())


def count(tool: str, client: str = "ear", *, day: float | None = None, **numbers: int) -> None:
    """Add to the ledger; `day`: seconds since 1970, now by default."""

    async def counting() -> None:
        store = LazyStore(StoreSettings())
        ledger = Ledger(store) if day is None else Ledger(store, clock=lambda: day)
        try:
            line = ledger.line(tool.partition("/")[0], tool, client)
            for name, number in numbers.items():
                setattr(line, name, number)
            await ledger.flush()
        finally:
            await store.close()

    asyncio.run(counting())
