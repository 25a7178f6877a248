"""The `tools.<name>` sections with `function`: a Python function as a tool."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from mcpbridge.backends.python_names import OBJECT_NAME
from mcpbridge.backends.settings import BackendSettings

__all__ = ["FunctionSettings"]


class FunctionSettings(BackendSettings, BaseModel):
    """A Python function, sync or async. A sync one runs in a thread; one that yields tells progress with each event."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    function: str | None = Field(default=None, pattern=OBJECT_NAME)
    """What it is: `pkg.mod:name`, of an installed package or of a module beside the configuration. Its parameters and
    docstring make the schema and the description."""

    event_schema: dict[str, Any] | None = None
    """JSON Schema of the events that it yields; a call that yields another one fails. Left out: any."""
