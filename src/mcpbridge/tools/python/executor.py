"""A Python object as a tool: an object of the user's class is created, kept and closed.

All of its methods are optional but `execute` (or `__call__`), each may be sync or async:

    deploy()                      warms it up: once, before the first call, never twice at a time
    validate_inputs(...)          refuses arguments: returns False or what is wrong, or raises; or returns better ones
    execute(...)                  does the work; its parameters and docstring make the schema, as those of a function do
    init_context(context)         makes the first value of each run, where `execute` takes a `Context[...]`
    execute_command(name, data)   management commands; `commands` of the class may name those that there are
    check()                       says whether it works: raises, or returns False or a text
    close()                       lets go of what it holds, when the bridge stops

Sync methods run in threads, several at a time, so what they share must allow that.
"""

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, cast

import msgspec
from msgspec import Struct

from mcpbridge.base.errors import (
    ArgumentsRefused,
    BridgeError,
    ConfigError,
    UnknownName,
    UpstreamError,
    UpstreamUnavailable,
)
from mcpbridge.base.log import get_logger
from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import EMPTY_OBJECT
from mcpbridge.tools.backend import BackendContext, Health
from mcpbridge.tools.python.backend import PythonBackend
from mcpbridge.tools.python.function import FunctionTool, tool_of
from mcpbridge.tools.python.import_object import NotImportable, import_object
from mcpbridge.tools.python.invoke import Invoker
from mcpbridge.tools.python.output import json_of
from mcpbridge.tools.python.settings import ExecutorSettings
from mcpbridge.tools.python.signature import Signature, Unusable, decoded, documented, signature_of

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
            raise ArgumentsRefused(f"Invalid arguments: {invoker.describe_error(error)}") from error
        if fault := _fault(found):
            raise ArgumentsRefused(f"Invalid arguments: {invoker.redact(fault)}")
        return json_of(cast("object", found)) if isinstance(found, Mapping) else None

    async def commanded(
        self, execute: Callable[..., Any], name: str, data: Mapping[str, Any], invoker: Invoker
    ) -> object:
        """What a management command returns, as a JSON value."""
        found = await invoker.value(execute, (name, dict(data)))
        return msgspec.json.decode(json_of(found))


def _fault(outcome: object) -> str:
    """What `validate_inputs` has against the arguments; empty: nothing."""
    if isinstance(outcome, tuple):  # (False, "too many")
        verdict, *rest = cast("tuple[object, ...]", outcome) or (None,)
        return "" if verdict in (True, None) else _fault(rest[0] if rest and rest[0] else verdict)
    if isinstance(outcome, list | set | frozenset):
        return "; ".join(map(str, cast("list[object]", outcome)))
    if isinstance(outcome, str):
        return outcome
    return "the tool refuses them" if outcome is False else ""


def create_executor(name: str, settings: ExecutorSettings, directory: Path) -> Executor:
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


log = get_logger("mcpbridge.backends")

CLOSE_SECONDS = 3.0
"""Seconds that its `close` gets."""


