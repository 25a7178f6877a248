"""The two functions of a human-in-the-loop tool, inspected as functions of tools are.

`on_tool_called` has the parameters of the tool. `on_response_received` has the response first, and may have the paused
call (a parameter of the type `PausedCall`) and a context beside it; its annotations say what the response must be.
"""

import inspect
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, Union, cast, get_args, get_origin

from msgspec import Struct

from mcpbridge.core.context import CallContext
from mcpbridge.core.tool_calls_and_results import PausedCall
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.tools.human_in_the_loop.settings import PausingSettings
from mcpbridge.tools.python.function import promise_of
from mcpbridge.tools.python.output import Check, Promise, check_of, is_wrapped, wrapped
from mcpbridge.tools.python.run_context.context import Init, Keeps
from mcpbridge.tools.python.signature import (
    Arguments,
    Signature,
    Unusable,
    hints_of,
    is_context,
    result_hint,
    returned_schema,
    signature_of,
)

Schema = dict[str, Any]

_RESPONSE = "response"
"""What the response is called, whatever the parameter's name is."""


class Pause(Struct, frozen=True):
    """Returned by `on_tool_called` in place of a result: the call waits for an answer from outside."""

    reason: str = ""
    """What people are asked."""
    schema: Mapping[str, Any] | None = None
    """JSON Schema of the answer to this call; None: that of the tool."""
    form: Mapping[str, Any] | None = None
    """What the user of the client that calls is asked for at once, where it shows forms: JSON Schema of an object of
    texts, numbers, booleans and choices. None: as the tool says."""
    expires_in: float | None = None
    """Seconds that the call waits; None: as the tool says."""


class _Receiver(Struct, frozen=True):
    """`on_response_received`, looked at."""

    function: Callable[..., Any]
    schema: Schema | None
    """Of the response, as the annotations say; None: any."""
    signature: Signature
    parameter: inspect.Parameter
    """Of the response."""
    call_parameter: str
    """Of the paused call; empty: it wants none."""

    def bind(self, response: object, paused: PausedCall, context: CallContext | None) -> Arguments:
        """What it is called with.

        Raises:
            ArgumentsRefused: the response is not what it takes.
        """
        bound = self.signature.bind(encode({_RESPONSE: response}), context)
        named = dict(bound.named)
        given = named.pop(_RESPONSE)
        if self.call_parameter:
            named[self.call_parameter] = paused
        if self.parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            return Arguments((), {**named, self.parameter.name: given})
        return Arguments((given,), named)


class HumanTool(Struct, frozen=True):
    """The two functions, looked at."""

    called: Callable[..., Any]
    signature: Signature
    receiver: _Receiver
    definition: Mapping[str, Any]
    output_schema: dict[str, Any] | None
    output_check: Check | None
    is_wrapped: bool
    promise: Promise | None
    """What the annotations say of its results where `output_check` says nothing; see `tools/python/output.py`."""
    response_schema: dict[str, Any] | None
    event_check: Check | None
    keeps: Keeps | None
    """What `on_tool_called` keeps over the calls of a run; the next: `on_response_received`."""
    receiver_keeps: Keeps | None


def human_tool_of(
    name: str, called: Callable[..., Any], received: Callable[..., Any], settings: PausingSettings, init: Init | None
) -> HumanTool:
    """The tool that two functions are.

    Raises:
        Unusable: they cannot be one.
    """
    signature, receiver = _called_signature(called, settings.input_schema), _receiver_of(received)
    output = settings.output_schema if settings.output_schema is not None else _result_schema(called, received)
    published = wrapped(output) if output is not None else None
    definition: dict[str, Any] = {"name": name}
    if description := settings.description or signature.description:
        definition["description"] = description
    definition["inputSchema"] = {"type": "object", **signature.input_schema}
    if settings.annotations:
        definition["annotations"] = dict(settings.annotations)
    response = settings.response_schema if settings.response_schema is not None else receiver.schema
    checked("response_schema", response)
    return HumanTool(
        called,
        signature,
        receiver,
        definition,
        published,
        checked("output_schema", published),
        is_wrapped(output, published),
        _promise_of(called, received) if output is None else None,
        response,
        checked("event_schema", settings.event_schema),
        *_keeps_of(signature, receiver.signature, init),
    )


def _keeps_of(called: Signature, received: Signature, init: Init | None) -> tuple[Keeps | None, Keeps | None]:
    if init is not None and called.keeps is None and received.keeps is None:
        raise Unusable("it has an initialiser, but no parameter that is annotated as `Context[...]`")
    one, other = (Keeps(found.keeps, init) if found.keeps is not None else None for found in (called, received))
    return one, other


def checked(key: str, schema: Mapping[str, Any] | None) -> Check | None:
    """The check of a schema, if there is one. `key`: what it is called. Raises Unusable: it is none."""
    try:
        return check_of(schema) if schema is not None else None
    except ValueError as error:
        raise Unusable(f"its `{key}` is none: {error}") from error


