"""Settings of tools whose calls may wait for an answer from outside: by hand, or with a human in the loop."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from mcpbridge.base.units import Seconds
from mcpbridge.tools.settings import BackendSettings

WEEK = 7 * 24 * 3600.0


class PausingSettings(BackendSettings, BaseModel):
    """A tool of the program's own that waits for somebody."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reason: str = ""
    """What people are asked, where the call itself does not say it."""

    response_schema: dict[str, Any] | None = None
    """JSON Schema of the answer. Left out: the output schema of a manual tool, what `on_response_received` takes of
    others."""

    expires_in: Seconds = Field(default=WEEK, gt=0)
    """How long a paused call waits for its answer, and how long the result is kept after that."""

    ask_client: bool = False
    """Ask the user of the client that calls, where it shows forms and the answer fits into one."""

    event_schema: dict[str, Any] | None = None
    """JSON Schema of the events that `on_tool_called` yields. Left out: any."""
