"""What commands read in the store itself, so that no bridge has to run: kept results, tokens, approvals.

Clients on standard input end their bridge with them, and what it said about a late approval must hold after that too.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import anyio

from mcpbridge.app.admin.approvals import decide, list_approvals
from mcpbridge.app.cli.config.audited import audit as audit_event
from mcpbridge.app.cli.config.config_path import load_or_default
from mcpbridge.app.logging_setup import set_up_logs
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.base.settings import LogSettings
from mcpbridge.catalog.listing.list_ledger import ListLedger
from mcpbridge.config.schema import Settings
from mcpbridge.pipeline.approvals.grants import Grants, recording
from mcpbridge.pipeline.approvals.pending import PendingApprovals
from mcpbridge.results.kept_results import KeptResults
from mcpbridge.results.token_ledger import TokenLedger
from mcpbridge.storage.call_log.log import CallLog
from mcpbridge.storage.open_store import LazyStore
from mcpbridge.storage.settings import call_log_path, store_path
from mcpbridge.storage.sqlite.database import may_exist


@dataclass(frozen=True, slots=True)
class ResultStores:
    """What the store of a configuration has of results."""

    kept_results: KeptResults
    ledger: TokenLedger
    lists: ListLedger


@asynccontextmanager
async def result_stores(settings: Settings, redact: Redactor) -> AsyncGenerator[ResultStores]:
    """Open for the time of the context. Looking makes no file."""
    store = LazyStore(settings.store)
    try:
        kept_results = KeptResults(store, lifetime=settings.results.lifetime, redact=redact)
        yield ResultStores(kept_results, TokenLedger(store), ListLedger(store))
    finally:
        await store.close()


def absence(settings: Settings) -> str:
    """Why a command cannot find anything, whatever is asked; empty: it may."""
    if settings.store.kind == "memory":
        return 'each bridge keeps them in its memory (`[store] kind = "memory"`), where no command sees them'
    if settings.store.kind == "redis":
        return ""
    path: Path = store_path(settings.store)
    return "" if may_exist(path) else f"there is no store yet: {path}"


_T = TypeVar("_T")


class KeptApprovals:
    """What the store of a configuration knows of them; without a configuration, the store that bridges have unasked."""

    def __init__(self, config: str | None) -> None:
        """The file `config`, or the one that other commands find.

        Raises:
            ConfigError: there is none of that name, or it is wrong.
        """
        self._loaded = load_or_default(config)

    def listed(self) -> list[dict[str, Any]]:
        """All that can be answered, oldest first, as running bridges report it."""
        return self._with_desk(list_approvals)

    def decide(self, id_: str, answer: Mapping[str, object], by: str) -> dict[str, Any]:
        """Answer one.

        Raises:
            Problem: that is no answer, or there is nothing to answer.
        """
        return self._with_desk(lambda desk: decide(desk, id_, answer, by))

    def _with_desk(self, work: Callable[[PendingApprovals], Awaitable[_T]]) -> _T:
        redact = Redactor(self._loaded.secrets)
        set_up_logs(LogSettings(level="critical"), redact)  # a command says in its own words what went wrong

        async def doing() -> _T:
            async with _desk(self._loaded.settings, redact) as desk:
                return await work(desk)

        return anyio.run(doing)


@asynccontextmanager
async def _desk(settings: Settings, redact: Redactor) -> AsyncGenerator[PendingApprovals]:
    store, approval = LazyStore(settings.store), settings.approval
    audit = CallLog(partial(call_log_path, settings.call_log, settings.store), settings.call_log, redact=redact)
    grants = Grants(
        store.shared,
        once_seconds=approval.grant_lifetime,
        session_seconds=approval.session_lifetime,
        redact=redact,
    )
    try:
        note = partial(audit_event, settings.audit, redact=redact)
        yield PendingApprovals(approval, store.shared, grants, recording(audit, note))
    finally:
        await audit.close()
        await store.close()
