"""The `[call_log]` section: whether calls are written down, where, and for how long."""

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from mcpbridge.storage.settings import StoreSettings, store_path
from mcpbridge.units import Bytes, Seconds

__all__ = ["CallLogSettings", "call_log_path"]


class CallLogSettings(BaseModel):
    """The `call_log` section: a record of every call, which `mcpbridge log` shows."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool = False
    """Whether calls are recorded. What became of approvals is recorded in any case."""

    path: str | None = None
    """The file; a relative path starts where the configuration is. Left out: `calls.db` beside the file of `store`."""

    keep: Seconds = Field(default=30 * 86400, gt=0)
    """Seconds after which a record is forgotten; people write `"30d"`."""

    max_rows: int = Field(default=1_000_000, ge=1)
    """Records of calls that are kept at most, and as many of approvals; the oldest go first."""

    max_content: Bytes = 64 * 1024
    """Bytes of the arguments, and of the result, that are kept of one call where `log_content` asks for it."""


def call_log_path(settings: CallLogSettings, store: StoreSettings, environ: Mapping[str, str] = os.environ) -> Path:
    """The file of the call log, whether or not there is one.

    It is a file of its own: many small writes must not hold up who waits for the store, its rows follow other rules of
    keeping, and it can be handed on, or removed, by itself.
    """
    if settings.path:
        return Path(settings.path).expanduser()
    return store_path(store, environ).with_name("calls.db")