class ExecutorBackend(PythonBackend[Executor]):
    """One object. Meets `Backend`."""

    kind = "executor"

    def __init__(self, name: str, settings: ExecutorSettings, backend_context: BackendContext | None = None) -> None:
        """`backend_context`: None for objects of a program, which need nothing of it."""
        super().__init__(name, settings, backend_context, source=settings.executor_class or name)
        self._settings = settings
        self._is_deployed = False
        self._deploying: asyncio.Future[str] | None = None
        self._not_deployed = ""
        """Why the last `deploy` failed."""

    @classmethod
    def of(cls, instance: object, *, name: str, settings: ExecutorSettings | None = None) -> Self:
        """An object of the program itself.

        Raises:
            ConfigError: no tool can be made of it; says why.
        """
        loaded = cls(name, settings or ExecutorSettings())
        try:
            loaded._given = loaded._loaded = executor_of(name, instance, loaded._settings)
        except Unusable as error:
            raise ConfigError(f"'{name}' cannot be a tool: {error}", key=name) from error
        return loaded

    def _bring_in(self, directory: Path) -> Executor:
        return create_executor(self._name, self._settings, directory)

    def _tools_of(self, loaded: Executor) -> Sequence[Mapping[str, Any]]:
        return [loaded.tool.definition]

    async def _started(self, loaded: Executor) -> None:
        if self._settings.warm_up:
            with suppress(UpstreamError):  # it is told in the log, and tried again before the first call
                await self._deploy(self._name)

    async def _ending(self, loaded: Executor) -> None:
        self._is_deployed = False
        close = loaded.method("close")
        if close is None:
            return
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._invoker.value(close)
        except Exception as error:  # noqa: BLE001 - whatever it is, the bridge goes on ending
            log.warning("an executor failed to close", tool=self._name, reason=self._invoker.describe_error(error))

    async def _deploy(self, upstream: str) -> None:
        """Return when it is deployed.

        Raises:
            UpstreamUnavailable: it cannot be; tried again with the next call.
        """
        deploy = self._there(upstream).method("deploy")
        if deploy is None or self._is_deployed:
            return
        if self._deploying is None:
            self._deploying = asyncio.get_running_loop().create_future()
            if self._tasks.spawn(self._deployed(deploy, self._deploying)) is None:
                self._deploying = None
                raise UpstreamUnavailable(upstream, "it was stopped")
        deploying = self._deploying
        await asyncio.wait([deploying])  # not the future itself: who is cancelled must not take it from others
        if reason := deploying.result():
            raise UpstreamUnavailable(upstream, f"its `deploy` failed: {reason}")

    async def _deployed(self, deploy: Callable[..., Any], outcome: "asyncio.Future[str]") -> None:
        reason = "it was stopped"
        try:
            await self._invoker.value(deploy)
            reason, self._is_deployed = "", True
        except Exception as error:  # noqa: BLE001 - whatever it is, its callers are told
            self._invoker.log_failure("an executor could not be deployed", error, tool=self._name)
            reason = self._invoker.describe_error(error)
        finally:
            self._not_deployed, self._deploying = reason, None
            outcome.set_result(reason)

    async def run(self, call: Call) -> Body:
        """See `Backend`."""
        executor = self._there(call.upstream)
        await self._deploy(call.upstream)
        try:
            raw = await executor.validated(call, self._invoker)
        except BaseException as error:  # noqa: BLE001 - `failed` raises again what is no failure of the user's code
            return self._invoker.failed(error, self._name)
        return await executor.tool.run(call, self._invoker, raw)

    async def check(self) -> Health:
        """See `Backend`. Asks its `check`, if it has one."""
        if missing := await self._looked_at():
            return missing
        executor = self._there(self._name)
        if self._not_deployed:
            return Health(ok=False, detail=f"its `deploy` failed: {self._not_deployed}")
        check = executor.method("check")
        if check is None:
            return Health(ok=True, detail="deployed" if self._is_deployed else "made, not deployed yet")
        return await self._invoker.health(check)

    async def command(self, name: str, data: Mapping[str, Any]) -> Any:
        """See `Backend`. It is deployed before its first command."""
        executor = self._there(self._name)
        execute = executor.method("execute_command")
        known = executor.commands
        if execute is None or (known is not None and name not in known):
            if name in ("deploy", "warmup") and executor.method("deploy") is not None:
                await self._deploy(self._name)
                return None
            raise UnknownName("command", name, candidates=sorted(known or ()))
        await self._deploy(self._name)
        try:
            return await executor.commanded(execute, name, data, self._commands)
        except BridgeError:
            raise
        except Exception as error:
            if isinstance(error, NotImplementedError) or (isinstance(error, LookupError) and error.args == (name,)):
                raise UnknownName("command", name, candidates=sorted(known or ())) from error
            self._invoker.log_failure("a command failed", error, tool=self._name, command=name)
            raise UpstreamError(
                self._name, f"the command '{name}' failed: {self._invoker.describe_error(error)}"
            ) from error
