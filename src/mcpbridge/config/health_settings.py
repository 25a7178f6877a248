"""The `health` section: how often servers and tools are checked.

It lies here and not in `engine/health_checks.py`, which reads it, because `schema.py` imports nothing above `config`.
"""

from pydantic import BaseModel, ConfigDict, Field

from mcpbridge.base.units import Seconds


class HealthSettings(BaseModel):
    """The `health` section: looking by itself whether servers and tools work."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    every: Seconds = Field(default=0, ge=0)
    """Seconds between two looks at every server and backend that runs. What changed is logged, and told by `status`,
    `/api/health` and the metrics. 0: never."""
