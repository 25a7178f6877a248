"""`@tool`: a Python function as a tool, which stays the function that it is.

Types, defaults and docstring make its schema (`tools/python/signature.py`). Functions may be `async`, yield events,
take a context, and return any value or a `ToolResult`.

The annotated result type is checked: a value that is not of that type (as JSON, or read from it: `-> date` may return a
text) is an error of the tool, which says so. Clients get an output schema if the type is an object with known members.
For `-> int`, `-> list[str]` and the like they get none, and receive the texts that they would get without a check.

A yielded value is an event. `Iterator[Step]`, `Generator[Step, None, Total]` or `AsyncIterator[Step | Result[Total]]`
give its type, which is checked unless it is `str` or `Any`. `Iterator[Step]` leaves the type of the final value open.
"""

import functools
import inspect
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack, cast, overload

from typing_extensions import TypeVar as DefaultTypeVar

from mcpbridge.base.errors import ConfigError
from mcpbridge.core.tool_calls_and_results import ToolCall, ToolResult
from mcpbridge.library.define_tools.adapt import looked_at, maker_of
from mcpbridge.library.define_tools.options import ToolOptions, asks_of, name_of, settings_of
from mcpbridge.library.define_tools.tool import Tool

if TYPE_CHECKING:
    from pydantic import BaseModel

    from mcpbridge.core.context import CallContext
    from mcpbridge.core.model import Asks
    from mcpbridge.engine.wiring.tools import ProgramTool
    from mcpbridge.tools.python.function import FunctionTool
    from mcpbridge.tools.python.output import Result
    from mcpbridge.tools.python.run_context.context import Context, Init
    from mcpbridge.tools.python.settings import FunctionSettings


P = ParamSpec("P")
Q = ParamSpec("Q")
Y = TypeVar("Y")
Y_co = TypeVar("Y_co", covariant=True)
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")
RA = DefaultTypeVar("RA", default=Any)
C = TypeVar("C", bound="Collection[Any] | BaseModel")
"""What is iterable without being events."""


class _Nothing:
    """No value has this type, so only `Any` fits where it stands: it tells that apart from all types."""


class SignedTool(Tool[dict[str, Any], R_co], Generic[P, R_co]):
    """A tool whose calls are made with the parameters of a function, `P`."""

    def __init__(
        self,
        function: Callable[..., Any],
        definition: Mapping[str, Any],
        make: "Callable[[], ProgramTool]",
        returns: Callable[[Any], R_co] | None,
    ) -> None:
        """`function`: whose parameters they are."""
        super().__init__(definition, make, returns=returns)
        self._function = function
        self._arguments: Callable[[tuple[Any, ...], dict[str, Any]], dict[str, Any]] | None = None

    @overload
    def call(
        self: "SignedTool[Concatenate[_Nothing, Q], R_co]", *args: P.args, **kwargs: P.kwargs
    ) -> ToolCall[dict[str, Any], R_co]: ...
    @overload
    def call(
        self: "SignedTool[Concatenate[CallContext, Q], R_co]", *args: Q.args, **kwargs: Q.kwargs
    ) -> ToolCall[dict[str, Any], R_co]: ...
    @overload
    def call(
        self: "SignedTool[Concatenate[Context[Any], Q], R_co]", *args: Q.args, **kwargs: Q.kwargs
    ) -> ToolCall[dict[str, Any], R_co]: ...
    @overload
    def call(self, *args: P.args, **kwargs: P.kwargs) -> ToolCall[dict[str, Any], R_co]: ...
    def call(self, *args: Any, **kwargs: Any) -> ToolCall[dict[str, Any], R_co]:
        """A call of it, for `Bridge.call`, with the arguments of the function; a context is none of them.

        Type checkers know that of a context that is the first parameter: put it there.

        Raises:
            TypeError: the function does not take them.
            ArgumentsRefused: one of them is no JSON.
        """
        if self._arguments is None:
            from mcpbridge.library.define_tools.values import by_name

            self._arguments = by_name(self._function, self.definition["inputSchema"])
        return self.call_with(self._arguments(args, kwargs))


class ToolFunction(SignedTool[P, R_co], Generic[P, Y_co, R_co]):
    """A tool that is a function: called as such it is that function, and `call` makes calls for a bridge.

    `P` is its parameters, `Y` what it returns itself (a coroutine, a generator), `R` what comes of it in the end.
    """

    __wrapped__: Callable[..., Any]

    def __init__(
        self,
        function: Callable[P, Y_co],
        function_tool: "FunctionTool",
        settings: "FunctionSettings",
        asks: "Asks | None",
    ) -> None:
        """See `tool`."""
        from mcpbridge.library.define_tools.values import reader_of
        from mcpbridge.tools.python.signature import hints_of, result_hint

        hint = result_hint(hints_of(function).get("return", Any), function)
        returns = reader_of(str(function_tool.definition["name"]), hint, is_wrapped=function_tool.is_wrapped)
        super().__init__(function, function_tool.definition, maker_of(function_tool, settings, asks), returns)
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Y_co:
        """The function itself: no bridge is in between."""
        return self._function(*args, **kwargs)


