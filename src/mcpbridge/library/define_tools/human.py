"""Tools that wait for a person: answered by hand, or with a human in the loop.

How their calls are paused: `tools/human_in_the_loop/`.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, Unpack, cast

from typing_extensions import TypeVar

from mcpbridge.core.tool_calls_and_results import ToolResult
from mcpbridge.library.define_tools.adapt import arguments_of, reading, returned_by
from mcpbridge.library.define_tools.decorator import SignedTool
from mcpbridge.library.define_tools.options import ToolOptions, asks_of, check_name, modelled, name_of
from mcpbridge.library.define_tools.tool import Tool

if TYPE_CHECKING:
    from mcpbridge.core.model import Asks
    from mcpbridge.engine.wiring.tools import ProgramTool
    from mcpbridge.tools.backend import Backend
    from mcpbridge.tools.human_in_the_loop.settings import PausingSettings
    from mcpbridge.tools.python.run_context.context import Init


P = ParamSpec("P")
A = TypeVar("A", default=dict[str, Any])
R = TypeVar("R", default=Any)


def manual_tool(
    name: str,
    *,
    description: str | None = None,
    input_schema: Mapping[str, Any] | None = None,
    output_schema: Mapping[str, Any] | None = None,
    response_schema: Mapping[str, Any] | None = None,
    args: type[A] | None = None,
    returns: type[R] | None = None,
    reason: str | None = None,
    ask_client: bool = False,
    expires_in: float | str | None = None,
    **options: Unpack[ToolOptions],
) -> Tool[A, R]:
    """A tool without a handler: each call is paused, and `Bridge.resume(id, result)` gives its result.

    `input_schema`: of the arguments; left out, what `args` says, else any object. `output_schema`: of the result; left
    out, what `returns` says, else any JSON value. `reason`: what people are asked. `ask_client`: the user of the client
    that calls is asked first, where it shows forms. `expires_in`: seconds that a call waits; a week, left out.

    Raises:
        ConfigError: a schema is none, or an option is not as it must be.
    """
    schema, adapter = arguments_of(check_name(name), input_schema, args)
    output, returned = returned_by(name, output_schema, returns)
    said = {"reason": reason, "ask_client": ask_client, "expires_in": expires_in, "response_schema": response_schema}
    said |= {"description": description, "input_schema": schema, "output_schema": output}
    settings = _settings_of(name, options, said)
    make = _maker(lambda: _manual(name, settings), settings, asks_of(name, options))
    return Tool(_manual(name, settings).tools[0], make, reads=reading(adapter), returns=returned)


def human_tool(
    on_tool_called: Callable[P, Any],
    on_response_received: Callable[..., ToolResult[R] | R | Awaitable[ToolResult[R] | R]],
    *,
    name: str | None = None,
    description: str | None = None,
    input_schema: Mapping[str, Any] | None = None,
    output_schema: Mapping[str, Any] | None = None,
    response_schema: Mapping[str, Any] | None = None,
    event_schema: Mapping[str, Any] | None = None,
    reason: str | None = None,
    ask_client: bool = False,
    expires_in: float | str | None = None,
    context_init: "Init | None" = None,
    **options: Unpack[ToolOptions],
) -> SignedTool[P, R]:
    """A tool with a human in the loop.

    `on_tool_called` has the parameters of the tool, and returns its result, or None or a `Pause` to wait for an answer.
    `on_response_received(response)` makes the result of the answer that `Bridge.resume` brings. Both results are
    checked against the output schema, which the annotation of `on_response_received` says where it is left out (clients
    get it where it is an object), as annotations do the `input_schema` and the `response_schema`. `reason`: what
    people are asked. `ask_client`: the user of the client that calls is asked first, where it shows forms.
    `expires_in`: seconds that a call waits; a week, left out. `context_init`: makes what its `Context[T]` begins with,
    once a run. Further ones: see `ToolOptions`.

    Raises:
        ConfigError: no tool can be made of it, or an option is not as it must be.
    """
    from mcpbridge.library.define_tools.values import reader_of
    from mcpbridge.tools.human_in_the_loop.human import HumanBackend
    from mcpbridge.tools.python.output import is_wrapped, wrapped
    from mcpbridge.tools.python.signature import hints_of, result_hint

    called = name_of(on_tool_called, name)
    said: dict[str, Any] = {"reason": reason, "ask_client": ask_client, "expires_in": expires_in}
    said |= {"description": description, "response_schema": response_schema, "event_schema": event_schema}
    said |= {"input_schema": input_schema, "output_schema": output_schema}
    settings = _settings_of(called, options, said)

    def backend() -> HumanBackend:
        functions = on_tool_called, on_response_received
        return HumanBackend.of(*functions, name=called, settings=settings, context_init=context_init)

    definition = backend().tools[0]
    output = settings.output_schema
    is_inner = output is not None and is_wrapped(output, wrapped(output))
    hint = result_hint(hints_of(on_response_received).get("return", Any), on_response_received)
    make = _maker(backend, settings, asks_of(called, options))
    returns = cast("Callable[[Any], R] | None", reader_of(called, hint, is_wrapped=is_inner))
    return SignedTool(on_tool_called, definition, make, returns)


def _settings_of(name: str, options: ToolOptions, others: Mapping[str, Any]) -> "PausingSettings":
    from mcpbridge.tools.human_in_the_loop.settings import PausingSettings

    return modelled(PausingSettings, name, options, **others)


def _manual(name: str, settings: "PausingSettings") -> Any:
    from mcpbridge.tools.human_in_the_loop.manual import ManualBackend

    return ManualBackend(name, settings)


def _maker(
    make: "Callable[[], Backend]", settings: "PausingSettings", asks: "Asks | None"
) -> "Callable[[], ProgramTool]":
    """Makes a backend, each time for another bridge."""

    def given() -> "ProgramTool":
        from mcpbridge.engine.wiring.tools import ProgramTool

        backend = make()
        if asks is not None:
            cast("Any", backend).asks = asks  # see `Backend`
        return ProgramTool(backend, settings)

    return given
