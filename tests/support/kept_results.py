"""Results and counts put into the store of this user, as bridges leave them there."""

import asyncio
import json
from typing import Any

from mcpbridge.results.kept_results import KeptResults, ResultSummary
from mcpbridge.results.token_ledger import TokenLedger
from mcpbridge.storage.open_store import LazyStore
from mcpbridge.storage.settings import StoreSettings

__all__ = ["count", "keep", "result_of"]


def result_of(*texts: str, **more: Any) -> bytes:
    """A result with these texts, as a server may write it."""
    return json.dumps({"content": [{"type": "text", "text": text} for text in texts], **more}, indent=1).encode()


def keep(data: bytes, *, principal: str = "", **summary: Any) -> str:
    """Keep a result; returns its handle."""

    async def keeping() -> str:
        store = LazyStore(StoreSettings())
        try:
            kept_results = KeptResults(store, lifetime=1000)
            handle = await kept_results.handle_of(data, principal=principal)
            await kept_results.keep(
                data, ResultSummary(handle=handle, **{"tool": "files/read", **summary}), principal=principal
            )
        finally:
            await store.close()
        return handle

    return asyncio.run(keeping())


def count(tool: str, client: str = "ear", *, day: float | None = None, **numbers: int) -> None:
    """Add to the ledger; `day`: seconds since 1970, now by default."""

    async def counting() -> None:
        store = LazyStore(StoreSettings())
        ledger = TokenLedger(store) if day is None else TokenLedger(store, clock=lambda: day)
        try:
            line = ledger.line(tool.partition("/")[0], tool, client)
            for name, number in numbers.items():
                setattr(line, name, number)
            await ledger.flush()
        finally:
            await store.close()

    asyncio.run(counting())
