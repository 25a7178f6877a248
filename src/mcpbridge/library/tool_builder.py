"""`ToolBuilder`: a tool said step by step, for programs that make tools of data.

    ToolBuilder("weather").description("…").param("city", str, "Name of a city").handler(look_up).build()

Each step gives a new builder, so one can be the beginning of several tools. What is wrong is told by the step that says
it, or by `build`, where it only shows in the whole.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, cast, overload

from msgspec import UNSET, Struct, field
from msgspec.structs import replace
from typing_extensions import TypeVar

from mcpbridge.conduct import Risk
from mcpbridge.errors import ConfigError
from mcpbridge.library.tool_approvals import ApprovalRule
from mcpbridge.library.tool_base import Tool
from mcpbridge.library.tool_options import ToolOptions
from mcpbridge.toolcalls import ToolResult

if TYPE_CHECKING:
    from mcpbridge.backends.contexts import Init

__all__ = ["ToolBuilder"]

T = TypeVar("T")
R = TypeVar("R", default=Any)


class Param(Struct, frozen=True):
    """One parameter, as it was said."""

    type: Any
    description: str
    is_required: bool | None
    enum: Sequence[Any] | None
    default: Any


class ToolBuilder(Struct, Generic[R], frozen=True):
    """A tool that is being described. `R` is what its results are, as `output` says."""

    name: str
    said_options: ToolOptions = field(default_factory=ToolOptions)
    """What was said of it by `risk_level` and so on, by name."""
    params: Mapping[str, Param] = field(default_factory=dict[str, Param])
    said_description: str | None = None
    said_output: Any = None
    """A type, the name of a JSON type or a JSON Schema; None: nothing was said."""
    said_events: Any = None
    function: Callable[..., Any] | None = None
    kind: str = "function"
    received: Callable[..., Any] | None = None
    """`on_response_received` of a tool with a human in the loop."""
    context_init: Any = None
    """Makes what the `Context[T]` of the handler begins with."""
    people: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What was said with `manual` or `human`."""

    def description(self, text: str) -> "ToolBuilder[R]":
        """What the tool does, for models. Left out, what the docstring of its handler says."""
        return replace(self, said_description=text)

    def param(
        self,
        name: str,
        type: Any = UNSET,  # noqa: A002 - what people write
        description: str = "",
        *,
        required: bool | None = None,
        enum: Sequence[Any] | None = None,
        default: Any = UNSET,
    ) -> "ToolBuilder[R]":
        """A parameter, by name.

        `type`: a Python type (the handler gets that), the name of a JSON type, or a JSON Schema; left out: anything.
        `description`: left out, what the docstring of the handler says. `required`: left out, it is unless it has a
        default. `enum`: the values that it may have. `default`: what the handler gets if it is left out.

        Raises:
            ConfigError: there is one of this name, or it needs a value and has a default.
        """
        key = f"{self.name}: {name}"
        if name in self.params:
            raise ConfigError("this parameter is there already", key=key)
        if required and default is not UNSET:
            hint = "Leave out `required` or `default`."
            raise ConfigError("what has a default can be left out, so it is not required", key=key, hint=hint)
        if enum is not None and not enum:
            raise ConfigError("`enum` is empty, so no value is allowed", key=key)
        return replace(self, params={**self.params, name: Param(type, description, required, enum, default)})

    def risk_level(self, level: Risk) -> "ToolBuilder[R]":
        """How much harm a call can do (`low`, `medium`, `high`), for rules of `permissions`."""
        return self.options(risk_level=level)

    def timeout(self, seconds: float | str) -> "ToolBuilder[R]":
        """Seconds that a call may take, or a text such as `2m`."""
        return self.options(timeout=seconds)

    def requires_approval(self, rule: bool | ApprovalRule = True) -> "ToolBuilder[R]":
        """A person has to agree to each call, or to those of which a function of the arguments says so."""
        return self.options(requires_approval=rule)

    def tags(self, *tags: str) -> "ToolBuilder[R]":
        """Words to find it by, besides those said before."""
        return self.options(tags=[*self.said_options.get("tags", ()), *tags])

    def annotations(self, **hints: Any) -> "ToolBuilder[R]":
        """What to say of it (`readOnlyHint=True`), besides what was said before."""
        return self.options(annotations={**self.said_options.get("annotations", {}), **hints})

    def options(self, **options: Any) -> "ToolBuilder[R]":
        """Any of `ToolOptions`: `max_concurrent`, `rate_limit`, `retry`, `cache`, `examples` and those above."""
        return replace(self, said_options=cast("ToolOptions", {**self.said_options, **options}))

    @overload
    def output(self, kind: type[T], /) -> "ToolBuilder[T]": ...
    @overload
    def output(self, kind: object, /) -> "ToolBuilder[Any]": ...
    def output(self, kind: Any, /) -> "ToolBuilder[Any]":
        """What results are: a Python type, the name of a JSON type or a JSON Schema. Those that are not, are errors.

        Clients are told it. Left out, the handler's annotation is kept to, as `@tool` does.
        """
        return cast("ToolBuilder[Any]", replace(self, said_output=kind))

    def events(self, kind: object, /) -> "ToolBuilder[R]":
        """What a generator yields: a Python type, the name of a JSON type or a JSON Schema. Left out: as annotated."""
        return replace(self, said_events=kind)

    def handler(
        self,
        function: Callable[
            ...,
            R
            | ToolResult[R]
            | Awaitable[R | ToolResult[R]]
            | Generator[Any, Any, R | ToolResult[R]]
            | AsyncIterator[Any],
        ],
    ) -> "ToolBuilder[R]":
        """The function that does the work: sync, `async` or a generator. It may take a context besides."""
        return self._done_by("function", function)

    def context(self, init: "Init") -> "ToolBuilder[R]":
        """What makes the value that the `Context[T]` of the handler begins with, once a run."""
        return replace(self, context_init=init)

    def manual(self, **said: Any) -> "ToolBuilder[R]":
        """No handler: each call is paused until the program gives its result. `manual_tool` tells what can be said."""
        return self._done_by("manual", None, said)

    def human(
        self, on_tool_called: Callable[..., Any], on_response_received: Callable[..., Any], **said: Any
    ) -> "ToolBuilder[R]":
        """A human in the loop. See `human_tool` for the functions, and for what can be said."""
        return replace(self._done_by("human", on_tool_called, said), received=on_response_received)

    def _done_by(
        self, kind: str, function: Callable[..., Any] | None, said: Mapping[str, Any] | None = None
    ) -> "ToolBuilder[R]":
        if self.function is not None or self.kind != "function":
            raise ConfigError("who does the work was said before", key=self.name)
        if kind != "manual" and not callable(function):
            raise ConfigError(f"a handler is a function, not {type(function).__name__}", key=self.name)
        return replace(self, kind=kind, function=function, people=dict(said or {}))

    def build(self) -> Tool[dict[str, Any], R]:
        """The tool.

        Raises:
            ConfigError: nobody does the work, the handler does not take the parameters, or what was said of one of them
                does not fit together; names it.
        """
        from mcpbridge.library.tool_building import built

        return built(self)
