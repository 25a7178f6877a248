"""What `Bridge.open(tools=[...])` takes, and how each kind becomes a backend.

A tool is made by `@tool` (`decorator.py`), `ToolBuilder` (`builder.py`) or `adapt_function` (`adapt.py`). A plain
callable counts as what `@tool` makes of it; a name with a `ProgramTool` is any backend.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from mcpbridge.base.errors import ConfigError
from mcpbridge.library.define_tools.builder import ToolBuilder
from mcpbridge.library.define_tools.decorator import ToolDecorator, tool
from mcpbridge.library.define_tools.tool import Tool

if TYPE_CHECKING:
    from mcpbridge.engine.wiring.tools import ProgramTool
    from mcpbridge.tools.backend import Backend


AnyTool: TypeAlias = "Tool[Any, Any] | Callable[..., Any] | tuple[str, ProgramTool]"
"""What counts as a tool."""


def given_of(thing: "Tool[Any, Any] | Callable[..., Any] | tuple[str, ProgramTool]") -> "tuple[str, ProgramTool]":
    """The name and the backend of what counts as a tool.

    Raises:
        ConfigError: it does not, or no tool can be made of it.
    """
    from mcpbridge.engine.wiring.tools import ProgramTool

    other = cast("object", thing)
    if isinstance(other, Tool):
        return cast("Tool[Any, Any]", other).given()
    match other:
        case (str() as name, ProgramTool() as given):
            return name, given
        case _:
            pass
    hint = "A tool is a `Tool` (`@tool`, `ToolBuilder`, `adapt_function`), a function, or a name with a `Given`."
    if isinstance(other, ToolBuilder):
        raise ConfigError("this `ToolBuilder` is not built", key="tools", hint="Give `builder.build()`.")
    if isinstance(other, ToolDecorator):
        raise ConfigError("`tool(…)` with options is a decorator, and decorates nothing here", key="tools", hint=hint)
    if isinstance(other, type):
        raise ConfigError(f"the class {other.__name__} is no tool", key="tools", hint=hint)
    if not callable(other):
        raise ConfigError(f"a {type(other).__name__} is no tool", key="tools", hint=hint)
    return tool(cast("Callable[..., Any]", thing)).given()


def backend_of(thing: Any) -> "Backend":
    """The backend of what a resolver gives: that of a tool, or a backend itself.

    Raises:
        ConfigError: it is neither, or no tool can be made of it.
    """
    if hasattr(thing, "running") and hasattr(thing, "condition"):
        return thing
    return given_of(thing)[1].backend


def all_given(
    things: "Iterable[Tool[Any, Any] | Callable[..., Any] | tuple[str, ProgramTool]]",
) -> "dict[str, ProgramTool]":
    """The backends of several tools, by name.

    Raises:
        ConfigError: one of them is no tool, or two have one name.
    """
    if isinstance(things, Tool) or callable(things):
        raise ConfigError("this is one tool, not several", key="tools", hint="Give a list: `tools=[…]`.")
    found: dict[str, ProgramTool] = {}
    for thing in things:
        name, given = given_of(thing)
        if name in found:
            hint = "Give one of them another `name`."
            raise ConfigError(f"two tools are called {name!r}", key="tools", hint=hint)
        found[name] = given
    return found
