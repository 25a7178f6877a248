"""A function that was looked at: what clients see of it, and how a call of it runs."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from mcpbridge.backends.artifacts import made, reshaped
from mcpbridge.backends.contexts import Init, Keeps
from mcpbridge.backends.invoking import Invoker
from mcpbridge.backends.outputs import Check, Promise, check_of, wrapped
from mcpbridge.backends.run_contexts import hold
from mcpbridge.backends.signatures import Signature, Unusable, signature_of
from mcpbridge.context import Cancellation
from mcpbridge.model import Call
from mcpbridge.wire.body import Body
from mcpbridge.wire.frame import EMPTY_OBJECT

__all__ = ["Described", "FunctionTool", "keeps_of", "tool_of"]


class Described(Protocol):
    """What people say of a function, in place of what it says of itself; None and nothing leave that to it."""

    @property
    def description(self) -> str | None: ...  # noqa: D102 - as in `BackendSettings`
    @property
    def input_schema(self) -> dict[str, Any] | None: ...  # noqa: D102
    @property
    def output_schema(self) -> dict[str, Any] | None: ...  # noqa: D102
    @property
    def event_schema(self) -> dict[str, Any] | None: ...  # noqa: D102
    @property
    def annotations(self) -> dict[str, Any]: ...  # noqa: D102


class FunctionTool(Struct, frozen=True):
    """A function that was looked at: what `tools/list` shows, and how it is called."""

    function: Callable[..., Any]
    signature: Signature
    definition: Mapping[str, Any]
    output_check: Check | None
    is_wrapped: bool
    """The output schema is of what stands in `result`."""
    event_check: Check | None
    shape: Callable[[object], object] | None = None
    """Makes the result of what is returned; may raise Misshapen."""
    promise: Promise | None = None
    """What its annotation says of its results where `output_check` says nothing; see `function_checks.py`."""
    keeps: Keeps | None = None
    """What it keeps over the calls of a run; None: nothing."""

    async def run(self, call: Call, invoker: Invoker, arguments: bytes | None = None) -> Body:
        """The result of a call. `arguments`: an object, in place of those of the call."""
        raw = arguments if arguments is not None else call.params.get("arguments")
        cancellation = Cancellation()  # of this run: the same call may be tried again
        context = replace(call.context, cancellation=cancellation)
        held = hold(call, context, self.keeps, invoker.value) if self.keeps is not None else None
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
            return await made(value, call, name, self.output_check, is_wrapped=self.is_wrapped, promise=self.promise)
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
