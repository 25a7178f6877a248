"""Calls that gave up waiting and can still be approved, in the store itself: no bridge has to run for that.

Clients on standard input end their bridge with them, and what it said about a late approval must hold after that too.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import anyio

from mcpbridge.admin.approvals import decide, listed
from mcpbridge.approvals.desk import Desk
from mcpbridge.approvals.grants import Grants
from mcpbridge.approvals.recording import recording
from mcpbridge.cli.configured import load_or_default
from mcpbridge.config.schema import LogSettings, Settings
from mcpbridge.redaction import Redactor
from mcpbridge.storage.call_log import CallLog
from mcpbridge.storage.log_settings import call_log_path
from mcpbridge.storage.opening import LazyStore
from mcpbridge.telemetry import set_up_logs

__all__ = ["KeptApprovals"]

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
        """All that can be answered, oldest first, as running bridges tell it."""
        return self._with_desk(listed)

    def decide(self, id_: str, answer: Mapping[str, object], by: str) -> dict[str, Any]:
        """Answer one.

        Raises:
            Problem: that is no answer, or there is nothing to answer.
        """
        return self._with_desk(lambda desk: decide(desk, id_, answer, by))

    def _with_desk(self, work: Callable[[Desk], Awaitable[_T]]) -> _T:
        redact = Redactor(self._loaded.secrets)
        set_up_logs(LogSettings(level="critical"), redact)  # a command says in its own words what went wrong

        async def doing() -> _T:
            async with _desk(self._loaded.settings, redact) as desk:
                return await work(desk)

        return anyio.run(doing)


@asynccontextmanager
async def _desk(settings: Settings, redact: Redactor) -> AsyncGenerator[Desk]:
    store, approval = LazyStore(settings.store), settings.approval
    audit = CallLog(partial(call_log_path, settings.call_log, settings.store), settings.call_log, redact=redact)
    grants = Grants(store, once_seconds=approval.grant_lifetime, session_seconds=approval.session_lifetime)
    try:
        yield Desk(approval, store, grants, recording(audit))
    finally:
        await audit.close()
        await store.close()