class ToolDecorator:
    """What `tool` is: makes tools of functions, with what was said so far.

    `internal = tool(tags=["internal"], risk_level="high")` can be used as `@internal` and as `@internal(timeout=5)`.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        """`options`: by name."""
        self._options = options

    @overload
    def __call__(self, function: Callable[P, _Nothing], /) -> ToolFunction[P, Any, Any]: ...
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, _Nothing]], /
    ) -> ToolFunction[P, Coroutine[Any, Any, Any], Any]: ...
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, ToolResult[R]]], /
    ) -> ToolFunction[P, Coroutine[Any, Any, ToolResult[R]], R]: ...
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> ToolFunction[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> ToolFunction[P, Awaitable[R], R]: ...
    @overload
    def __call__(
        self, function: Callable[P, Generator[Y, S, ToolResult[R]]], /
    ) -> ToolFunction[P, Generator[Y, S, ToolResult[R]], R]: ...
    @overload
    def __call__(self, function: Callable[P, Generator[Y, S, R]], /) -> ToolFunction[P, Generator[Y, S, R], R]: ...
    @overload
    def __call__(self, function: Callable[P, Iterator[Y]], /) -> ToolFunction[P, Iterator[Y], Any]: ...
    @overload
    def __call__(
        self, function: "Callable[P, AsyncGenerator[Y | Result[RA], Any]]", /
    ) -> "ToolFunction[P, AsyncGenerator[Y | Result[RA], Any], RA]": ...
    @overload
    def __call__(
        self, function: "Callable[P, AsyncIterator[Y | Result[RA]]]", /
    ) -> "ToolFunction[P, AsyncIterator[Y | Result[RA]], RA]": ...
    @overload
    def __call__(self, function: Callable[P, ToolResult[R]], /) -> ToolFunction[P, ToolResult[R], R]: ...
    @overload
    def __call__(self, function: Callable[P, C], /) -> ToolFunction[P, C, C]: ...  # pyright: ignore[reportOverlappingOverload] - the first that fits counts
    @overload
    def __call__(self, function: Callable[P, Iterable[Y]], /) -> ToolFunction[P, Iterable[Y], Any]: ...  # pyright: ignore[reportOverlappingOverload] - as above
    @overload
    def __call__(self, function: Callable[P, R], /) -> ToolFunction[P, R, R]: ...
    @overload
    def __call__(
        self,
        /,
        *,
        name: str = ...,
        description: str = ...,
        input_schema: Mapping[str, Any] = ...,
        output_schema: Mapping[str, Any] = ...,
        event_schema: Mapping[str, Any] = ...,
        context_init: "Init" = ...,
        **options: Unpack[ToolOptions],
    ) -> "ToolDecorator": ...
    def __call__(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """A tool of this function; without one, a decorator with these options besides.

        `name`: left out, the function's. `description`: left out, what its docstring says. `input_schema`,
        `output_schema`: JSON Schemas in place of those of its annotations; arguments then arrive as the JSON values
        that they are. `event_schema`: JSON Schema of what it yields. `context_init`: makes what its `Context[T]` begins
        with, once a run. Further ones: see `ToolOptions`. Without schemas by hand, the annotations of what it returns
        and yields are kept to.

        Raises:
            ConfigError: no tool can be made of it, or an option is not as it must be; says why.
        """
        merged: dict[str, Any] = {**self._options, **options}
        if function is None:
            return ToolDecorator(merged)
        if not callable(function):
            hint = "Options are named: `@tool(name=…)`."
            raise ConfigError(f"a tool is made of a function, not of {type(function).__name__}", key="tool", hint=hint)
        return _tool_of_function(function, **merged)


tool = ToolDecorator({})
"""Decorator that makes a function a tool: `@tool`, or `@tool(name=…, requires_approval=True)`. See `ToolDecorator`."""


def _tool_of_function(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    input_schema: Mapping[str, Any] | None = None,
    output_schema: Mapping[str, Any] | None = None,
    event_schema: Mapping[str, Any] | None = None,
    context_init: "Init | None" = None,
    **options: Any,
) -> ToolFunction[..., Any, Any]:
    called, given = name_of(function, name), cast("ToolOptions", options)
    _refuse_method(called, function)
    settings = settings_of(
        called,
        given,
        description=description,
        input_schema=input_schema,
        output_schema=output_schema,
        event_schema=event_schema,
    )
    made = looked_at(called, function, settings, context_init)
    return ToolFunction(function, made, settings, asks_of(called, given))


def _refuse_method(name: str, function: Callable[..., Any]) -> None:
    """A function in the body of a class has no object yet that it could be called on."""
    qualified = str(getattr(function, "__qualname__", "")).rpartition("<locals>.")[2]
    if "." not in qualified or not inspect.isfunction(function):
        return
    first = next(iter(inspect.signature(function).parameters), "")
    if first in ("self", "cls"):
        hint = f"Make the tool of the object's own: `tool(thing.{function.__name__})`."
        raise ConfigError(f"'{name}' is a method, and of which object is not known here", key=name, hint=hint)
