"""The `tools.<name>` sections with `function` or `executor_class`: Python functions and objects as tools."""

import re
from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator

from mcpbridge.tools.python.import_object import OBJECT_NAME
from mcpbridge.tools.settings import BackendSettings


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


MOST_WAITING_EVENTS = 32
"""Events of a generator in a thread that the event loop has not yet passed on; then the generator waits."""

_IDENTIFIER = r"[^\W\d]\w*"
_CLASS_NAME = re.compile(rf"{_IDENTIFIER}(\.{_IDENTIFIER})*[.:]{_IDENTIFIER}")


class ExecutorSettings(BackendSettings, BaseModel):
    """A Python class, of which one object is made and kept.

    `execute` does the work, `deploy` warms it up, `validate_inputs` checks arguments, `execute_command` manages it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    executor_class: str | None = None
    """The class: `pkg.mod.Class`, of an installed package or of a module beside the configuration."""

    constructor_args: dict[str, Any] = {}
    """What the class is called with, by name."""

    warm_up: bool = False
    """Whether `deploy` runs when the bridge starts. Else it does before the first call."""

    event_schema: dict[str, Any] | None = None
    """JSON Schema of the events that `execute` yields; a call that yields another one fails. Left out: any."""

    @field_validator("executor_class")
    @classmethod
    def _is_named(cls, value: str | None) -> str | None:
        if value is not None and _CLASS_NAME.fullmatch(value) is None:
            raise ValueError("expected `pkg.mod.Class`: the module and the class in it")
        return value
