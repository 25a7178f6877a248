"""The `tools.<name>` sections with `function` or `executor_class`: Python functions and objects as tools."""

import re
from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator

from mcpbridge.tools.python.import_object import OBJECT_NAME
from mcpbridge.tools.settings import BackendSettings


class FunctionSettings(BackendSettings, BaseModel):
    """A Python function, sync or async. A sync one runs in a thread. If it yields, each event is a progress message."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    function: str | None = None
    """The function: `pkg.mod:name`, of an installed package or of a module beside the configuration file. Its
    parameters and docstring become the schema and the description."""

    event_schema: dict[str, Any] | None = None
    """JSON Schema of the events that it yields. A call that yields another event fails. Default: any event."""

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
    """A Python class.

    One object of it is made and kept. `execute` does the work, `deploy` prepares it, `validate_inputs` checks
    arguments, `execute_command` handles management commands.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    executor_class: str | None = None
    """The class: `pkg.mod.Class`, of an installed package or of a module beside the configuration file."""

    constructor_args: dict[str, Any] = {}
    """Keyword arguments of the class."""

    warm_up: bool = False
    """Whether `deploy` runs when the bridge starts. `false`: it runs before the first call."""

    event_schema: dict[str, Any] | None = None
    """JSON Schema of the events that `execute` yields. A call that yields another event fails. Default: any event."""

    @field_validator("executor_class")
    @classmethod
    def _is_named(cls, value: str | None) -> str | None:
        if value is not None and _CLASS_NAME.fullmatch(value) is None:
            raise ValueError("expected `pkg.mod.Class`: the module and the class in it")
        return value