def _called_signature(function: Callable[..., Any], input_schema: Schema | None) -> Signature:
    """`on_tool_called` as the tool's parameters; what it returns says nothing of the result.

    Raises:
        Unusable: it cannot be one.
    """
    if not callable(function):
        raise Unusable(f"`on_tool_called` is no function but {type(function).__name__}")
    hints = {name: hint for name, hint in hints_of(function).items() if name != "return"}
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return signature_of(function, input_schema=input_schema)
    return signature_of(_seen(function, dict(parameters), hints), input_schema=input_schema)


def _receiver_of(function: Callable[..., Any]) -> _Receiver:
    """Look at `on_response_received`.

    Raises:
        Unusable: it cannot be one.
    """
    if not callable(function):
        raise Unusable(f"`on_response_received` is no function but {type(function).__name__}")
    try:
        parameters = dict(inspect.signature(function).parameters)
    except (TypeError, ValueError) as error:
        raise Unusable(f"the parameters of `on_response_received` cannot be read: {error}") from error
    hints = hints_of(function)
    call = next((name for name in parameters if _is_paused_call(hints.get(name))), "")
    call = call or ("call" if "call" in list(parameters)[1:] and "call" not in hints else "")
    parameters.pop(call, None)
    first = next((name for name in parameters if not is_context(hints.get(name))), "")
    response = parameters.get(first)
    if response is None or response.kind in (response.VAR_POSITIONAL, response.VAR_KEYWORD):
        raise Unusable("`on_response_received` needs a parameter for the response, its first")
    others = [one for one in parameters.values() if one.name != first and not is_context(hints.get(one.name))]
    if stray := [one.name for one in others if one.default is one.empty and one.kind not in _OPEN]:
        raise Unusable(f"`on_response_received` takes the response, a `PausedCall` and a context; not `{stray[0]}`")
    taken = {_RESPONSE: response.replace(name=_RESPONSE, kind=inspect.Parameter.KEYWORD_ONLY, default=response.empty)}
    taken |= {
        name: one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, one in parameters.items()
        if name != first and is_context(hints.get(name))
    }
    typed = {_RESPONSE: hints[first]} if first in hints else {}
    typed |= {name: hints[name] for name in taken if name in hints and name != _RESPONSE}
    signature = signature_of(_seen(function, taken, typed))
    schema = _schema_of(signature.input_schema) if first in hints else None
    return _Receiver(function, schema, signature, response, call)


def _result_schema(called: Callable[..., Any], received: Callable[..., Any]) -> Schema | None:
    """The schema of the result, as the annotations of the two say; None: any.

    Raises:
        Unusable: an annotation cannot be resolved.
    """
    found = returned_schema(hints_of(received).get("return"))
    if found is not None:
        return found
    if "return" in hints_of(received):
        return None  # it says that there is no such
    return returned_schema(_without_pauses(result_hint(hints_of(called).get("return"))))


def _promise_of(called: Callable[..., Any], received: Callable[..., Any]) -> Promise | None:
    """What the annotations say of the result, where that is no schema that clients see."""
    hints = hints_of(received)
    if "return" in hints:
        found = result_hint(hints["return"], received)
    else:
        found = _without_pauses(result_hint(hints_of(called).get("return", Any), called))
    return promise_of(found) if found not in (None, type(None)) else None


_OPEN = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _is_paused_call(hint: object) -> bool:
    return hint is PausedCall or (get_origin(hint) in (Union, UnionType) and PausedCall in get_args(hint))


def _without_pauses(hint: Any) -> Any:
    if get_origin(hint) not in (Union, UnionType):
        return hint
    left = [one for one in get_args(hint) if one not in (type(None), Pause)]
    return left[0] if len(left) == 1 else Any


def _schema_of(of_arguments: Schema) -> Schema | None:
    """The schema of the one argument."""
    own = dict(cast("Schema", of_arguments.get("properties", {})).get(_RESPONSE) or {})
    own.pop("title", None)
    if not own:
        return None
    shared = {name: of_arguments[name] for name in ("$defs",) if name in of_arguments}
    return {**own, **shared}


def _seen(function: Callable[..., Any], parameters: Mapping[str, inspect.Parameter], hints: Mapping[str, Any]) -> Any:
    """What looks like the function with other parameters; it is never called."""

    def seen(*_: object, **__: object) -> object:
        raise NotImplementedError

    seen.__doc__ = inspect.getdoc(function)
    seen.__name__ = str(getattr(function, "__name__", type(function).__name__))
    seen.__annotations__ = dict(hints)
    seen.__signature__ = inspect.Signature(list(parameters.values()))  # pyright: ignore[reportFunctionMemberAccess] - inspect reads it
    return seen
