"""Convert values of tools: Python arguments of a call to JSON, and a result to the type that the tool declares."""

import inspect
from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any, cast

import msgspec

from mcpbridge.base.errors import ArgumentsRefused, CallFailed

_ANYTHING = (Any, object, inspect.Signature.empty)
_IN_CONTENT = (bytes, bytearray)


def reader_of(tool: str, hint: Any, *, is_wrapped: bool = False) -> Callable[[Any], Any] | None:
    """Makes a value of type `hint` of a structured result, or of the text where there is none; None: it stays as it is.

    `is_wrapped`: the structured result always has the value in its `result`. What is made raises CallFailed: it is of
    another type.
    """
    if is_wrapped and hint in _ANYTHING:
        return _unwrapped
    if hint in _ANYTHING:
        return None
    if hint in (None, NoneType):
        return _nothing
    if hint in _IN_CONTENT:
        return lambda value: _only_in_content(tool)
    return _Reader(tool, hint, is_wrapped=is_wrapped).read


class _Reader:
    """Reads values of one type. The adapter is made with the first: not every tool's values are looked at."""

    def __init__(self, tool: str, hint: Any, *, is_wrapped: bool) -> None:
        self._tool, self._hint, self._is_wrapped = tool, hint, is_wrapped
        self._adapter: Any = None

    def read(self, value: Any) -> Any:
        from pydantic import TypeAdapter, ValidationError

        from mcpbridge.tools.python.run_context.value_types import readable

        if self._adapter is None:
            try:
                self._adapter = TypeAdapter(readable(self._hint))
            except Exception as error:  # types bring code of their own
                what = f"no value of {self._hint!r} can be made of JSON"
                raise CallFailed(f"the result of {self._tool}: {what}; `content` and `structured` have it") from error
        fault: ValidationError | None = None
        for candidate in self._candidates(value):
            try:
                return self._adapter.validate_json(candidate)
            except ValidationError as error:
                fault = fault or error
        told = fault.errors(include_url=False, include_input=False)[0]["msg"] if fault is not None else "it has none"
        shown = getattr(self._hint, "__name__", str(self._hint))
        raise CallFailed(
            f"the result of {self._tool} is no {shown}: {told}. "
            "`content` and `structured` have it as it came; if it was shortened, `Bridge.recall` gives the whole"
        )

    def _candidates(self, value: Any) -> list[bytes]:
        """The JSON that the value may be, likeliest first."""
        if isinstance(value, str):
            return self._of_text(value)
        members = _members(value)
        found = [value]
        if members.keys() == {"result"}:  # of what is no object
            found = [members["result"]] if self._is_wrapped else [value, members["result"]]
        return [msgspec.json.encode(one) for one in found]

    def _of_text(self, text: str) -> list[bytes]:
        from mcpbridge.tools.python.signature import admits_none

        if not text and admits_none(self._hint):
            return [b"null"]
        quoted = msgspec.json.encode(text)
        try:
            msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return [quoted]
        # What admits texts is one: only what is no text is written as JSON.
        return [quoted, text.encode()] if _admits_text(self._adapter) else [text.encode(), quoted]


def _admits_text(adapter: Any) -> bool:
    from pydantic import ValidationError

    try:
        return isinstance(adapter.validate_python("x\0", strict=True), str)
    except ValidationError:
        return False


def _unwrapped(value: Any) -> Any:
    members = _members(value)
    return members["result"] if members.keys() == {"result"} else value


def _members(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _nothing(_: Any) -> None:
    """A result of which nothing is promised."""


def _only_in_content(tool: str) -> Any:
    raise CallFailed(f"the result of {tool} is bytes, which are in `content`")


def by_name(
    function: Callable[..., Any], schema: Mapping[str, Any]
) -> Callable[[tuple[Any, ...], dict[str, Any]], dict[str, Any]]:
    """Makes the arguments of tool calls of those of Python calls. `schema`: of the tool's arguments.

    What is made raises TypeError where the function does not take what is given, and ArgumentsRefused where that is no
    JSON. What is left out stays out.
    """
    from mcpbridge.tools.python.signature import hints_of, is_context

    hints = hints_of(function)
    taken = {
        name: parameter
        for name, parameter in inspect.signature(function).parameters.items()
        if not is_context(hints.get(name))
    }
    # Positional-only parameters before others, as they stood: a context may have been the first of them.
    signature = inspect.Signature(list(taken.values()))
    encoders = {name: _encoder(name, hints[name]) for name in taken if name in hints}
    properties = cast("Mapping[str, Any]", schema.get("properties") or {})
    is_whole = len(taken) == 1 and not taken.keys() & properties.keys()

    def arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        given = signature.bind(*args, **kwargs).arguments
        found: dict[str, Any] = {}
        for name, value in given.items():
            encode = encoders.get(name) or _plainly(name)
            if taken[name].kind is inspect.Parameter.VAR_KEYWORD:
                found |= {key: encode(one) for key, one in value.items()}
            elif is_whole:  # its one parameter stands for all of them
                found |= encode(value)
            else:
                found[name] = encode(value)
        return found

    return arguments


def _encoder(name: str, hint: Any) -> Callable[[Any], Any]:
    """Writes a value as its annotation says, so that it arrives as what it was."""
    adapter: Any = None

    def encode(value: Any) -> Any:
        nonlocal adapter
        from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter

        if adapter is None:
            try:
                adapter = TypeAdapter(hint)
            except (PydanticSchemaGenerationError, PydanticUserError):
                adapter = False
        if adapter is False:
            return _plainly(name)(value)
        from pydantic_core import PydanticSerializationError

        try:
            # A value of another type is written as it is, and refused when the call is made.
            return adapter.dump_python(value, mode="json", by_alias=True, warnings=False)
        except (PydanticSerializationError, ValueError, RecursionError) as error:
            raise ArgumentsRefused(f"`{name}` is no JSON: {error}") from None

    return encode


def _plainly(name: str) -> Callable[[Any], Any]:
    def encode(value: Any) -> Any:
        from mcpbridge.tools.python.output import Misshapen, json_of

        try:
            return msgspec.json.decode(json_of(value))
        except Misshapen as error:
            raise ArgumentsRefused(f"`{name}`: {error}") from None

    return encode
