"""From a function of a program to a tool that keeps to its annotations, and to the backends that run it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from mcpbridge.errors import ConfigError

if TYPE_CHECKING:
    from mcpbridge.backend_parts import Given
    from mcpbridge.backends.contexts import Init
    from mcpbridge.backends.function_settings import FunctionSettings
    from mcpbridge.backends.function_tool import FunctionTool
    from mcpbridge.model import Asks

__all__ = ["looked_at", "maker_of"]


def looked_at(
    name: str, function: Callable[..., Any], settings: "FunctionSettings", context_init: "Init | None" = None
) -> "FunctionTool":
    """A function as a tool, which keeps to its annotations also where clients are told no schema.

    `context_init`: see `Keeps.init`.

    Raises:
        ConfigError: it cannot be one; says why.
    """
    from mcpbridge.backends.annotations import hints_of
    from mcpbridge.backends.function_checks import event_promise_of, promise_of
    from mcpbridge.backends.function_tool import tool_of
    from mcpbridge.backends.signatures import Unusable

    try:
        made = tool_of(name, function, settings, context_init=context_init)
        hint = hints_of(function).get("return", Any)
    except Unusable as error:
        raise ConfigError(f"'{name}' cannot be a tool: {error}", key=name) from error
    return replace(
        made,
        promise=promise_of(hint, function) if made.output_check is None else None,
        event_check=made.event_check or event_promise_of(hint, function),
    )


def maker_of(made: "FunctionTool", settings: "FunctionSettings", asks: "Asks | None") -> "Callable[[], Given]":
    """Makes a backend of a function that was looked at, each time for another bridge."""

    def make() -> "Given":
        from mcpbridge.backend_parts import Given
        from mcpbridge.backends.function import FunctionBackend

        backend = FunctionBackend.of_tool(made, settings)
        backend.asks = asks
        return Given(backend, settings)

    return make
