"""A Python function as a tool: schema from its signature, or given; progress from what it yields.

In the configuration it is named (`function = "pkg.mod:name"`), in a program it is given (`FunctionBackend.of`). What it
raises becomes a result with `isError` that names type and message; the traceback is in the log.

A return annotation that is no object schema (`-> list[int]`) is enforced, and so is the type of what an
`Iterator[Step]` yields, but clients do not see that: only what breaks them is an error of the tool. What fits is JSON
that the type can be made of (which is how `CallResult.value` is made), or that it is written as; it stays as the
function gave it.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, Protocol, Self, cast, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mcpbridge.base.errors import ConfigError, UnknownName
from mcpbridge.core.context import Cancellation
from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import EMPTY_OBJECT
from mcpbridge.tools.backend import BackendContext, Health
from mcpbridge.tools.python.backend import PythonBackend
from mcpbridge.tools.python.import_object import import_object
from mcpbridge.tools.python.invoke import Invoker
from mcpbridge.tools.python.output import Check, Promise, check_of, json_of, reshaped, to_result, wrapped
from mcpbridge.tools.python.run_context.context import Init, Keeps
from mcpbridge.tools.python.run_context.store import open_run_context
from mcpbridge.tools.python.run_context.value_types import is_union, readable
from mcpbridge.tools.python.settings import FunctionSettings
from mcpbridge.tools.python.signature import Schemas, Signature, Unusable, result_hint, signature_of, yielded_hint


class Described(Protocol):
    """What people say of a function, in place of what it says of itself; None and nothing leave that to it."""

    @property
    def description(self) -> str | None: ...  # noqa: D102 - as in `BackendSettings`
    @property
    def input_schema(self) -> dict[str, Any] | None: ...  # noqa: D102 - as in `BackendSettings`
    @property
    def output_schema(self) -> dict[str, Any] | None: ...  # noqa: D102 - as in `BackendSettings`
    @property
    def event_schema(self) -> dict[str, Any] | None: ...  # noqa: D102 - as in `BackendSettings`
    @property
    def annotations(self) -> dict[str, Any]: ...  # noqa: D102 - as in `BackendSettings`


class FunctionTool(Struct, frozen=True):
    """A function that was looked at: what `tools/list` shows, and how it is called."""

    function: Callable[..., Any]
    signature: Signature
    definition: Mapping[str, Any]
    output_check: Check | None
    is_wrapped: bool
    """The output schema describes the value of `result`."""
    event_check: Check | None
    shape: Callable[[object], object] | None = None
    """Makes the result of what is returned; may raise Misshapen."""
    promise: Promise | None = None
    """What its annotation says of its results where `output_check` says nothing; see `output.py`."""
    keeps: Keeps | None = None
    """What it keeps over the calls of a run; None: nothing."""

    async def run(self, call: Call, invoker: Invoker, arguments: bytes | None = None) -> Body:
        """The result of a call. `arguments`: an object, in place of those of the call."""
        raw = arguments if arguments is not None else call.params.get("arguments")
        cancellation = Cancellation()  # of this run: the same call may be tried again
        context = replace(call.context, cancellation=cancellation)
        held = open_run_context(call, context, self.keeps, invoker.value) if self.keeps is not None else None
        bound = self.signature.bind(
            EMPTY_OBJECT if raw is None else bytes(raw), context if held is None else held.context
        )
        name = str(self.definition["name"])
        try:
            work = invoker.value(
                self.function,
                bound.positional,
                bound.named,
                call=call,
                cancellation=cancellation,
                event_check=self.event_check,
            )
            value = await (work if held is None else held.during(work))
            if self.shape is not None:
                value = reshaped(value, self.shape)
            return await to_result(
                value, call, name, self.output_check, is_wrapped=self.is_wrapped, promise=self.promise
            )
        except BaseException as error:  # noqa: BLE001 - `failed` raises again what is no failure of the function
            return invoker.failed(error, name)


def tool_of(
    name: str,
    function: Callable[..., Any],
    settings: Described,
    *,
    described: str = "",
    context_init: Init | None = None,
) -> FunctionTool:
    """The tool that a function is. `described`: in place of its docstring. `context_init`: see `Keeps.init`.

    Raises:
        Unusable: it cannot be one.
    """
    if not callable(function):
        raise Unusable(f"it is no function but {type(function).__name__}")
    signature = signature_of(function, input_schema=settings.input_schema, output_schema=settings.output_schema)
    keeps = keeps_of(signature, context_init)
    output = signature.output_schema
    published = wrapped(output) if output is not None else None
    try:
        output_check = check_of(published) if published is not None else None
    except ValueError as error:
        raise Unusable(f"its output schema is none: {error}") from error
    try:
        event_check = check_of(settings.event_schema) if settings.event_schema is not None else None
    except ValueError as error:
        raise Unusable(f"its `event_schema` is none: {error}") from error
    definition: dict[str, Any] = {"name": name}
    if description := settings.description or described or signature.description:
        definition["description"] = description
    definition["inputSchema"] = {"type": "object", **signature.input_schema}
    if published is not None:
        definition["outputSchema"] = published
    if settings.annotations:
        definition["annotations"] = dict(settings.annotations)
    is_wrapped = published is not None and output is not None and "result" in published.get("required", ())
    is_wrapped = is_wrapped and output != published
    return FunctionTool(function, signature, definition, output_check, is_wrapped, event_check, keeps=keeps)


def keeps_of(signature: Signature, init: Init | None) -> Keeps | None:
    """What a function keeps over the calls of a run; None: nothing.

    Raises:
        Unusable: there is an initialiser of a value that it does not take.
    """
    if signature.keeps is not None:
        return Keeps(signature.keeps, init)
    if init is not None:
        raise Unusable("it has an initialiser, but no parameter that is annotated as `Context[...]`")
    return None


class FunctionBackend(PythonBackend[FunctionTool]):
    """One function. Meets `Backend`."""

    kind = "function"

    def __init__(self, name: str, settings: FunctionSettings, backend_context: BackendContext | None = None) -> None:
        """`backend_context`: None for functions of a program, which need nothing of it."""
        super().__init__(name, settings, backend_context, source=settings.function or name)
        self._settings = settings

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        settings: FunctionSettings | None = None,
        backend_context: BackendContext | None = None,
        context_init: Init | None = None,
    ) -> Self:
        """A function of the program itself. `name`: left out, its own.

        `context_init` makes the first value of each run, where the function takes a `Context[...]`; left out, that has
        its type's defaults.

        Raises:
            ConfigError: no tool can be made of it; says why.
        """
        called = name or str(getattr(function, "__name__", type(function).__name__))
        backend = cls(called, settings or FunctionSettings(), backend_context)
        try:
            backend._given = backend._loaded = tool_of(called, function, backend._settings, context_init=context_init)
        except Unusable as error:
            raise ConfigError(f"'{called}' cannot be a tool: {error}", key=called) from error
        return backend

    @classmethod
    def of_tool(cls, tool: FunctionTool, settings: FunctionSettings) -> Self:
        """A function of the program that was looked at before (`tool_of`)."""
        backend = cls(str(tool.definition["name"]), settings)
        backend._given = backend._loaded = tool
        return backend

    def _bring_in(self, directory: Path) -> FunctionTool:
        function = import_object(self._source, directory)
        return tool_of(self._name, cast("Callable[..., Any]", function), self._settings)

    def _tools_of(self, loaded: FunctionTool) -> Sequence[Mapping[str, Any]]:
        return [loaded.definition]

    async def run(self, call: Call) -> Body:
        """See `Backend`."""
        return await self._there(call.upstream).run(call, self._invoker)

    async def check(self) -> Health:
        """See `Backend`. That the function is there is all that can be known."""
        return await self._looked_at() or Health(ok=True, detail=f"{self._source} is there")

    async def command(self, name: str, data: Mapping[str, Any]) -> Any:
        """See `Backend`. A function has none."""
        raise UnknownName("command", name)


_ANYTHING = (Any, object, inspect.Signature.empty)
_NOTHING = (None, NoneType)
_MODULE = re.compile(r"\b(?:\w+\.)+(?=\w)")
_NO_NUMBER = re.compile(rb"-?Infinity|NaN")


def promise_of(hint: Any, function: Callable[..., Any] | None = None) -> Promise | None:
    """What checks whether a value keeps to the annotation of a function's result; None: that says nothing, or no JSON.

    A generator without a result (`Generator[str, None, None]`) promises nothing: its last event is its result.
    """
    found = result_hint(hint, function)
    if found in _ANYTHING or (found in _NOTHING and hint not in _NOTHING):
        return None
    return _promise(found)


def event_promise_of(hint: Any, function: Callable[..., Any] | None = None) -> Check | None:
    """The check of what a function with this annotation yields; None: any value, or texts, which are not looked at."""
    found = yielded_hint(hint, function)
    if found in (*_ANYTHING, *_NOTHING, str):
        return None
    return _promise(found)


def _promise(hint: Any) -> "_Promise | None":
    from pydantic import TypeAdapter

    try:
        return _Promise(hint, TypeAdapter[Any](readable(hint if hint is not None else NoneType)))
    except Exception:  # noqa: BLE001 - types bring code of their own; of what no schema can be made, none is promised
        return None


class _Promise:
    """Of one type. Meets `Promise` and `Check`."""

    def __init__(self, hint: Any, adapter: Any) -> None:
        self._adapter = adapter
        self._admits_any_text = hint is str or (is_union(hint) and str in get_args(hint))
        name = hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)
        self._display_name = _MODULE.sub("", name)[:100]
        self._written: Check | None = None

    def __call__(self, value: object, data: bytes | None = None) -> str:
        from pydantic import ValidationError

        if self._admits_any_text and isinstance(value, str):
            return ""
        try:
            if isinstance(value, bytes | bytearray):
                self._adapter.validate_python(bytes(value), strict=True)
                return ""
            data = json_of(value) if data is None else data
            self._adapter.validate_json(data)
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False, include_context=False)[0]
            at = ".".join(map(str, found["loc"]))
            fault = f"expected {self._display_name}{f', at {at}' if at else ''}: {found['msg'][:300]}"
            return "" if data is not None and self._is_written_so(value, data) else fault
        return ""

    def _is_written_so(self, value: object, data: bytes) -> bool:
        """It is the JSON of such a value, though none can be made of it: with aliases for output, or a NaN."""
        from pydantic import ValidationError
        from pydantic_core import to_json

        if self._written is None:
            self._written = _writing_of(self._adapter)
        if not self._written(msgspec.json.decode(data)):
            return True
        if b"null" not in data:
            return False
        exact = to_json(value, by_alias=True, bytes_mode="base64", inf_nan_mode="constants")
        if exact == data or _NO_NUMBER.sub(b"null", exact) != data:
            return False
        try:
            self._adapter.validate_json(exact)
        except ValidationError:
            return False
        return True


def _writing_of(adapter: Any) -> Check:
    """The check of how values are written."""
    try:
        return check_of(adapter.json_schema(mode="serialization", schema_generator=Schemas))
    except Exception:  # noqa: BLE001 - types bring code of their own
        return lambda _: "it has no schema"
