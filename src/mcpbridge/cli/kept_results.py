"""Kept results and the ledger of tokens, in the store itself: no bridge has to run for that."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from mcpbridge.config.schema import Settings
from mcpbridge.redaction import Redactor
from mcpbridge.results.ledger import Ledger
from mcpbridge.results.shelf import Shelf
from mcpbridge.storage.opening import LazyStore
from mcpbridge.storage.settings import store_path
from mcpbridge.storage.sqlite_file import may_exist

__all__ = ["KeptResults", "absence", "kept_results"]


@dataclass(frozen=True, slots=True)
class KeptResults:
    """What the store of a configuration has of results."""

    shelf: Shelf
    ledger: Ledger


@asynccontextmanager
async def kept_results(settings: Settings, redact: Redactor) -> AsyncGenerator[KeptResults]:
    """Open for the time of the context. Looking makes no file."""
    store = LazyStore(settings.store)
    try:
        yield KeptResults(Shelf(store, lifetime=settings.results.lifetime, redact=redact), Ledger(store))
    finally:
        await store.close()


def absence(settings: Settings) -> str:
    """Why a command cannot find anything, whatever is asked; empty: it may."""
    if settings.store.kind == "memory":
        return 'each bridge keeps them in its memory (`[store] kind = "memory"`), where no command sees them'
    path: Path = store_path(settings.store)
    return "" if may_exist(path) else f"there is no store yet: {path}"
