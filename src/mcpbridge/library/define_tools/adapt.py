"""`adapt_function`: a callable becomes a tool whose schemas are written by hand.

Also here: the step from any function of a program to a `Tool` that checks its annotations, and to its backend.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from msgspec.structs import replace
from typing_extensions import TypeVar

from mcpbridge.base.errors import ConfigError
from mcpbridge.library.define_tools.options import ToolOptions, asks_of, name_of, settings_of
from mcpbridge.library.define_tools.tool import Tool

if TYPE_CHECKING:
    from mcpbridge.core.model import Asks
    from mcpbridge.engine.wiring.tools import ProgramTool
    from mcpbridge.tools.python.function import FunctionTool
    from mcpbridge.tools.python.run_context.context import Init
    from mcpbridge.tools.python.settings import FunctionSettings


A = TypeVar("A", default=dict[str, Any])
R = TypeVar("R", default=Any)


def adapt_function(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    input_schema: Mapping[str, Any] | None = None,
    output_schema: Mapping[str, Any] | None = None,
    event_schema: Mapping[str, Any] | None = None,
    args: type[A] | None = None,
    returns: type[R] | None = None,
    context_init: "Init | None" = None,
    **options: Unpack[ToolOptions],
) -> Tool[A, R]:
    """A tool of any callable: one of another library, or one whose annotations do not say what clients should know.

    `input_schema`: JSON Schema of the arguments, an object; left out, what `args` or else the function's annotations
    say. `output_schema`: of the structured result; left out, what `returns` or else they say. `event_schema`: of what
    it yields; left out, they. All of it is kept to; what the annotations alone say of what is returned is declared to
    clients only where it is an object, as of `@tool`. `args`, `returns`: the types that calls and results have in the
    program, for type checkers and at run time. The function gets JSON values by name; if its one parameter is annotated
    as `args`, it gets that. `name`, `description`: left out, the function's, as its docstring says. `context_init`:
    makes what its `Context[T]` begins with, once a run. Further ones: see `ToolOptions`.

    Raises:
        ConfigError: the schema is none, or the function cannot be called as it says; names what is wrong.
    """
    from mcpbridge.library.define_tools.schemas import refuse_misfit, typed, whole_parameter, without_hint
    from mcpbridge.library.define_tools.values import reader_of

    if not callable(function):
        raise ConfigError(f"a tool is made of a callable, not of {type(function).__name__}", key=name)
    called = name_of(function, name)
    schema, adapter = arguments_of(called, input_schema, args)
    output, reads = returned_by(called, output_schema, returns)
    settings = settings_of(
        called,
        options,
        description=description,
        input_schema=schema,
        output_schema=output,
        event_schema=event_schema,
    )
    whole = ""
    if schema is not None:
        refuse_misfit(called, function, schema, args)
        whole = whole_parameter(function, schema, args) if args is not None else ""
    made = looked_at(called, without_hint(function, whole) if whole else function, settings, context_init)
    made = replace(made, function=function)
    made = typed(made, {whole: adapter}) if whole and _is_annotated(function, whole, args) else made
    return Tool(
        made.definition,
        maker_of(made, settings, asks_of(called, options)),
        reads=reading(adapter),
        returns=reads or reader_of(called, Any, is_wrapped=made.is_wrapped),
    )


def _is_annotated(function: Callable[..., Any], parameter: str, args: object) -> bool:
    from mcpbridge.tools.python.signature import hints_of

    return hints_of(function).get(parameter) is args


def reading(adapter: Any) -> Callable[[Any], Any] | None:
    """Makes arguments of JSON values, or raises ArgumentsRefused; None: they stay what they are."""
    if adapter is None:
        return None
    from mcpbridge.library.define_tools.schemas import read

    return partial(read, adapter, "")


def arguments_of(name: str, schema: Mapping[str, Any] | None, args: object) -> tuple[dict[str, Any] | None, Any]:
    """The schema of the arguments, and what reads them; None: nothing was said of them.

    Raises:
        ConfigError: it is no schema, or not one of an object.
    """
    from mcpbridge.library.define_tools.schemas import checked, stated

    found = stated(args, f"{name}: args") if args is not None else None
    said = checked(dict(schema), f"{name}: input_schema") if schema is not None else found.schema if found else None
    if said is None:
        return None, None
    target = said
    if (reference := str(said.get("$ref", ""))).startswith("#/$defs/"):
        target = said.get("$defs", {}).get(reference.removeprefix("#/$defs/"), {})
        # In full: clients and models look for the parameters at the top.
        said = {**{key: one for key, one in target.items() if key != "title"}, "$defs": said["$defs"]}
    if target.get("type", "object") != "object":
        raise ConfigError(f"arguments are an object, not {target['type']!r}", key=name)
    return {"type": "object", **said}, found.adapter if found else None


def returned_by(
    name: str, schema: Mapping[str, Any] | None, returns: object
) -> tuple[dict[str, Any] | None, Callable[[Any], Any] | None]:
    """The schema of the results, and what makes values of them; None: nothing was said of them.

    Raises:
        ConfigError: it is no schema.
    """
    from mcpbridge.library.define_tools.schemas import checked, stated
    from mcpbridge.library.define_tools.values import reader_of
    from mcpbridge.tools.python.output import is_wrapped, wrapped

    found = stated(returns, f"{name}: returns", "serialization") if returns is not None and returns is not Any else None
    said = checked(dict(schema), f"{name}: output_schema") if schema is not None else found.schema if found else None
    if said is None:
        return None, None
    return said, reader_of(name, returns if found else Any, is_wrapped=is_wrapped(said, wrapped(said)))


def looked_at(
    name: str, function: Callable[..., Any], settings: "FunctionSettings", context_init: "Init | None" = None
) -> "FunctionTool":
    """A function as a tool, which keeps to its annotations also where clients get no schema.

    `context_init`: see `Keeps.init`.

    Raises:
        ConfigError: it cannot be one; says why.
    """
    from mcpbridge.tools.python.function import event_promise_of, promise_of, tool_of
    from mcpbridge.tools.python.signature import Unusable, hints_of

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


def maker_of(tool: "FunctionTool", settings: "FunctionSettings", asks: "Asks | None") -> "Callable[[], ProgramTool]":
    """Makes a backend of a function that was looked at, each time for another bridge."""

    def make() -> "ProgramTool":
        from mcpbridge.engine.wiring.tools import ProgramTool
        from mcpbridge.tools.python.function import FunctionBackend

        backend = FunctionBackend.of_tool(tool, settings)
        backend.asks = asks
        return ProgramTool(backend, settings)

    return make
