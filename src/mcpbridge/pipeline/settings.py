"""The `cache` section of the configuration: how much is kept of results.

The keys `retry`, `rate_limit`, `max_calls` and `max_chain` (the call budget), `call_timeout` and `cache` (seconds) and
their defaults are in `core/call_settings.py`, since servers and tools have them too. The sections of the other stages
are in the folders of what they decide by (`approvals/settings.py` and so on).
"""

from pydantic import BaseModel, ConfigDict, Field

from mcpbridge.base.units import Bytes


class CacheSettings(BaseModel):
    """The `cache` section: how many results of tools with `cache` are kept. Each process keeps them in memory."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    max_bytes: Bytes = Field(default=64 * 1024**2, ge=0)
    """Bytes of all cached results together. The least recently used is dropped first. 0: nothing is cached."""

    max_result: Bytes = Field(default=4 * 1024**2, ge=0)
    """Bytes of the largest result that is cached."""

    vary: list[str] = []
    """Members of a call's `_meta` that change its result, such as `example.com/locale`. Calls that differ in them are
    different calls. Other members are ignored, since many clients number their calls there."""
