"""The object of an executor: how it is made, and how its methods are called."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct

from mcpbridge.backends.docstrings import documented
from mcpbridge.backends.executor_settings import ExecutorSettings
from mcpbridge.backends.function_tool import FunctionTool, tool_of
from mcpbridge.backends.invoking import Invoker
from mcpbridge.backends.outputs import json_of
from mcpbridge.backends.python_names import NotImportable, import_object
from mcpbridge.backends.signatures import Signature, Unusable, decoded, signature_of
from mcpbridge.errors import ArgumentsRefused
from mcpbridge.model import Call
from mcpbridge.wire.frame import EMPTY_OBJECT

__all__ = ["Executor", "executor_of", "made_from"]

_OF_CLASS = ("input_schema", "output_schema", "event_schema")
"""What a class may say itself, as attributes, where the configuration says nothing."""


class Executor(Struct, frozen=True):
    """An object that was looked at."""

    instance: object
    tool: FunctionTool
    """Its `execute`."""
    validation: Signature | None
    commands: frozenset[str] | None
    """The names in its `commands`; None: it has no such attribute, so it must be asked."""

    def method(self, name: str) -> Callable[..., Any] | None:
        """One of its methods; None: it has none."""
        method = getattr(self.instance, name, None)
        return method if callable(method) else None

    async def validated(self, call: Call, invoker: Invoker) -> bytes | None:
        """The arguments that it wants instead of those of the call; None: those are right.

        Raises:
            ArgumentsRefused: it refuses them.
        """
        validate = self.method("validate_inputs")
        if validate is None or self.validation is None:
            return None
        raw = call.params.get("arguments")
        arguments = self.validation.bind(EMPTY_OBJECT if raw is None else bytes(raw), call.context)
        try:
            found = await invoker.value(validate, arguments.positional, arguments.named)
        except (ValueError, TypeError, AssertionError) as error:
            raise ArgumentsRefused(f"Invalid arguments: {invoker.told(error)}") from error
        if fault := _fault(found):
            raise ArgumentsRefused(f"Invalid arguments: {invoker.redact(fault)}")
        return json_of(cast("object", found)) if isinstance(found, Mapping) else None

    async def commanded(
        self, execute: Callable[..., Any], name: str, data: Mapping[str, Any], invoker: Invoker
    ) -> object:
        """What a management command returns, as a JSON value."""
        found = await invoker.value(execute, (name, dict(data)))
        return msgspec.json.decode(json_of(found))


def _fault(found: object) -> str:
    """What `validate_inputs` has against the arguments; empty: nothing."""
    if isinstance(found, tuple):  # (False, "too many")
        verdict, *rest = cast("tuple[object, ...]", found) or (None,)
        return "" if verdict in (True, None) else _fault(rest[0] if rest and rest[0] else verdict)
    if isinstance(found, list | set | frozenset):
        return "; ".join(map(str, cast("list[object]", found)))
    if isinstance(found, str):
        return found
    return "the tool refuses them" if found is False else ""


def made_from(name: str, settings: ExecutorSettings, directory: Path) -> Executor:
    """Import the class and make the object. Runs the user's code: not on an event loop.

    Raises:
        NotImportable, Unusable: that is not possible; says why.
    """
    reference = settings.executor_class or ""
    if ":" not in reference:
        module, _, attribute = reference.rpartition(".")
        reference = f"{module}:{attribute}"
    kind = import_object(reference, directory)
    if not callable(kind):
        raise Unusable(f"it is no class but {type(kind).__name__}")
    try:
        instance = kind(**settings.constructor_args)
    except BaseException as error:
        raise NotImportable(f"it cannot be made: {type(error).__name__}: {str(error)[:500]}") from error
    return executor_of(name, instance, settings)


def executor_of(name: str, instance: object, settings: ExecutorSettings) -> Executor:
    """Look at an object.

    Raises:
        Unusable: it cannot be a tool.
    """
    execute = getattr(instance, "execute", None)
    if not callable(execute):
        execute = instance if callable(instance) else None
    if execute is None:
        raise Unusable("it has no method `execute`")
    own = {key: cast("object", getattr(instance, key, None)) for key in _OF_CLASS if getattr(settings, key) is None}
    said = settings.model_copy(update={key: value for key, value in own.items() if isinstance(value, dict)})
    described = documented(type(instance))[0]
    init = getattr(instance, "init_context", None)
    tool = tool_of(name, execute, said, described=described, context_init=init if callable(init) else None)
    validate = getattr(instance, "validate_inputs", None)
    commands: object = getattr(instance, "commands", None)
    names = frozenset(map(str, cast("list[object]", commands))) if _is_collection(commands) else None
    validation = _validation(validate, tool) if callable(validate) else None
    return Executor(instance, tool, validation, names)


def _validation(validate: Callable[..., Any], tool: FunctionTool) -> Signature:
    """How its `validate_inputs` is called: with plain values, by name or all at once, and only with those it takes."""
    schema = tool.signature.input_schema
    found = signature_of(
        validate, input_schema={"type": "object", **schema, "properties": schema.get("properties", {})}
    )
    if found.keeps is not None:
        raise Unusable("`validate_inputs` may have a `CallContext`, but no `Context[...]`: it changes nothing")
    parameters = inspect.signature(validate).parameters.values()
    taken = {one.name for one in parameters}
    if any(one.kind is one.VAR_KEYWORD for one in parameters) or not taken & set(schema.get("properties", ())):
        return found

    def bind(raw: bytes, context: Any) -> Any:
        given = decoded(raw)
        kept = {name: value for name, value in given.items() if name in taken}
        return found.bind(msgspec.json.encode(kept), context)

    return Signature(found.description, found.input_schema, found.output_schema, bind)


def _is_collection(value: object) -> bool:
    return isinstance(value, list | tuple | set | frozenset | dict)
