"""A Python function as a tool: schema from its signature, or given; progress from what it yields.

In the configuration it is named (`function = "pkg.mod:name"`), in a program it is given (`FunctionBackend.of`). What it
raises becomes a result with `isError` that names type and message; the traceback stands in the log.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, cast

from mcpbridge.backends.backend import Health, Surroundings
from mcpbridge.backends.contexts import Init
from mcpbridge.backends.events import Result
from mcpbridge.backends.function_settings import FunctionSettings
from mcpbridge.backends.function_tool import FunctionTool, tool_of
from mcpbridge.backends.python_backend import PythonBackend
from mcpbridge.backends.python_names import import_object
from mcpbridge.backends.signatures import Unusable
from mcpbridge.errors import ConfigError, UnknownName
from mcpbridge.model import Call
from mcpbridge.wire.body import Body

__all__ = ["FunctionBackend", "Result"]


class FunctionBackend(PythonBackend[FunctionTool]):
    """One function. Meets `Backend`."""

    kind = "function"

    def __init__(self, name: str, settings: FunctionSettings, around: Surroundings | None = None) -> None:
        """`around`: None for functions of a program, which need nothing of it."""
        super().__init__(name, settings, around, source=settings.function or name)
        self._settings = settings

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        settings: FunctionSettings | None = None,
        around: Surroundings | None = None,
        context_init: Init | None = None,
    ) -> Self:
        """A function of the program itself. `name`: left out, its own.

        `context_init` makes the first value of each run, where the function takes a `Context[...]`; left out, that has
        its type's defaults.

        Raises:
            ConfigError: no tool can be made of it; says why.
        """
        called = name or str(getattr(function, "__name__", type(function).__name__))
        made = cls(called, settings or FunctionSettings(), around)
        try:
            made._given = made._made = tool_of(called, function, made._settings, context_init=context_init)
        except Unusable as error:
            raise ConfigError(f"'{called}' cannot be a tool: {error}", key=called) from error
        return made

    @classmethod
    def of_tool(cls, made: FunctionTool, settings: FunctionSettings) -> Self:
        """A function of the program that was looked at before (`tool_of`)."""
        backend = cls(str(made.definition["name"]), settings)
        backend._given = backend._made = made
        return backend

    def _bring_in(self, directory: Path) -> FunctionTool:
        function = import_object(self._source, directory)
        return tool_of(self._name, cast("Callable[..., Any]", function), self._settings)

    def _tools_of(self, made: FunctionTool) -> Sequence[Mapping[str, Any]]:
        return [made.definition]

    async def run(self, call: Call) -> Body:
        """See `Backend`."""
        return await self._there(call.upstream).run(call, self._invoker)

    async def check(self) -> Health:
        """See `Backend`. That the function is there is all that can be known."""
        return await self._looked_at() or Health(ok=True, detail=f"{self._source} is there")

    async def command(self, name: str, data: Mapping[str, Any]) -> Any:
        """See `Backend`. A function has none."""
        raise UnknownName("command", name)
