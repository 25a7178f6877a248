"""Settings of tools whose calls may wait for an answer from outside: by hand, or with a human in the loop."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from mcpbridge.base.units import Seconds
from mcpbridge.tools.settings import BackendSettings

WEEK = 7 * 24 * 3600.0


class PausingSettings(BackendSettings, BaseModel):
    """A tool of the program that waits for a person."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    reason: str = ""
    """The question to the person, if the call itself does not contain one."""

    response_schema: dict[str, Any] | None = None
    """JSON Schema of the answer. Default: the output schema of a manual tool; for others, what `on_response_received`
    accepts."""

    expires_in: Seconds = Field(default=WEEK, gt=0)
    """Seconds that a paused call waits for its answer, and seconds for which the result is kept afterwards."""

    ask_client: bool = False
    """Whether the user of the calling client is asked, if the client shows forms and the answer fits into one."""

    event_schema: dict[str, Any] | None = None
    """JSON Schema of the events that `on_tool_called` yields. Default: any event."""
