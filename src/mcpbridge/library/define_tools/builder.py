"""`ToolBuilder`: define a tool step by step, for programs that create tools from data.

    ToolBuilder("weather").description("…").param("city", str, "Name of a city").handler(look_up).build()

Each step returns a new builder, so one can be the start of several tools. A mistake is reported by the step that makes
it, or by `build` if only the whole shows it.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Optional, cast, overload

import msgspec
from msgspec import UNSET, Struct, field
from msgspec.structs import replace
from typing_extensions import TypeVar

from mcpbridge.base.errors import ConfigError
from mcpbridge.core.call_settings import Risk
from mcpbridge.core.tool_calls_and_results import ToolResult
from mcpbridge.library.define_tools.adapt import looked_at, maker_of, returned_by
from mcpbridge.library.define_tools.options import ApprovalRule, ToolOptions, asks_of, check_name, settings_of
from mcpbridge.library.define_tools.schemas import Schema, Stated, refuse_misfit, stated, typed
from mcpbridge.library.define_tools.tool import Tool
from mcpbridge.tools.python.output import Misshapen, check_of, json_of
from mcpbridge.tools.python.signature import documented

if TYPE_CHECKING:
    from mcpbridge.tools.python.run_context.context import Init


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
    given_options: ToolOptions = field(default_factory=ToolOptions)
    """What was said of it by `risk_level` and so on, by name."""
    params: Mapping[str, Param] = field(default_factory=dict[str, Param])
    given_description: str | None = None
    given_output: Any = None
    """A type, the name of a JSON type or a JSON Schema; None: nothing was said."""
    given_events: Any = None
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
        return replace(self, given_description=text)

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
            raise ConfigError("this parameter exists already", key=key)
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
        return self.options(tags=[*self.given_options.get("tags", ()), *tags])

    def annotations(self, **hints: Any) -> "ToolBuilder[R]":
        """What to say of it (`readOnlyHint=True`), besides what was said before."""
        return self.options(annotations={**self.given_options.get("annotations", {}), **hints})

    def options(self, **options: Any) -> "ToolBuilder[R]":
        """Any of `ToolOptions`: `max_concurrent`, `rate_limit`, `retry`, `cache`, `examples` and those above."""
        return replace(self, given_options=cast("ToolOptions", {**self.given_options, **options}))

    @overload
    def output(self, kind: type[T], /) -> "ToolBuilder[T]": ...
    @overload
    def output(self, kind: object, /) -> "ToolBuilder[Any]": ...
    def output(self, kind: Any, /) -> "ToolBuilder[Any]":
        """What results are: a Python type, the name of a JSON type or a JSON Schema. Those that are not, are errors.

        Clients get it. Left out, the handler's annotation is kept to, as `@tool` does.
        """
        return cast("ToolBuilder[Any]", replace(self, given_output=kind))

    def events(self, kind: object, /) -> "ToolBuilder[R]":
        """What a generator yields: a Python type, the name of a JSON type or a JSON Schema. Left out: as annotated."""
        return replace(self, given_events=kind)

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

    def manual(self, **options: Any) -> "ToolBuilder[R]":
        """No handler: each call is paused until the program gives its result. `manual_tool` says what can be set."""
        return self._done_by("manual", None, options)

    def human(
        self, on_tool_called: Callable[..., Any], on_response_received: Callable[..., Any], **options: Any
    ) -> "ToolBuilder[R]":
        """A human in the loop. See `human_tool` for the functions, and for what can be said."""
        return replace(self._done_by("human", on_tool_called, options), received=on_response_received)

    def _done_by(
        self, kind: str, function: Callable[..., Any] | None, options: Mapping[str, Any] | None = None
    ) -> "ToolBuilder[R]":
        if self.function is not None or self.kind != "function":
            raise ConfigError("the executor was set before", key=self.name)
        if kind != "manual" and not callable(function):
            raise ConfigError(f"a handler is a function, not {type(function).__name__}", key=self.name)
        return replace(self, kind=kind, function=function, people=dict(options or {}))

    def build(self) -> Tool[dict[str, Any], R]:
        """The tool.

        Raises:
            ConfigError: nobody does the work, the handler does not take the parameters, or what was said of one of them
                does not fit together; names it.
        """
        return built(self)


_NO_HANDLER = "Say `.handler(function)`; `.manual()` makes a tool whose calls are handed to the program instead."


def built(builder: ToolBuilder[Any]) -> Tool[dict[str, Any], Any]:
    """See `ToolBuilder.build`."""
    name = check_name(builder.name)
    if builder.kind == "function" and builder.function is None:
        raise ConfigError("this tool has no handler", key=name, hint=_NO_HANDLER)
    described = documented(builder.function)[1] if builder.function is not None else {}
    schema, adapters = schema_of(name, builder.params, described)
    if builder.function is not None:
        refuse_misfit(name, builder.function, schema)
    output, returns = returned_by(name, *_of_output(name, builder.given_output))
    events = stated(builder.given_events, f"{name}: events").schema if builder.given_events is not None else None
    schemas: dict[str, Any] = {"input_schema": schema, "output_schema": output}
    if builder.kind != "function":
        return _by_people(builder, {**schemas, **({"event_schema": events} if events is not None else {})}, returns)
    assert builder.function is not None
    settings = settings_of(
        name, builder.given_options, description=builder.given_description, event_schema=events, **schemas
    )
    defaults = {param: one["default"] for param, one in schema["properties"].items() if "default" in one}
    made = typed(looked_at(name, builder.function, settings, builder.context_init), adapters, defaults)
    return Tool(made.definition, maker_of(made, settings, asks_of(name, builder.given_options)), returns=returns)


def _by_people(builder: ToolBuilder[Any], schemas: Mapping[str, Any], returns: Any) -> Tool[dict[str, Any], Any]:
    from mcpbridge.library.define_tools.human import human_tool, manual_tool

    given: dict[str, Any] = {
        "description": builder.given_description,
        **schemas,
        **builder.people,
        **builder.given_options,
    }
    if builder.kind == "manual":
        if builder.context_init is not None or schemas.get("event_schema") is not None:
            what = "yields no events" if builder.context_init is None else "keeps no context"
            raise ConfigError(f"what has no handler {what}", key=builder.name)
        made: Tool[Any, Any] = manual_tool(builder.name, **given)
    else:
        given["context_init"] = builder.context_init
        made = human_tool(cast("Any", builder.function), cast("Any", builder.received), name=builder.name, **given)
    return made.returning(returns) if returns is not None else made


def _of_output(name: str, output: object) -> tuple[dict[str, Any] | None, object]:
    """What was said of the output, as a schema or as a type."""
    if output is None or not isinstance(output, str | Mapping):
        return None, output
    return stated(cast("object", output), f"{name}: output").schema, None


def schema_of(name: str, params: Mapping[str, Param], described: Mapping[str, str]) -> tuple[Schema, dict[str, Any]]:
    """The schema of the arguments, and what reads those that have a Python type, by name.

    `described`: descriptions of parameters that have none of their own.

    Raises:
        ConfigError: what was said of a parameter does not fit together.
    """
    properties: dict[str, Any] = {}
    shared: dict[str, Any] = {}
    required: list[str] = []
    adapters: dict[str, Any] = {}
    for param, spec in params.items():
        key = f"{name}: {param}"
        stated_type = _stated(key, spec)
        own = _own(key, stated_type, shared)
        if text := spec.description or described.get(param, ""):
            own["description"] = text
        if spec.enum is not None:
            own["enum"] = [_json_of(key, stated_type, one) for one in spec.enum]
        if spec.default is not UNSET:
            own["default"] = _json_of(key, stated_type, spec.default)
        _check(key, own, shared, stated_type)
        properties[param] = own
        if spec.is_required or (spec.is_required is None and spec.default is UNSET):
            required.append(param)
        if stated_type.adapter is not None:
            adapters[param] = stated_type.adapter
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    schema |= {"required": required} if required else {}
    return schema | ({"$defs": shared} if shared else {}), adapters


def _stated(key: str, spec: Param) -> Stated:
    """What was said of a parameter; one whose default is None may be that, as it may in a signature."""
    stated_type = stated({} if spec.type is UNSET else spec.type, key)
    if spec.default is not None or spec.enum is not None or not check_of(stated_type.schema)(None):
        return stated_type
    if stated_type.adapter is not None:
        return stated(Optional[spec.type], key)  # noqa: UP045 - any type, not only a class
    inner = {name: one for name, one in stated_type.schema.items() if name != "$defs"}
    shared = {name: one for name, one in stated_type.schema.items() if name == "$defs"}
    return Stated({**shared, "anyOf": [inner, {"type": "null"}]})


def _own(key: str, stated_type: Stated, shared: dict[str, Any]) -> Schema:
    """The schema without its definitions, which those of all parameters are put beside."""
    own = dict(stated_type.schema)
    for name, definition in own.pop("$defs", {}).items():
        if shared.setdefault(name, definition) != definition:
            hint = "Give one of the two types another name."
            raise ConfigError(f"another parameter has a different type {name!r}", key=key, hint=hint)
    return own


def _json_of(key: str, stated_type: Stated, value: object) -> Any:
    """A value of a parameter as JSON."""
    from pydantic_core import PydanticSerializationError

    try:
        if stated_type.adapter is not None:
            return stated_type.adapter.dump_python(value, mode="json", by_alias=True, warnings=False)
        return msgspec.json.decode(json_of(value))
    except (Misshapen, PydanticSerializationError, ValueError) as error:
        raise ConfigError(f"{value!r} is no JSON: {error}", key=key) from error


def _check(key: str, own: Schema, shared: Mapping[str, Any], stated_type: Stated) -> None:
    """Refuse a default or an `enum` that the parameter itself does not allow."""
    plain = {"$defs": dict(shared), **{name: value for name, value in own.items() if name != "enum"}}
    allowed = check_of(plain)
    for value in own.get("enum", ()):
        if "enum" not in stated_type.schema and (fault := allowed(value)):
            raise ConfigError(f"`enum` has what its type does not allow: {fault}", key=key)
    if "default" in own and (fault := check_of({**plain, **own})(own["default"])):
        raise ConfigError(f"its default is not what it may be: {fault}", key=key)
