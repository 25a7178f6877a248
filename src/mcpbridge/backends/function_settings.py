"""The `tools.<name>` sections with `function`: a Python function as a tool."""

import re
from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator

from mcpbridge.backends.python_names import OBJECT_NAME
from mcpbridge.backends.settings import BackendSettings

__all__ = ["FunctionSettings"]


class FunctionSettings(BackendSettings, BaseModel):
    """A Python function, sync or async. A sync one runs in a thread; one that yields tells progress with each event."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    function: str | None = None
    """What it is: `pkg.mod:name`, of an installed package or of a module beside the configuration. Its parameters and
    docstring make the schema and the description."""

    event_schema: dict[str, Any] | None = None
    """JSON Schema of the events that it yields; a call that yields another one fails. Left out: any."""

    @field_validator("function")
    @classmethod
    def _is_named(cls, value: str | None) -> str | None:
        if value is not None and re.fullmatch(OBJECT_NAME, value) is None:
            raise ValueError("expected `pkg.mod:name`: the module, a colon, and the function in it")
        return value
