"""The `health` section: how often servers and tools are checked.

It lies here and not in `engine/health_checks.py`, which reads it, because `schema.py` imports nothing above `config`.
"""

from pydantic import BaseModel, ConfigDict, Field

from mcpbridge.base.units import Seconds


class HealthSettings(BaseModel):
    """The `health` section: regular checks of servers and tools."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    every: Seconds = Field(default=0, ge=0)
    """Seconds between two checks of every running server and backend. A change is logged, and shown by `status`,
    `/api/health` and the metrics. 0: never."""
